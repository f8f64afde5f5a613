// Plans the child processes of calico-node from its environment.
import { existsSync, statSync } from "node:fs";
import { join } from "node:path";
import type { Environment } from "../../datastore/index.ts";
import { openRtnetlink } from "../../kernel/index.ts";
import { BUILD } from "../../lib/process/build.ts";
import type { IpVersion } from "../../lib/ip/ip.ts";
import type { Backend } from "../settings.ts";
import type { ChildPlan } from "./supervisor.ts";

export const RUN_FOLDER = "/var/run/calico";
export const SUPERVISOR_FILE = `${RUN_FOLDER}/supervisor.json`;
export const CONFD_FOLDER = "/etc/calico/confd/config";
/** Written by the BGP service each time it has applied a plan. */
export const BGP_SERVICE_FILE = `${RUN_FOLDER}/bgp-service.json`;
/** Then BIRD starts with the configuration of the previous run: the datastore may be unavailable. */
const SERVICE_WAIT_MS = 10_000;

/** `EXIT_RESTART` of felix/shutdown.ts; Calico's Felix uses the same code. */
const FELIX_RESTART = 129;

/** `CALICO_NETWORKING` is the deprecated name of `CALICO_NETWORKING_BACKEND`. */
export function effectiveBackend(env: Environment, backend: Backend): { backend: Backend; legacy: boolean } {
  const old = env["CALICO_NETWORKING"] ?? "";
  if (old === "") return { backend, legacy: false };
  return { backend: old === "false" ? "none" : "bird", legacy: true };
}

export const runsFelix = (env: Environment): boolean => (env["CALICO_DISABLE_FELIX"] ?? "") === "";

export function planChildren(env: Environment, nodeName: string, backend: Backend): readonly ChildPlan[] {
  const own = { ...env, NODENAME: nodeName, CALICO_NETWORKING_BACKEND: backend };
  const plans: ChildPlan[] = [];
  if (runsFelix(env))
    plans.push({
      name: "felix",
      ...self("-felix"),
      env: { ...own, ...felixEnvironment(own) },
      restartCode: FELIX_RESTART,
      stopSignal: "SIGTERM",
    });
  if (backend !== "bird") return plans;
  const since = Date.now();
  plans.push({ name: "confd", ...self("-confd"), env: own, stopSignal: "SIGTERM" });
  for (const bird of ["bird", "bird6"] as const) {
    const config = join(CONFD_FOLDER, `${bird}.cfg`);
    plans.push({
      name: bird,
      command: ["bird", "-f", "-s", join(RUN_FOLDER, `${bird}.ctl`), "-c", config],
      env: own,
      ifMissing: "install BIRD 2 (Debian's package bird2), or set CALICO_NETWORKING_BACKEND to vxlan or none",
      extraArguments: () => (hasRoutesOfBird(bird === "bird" ? 4 : 6) ? ["-R"] : []),
      // If BIRD starts with the previous configuration and is reconfigured during recovery, it waits for the sessions that it
      // had to restart until its recovery timeout, and adds no new routes until then.
      startsWhen: () => existsSync(config) && (isPlanWrittenSince(since) || Date.now() - since > SERVICE_WAIT_MS),
      stopSignal: "SIGKILL",
    });
  }
  return plans;
}

const isPlanWrittenSince = (since: number): boolean =>
  (statSync(BGP_SERVICE_FILE, { throwIfNoEntry: false })?.mtimeMs ?? 0) >= since;

/**
 * Whether a previous BIRD left routes in the kernel. BIRD must then recover (`-R`): keep them until all peers have sent
 * their routes. Without such routes, recovery would only delay the first new ones.
 */
function hasRoutesOfBird(version: IpVersion): boolean {
  using kernel = openRtnetlink();
  return kernel.routes.list({ version, protocol: RTPROT_BIRD }).length > 0;
}
const RTPROT_BIRD = 12;

/** The command of this executable with another flag; when run from source, with the script before the flag. */
function self(flag: string): Pick<ChildPlan, "command" | "argv0"> {
  const script = BUILD.isSource ? [join(import.meta.dir, "../../main.ts")] : [];
  return { command: [process.execPath, ...script, flag], argv0: "calico-node" };
}

const FROM_ETCD = {
  FELIX_ETCDADDR: "ETCD_AUTHORITY",
  FELIX_ETCDENDPOINTS: "ETCD_ENDPOINTS",
  FELIX_ETCDSCHEME: "ETCD_SCHEME",
  FELIX_ETCDCAFILE: "ETCD_CA_CERT_FILE",
  FELIX_ETCDKEYFILE: "ETCD_KEY_FILE",
  FELIX_ETCDCERTFILE: "ETCD_CERT_FILE",
} as const;

/** Translates calico-node's variables to Felix's names. */
export function felixEnvironment(env: Environment): Record<string, string> {
  const mapped: Record<string, string> = {};
  const set = (name: string, value: string | undefined) => {
    if (value !== undefined && value !== "") mapped[name] = value;
  };
  set("FELIX_FELIXHOSTNAME", env["NODENAME"]);
  for (const [name, source] of Object.entries(FROM_ETCD)) set(name, env[source]);
  set("FELIX_DATASTORETYPE", env["DATASTORE_TYPE"]);
  return mapped;
}
