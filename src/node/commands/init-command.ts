// Implements calico-node -init: mounts bpffs and cgroup2 on the host. In a container, it mounts them in the mount namespace
// of the host's first process, which must be mounted at /initproc. Exit codes: 2 bpffs, 3 cgroup2, 4 access to the API
// server; with `-best-effort`, failures are logged and the exit code is 0.
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { parseMountinfo } from "../../kernel/index.ts";
import { nodeLogger } from "../log.ts";

const HOST = "/initproc/ns";
const EXIT = { bpffs: 2, cgroup2: 3, network: 4 } as const;

interface Mount {
  readonly type: "bpf" | "cgroup2";
  readonly at: string;
  readonly exit: number;
}
const MOUNTS: readonly Mount[] = [
  { type: "bpf", at: "/sys/fs/bpf", exit: EXIT.bpffs },
  { type: "cgroup2", at: "/run/calico/cgroup", exit: EXIT.cgroup2 },
];

export function prepareHost({ isBestEffort }: { readonly isBestEffort: boolean }): number {
  const log = nodeLogger(process.env["CALICO_STARTUP_LOGLEVEL"]);
  const fail = (step: string, error: string, exit: number) => {
    log.error("could not prepare the host", { step, error });
    return isBestEffort ? 0 : exit;
  };
  for (const mount of MOUNTS) {
    const error = ensureMounted(mount);
    if (error !== undefined) return fail(`${mount.type} on ${mount.at}`, error, mount.exit);
    log.info("mounted", { type: mount.type, at: mount.at });
  }
  const { KUBERNETES_SERVICE_IPS_PORTS: services = "", KUBERNETES_APISERVER_ENDPOINTS: endpoints = "" } = process.env;
  if (services !== "" && endpoints !== "")
    return fail(
      "access to the API server through eBPF",
      "calico-ts has no eBPF dataplane; run kube-proxy, or set KUBERNETES_SERVICE_HOST to an endpoint",
      EXIT.network,
    );
  return 0;
}

/** Returns the error, or undefined if the file system is mounted. */
function ensureMounted({ type, at }: Mount): string | undefined {
  const isInContainer = existsSync(HOST);
  const enter = isInContainer
    ? ["nsenter", `--mount=${HOST}/mnt`, ...(type === "cgroup2" ? [`--cgroup=${HOST}/cgroup`] : []), "--"]
    : [];
  const run = (...command: string[]) => {
    const [program = "", ...args] = [...enter, ...command];
    return spawnSync(program, args, { encoding: "utf8" });
  };
  const mounts = isInContainer
    ? run("cat", "/proc/self/mountinfo").stdout
    : readFileSync("/proc/self/mountinfo", "utf8");
  if (isMounted(mounts ?? "", type, at)) return undefined;
  run("mkdir", "-p", at); // if this fails, mount reports why
  const { status, stderr, error } = run("mount", "-t", type, type === "bpf" ? "bpffs" : "none", at);
  return status === 0 ? undefined : (error?.message ?? stderr.trim()) || `mount exited with ${status}`;
}

/** A later mount at the same path hides the earlier one, so only the last counts. */
export function isMounted(mountinfo: string, type: string, at: string): boolean {
  return parseMountinfo(mountinfo).findLast(({ mountPoint }) => mountPoint === at)?.type === type;
}
