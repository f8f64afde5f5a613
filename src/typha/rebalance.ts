// Computes the maximum number of clients of this server: all nodes' clients divided by one server less than there are
// (so that one may fail), plus a fifth.
import type { Logger } from "../lib/log/log.ts";
import { pause } from "../lib/retry.ts";

export interface ConnectionLimits {
  readonly lower: number;
  readonly upper: number;
}

export function fairShare(
  counts: { typhas: number; nodes: number; pipelines: number },
  limits: ConnectionLimits,
): number {
  const { typhas, nodes, pipelines } = counts;
  if (typhas <= 1) return limits.upper;
  const perPipeline = 1 + Math.floor(Math.floor((nodes * 120) / (typhas - 1)) / 100);
  return Math.min(limits.upper, Math.max(limits.lower, pipelines * perPipeline));
}

/** Computes the limit periodically and applies it when it changes. After an error, the upper limit applies. */
export async function rebalance(
  options: {
    readonly limits: ConnectionLimits;
    readonly pipelines: number;
    readonly pollMs: number;
    readonly countTyphas: () => Promise<number>;
    /** Throws until the nodes have been listed. */
    readonly countNodes: () => number;
    readonly apply: (limit: number) => void;
    readonly log: Logger;
  },
  signal: AbortSignal,
): Promise<void> {
  let applied: number | undefined;
  while (!signal.aborted) {
    let limit = options.limits.upper;
    try {
      const counts = { typhas: await options.countTyphas(), nodes: options.countNodes(), pipelines: options.pipelines };
      limit = fairShare(counts, options.limits);
    } catch (error) {
      options.log.warn("cannot compute the limit of connections; using the upper limit", { error });
    }
    if (limit !== applied) options.apply(limit);
    applied = limit;
    await pause(options.pollMs * (1 + Math.random() / 10), signal);
  }
}
