// `-init`: what must be mounted on the host before a node that keeps eBPF objects starts. Run in a container, the mounts are
// made in the mount namespace of the host's first process, which is given as /initproc. Exit 2 bpffs, 3 cgroup2, 4 the way
// to the API server; with `-best-effort` it is told and the exit is 0.
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
  const fail = (what: string, error: string, exit: number) => {
    log.error("the host could not be prepared", { what, error });
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
      "the way to the API server by eBPF",
      "this build has no eBPF dataplane; let kube-proxy run, or set KUBERNETES_SERVICE_HOST to an endpoint",
      EXIT.network,
    );
  return 0;
}

/** Undefined when it is there, or what was in the way. */
function ensureMounted({ type, at }: Mount): string | undefined {
  const isInside = existsSync(HOST);
  const enter = isInside
    ? ["nsenter", `--mount=${HOST}/mnt`, ...(type === "cgroup2" ? [`--cgroup=${HOST}/cgroup`] : []), "--"]
    : [];
  const run = (...command: string[]) => {
    const [program = "", ...args] = [...enter, ...command];
    return spawnSync(program, args, { encoding: "utf8" });
  };
  const mounts = isInside ? run("cat", "/proc/self/mountinfo").stdout : readFileSync("/proc/self/mountinfo", "utf8");
  if (isMounted(mounts ?? "", type, at)) return undefined;
  run("mkdir", "-p", at); // what is in its way shows when mounting
  const { status, stderr, error } = run("mount", "-t", type, type === "bpf" ? "bpffs" : "none", at);
  return status === 0 ? undefined : (error?.message ?? stderr.trim()) || `mount ended with ${status}`;
}

/** A later mount over the same place hides the earlier: the last one counts. */
export function isMounted(mountinfo: string, type: string, at: string): boolean {
  return parseMountinfo(mountinfo).findLast(({ mountPoint }) => mountPoint === at)?.type === type;
}
