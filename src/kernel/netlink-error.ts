// What the kernel refused and why, in words and in errno.
import { type Errno, errnoName } from "./errno.ts";

/** The extended acknowledgement: the kernel's own sentence and where in the request it pointed. */
export interface ExtendedAck {
  readonly message?: string;
  /** Byte offset of the refused attribute inside the request. */
  readonly offset?: number;
  /** Type of an attribute that was missing. */
  readonly missingType?: number;
}

export class NetlinkError extends Error {
  override readonly name = "NetlinkError";
  /** @param request in words: "add route 10.0.0.0/26 dev vxlan.calico" */
  constructor(
    readonly request: string,
    readonly errno: Errno,
    readonly extack: ExtendedAck = {},
    options?: ErrorOptions,
  ) {
    super(`${request}: ${errno}${extack.message === undefined ? "" : ` (${extack.message})`}`, options);
  }
}

/** A system call that failed. */
export class SyscallError extends Error {
  override readonly name = "SyscallError";
  /** @param attempt in words: "enter network namespace /run/netns/pod1" */
  constructor(
    readonly attempt: string,
    readonly errno: Errno,
    options?: ErrorOptions,
  ) {
    super(`${attempt}: ${errno}`, options);
  }
}

/** The result of a call from `sys.ts`, when it is one. */
export function succeed(result: number, attempt: string): number {
  if (result < 0) throw new SyscallError(attempt, errnoName(-result));
  return result;
}

/** Whether a kernel error has one of these numbers, whoever reported it. */
export function hasErrno(error: unknown, ...names: readonly Errno[]): boolean {
  return (error instanceof NetlinkError || error instanceof SyscallError) && names.includes(error.errno);
}

/** Deleting what is already gone is success. */
export const isGone = (error: unknown): boolean => hasErrno(error, "ENOENT", "ESRCH", "ENODEV", "EADDRNOTAVAIL");
