// What a node that was killed has left running: its parts go on without it. They are ended before new ones start, and a
// second node on a host where one runs is refused.
import { readFileSync } from "node:fs";
import { delay } from "../lib/retry.ts";
import type { Logger } from "../lib/log.ts";
import { NodeFailure } from "./failure.ts";
import type { ChildPlan, SupervisorState } from "./supervisor.ts";

export interface LeftoverOptions {
  /** The supervisor's file, as the last node left it. */
  readonly file: string;
  readonly plans: readonly ChildPlan[];
  readonly log: Logger;
  readonly withinMs?: number;
}

export async function endLeftovers(options: LeftoverOptions): Promise<void> {
  const state = readState(options.file);
  if (state === undefined) return;
  const before = wordsOf(state.pid);
  if (state.pid !== process.pid && before?.some((word) => /(^|\/)calico-node$/.test(word)) === true)
    throw new NodeFailure(`another calico-node runs on this host: process ${state.pid}; stop it first`);
  for (const { name, pid } of state.children) {
    const plan = options.plans.find((candidate) => candidate.name === name);
    if (pid === undefined || !isPart(pid, name, plan)) continue;
    options.log.warn("ending a part that the last node left running", { name, pid });
    await end(pid, plan?.stopSignal ?? "SIGTERM", options.withinMs ?? 5_000);
  }
}

function readState(file: string): SupervisorState | undefined {
  try {
    const state = JSON.parse(readFileSync(file, "utf8")) as SupervisorState;
    return Array.isArray(state.children) && Number.isInteger(state.pid) ? state : undefined;
  } catch {
    return undefined; // the first start, or nothing that can be read
  }
}

/** Process numbers are given again: only what looks like the part is ended. */
function isPart(pid: number, name: string, plan: ChildPlan | undefined): boolean {
  const words = wordsOf(pid);
  if (words === undefined) return false;
  const last = plan?.command.at(-1);
  return last === undefined ? words.includes(`-${name}`) : words.includes(last);
}

/** The command line; undefined when there is no such process, or it has ended and waits to be noticed. */
function wordsOf(pid: number): readonly string[] | undefined {
  try {
    const words = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
    return words.length <= 1 ? undefined : words.slice(0, -1);
  } catch {
    return undefined;
  }
}

async function end(pid: number, signal: NodeJS.Signals, withinMs: number): Promise<void> {
  const send = (which: NodeJS.Signals) => {
    try {
      process.kill(pid, which);
    } catch {
      // gone already
    }
  };
  send(signal);
  for (const until = Date.now() + withinMs; wordsOf(pid) !== undefined; await delay(20))
    if (Date.now() > until) {
      send("SIGKILL");
      return;
    }
}
