// How a message with a descriptor lies in memory, for both ends of a Unix socket.
import { AF_UNIX, allocate, type Bytes, cString, type PinnedMemory } from "./sys.ts";

export const SCM_RIGHTS = 1;
// Layout of the scratch memory: msghdr (56 bytes), iovec (16), control message (header 16, one descriptor), payload.
const IOVEC = 64;
export const CONTROL = 96;
export const CONTROL_LENGTH = 24;
export const PAYLOAD = 128;
export const MAX_FIRST = 32 * 1024;

export function unixAddress(path: string): Bytes {
  const bytes = allocate(110);
  new DataView(bytes.buffer).setUint16(0, AF_UNIX, true);
  const text = cString(path);
  const length = text.indexOf(0);
  if (length > 107) throw new RangeError(`socket path ${path} is too long: at most 107 bytes`);
  bytes.set(text.subarray(0, length), 2);
  return bytes;
}

/** Fills the msghdr; its address. */
export function prepareMessage(memory: PinnedMemory, payload: number, control: number): number {
  const { address, bytes, view } = memory;
  bytes.fill(0, 0, PAYLOAD);
  view.setBigUint64(16, BigInt(address + IOVEC), true); // msg_iov
  view.setBigUint64(24, 1n, true); // msg_iovlen
  if (control > 0) {
    view.setBigUint64(32, BigInt(address + CONTROL), true); // msg_control
    view.setBigUint64(40, BigInt(control), true); // msg_controllen
  }
  view.setBigUint64(IOVEC, BigInt(address + PAYLOAD), true);
  view.setBigUint64(IOVEC + 8, BigInt(payload), true);
  return address;
}
