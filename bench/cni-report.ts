// Formats the results of `bench/cni.ts`. The first candidate is the reference for the others.
import { median, percentile } from "./support/percentile.ts";

/** Milliseconds from exec to exit, unless stated otherwise. */
export interface Times {
  readonly name: string;
  readonly add: number[];
  readonly del: number[];
  /** CPU time of ADD plus DEL, including that of the service. It depends less on the load of the machine. */
  readonly cpu: number[];
  /** Until the last of all concurrent calls has ended. */
  readonly bursts: number[];
  readonly delBursts: number[];
  readonly addRow: number[];
  readonly delRow: number[];
}

export const noTimes = (name: string): Times => ({
  name,
  add: [],
  del: [],
  cpu: [],
  bursts: [],
  delBursts: [],
  addRow: [],
  delRow: [],
});

/** The maximum median, as a multiple of that of the first candidate. */
export type Budget = { readonly add: number; readonly del: number; readonly bursts: number };
export const WITH_SERVICE: Budget = { add: 1.35, del: 0.5, bursts: 1.1 };
/** Without the service, only ADD has a budget. */
export const WITHOUT_SERVICE: Budget = { add: 3, del: Infinity, bursts: Infinity };

export function reportLines([peer, ...others]: readonly Times[]): string[] {
  return peer === undefined ? [] : [peer, ...others].map((each) => reportLine(each, peer));
}

function reportLine(c: Times, peer: Times): string {
  const cell = (list: readonly number[], theirs: readonly number[]): string => {
    const [p10, p50, p95] = [0.1, 0.5, 0.95].map((share) => percentile(list, share).toFixed(1));
    // The 10th percentile depends less on the load of the machine.
    const best = percentile(list, 0.1) / percentile(theirs, 0.1);
    return `p10 ${p10} p50 ${p50} p95 ${p95} ms (ratio ${ratio(list, theirs)}, of p10 ${best.toFixed(2)})`;
  };
  const middle = (list: readonly number[], theirs: readonly number[]): string =>
    `${median(list).toFixed(1)} ms (ratio ${ratio(list, theirs)})`;
  return [
    c.name.padEnd(18),
    `ADD ${cell(c.add, peer.add)} `,
    `DEL ${cell(c.del, peer.del)} `,
    `at once ${middle(c.bursts, peer.bursts)}, DEL ${middle(c.delBursts, peer.delBursts)} `,
    `in a row ${middle(c.addRow, peer.addRow)}, DEL ${middle(c.delRow, peer.delRow)} `,
    `CPU of both ${mean(c.cpu).toFixed(1)} ms (ratio ${(mean(c.cpu) / mean(peer.cpu)).toFixed(2)})`,
  ].join(" ");
}

/** Returns whether each candidate meets the budget. */
export function budgetLines([peer, ...others]: readonly Times[], budget: Budget): string[] {
  if (peer === undefined) return [];
  const kinds = ["add", "del", "bursts"] as const;
  const limits = kinds.map((kind) => (budget[kind] === Infinity ? "none" : budget[kind])).join(", ");
  return others.map((c) => {
    const isMet = kinds.every((kind) => median(c[kind]) / median(peer[kind]) <= budget[kind]);
    const ratios = kinds.map((kind) => ratio(c[kind], peer[kind])).join(", ");
    return `${c.name.padEnd(18)} ADD, DEL, at once: ${ratios} of ${peer.name}'s; budget ${limits}: ${isMet ? "met" : "NOT MET"}`;
  });
}

const ratio = (ours: readonly number[], theirs: readonly number[]): string =>
  (median(ours) / median(theirs)).toFixed(2);
const mean = (list: readonly number[]): number => list.reduce((sum, each) => sum + each, 0) / list.length;
