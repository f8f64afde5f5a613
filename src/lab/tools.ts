// Checks that the programs a lab needs are installed, before anything is created, and names the Debian packages of missing ones.
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

/** @throws an error that names missing programs and their packages */
export function requireTools(tools: readonly Tool[], isAvailable: (tool: Tool) => boolean = isInstalled): void {
  const missing = tools.filter((tool) => !isAvailable(tool));
  if (missing.length === 0) return;
  const packages = [...new Set(missing.map((tool) => PACKAGE[tool]))].join(" ");
  throw new Error(`${missing.join(", ")} not installed: apt-get install --no-install-recommends ${packages}`);
}

const isInstalled = (tool: Tool): boolean => Bun.which(tool, { PATH: baseEnvironment()["PATH"] ?? "" }) !== null;
