// One process at a time: an advisory lock on a file, shared with any program that uses flock(2) on it. The kernel
// takes it back when its holder ends, however it ends.
import { closeSync, mkdirSync, openSync } from "node:fs";
import { dirname } from "node:path";
import { delay } from "../lib/retry.ts";
import { EAGAIN, errnoName } from "./errno.ts";
import { SyscallError } from "./netlink-error.ts";
import { tryLock } from "./sys.ts";

export type FileLock = Disposable;

const FIRST_WAIT_MS = 1;
const LONGEST_WAIT_MS = 16;

/** Waits for the lock; rejects with the signal's reason. Waiting does not block the thread. */
export async function lockFile(
  path: string,
  options: { readonly signal?: AbortSignal; readonly random?: () => number } = {},
): Promise<FileLock> {
  const fd = openLock(path);
  try {
    for (let wait = FIRST_WAIT_MS; ; wait = Math.min(wait * 2, LONGEST_WAIT_MS)) {
      const result = tryLock(fd);
      if (result === 0) return { [Symbol.dispose]: () => closeSync(fd) };
      if (result !== -EAGAIN) throw new SyscallError(`lock ${path}`, errnoName(-result));
      await delay(wait * (0.5 + (options.random ?? Math.random)()), options.signal);
    }
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

function openLock(path: string): number {
  try {
    return openSync(path, "a", 0o600);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    mkdirSync(dirname(path), { recursive: true, mode: 0o777 });
    return openSync(path, "a", 0o600);
  }
}
