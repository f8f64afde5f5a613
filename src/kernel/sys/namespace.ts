// Network namespaces (network_namespaces(7)): opens them, enters one for the duration of a synchronous call, and manages the
// named namespaces of ip-netns(8).
//
// setns(2) changes the namespace of one thread. A synchronous function runs on one thread from start to end, so entering a
// namespace around it is safe. Around an `await`, other tasks would run in the wrong namespace; the types prevent this.
import { closeSync, fstatSync, mkdirSync, openSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { errnoName } from "./errno.ts";
import { SyscallError, checkSyscall } from "./kernel-error.ts";
import * as sys from "./sys.ts";

/** An open network namespace. Where a parameter of this type is optional, the default is the calling thread's namespace. */
export interface NamespaceHandle {
  readonly fd: number;
  /** For error messages. */
  readonly path?: string;
}

const NETNS_DIRECTORY = "/run/netns";
const OWN_NAMESPACE = "/proc/thread-self/ns/net";

export class NetworkNamespace implements Disposable {
  #isOpen = true;
  private constructor(
    readonly fd: number,
    /** For error messages. */
    readonly path: string,
  ) {}

  /** @param name for error messages */
  static open(path: string, name = path): NetworkNamespace {
    return new NetworkNamespace(openFile(path), name);
  }
  /** Opens the calling thread's namespace. */
  static current(): NetworkNamespace {
    return NetworkNamespace.open(OWN_NAMESPACE);
  }
  static ofProcess(pid: number): NetworkNamespace {
    return NetworkNamespace.open(`/proc/${pid}/ns/net`);
  }
  /** Takes ownership of an open file descriptor, such as one received over a Unix socket. */
  static adopt(fd: number, path: string): NetworkNamespace {
    return new NetworkNamespace(fd, path);
  }
  /** Opens a named namespace of `ip netns`. */
  static named(name: string): NetworkNamespace {
    return NetworkNamespace.open(namedPath(name));
  }

  /** Two handles refer to the same namespace if and only if their inodes are equal. */
  get inode(): number {
    return fstatSync(this.fd).ino;
  }

  /** As `withNamespace`. */
  run<T>(inside: () => T extends PromiseLike<unknown> ? never : T): T {
    return withNamespace(this, inside);
  }

  [Symbol.dispose](): void {
    if (this.#isOpen) closeSync(this.fd);
    this.#isOpen = false;
  }
}

/**
 * Opens a socket or file in a namespace. No JavaScript runs inside the namespace.
 * @returns a file descriptor, or minus the errno
 * @throws SyscallError if the thread cannot enter the namespace or return from it
 */
export function openInNamespace(namespace: NamespaceHandle | undefined, request: sys.SocketOrFile): number {
  if (namespace === undefined) return sys.openInCurrentNamespace(request);
  const previous = checkSyscall(sys.openReadOnly(OWN_NAMESPACE), `open network namespace ${OWN_NAMESPACE}`);
  const { entered, opened, returned } = sys.openInOtherNamespace(namespace.fd, previous, request);
  sys.close(previous);
  checkSyscall(entered, `enter network namespace ${nameOf(namespace)}`);
  checkSyscall(returned, RETURN);
  return opened;
}

/**
 * Runs a synchronous function inside a namespace and always returns to the previous namespace. For short-lived programs and
 * tests only: a thread that the runtime starts meanwhile stays in the namespace and keeps it alive. Daemons use
 * `openInNamespace`.
 */
export function withNamespace<T>(
  namespace: NamespaceHandle,
  inside: () => T extends PromiseLike<unknown> ? never : T,
): T {
  const previous = openFile(OWN_NAMESPACE);
  try {
    enter(namespace.fd, `enter network namespace ${nameOf(namespace)}`);
    try {
      return inside();
    } finally {
      enter(previous, RETURN);
    }
  } finally {
    closeSync(previous);
  }
}

const RETURN = "return to the previous network namespace";

const nameOf = ({ fd, path = `descriptor ${fd}` }: NamespaceHandle): string => path;

/** Creates a named namespace, as `ip netns add` does. */
export function createNamedNamespace(name: string): void {
  const path = namedPath(name);
  prepareDirectory();
  closeSync(openFile(path, "ax"));
  const previous = openFile(OWN_NAMESPACE);
  try {
    checkSyscall(sys.unshare(sys.CLONE_NEWNET), `create network namespace ${name}`);
    try {
      checkSyscall(sys.mount(OWN_NAMESPACE, path, "none", sys.MS_BIND), `bind network namespace ${name} to ${path}`);
    } finally {
      enter(previous, RETURN);
    }
  } catch (error) {
    rmSync(path, { force: true });
    throw error;
  } finally {
    closeSync(previous);
  }
}

/** Deletes a named namespace. Succeeds if it does not exist. */
export function deleteNamedNamespace(name: string): void {
  const path = namedPath(name);
  const result = sys.umount(path, sys.MNT_DETACH);
  // EINVAL: the file is not a mount point, because a process was killed while it created the namespace.
  if (result < 0 && !["ENOENT", "EINVAL"].includes(errnoName(-result)))
    throw new SyscallError(`delete network namespace ${name}`, errnoName(-result));
  rmSync(path, { force: true });
}

export function listNamedNamespaces(): string[] {
  try {
    return readdirSync(NETNS_DIRECTORY).sort();
  } catch {
    return []; // the directory does not exist before the first namespace is created
  }
}

function namedPath(name: string): string {
  if (!/^[A-Za-z0-9_][A-Za-z0-9_.-]{0,253}$/.test(name))
    throw new RangeError(`${JSON.stringify(name)} is not a network namespace name: want letters, digits, "-_."`);
  return join(NETNS_DIRECTORY, name);
}

function enter(fd: number, operation: string): void {
  checkSyscall(sys.setns(fd, sys.CLONE_NEWNET), operation);
}

/**
 * Makes the directory a shared mount, as `ip netns add` does. Otherwise a deleted namespace would stay mounted, and alive, in
 * the other mount namespaces. https://man7.org/linux/man-pages/man7/mount_namespaces.7.html
 */
function prepareDirectory(): void {
  mkdirSync(NETNS_DIRECTORY, { recursive: true });
  if (sys.mount("", NETNS_DIRECTORY, "none", sys.MS_SHARED | sys.MS_REC) >= 0) return;
  checkSyscall(
    sys.mount(NETNS_DIRECTORY, NETNS_DIRECTORY, "none", sys.MS_BIND | sys.MS_REC),
    `mount ${NETNS_DIRECTORY}`,
  );
  checkSyscall(sys.mount("", NETNS_DIRECTORY, "none", sys.MS_SHARED | sys.MS_REC), `share ${NETNS_DIRECTORY}`);
}

function openFile(path: string, flags = "r"): number {
  try {
    return openSync(path, flags, 0o444);
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "EIO";
    throw new SyscallError(`open network namespace ${path}`, code);
  }
}
