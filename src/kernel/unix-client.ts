// The asking side of a Unix socket: one request, with a descriptor if need be, and its reply. It blocks, for programs
// that have nothing else to do, and loads next to nothing. https://man7.org/linux/man-pages/man7/unix.7.html
import { readToEnd } from "./standard-streams.ts";
import * as sys from "./sys.ts";
import {
  CONTROL,
  CONTROL_LENGTH,
  MAX_FIRST,
  PAYLOAD,
  prepareMessage,
  SCM_RIGHTS,
  unixAddress,
} from "./unix-message.ts";

const SO_RCVTIMEO = 20;

/** A connection, or nothing when nobody listens there. */
export function connectUnix(path: string, timeoutMs: number): number | undefined {
  const fd = sys.socket(sys.AF_UNIX, sys.SOCK_STREAM, 0);
  if (fd < 0) return undefined;
  if (sys.connect(fd, unixAddress(path)) !== 0) {
    sys.close(fd);
    return undefined;
  }
  const timeout = sys.allocate(16); // struct timeval: seconds, microseconds
  const view = new DataView(timeout.buffer);
  view.setUint32(0, Math.floor(timeoutMs / 1000), true);
  view.setUint32(8, (timeoutMs % 1000) * 1000, true);
  sys.setsockopt(fd, sys.SOL_SOCKET, SO_RCVTIMEO, timeout);
  return fd;
}

/** Sends all bytes, the descriptor with the first of them, and then the end. False when the other side went away. */
export function sendRequest(fd: number, bytes: sys.Bytes, descriptor: number | undefined): boolean {
  const first = Math.min(bytes.length, MAX_FIRST);
  const memory = sys.pinnedMemory();
  const header = prepareMessage(memory, first, descriptor === undefined ? 0 : CONTROL_LENGTH);
  memory.bytes.set(first === bytes.length ? bytes : bytes.subarray(0, first), PAYLOAD);
  if (descriptor !== undefined) {
    memory.view.setUint32(CONTROL, 20, true); // cmsghdr: 16 bytes and one int; the upper half is 0
    memory.view.setInt32(CONTROL + 8, sys.SOL_SOCKET, true);
    memory.view.setInt32(CONTROL + 12, SCM_RIGHTS, true);
    memory.view.setInt32(CONTROL + 16, descriptor, true);
  }
  let sent = sys.sendmsg(fd, header, 0);
  while (sent >= 0 && sent < bytes.length) {
    const rest = bytes.slice(sent);
    const more = sys.send(fd, rest, rest.length, 0);
    sent = more < 0 ? more : sent + more;
  }
  return sent >= 0 && sys.shutdownWrite(fd) === 0;
}

/** Everything until the other side closes; nothing when that takes too long. */
export function readAll(fd: number): sys.Bytes | undefined {
  const read = readToEnd((piece) => sys.recv(fd, piece, 0));
  return typeof read === "number" ? undefined : read;
}
