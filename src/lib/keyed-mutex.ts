// Mutual exclusion by name: actions with the same name run sequentially, in the order of their calls.
import { untilAborted } from "./retry.ts";

export class KeyedMutex {
  /** For each name, a promise that settles when the last action has ended. */
  readonly #last = new Map<string, Promise<void>>();

  /** Rejects with the signal's reason if it aborts before the action starts. */
  async run<T>(name: string, signal: AbortSignal | undefined, action: () => Promise<T>): Promise<T> {
    const before = this.#last.get(name);
    const { promise: ended, resolve: end } = Promise.withResolvers<void>();
    const last = before === undefined ? ended : before.then(() => ended);
    this.#last.set(name, last);
    try {
      if (before !== undefined) await untilAborted(before, signal);
      signal?.throwIfAborted();
      return await action();
    } finally {
      end();
      if (this.#last.get(name) === last) this.#last.delete(name);
    }
  }
}
