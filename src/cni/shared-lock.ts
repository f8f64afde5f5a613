// A lock on a file that the requests of one process hold together: it is taken for the first of them and given back after
// the last. They take turns by themselves; the lock is for other processes.
import { type FileLock, lockFile } from "../kernel/index.ts";

export class SharedLock {
  readonly #held = new Map<string, { holders: number; readonly lock: Promise<FileLock> }>();

  readonly take: typeof lockFile = async (path, options) => {
    let held = this.#held.get(path);
    if (held === undefined) {
      held = { holders: 0, lock: lockFile(path, options) };
      this.#held.set(path, held);
    }
    const mine = held;
    mine.holders++;
    const leave = (): void => {
      if (--mine.holders > 0) return;
      this.#held.delete(path);
      void mine.lock.then(
        (lock) => lock[Symbol.dispose](),
        () => {}, // whoever waited for it was told
      );
    };
    try {
      await mine.lock;
    } catch (error) {
      leave();
      throw error;
    }
    return { [Symbol.dispose]: leave };
  };
}
