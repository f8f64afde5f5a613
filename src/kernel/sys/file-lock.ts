// Locks a file with flock(2), so that one process at a time does something. The kernel releases the lock when its holder
// exits, even if the holder is killed.
//
// A holder may delete the file. A process that waited for the lock then has the lock of a deleted file, which excludes
// nobody; it locks the file that is at the path now.
import { closeSync, constants, fstatSync, mkdirSync, openSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { delay } from "../../lib/retry.ts";
import { EAGAIN, errnoName } from "./errno.ts";
import { SyscallError } from "./kernel-error.ts";
import { tryLock } from "./sys.ts";

export type FileLock = Disposable;

const FIRST_DELAY_MS = 1;
const MAX_DELAY_MS = 16;

/** Waits for the lock without blocking the thread. Rejects with the signal's reason if that aborts. */
export async function lockFile(path: string, options: { readonly signal?: AbortSignal } = {}): Promise<FileLock> {
  let fd = openLockFile(path);
  try {
    for (let delayMs = FIRST_DELAY_MS; ; delayMs = Math.min(delayMs * 2, MAX_DELAY_MS)) {
      const result = tryLock(fd);
      if (result !== 0 && result !== -EAGAIN) throw new SyscallError(`lock ${path}`, errnoName(-result));
      if (result === 0) {
        const held = fd;
        if (isFileAt(path, held)) return { [Symbol.dispose]: () => closeSync(held) };
        fd = openLockFile(path);
        closeSync(held);
        continue;
      }
      await delay(delayMs * (0.5 + Math.random()), options.signal);
    }
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/** Fails on a symbolic link (O_NOFOLLOW), and does not wait for a reader of a named pipe (O_NONBLOCK). */
const PRIVATE_FLAGS =
  constants.O_WRONLY | constants.O_CREAT | constants.O_APPEND | constants.O_NOFOLLOW | constants.O_NONBLOCK;

/** Opens a lock file that only calico-ts uses. Another user may have put a symbolic link or a named pipe at the path. */
export const openPrivateLockFile = (path: string): number => openLockFile(path, PRIVATE_FLAGS);

/** Returns whether the open file is the one at the path, not one that was deleted or replaced since it was opened. */
export function isFileAt(path: string, fd: number): boolean {
  const { ino, dev } = fstatSync(fd);
  const current = statSync(path, { throwIfNoEntry: false });
  return current?.ino === ino && current.dev === dev;
}

const MAX_RETRIES = 3;

/**
 * Creates the folder if necessary. Retries, because another process may delete the folder again before the file exists.
 * @param flags by default a symbolic link is followed: an operator may have made one
 */
function openLockFile(path: string, flags: number | string = "a"): number {
  for (let retries = 0; ; retries++) {
    try {
      return openSync(path, flags, 0o600);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT" || retries === MAX_RETRIES) throw error;
      mkdirSync(dirname(path), { recursive: true, mode: 0o755 });
    }
  }
}
