// Programs of the machine that a lab runs, and which Debian package holds each: what is missing is said before anything
// is made, not by a host that never becomes ready.
import { baseEnvironment } from "./host.ts";
import type { LabOptions } from "./options.ts";

const PACKAGE = {
  bird: "bird2",
  conntrack: "conntrack",
  etcd: "etcd-server",
  hostname: "hostname",
  ip: "iproute2",
  ipset: "ipset",
  "iptables-restore": "iptables",
  mount: "mount",
  nft: "nftables",
  nsenter: "util-linux",
  openssl: "openssl",
  ps: "procps",
  runc: "runc",
  tcpdump: "tcpdump",
} as const;
export type Tool = keyof typeof PACKAGE;

export function toolsOf(options: LabOptions): readonly Tool[] {
  const routing: readonly Tool[] = options.backend === "bird" || options.topology === "racks" ? ["bird"] : [];
  const filter: readonly Tool[] = options.dataplane === "iptables" ? ["iptables-restore", "ipset"] : [];
  const datastore = { sqlite: [], etcd: ["etcd"], kubernetes: ["etcd", "openssl"] } as const;
  return ["nsenter", "mount", "hostname", "ip", ...routing, ...filter, ...datastore[options.datastore]];
}

/** @throws naming those that are not installed */
export function requireTools(tools: readonly Tool[], isThere: (tool: Tool) => boolean = isInstalled): void {
  const missing = tools.filter((tool) => !isThere(tool));
  if (missing.length === 0) return;
  const packages = [...new Set(missing.map((tool) => PACKAGE[tool]))].join(" ");
  throw new Error(`${missing.join(", ")} not installed: apt-get install --no-install-recommends ${packages}`);
}

const isInstalled = (tool: Tool): boolean => Bun.which(tool, { PATH: baseEnvironment()["PATH"] ?? "" }) !== null;
