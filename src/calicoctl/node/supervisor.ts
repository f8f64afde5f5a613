// Reads the state file of calico-node's supervisor on this host, and finds the supervised processes.
import { readlinkSync } from "node:fs";
import { readFileIfExists } from "../../lib/files/replace-file.ts";
import type { SupervisorState } from "../../node/index.ts";
import type { RunningProcess } from "./processes.ts";

const FILE = "/var/run/calico/supervisor.json";

/** Returns undefined if another program supervises the node, or the file cannot be parsed. */
export function readSupervision(file = FILE): SupervisorState | undefined {
  try {
    const state = JSON.parse(readFileIfExists(file) ?? "null") as SupervisorState | null;
    return state !== null && Number.isInteger(state.pid) && Array.isArray(state.children) ? state : undefined;
  } catch {
    return undefined;
  }
}

export interface SupervisedProcesses {
  /** Finds a process by its pid in calico-node's pid namespace. The `pid` of the result is that in our namespace. */
  find(pid: number): RunningProcess | undefined;
  /** False if calico-node may run in a pid namespace that is not visible from here, such as that of another container. */
  readonly isVisible: boolean;
}

/**
 * Maps the pids in calico-node's state to processes of this host. In Kubernetes calico-node runs in the pid namespace of
 * its container, so that its pids differ from those of the host (`NSpid` in proc_pid_status(5)).
 */
export function supervisedProcesses(
  { pidNamespace }: Pick<SupervisorState, "pidNamespace">,
  processes: readonly RunningProcess[],
): SupervisedProcesses {
  const own = pidNamespaceOf("self");
  const isOwn = pidNamespace === undefined || pidNamespace === own;
  const members = isOwn ? processes : processes.filter(({ pid }) => pidNamespaceOf(pid) === pidNamespace);
  const byPid = new Map(members.map((each) => [isOwn ? each.pid : innermostPid(each.pid), each]));
  return { find: (pid) => byPid.get(pid), isVisible: isOwn || members.length > 0 || own === INITIAL_PID_NAMESPACE };
}

/** PROC_PID_INIT_INO of linux/proc_ns.h: from this namespace all processes of the machine are visible. */
const INITIAL_PID_NAMESPACE = "pid:[4026531836]";

function pidNamespaceOf(pid: number | "self"): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/ns/pid`);
  } catch {
    return undefined; // the process has ended, or only root may read this
  }
}

/** A process's pid in its own pid namespace. */
function innermostPid(pid: number): number | undefined {
  const numbers = /^NSpid:\s*(.*)$/m.exec(readFileIfExists(`/proc/${pid}/status`) ?? "")?.[1];
  return numbers === undefined ? undefined : Number(numbers.trim().split(/\s+/).at(-1));
}
