// Listens at the path of a Unix socket, for one process at a time. The socket of a process that still listens is not
// replaced; one that a dead process left is.
//
// Whoever replaces or removes the socket holds the lock of a file next to it meanwhile, so that of two processes that start
// at the same time neither removes the socket of the other. The lock is not taken on the folder, because every user who
// may read the folder could hold that lock; only this user can open the file.
import { closeSync, lstatSync, rmSync } from "node:fs";
import { EAGAIN, errnoName } from "./errno.ts";
import { isAt, openOwnLock } from "./file-lock.ts";
import { SyscallError } from "./netlink-error.ts";
import { close, tryLock } from "./sys.ts";
import { reachListener } from "./unix-client.ts";
import { listenUnix } from "./unix-socket.ts";

/** Another process listens at the path. */
export class PlaceTaken extends Error {
  override readonly name = "PlaceTaken";
  constructor(readonly path: string) {
    super(`${path}: another process listens there already`);
  }
}

export class SocketPlace {
  private constructor(
    readonly path: string,
    /** The listening socket. */
    readonly fd: number,
    readonly inode: number,
  ) {}

  /** @throws PlaceTaken */
  static take(path: string): SocketPlace {
    using _lock = lockPlace(path);
    const listener = reachListener(path);
    try {
      if (listener !== undefined && !isOnDemandService(path)) throw new PlaceTaken(path);
      rmSync(path, { force: true });
      rmSync(`${path}.stand-in`, { force: true }); // the lock file of an on-demand service
      return new SocketPlace(path, listenUnix(path), lstatSync(path).ino);
    } finally {
      // Closed after the socket was replaced: an on-demand service then checks whether the socket is still its own.
      if (listener !== undefined) close(listener);
    }
  }

  /** Removes the socket, unless another process has replaced it. */
  leave(): void {
    if (!this.#isOurs()) return;
    using _lock = lockPlace(this.path);
    if (this.#isOurs()) rmSync(this.path, { force: true });
  }

  #isOurs(): boolean {
    return lstatSync(this.path, { throwIfNoEntry: false })?.ino === this.inode;
  }
}

const STICKY = 0o1000;

/**
 * Earlier versions of the CNI plugin started a service on demand where no agent ran, and marked its socket with the sticky
 * bit. Such a service ends by itself, within a second, when its socket is replaced.
 */
const isOnDemandService = (path: string): boolean =>
  ((lstatSync(path, { throwIfNoEntry: false })?.mode ?? 0) & STICKY) !== 0;

const MAX_LOCK_MS = 1000;

/** Blocks the thread until the lock is free. Creates the folder if necessary, and removes the lock file afterwards. */
function lockPlace(path: string): Disposable {
  const file = `${path}.lock`;
  for (let waitedMs = 0; ; waitedMs++) {
    const fd = openOwnLock(file); // each time, because the holder removes the file
    const result = tryLock(fd);
    if (result === 0 && isAt(file, fd)) return { [Symbol.dispose]: () => unlock(file, fd) };
    closeSync(fd);
    if (result === 0) continue;
    if (result !== -EAGAIN || waitedMs >= MAX_LOCK_MS)
      throw new SyscallError(`lock ${file} to change the socket`, errnoName(-result));
    Bun.sleepSync(1);
  }
}

function unlock(file: string, fd: number): void {
  rmSync(file, { force: true });
  closeSync(fd);
}
