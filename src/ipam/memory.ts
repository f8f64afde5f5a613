// What one process remembers between requests, to spare the datastore. Never trusted for correctness: the order of trying
// follows from it, and decisions whose write is bound to what they were made by (see the datastore's `Recall`).
import { Recall } from "../datastore/index.ts";
import type { Cidr } from "../lib/ip.ts";
import { untilAborted } from "../lib/retry.ts";

export class Memory {
  /** Blocks that had no free address when last seen: tried after the others. */
  readonly full = new Set<Cidr>();
  readonly recall = new Recall();
  readonly #queues = new Map<string, Promise<void>>();
  readonly #atWork = new Map<string, () => void>();

  /** Requests that would write the same blocks take turns instead of refusing each other's writes. */
  async inTurn<T>(name: string, signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
    const before = this.#queues.get(name);
    const { promise, resolve } = Promise.withResolvers<void>();
    const turn = before === undefined ? promise : before.then(() => promise);
    this.#queues.set(name, turn);
    try {
      if (before !== undefined) await untilAborted(before, signal);
      signal?.throwIfAborted();
      this.#atWork.set(name, resolve);
      return await work();
    } finally {
      resolve();
      if (this.#atWork.get(name) === resolve) this.#atWork.delete(name);
      if (this.#queues.get(name) === turn) this.#queues.delete(name);
    }
  }

  /** Whoever is at work has handed in its write, and the next may see it before it has arrived (`GroupCommit`). */
  passTurn(): void {
    for (const resolve of this.#atWork.values()) resolve();
    this.#atWork.clear();
  }
}
