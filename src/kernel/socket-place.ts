// Who answers at a path. One process does, and a living one is not pushed aside, except one that only stands in there
// (`stand-in.ts`) by one that is to stay. What a dead one left is taken over.
//
// Whoever changes what is at the path holds the lock of its folder meanwhile: of two that come at once none may remove
// what the other has just put there.
import { chmodSync, closeSync, mkdirSync, openSync, rmSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { delay } from "../lib/retry.ts";
import { EAGAIN, errnoName } from "./errno.ts";
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
    const folder = dirname(path);
    mkdirSync(folder, { recursive: true });
    using _lock = lockFolder(folder);
    const occupant = reachListener(path);
    try {
      if (occupant !== undefined && (isStandIn || !StandIn.isClaimed(path))) throw new PlaceTaken(path);
      rmSync(path, { force: true });
      const fd = listenUnix(path);
      chmodSync(path, 0o600);
      const predecessor = occupant === undefined ? undefined : untilUnclaimed(path);
      return new SocketPlace(path, fd, statSync(path).ino, predecessor);
    } finally {
      // A stand-in looks whether its place is still its own when somebody goes away.
      if (occupant !== undefined) close(occupant);
    }
  }

  isOurs(): boolean {
    return statSync(this.path, { throwIfNoEntry: false })?.ino === this.inode;
  }

  /** Nobody finds us there any more. What somebody else put there stays. */
  leave(): void {
    using _lock = lockFolder(dirname(this.path));
    if (this.isOurs()) rmSync(this.path, { force: true });
  }
}

const LONGEST_LOCK_MS = 1000;

/** For moments: it blocks. */
function lockFolder(folder: string): Disposable {
  const fd = openSync(folder, "r");
  for (let waitedMs = 0; ; waitedMs++) {
    const result = tryLock(fd);
    if (result === 0) return { [Symbol.dispose]: () => closeSync(fd) };
    if (result !== -EAGAIN || waitedMs >= LONGEST_LOCK_MS) {
      closeSync(fd);
      throw new SyscallError(`lock ${folder} to change a socket in it`, errnoName(-result));
    }
    Bun.sleepSync(1);
  }
}

/** What it had begun it ends, and a request has ten seconds or so. Whoever takes longer is stopped, or stuck. */
const LONGEST_WAIT_MS = 15_000;

async function untilUnclaimed(path: string): Promise<void> {
  const end = performance.now() + LONGEST_WAIT_MS;
  for (let waitMs = 1; StandIn.isClaimed(path) && performance.now() < end; waitMs = Math.min(waitMs * 2, 32))
    await delay(waitMs);
}
