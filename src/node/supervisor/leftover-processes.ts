// Terminates the children of a killed calico-node, which continue to run without it. Used before new children are started
// and before Calico is removed from the host; both fail while the previous calico-node still runs.
import { readFileSync, readlinkSync } from "node:fs";
import type { Logger } from "../../lib/log/log.ts";
import { startTimeOf } from "../../lib/process/process-identity.ts";
import { delay } from "../../lib/retry.ts";
import { FatalNodeError } from "../failure.ts";
import type { ChildPlan, SupervisorState } from "./supervisor.ts";

export interface LeftoverOptions {
  /** The state file that the supervisor of the previous calico-node wrote. */
  readonly file: string;
  readonly plans: readonly ChildPlan[];
  readonly log: Logger;
  readonly withinMs?: number;
}

/** @throws FatalNodeError if another calico-node runs, or if a child does not exit */
export async function stopLeftovers(options: LeftoverOptions): Promise<void> {
  const state = readState(options.file);
  // Pids of another pid namespace, such as that of a container that no longer exists, belong to other processes here.
  if (state === undefined || (state.pidNamespace ?? ownPidNamespace()) !== ownPidNamespace()) return;
  const previous = readCommandLine(state);
  if (state.pid !== process.pid && previous?.some((word) => /(^|\/)calico-node$/.test(word)) === true)
    throw new FatalNodeError(`another calico-node runs on this host (process ${state.pid}); stop it first`);
  for (const { name, pid, startTime } of state.children) {
    const plan = options.plans.find((candidate) => candidate.name === name);
    if (pid === undefined || !isChild({ pid, startTime }, name, plan)) continue;
    options.log.warn("stopping a child process of the previous calico-node", { name, pid });
    await terminate(name, pid, plan?.stopSignal ?? "SIGTERM", options.withinMs ?? 5_000);
  }
}

const ownPidNamespace = (): string => readlinkSync("/proc/self/ns/pid");

function readState(file: string): SupervisorState | undefined {
  try {
    const state = JSON.parse(readFileSync(file, "utf8")) as SupervisorState;
    return Array.isArray(state.children) && Number.isInteger(state.pid) ? state : undefined;
  } catch {
    return undefined; // the first start, or an unreadable file
  }
}

/** A process in the supervisor's state file. Older versions of calico-ts recorded no start time. */
interface RecordedProcess {
  readonly pid: number;
  readonly startTime?: string;
}

/** The kernel reuses pids, so command line and start time must match as well. */
function isChild(recorded: RecordedProcess, name: string, plan: ChildPlan | undefined): boolean {
  const words = readCommandLine(recorded);
  if (words === undefined) return false;
  const last = plan?.command.at(-1);
  return last === undefined ? words.includes(`-${name}`) : words.includes(last);
}

/** Returns undefined if the recorded process has exited. */
function readCommandLine({ pid, startTime }: RecordedProcess): readonly string[] | undefined {
  const found = startTimeOf(pid);
  if (found === undefined || (startTime ?? found) !== found) return undefined;
  try {
    const words = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
    return words.length <= 1 ? undefined : words.slice(0, -1);
  } catch {
    return undefined;
  }
}

/** Returns when the process has exited and its sockets are closed. */
async function terminate(name: string, pid: number, stopSignal: NodeJS.Signals, withinMs: number): Promise<void> {
  const startTime = startTimeOf(pid);
  if (startTime === undefined) return;
  for (const signal of [stopSignal, "SIGKILL"] as const) {
    if (startTimeOf(pid) !== startTime) return;
    try {
      process.kill(pid, signal);
    } catch {
      // already exited
    }
    for (const until = Date.now() + withinMs; Date.now() < until; await delay(20))
      if (startTimeOf(pid) !== startTime) return;
  }
  throw new FatalNodeError(`process ${pid} (${name}) of the previous calico-node still runs after SIGKILL`);
}
