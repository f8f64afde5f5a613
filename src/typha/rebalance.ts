// How many clients are this server's share: its own and a fifth more, of all nodes' clients spread over the other
// servers, so that one server may fail.
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

/** Asks again and again and passes the limit on when it changes. Whatever goes wrong means no limit but the upper one. */
export async function rebalance(
  options: {
    readonly limits: ConnectionLimits;
    readonly pipelines: number;
    readonly pollMs: number;
    readonly countTyphas: () => Promise<number>;
    /** Throws before the nodes are known. */
    readonly countNodes: () => number;
    readonly apply: (most: number) => void;
    readonly log: Logger;
  },
  signal: AbortSignal,
): Promise<void> {
  let applied: number | undefined;
  while (!signal.aborted) {
    let most = options.limits.upper;
    try {
      const counts = { typhas: await options.countTyphas(), nodes: options.countNodes(), pipelines: options.pipelines };
      most = fairShare(counts, options.limits);
    } catch (error) {
      options.log.warn("cannot tell this server's share of clients", { error });
    }
    if (most !== applied) options.apply(most);
    applied = most;
    await pause(options.pollMs * (1 + Math.random() / 10), signal);
  }
}
