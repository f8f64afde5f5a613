// Code that both ends of a Unix socket share: addresses, the msghdr of a message with a file descriptor, and the peer's
// credentials. https://man7.org/linux/man-pages/man7/unix.7.html
import { checkSyscall } from "../sys/kernel-error.ts";
import { AF_UNIX, allocate, type Bytes, cString, getsockopt, type PinnedMemory, SOL_SOCKET } from "../sys/sys.ts";

const SO_PEERCRED = 17;

export const SCM_RIGHTS = 1;
// Layout of the scratch memory: msghdr (56 bytes), iovec (16), control message (header 16, one descriptor), payload.
const IOVEC = 64;
export const CONTROL = 96;
/** Padded to 8 bytes, so the kernel can deliver two descriptors. */
export const CONTROL_LENGTH = 24;
export const PAYLOAD = 128;
export const MAX_PAYLOAD = 32 * 1024;

export function unixAddress(path: string): Bytes {
  const bytes = allocate(110);
  bytes[0] = AF_UNIX; // the low byte of sun_family
  const text = cString(path);
  if (text.length > 108 && text.indexOf(0) > 107)
    throw new RangeError(`socket path ${path} is too long: at most 107 bytes`);
  bytes.set(text.length > 108 ? text.subarray(0, 108) : text, 2);
  return bytes;
}

/** @returns undefined if no socket can have this path */
export function tryUnixAddress(path: string): Bytes | undefined {
  try {
    return unixAddress(path);
  } catch {
    return undefined;
  }
}

/** Fills the msghdr and returns its address. */
export function fillMsghdr(memory: PinnedMemory, payload: number, control: number): number {
  const { address, bytes, view } = memory;
  bytes.fill(0, 0, PAYLOAD);
  setLong(view, 16, address + IOVEC); // msg_iov
  setLong(view, 24, 1); // msg_iovlen
  if (control > 0) {
    setLong(view, 32, address + CONTROL); // msg_control
    setLong(view, 40, control); // msg_controllen
  }
  setLong(view, IOVEC, address + PAYLOAD);
  setLong(view, IOVEC + 8, payload);
  return address;
}

/** Writes 64 bits without a BigInt: addresses have 47 bits. */
function setLong(view: DataView, at: number, value: number): void {
  view.setUint32(at, value >>> 0, true);
  view.setUint32(at + 4, Math.floor(value / 2 ** 32), true);
}

/** Returns the credentials of the peer process. Its pid is 0 if its PID namespace is not visible from this process. */
export function peerCredentials(fd: number): { readonly pid: number; readonly uid: number } {
  const credentials = allocate(12); // ucred: pid, uid, gid
  checkSyscall(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, credentials), "read the peer's credentials");
  const view = new DataView(credentials.buffer);
  return { pid: view.getInt32(0, true), uid: view.getUint32(4, true) };
}
