// Caches that one process keeps between requests, so that it reads less. They are never trusted: a write that was decided
// by cached values happens only if these are still current (see `Recall` in the datastore module).
import { Recall } from "../datastore/index.ts";
import { untilAborted } from "../lib/retry.ts";

export class Memory {
  readonly recall = new Recall();
  readonly #queues = new Map<string, Promise<void>>();

  /** Requests that would write the same blocks take turns instead of refusing each other's writes. */
  async inTurn<T>(name: string, signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
    const before = this.#queues.get(name);
    const { promise, resolve } = Promise.withResolvers<void>();
    const turn = before === undefined ? promise : before.then(() => promise);
    this.#queues.set(name, turn);
    try {
      if (before !== undefined) await untilAborted(before, signal);
      signal?.throwIfAborted();
      return await work();
    } finally {
      resolve();
      if (this.#queues.get(name) === turn) this.#queues.delete(name);
    }
  }
}
