// Who answers at a path. One process does, and a living one is not pushed aside, except one that only stands in there
// (`stand-in.ts`) by one that is to stay. What a dead one left is taken over.
//
// Whoever changes what is at the path holds the lock of a file beside it meanwhile: of two that come at once none may remove
// what the other has just put there. Only our own user can open that file, so that nobody else can hold its lock; a folder
// can be locked by all who may read it.
import { closeSync, lstatSync, rmSync } from "node:fs";
import { delay } from "../lib/retry.ts";
import { EAGAIN, errnoName } from "./errno.ts";
import { isAt, openOwnLock } from "./file-lock.ts";
import { SyscallError } from "./netlink-error.ts";
import { StandIn } from "./stand-in.ts";
import { close, tryLock } from "./sys.ts";
import { reachListener } from "./unix-client.ts";
import { listenUnix } from "./unix-socket.ts";

/** Somebody answers there. */
export class PlaceTaken extends Error {
  override readonly name = "PlaceTaken";
  constructor(readonly path: string) {
    super(`${path}: another process listens there already`);
  }
}

export class SocketPlace {
  private constructor(
    readonly path: string,
    /** Listens. */
    readonly fd: number,
    readonly inode: number,
    /** Over when who stood in here has answered its last request; absent: nobody did. */
    readonly predecessor: Promise<void> | undefined,
  ) {}

  /** @throws PlaceTaken */
  static take(path: string, isStandIn: boolean): SocketPlace {
    using _lock = lockPlace(path);
    const occupant = reachListener(path);
    try {
      if (occupant !== undefined && (isStandIn || !isStandInAt(path))) throw new PlaceTaken(path);
      rmSync(path, { force: true });
      const fd = listenUnix(path, isStandIn ? STAND_IN_MODE : undefined);
      const predecessor = occupant === undefined ? undefined : untilUnclaimed(path);
      return new SocketPlace(path, fd, lstatSync(path).ino, predecessor);
    } finally {
      // A stand-in looks whether its place is still its own when somebody goes away.
      if (occupant !== undefined) close(occupant);
    }
  }

  isOurs(): boolean {
    return lstatSync(this.path, { throwIfNoEntry: false })?.ino === this.inode;
  }

  /** Nobody finds us there any more. What somebody else put there stays. */
  leave(): void {
    if (!this.isOurs()) return;
    using _lock = lockPlace(this.path);
    if (this.isOurs()) rmSync(this.path, { force: true });
  }
}

/** The sticky bit means nothing for a socket: it tells a stand-in's from that of who came to stay while the other ends. */
const STICKY = 0o1000;
const STAND_IN_MODE = STICKY | 0o600;

const isStandInAt = (path: string): boolean =>
  ((lstatSync(path, { throwIfNoEntry: false })?.mode ?? 0) & STICKY) !== 0 && StandIn.isClaimed(path);

const LONGEST_LOCK_MS = 1000;

/** For moments: it blocks. Makes the folder; leaves no file. */
function lockPlace(path: string): Disposable {
  const file = `${path}.lock`;
  for (let waitedMs = 0; ; waitedMs++) {
    const fd = openOwnLock(file); // every time: its holder removes it
    const result = tryLock(fd);
    if (result === 0 && isAt(file, fd)) return { [Symbol.dispose]: () => unlock(file, fd) };
    closeSync(fd);
    if (result === 0) continue;
    if (result !== -EAGAIN || waitedMs >= LONGEST_LOCK_MS)
      throw new SyscallError(`lock ${file} to change the socket`, errnoName(-result));
    Bun.sleepSync(1);
  }
}

function unlock(file: string, fd: number): void {
  rmSync(file, { force: true });
  closeSync(fd);
}

/** What it had begun it ends, and a request has ten seconds or so. Whoever takes longer is stopped, or stuck. */
const LONGEST_WAIT_MS = 15_000;

async function untilUnclaimed(path: string): Promise<void> {
  const end = performance.now() + LONGEST_WAIT_MS;
  for (let waitMs = 1; StandIn.isClaimed(path) && performance.now() < end; waitMs = Math.min(waitMs * 2, 32))
    await delay(waitMs);
}
