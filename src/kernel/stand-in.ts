// The right to stand in at a socket's path until somebody comes who is there to stay: a lock on a file beside the path.
// The kernel takes it back when its holder ends, however it ends. It goes with the open file, so that it can be handed to
// a program that is started: there is no moment at which nobody has it and a second program could be started.
import { closeSync, constants, openSync, rmSync } from "node:fs";
import { isAt, openOwnLock } from "./file-lock.ts";
import { tryLock } from "./sys.ts";

const fileOf = (path: string): string => `${path}.stand-in`;

export class StandIn implements Disposable {
  private constructor(
    readonly path: string,
    /** Open in this process; of whoever is started with it. */
    readonly fd: number,
  ) {}

  /** Nothing when somebody else has it. */
  static claim(path: string): StandIn | undefined {
    return StandIn.#lock(path, openOwnLock(fileOf(path)));
  }

  /** What was handed over as this descriptor; nothing when it is something else, or not open at all. */
  static adopt(path: string, fd: number): StandIn | undefined {
    try {
      return isAt(fileOf(path), fd) && tryLock(fd) === 0 ? new StandIn(path, fd) : undefined;
    } catch {
      return undefined;
    }
  }

  static #lock(path: string, fd: number): StandIn | undefined {
    // A holder that ends removes the file: the lock of one that is gone is nobody's.
    if (tryLock(fd) === 0 && isAt(fileOf(path), fd)) return new StandIn(path, fd);
    closeSync(fd);
    return undefined;
  }

  /** Whether somebody has it. */
  static isClaimed(path: string): boolean {
    let fd: number;
    try {
      fd = openSync(fileOf(path), constants.O_RDONLY | constants.O_NONBLOCK); // nor is a pipe waited for
    } catch {
      return false;
    }
    try {
      return tryLock(fd) !== 0;
    } finally {
      closeSync(fd);
    }
  }

  [Symbol.dispose](): void {
    // Somebody may have removed ours with its folder: then what is there is our successor's.
    if (isAt(fileOf(this.path), this.fd)) rmSync(fileOf(this.path), { force: true });
    closeSync(this.fd);
  }
}
