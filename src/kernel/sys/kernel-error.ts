// Errors of system calls and netlink requests: the attempted operation, the errno, and the kernel's explanation if it
// sent one.
import { type Errno, errnoName } from "./errno.ts";

/**
 * The kernel's explanation of an error (extended acknowledgement).
 * https://docs.kernel.org/userspace-api/netlink/intro.html#ext-ack
 */
export interface ExtendedAck {
  readonly message?: string;
}

export class NetlinkError extends Error {
  override readonly name = "NetlinkError";
  /** @param request the attempted operation: "add route 10.0.0.0/26 dev vxlan.calico" */
  constructor(
    readonly request: string,
    readonly errno: Errno,
    readonly extack: ExtendedAck = {},
    options?: ErrorOptions,
  ) {
    super(`${request}: ${errno}${extack.message === undefined ? "" : ` (${extack.message})`}`, options);
  }
}

export class SyscallError extends Error {
  override readonly name = "SyscallError";
  /** @param operation the attempted operation: "enter network namespace /run/netns/pod1" */
  constructor(
    readonly operation: string,
    readonly errno: Errno,
    options?: ErrorOptions,
  ) {
    super(`${operation}: ${errno}`, options);
  }
}

/**
 * Returns the result of a call in `sys/sys.ts`.
 * @throws SyscallError if the result is minus an errno
 */
export function checkSyscall(result: number, operation: string): number {
  if (result < 0) throw new SyscallError(operation, errnoName(-result));
  return result;
}

/** Returns whether a NetlinkError or SyscallError has one of these errnos. */
export function hasErrno(error: unknown, ...names: readonly Errno[]): boolean {
  return (error instanceof NetlinkError || error instanceof SyscallError) && names.includes(error.errno);
}

/** True if the object does not exist. Deleting it then counts as success. */
export const isGone = (error: unknown): boolean => hasErrno(error, "ENOENT", "ESRCH", "ENODEV", "EADDRNOTAVAIL");
