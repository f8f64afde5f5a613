// Network namespaces: opening, entering for the length of a synchronous call, and the named ones of `ip netns`.
//
// setns() moves one thread. All of a JavaScript call runs on its thread, so entering around a synchronous function is
// safe; around an await it would not be, and the types refuse it.
import { closeSync, fstatSync, mkdirSync, openSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { errnoName } from "./errno.ts";
import { SyscallError, succeed } from "./netlink-error.ts";
import * as sys from "./sys.ts";

/** A namespace that is open; absent where one may be: that of the calling thread. */
export interface Place {
  readonly fd: number;
  readonly path?: string;
}

/** Where `ip netns` keeps its named namespaces. */
const NETNS_DIRECTORY = "/run/netns";
const OWN_NAMESPACE = "/proc/thread-self/ns/net";

export class NetworkNamespace implements Disposable {
  #isOpen = true;
  private constructor(
    readonly fd: number,
    /** Where it was opened from, for messages. */
    readonly path: string,
  ) {}

  /** @param name how others know it, for messages */
  static open(path: string, name = path): NetworkNamespace {
    return new NetworkNamespace(openFile(path), name);
  }
  /** The calling thread's own. */
  static current(): NetworkNamespace {
    return NetworkNamespace.open(OWN_NAMESPACE);
  }
  static ofProcess(pid: number): NetworkNamespace {
    return NetworkNamespace.open(`/proc/${pid}/ns/net`);
  }
  /** Adopts a descriptor that was received. */
  static adopt(fd: number, path: string): NetworkNamespace {
    return new NetworkNamespace(fd, path);
  }
  /** A namespace of `ip netns`, by its name. */
  static named(name: string): NetworkNamespace {
    return NetworkNamespace.open(namedPath(name));
  }

  /** Equal for two handles exactly when they are the same namespace. */
  get inode(): number {
    return fstatSync(this.fd).ino;
  }

  /** Runs a synchronous function inside and comes back, whatever happens. */
  run<T>(inside: () => T extends PromiseLike<unknown> ? never : T): T {
    return withNamespace(this, inside);
  }

  [Symbol.dispose](): void {
    if (this.#isOpen) closeSync(this.fd);
    this.#isOpen = false;
  }
}

/**
 * Opens something in a namespace, or where the thread is, without running anything there.
 * @returns a descriptor, or minus the errno
 * @throws SyscallError when the namespace cannot be entered
 */
export function openIn(namespace: Place | undefined, what: sys.Opening): number {
  if (namespace === undefined) return sys.openHere(what);
  const home = sys.openReadOnly(OWN_NAMESPACE);
  succeed(home, `open network namespace ${OWN_NAMESPACE}`);
  const { entered, opened, left } = sys.openAway(namespace.fd, home, what);
  sys.close(home);
  succeed(entered, `enter network namespace ${nameOf(namespace)}`);
  succeed(left, "enter network namespace the one we came from");
  return opened;
}

/**
 * For programs that end soon, and tests: whatever thread the runtime starts meanwhile stays there and keeps the namespace
 * alive. Others open what they need by `openIn`.
 */
export function withNamespace<T>(namespace: Place, inside: () => T extends PromiseLike<unknown> ? never : T): T {
  const home = openFile(OWN_NAMESPACE);
  try {
    enter(namespace.fd, nameOf(namespace));
    try {
      return inside();
    } finally {
      enter(home, "the one we came from");
    }
  } finally {
    closeSync(home);
  }
}

const nameOf = ({ fd, path = `descriptor ${fd}` }: Place): string => path;

/** Creates a named namespace, as `ip netns add` does. */
export function createNamedNamespace(name: string): void {
  const path = namedPath(name);
  prepareDirectory();
  closeSync(openFile(path, "ax"));
  const home = openFile(OWN_NAMESPACE);
  try {
    succeed(sys.unshare(sys.CLONE_NEWNET), `create network namespace ${name}`);
    try {
      succeed(sys.mount(OWN_NAMESPACE, path, "none", sys.MS_BIND), `bind network namespace ${name} to ${path}`);
    } finally {
      enter(home, "the one we came from");
    }
  } catch (error) {
    rmSync(path, { force: true });
    throw error;
  } finally {
    closeSync(home);
  }
}

/** Deletes a named namespace; one that does not exist is already deleted. */
export function deleteNamedNamespace(name: string): void {
  const path = namedPath(name);
  const result = sys.umount(path, sys.MNT_DETACH);
  // EINVAL: a plain file, left behind by a creation that was cut short.
  if (result < 0 && !["ENOENT", "EINVAL"].includes(errnoName(-result)))
    throw new SyscallError(`delete network namespace ${name}`, errnoName(-result));
  rmSync(path, { force: true });
}

export function listNamedNamespaces(): string[] {
  try {
    return readdirSync(NETNS_DIRECTORY).sort();
  } catch {
    return []; // nobody made one yet
  }
}

function namedPath(name: string): string {
  if (!/^[A-Za-z0-9_][A-Za-z0-9_.-]{0,253}$/.test(name))
    throw new RangeError(`${JSON.stringify(name)} is no name for a network namespace: want letters, digits, "-_."`);
  return join(NETNS_DIRECTORY, name);
}

function enter(fd: number, path: string): void {
  succeed(sys.setns(fd, sys.CLONE_NEWNET), `enter network namespace ${path}`);
}

/** Mounts made here must show in every mount namespace, or a deleted namespace lives on in another one. */
function prepareDirectory(): void {
  mkdirSync(NETNS_DIRECTORY, { recursive: true });
  if (sys.mount("", NETNS_DIRECTORY, "none", sys.MS_SHARED | sys.MS_REC) >= 0) return;
  succeed(sys.mount(NETNS_DIRECTORY, NETNS_DIRECTORY, "none", sys.MS_BIND | sys.MS_REC), `mount ${NETNS_DIRECTORY}`);
  succeed(sys.mount("", NETNS_DIRECTORY, "none", sys.MS_SHARED | sys.MS_REC), `share ${NETNS_DIRECTORY}`);
}

function openFile(path: string, flags = "r"): number {
  try {
    return openSync(path, flags, 0o444);
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "EIO";
    throw new SyscallError(`open network namespace ${path}`, code);
  }
}
