// One process at a time: an advisory lock on a file, shared with any program that uses flock(2) on it. The kernel
// takes it back when its holder ends, however it ends. A holder may remove the file: who waited for it then holds
// nothing that others see, and takes the lock of the file that is there.
import { closeSync, constants, fstatSync, mkdirSync, openSync, statSync } from "node:fs";
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
  let fd = openLock(path);
  try {
    for (let wait = FIRST_WAIT_MS; ; wait = Math.min(wait * 2, LONGEST_WAIT_MS)) {
      const result = tryLock(fd);
      if (result !== 0 && result !== -EAGAIN) throw new SyscallError(`lock ${path}`, errnoName(-result));
      if (result === 0) {
        const held = fd;
        if (isAt(path, held)) return { [Symbol.dispose]: () => closeSync(held) };
        fd = openLock(path);
        closeSync(held);
        continue;
      }
      await delay(wait * (0.5 + (options.random ?? Math.random)()), options.signal);
    }
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/** For files that are nobody's but ours: a link that another put there leads nowhere, and a pipe is not waited for. */
const OWN_FLAGS =
  constants.O_WRONLY | constants.O_CREAT | constants.O_APPEND | constants.O_NOFOLLOW | constants.O_NONBLOCK;
export const openOwnLock = (path: string): number => openLock(path, OWN_FLAGS);

/** Whether the file that is open is the one at the path. */
export function isAt(path: string, fd: number): boolean {
  const { ino, dev } = fstatSync(fd);
  const there = statSync(path, { throwIfNoEntry: false });
  return there?.ino === ino && there.dev === dev;
}

const MAKE_FOLDER_TRIES = 3;

/**
 * The folder may be removed by another between its making and ours.
 * @param flags how to open it; an operator may have put a link where the default leads
 */
function openLock(path: string, flags: number | string = "a"): number {
  for (let tries = 0; ; tries++) {
    try {
      return openSync(path, flags, 0o600);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT" || tries === MAKE_FOLDER_TRIES) throw error;
      mkdirSync(dirname(path), { recursive: true, mode: 0o755 });
    }
  }
}
