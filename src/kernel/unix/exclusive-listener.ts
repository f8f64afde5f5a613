// Listens on a Unix socket that one process at a time may serve. A socket file on which no process listens any more is
// replaced; one on which a process listens is not.
//
// The socket file is replaced or deleted only while a lock file next to it is locked, so that two processes that start at
// the same time cannot delete each other's socket. The folder itself is not used as the lock, because every user who may
// read it could lock it; only this user can open the lock file.
import { closeSync, lstatSync, rmSync } from "node:fs";
import { EAGAIN, errnoName } from "../sys/errno.ts";
import { isFileAt, openPrivateLockFile } from "../sys/file-lock.ts";
import { SyscallError } from "../sys/kernel-error.ts";
import { close, tryLock } from "../sys/sys.ts";
import { connectToListener } from "./unix-client.ts";
import { listenUnix } from "./unix-server.ts";

export class SocketInUse extends Error {
  override readonly name = "SocketInUse";
  constructor(readonly path: string) {
    super(`${path}: another process already listens on this socket`);
  }
}

export class ExclusiveListener {
  private constructor(
    readonly path: string,
    /** The listening socket. */
    readonly fd: number,
    readonly inode: number,
  ) {}

  /** @throws SocketInUse */
  static open(path: string): ExclusiveListener {
    using _lock = lockSocketPath(path);
    const listener = connectToListener(path);
    try {
      if (listener !== undefined && !isOnDemandService(path)) throw new SocketInUse(path);
      rmSync(path, { force: true });
      rmSync(`${path}.stand-in`, { force: true }); // the lock file of an on-demand service
      return new ExclusiveListener(path, listenUnix(path), lstatSync(path).ino);
    } finally {
      // Closing the connection makes an on-demand service check whether the socket file is still its own, so the file must
      // be replaced before.
      if (listener !== undefined) close(listener);
    }
  }

  /** Deletes the socket file, unless another process has replaced it. */
  removeSocket(): void {
    if (!this.#isOurs()) return;
    using _lock = lockSocketPath(this.path);
    if (this.#isOurs()) rmSync(this.path, { force: true });
  }

  #isOurs(): boolean {
    return lstatSync(this.path, { throwIfNoEntry: false })?.ino === this.inode;
  }
}

const STICKY = 0o1000;

/**
 * Earlier versions of the CNI plugin started an on-demand service on hosts without an agent, and marked its socket with the
 * sticky bit. Such a service exits within a second after its socket is replaced.
 */
const isOnDemandService = (path: string): boolean =>
  ((lstatSync(path, { throwIfNoEntry: false })?.mode ?? 0) & STICKY) !== 0;

const MAX_LOCK_MS = 1000;

/** Blocks the thread until the lock is free. Creates the folder if necessary, and removes the lock file afterwards. */
function lockSocketPath(path: string): Disposable {
  const file = `${path}.lock`;
  for (let waitedMs = 0; ; waitedMs++) {
    const fd = openPrivateLockFile(file); // each time, because the holder removes the file
    const result = tryLock(fd);
    if (result === 0 && isFileAt(file, fd)) return { [Symbol.dispose]: () => unlock(file, fd) };
    closeSync(fd);
    if (result === 0) continue;
    if (result !== -EAGAIN || waitedMs >= MAX_LOCK_MS) throw new SyscallError(`lock ${file}`, errnoName(-result));
    Bun.sleepSync(1);
  }
}

function unlock(file: string, fd: number): void {
  rmSync(file, { force: true });
  closeSync(fd);
}
