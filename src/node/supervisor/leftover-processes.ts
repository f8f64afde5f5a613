// Ends the parts of a calico-node that was killed: they run on without it. It is used before new parts start and before
// Calico is removed from the host. Both are refused while that calico-node still runs.
import { readFileSync, readlinkSync } from "node:fs";
import type { Logger } from "../../lib/log/log.ts";
import { startTimeOf } from "../../lib/process/process-identity.ts";
import { delay } from "../../lib/retry.ts";
import { NodeFailure } from "../failure.ts";
import type { ChildPlan, SupervisorState } from "./supervisor.ts";

export interface LeftoverOptions {
  /** The supervisor's file, as the last node left it. */
  readonly file: string;
  readonly plans: readonly ChildPlan[];
  readonly log: Logger;
  readonly withinMs?: number;
}

/** @throws NodeFailure if another calico-node runs, or if a part does not end */
export async function endLeftovers(options: LeftoverOptions): Promise<void> {
  const state = readState(options.file);
  // Pids of another pid namespace, such as that of a container which has ended, name other processes here.
  if (state === undefined || (state.pidNamespace ?? ownPidNamespace()) !== ownPidNamespace()) return;
  const before = wordsOf(state);
  if (state.pid !== process.pid && before?.some((word) => /(^|\/)calico-node$/.test(word)) === true)
    throw new NodeFailure(`another calico-node runs on this host: process ${state.pid}; stop it first`);
  for (const { name, pid, startTime } of state.children) {
    const plan = options.plans.find((candidate) => candidate.name === name);
    if (pid === undefined || !isPart({ pid, startTime }, name, plan)) continue;
    options.log.warn("ending a part that the last node left running", { name, pid });
    await end(name, pid, plan?.stopSignal ?? "SIGTERM", options.withinMs ?? 5_000);
  }
}

const ownPidNamespace = (): string => readlinkSync("/proc/self/ns/pid");

function readState(file: string): SupervisorState | undefined {
  try {
    const state = JSON.parse(readFileSync(file, "utf8")) as SupervisorState;
    return Array.isArray(state.children) && Number.isInteger(state.pid) ? state : undefined;
  } catch {
    return undefined; // the first start, or nothing that can be read
  }
}

/** As the supervisor recorded it. Older versions of calico-ts record no start time. */
interface Recorded {
  readonly pid: number;
  readonly startTime?: string;
}

/** The kernel assigns pids again: only a process with the command line of the part, and its start time, is the part. */
function isPart(recorded: Recorded, name: string, plan: ChildPlan | undefined): boolean {
  const words = wordsOf(recorded);
  if (words === undefined) return false;
  const last = plan?.command.at(-1);
  return last === undefined ? words.includes(`-${name}`) : words.includes(last);
}

/** The command line; undefined if the recorded process has ended. */
function wordsOf({ pid, startTime }: Recorded): readonly string[] | undefined {
  const found = startTimeOf(pid);
  if (found === undefined || (startTime ?? found) !== found) return undefined;
  try {
    const words = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
    return words.length <= 1 ? undefined : words.slice(0, -1);
  } catch {
    return undefined;
  }
}

/** Returns when the process has ended and its sockets are closed. */
async function end(name: string, pid: number, stopSignal: NodeJS.Signals, withinMs: number): Promise<void> {
  const startTime = startTimeOf(pid);
  if (startTime === undefined) return;
  for (const signal of [stopSignal, "SIGKILL"] as const) {
    if (startTimeOf(pid) !== startTime) return;
    try {
      process.kill(pid, signal);
    } catch {
      // It has ended.
    }
    for (const until = Date.now() + withinMs; Date.now() < until; await delay(20))
      if (startTimeOf(pid) !== startTime) return;
  }
  throw new NodeFailure(`process ${pid} (${name}) of the last calico-node does not end, although it was killed`);
}
