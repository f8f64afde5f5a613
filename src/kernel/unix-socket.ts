// Unix stream sockets that carry descriptors: a small protocol of one request and one reply per connection, where the
// request may bring an open file with it. https://man7.org/linux/man-pages/man7/unix.7.html
import { EAGAIN, EINTR, errnoName } from "./errno.ts";
import { SyscallError, succeed } from "./netlink-error.ts";
import * as sys from "./sys.ts";

const SCM_RIGHTS = 1;
const SO_PEERCRED = 17;
const SO_RCVTIMEO = 20;
const SO_SNDTIMEO = 21;
// Layout of the scratch memory: msghdr (56 bytes), iovec (16), control message (header 16, one descriptor), payload.
const IOVEC = 64;
const CONTROL = 96;
const CONTROL_LENGTH = 24;
const PAYLOAD = 128;
const MAX_FIRST = 32 * 1024;

function unixAddress(path: string): sys.Bytes {
  const bytes = sys.allocate(110);
  new DataView(bytes.buffer).setUint16(0, sys.AF_UNIX, true);
  const text = sys.cString(path);
  const length = text.indexOf(0);
  if (length > 107) throw new RangeError(`socket path ${path} is too long: at most 107 bytes`);
  bytes.set(text.subarray(0, length), 2);
  return bytes;
}

/** Listens; the path must be free. */
export function listenUnix(path: string): number {
  const kind = sys.SOCK_STREAM | sys.SOCK_NONBLOCK; // whose connection went again must not block accept()
  const fd = succeed(sys.socket(sys.AF_UNIX, kind, 0), "make a Unix socket");
  try {
    succeed(sys.bind(fd, unixAddress(path)), `bind ${path}`);
    succeed(sys.listen(fd, 128), `listen on ${path}`);
    return fd;
  } catch (error) {
    sys.close(fd);
    throw error;
  }
}

/** A connection, or nothing when nobody listens there. */
export function connectUnix(path: string, timeoutMs: number): number | undefined {
  const fd = succeed(sys.socket(sys.AF_UNIX, sys.SOCK_STREAM, 0), "make a Unix socket");
  const result = sys.connect(fd, unixAddress(path));
  if (result === 0) {
    const timeout = timeval(timeoutMs);
    sys.setsockopt(fd, sys.SOL_SOCKET, SO_RCVTIMEO, timeout);
    sys.setsockopt(fd, sys.SOL_SOCKET, SO_SNDTIMEO, timeout);
    return fd;
  }
  sys.close(fd);
  return undefined;
}

/** Sends all bytes, the descriptor with the first of them, and then the end. */
export function sendRequest(fd: number, bytes: sys.Bytes, descriptor: number | undefined): void {
  const first = Math.min(bytes.length, MAX_FIRST);
  const memory = sys.pinnedMemory();
  const header = prepareMessage(memory, first, descriptor === undefined ? 0 : CONTROL_LENGTH);
  memory.bytes.set(bytes.subarray(0, first), PAYLOAD);
  if (descriptor !== undefined) {
    memory.view.setBigUint64(CONTROL, 20n, true); // cmsghdr: 16 bytes and one int
    memory.view.setInt32(CONTROL + 8, sys.SOL_SOCKET, true);
    memory.view.setInt32(CONTROL + 12, SCM_RIGHTS, true);
    memory.view.setInt32(CONTROL + 16, descriptor, true);
  }
  let sent = succeed(sys.sendmsg(fd, header, 0), "send a request");
  while (sent < bytes.length) {
    const rest = bytes.slice(sent);
    sent += succeed(sys.send(fd, rest, rest.length, 0), "send a request");
  }
  succeed(sys.shutdownWrite(fd), "end a request");
}

/** Everything until the other side closes. */
export function readAll(fd: number): sys.Bytes {
  const chunks: sys.Bytes[] = [];
  const buffer = sys.allocate(16 * 1024);
  let total = 0;
  for (;;) {
    const length = sys.recv(fd, buffer, 0);
    if (length === -EINTR) continue;
    if (length < 0) throw new SyscallError("read a reply", length === -EAGAIN ? "ETIMEDOUT" : errnoName(-length));
    if (length === 0) break;
    chunks.push(buffer.slice(0, length));
    total += length;
  }
  const all = sys.allocate(total);
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.length;
  }
  return all;
}

export interface ReceivedPiece {
  /** Empty at the end. */
  readonly bytes: sys.Bytes;
  readonly descriptors: readonly number[];
}

/** What is there now, with the descriptors that came along; nothing when there is nothing yet. */
export function receivePiece(fd: number): ReceivedPiece | undefined {
  const memory = sys.pinnedMemory();
  const header = prepareMessage(memory, MAX_FIRST, CONTROL_LENGTH);
  for (;;) {
    const length = sys.recvmsg(fd, header, sys.MSG_DONTWAIT | sys.MSG_CMSG_CLOEXEC);
    if (length === -EINTR) continue;
    if (length === -EAGAIN) return undefined;
    if (length < 0) throw new SyscallError("read a request", errnoName(-length));
    const descriptors: number[] = [];
    const controlLength = Number(memory.view.getBigUint64(40, true));
    if (controlLength >= 20 && memory.view.getInt32(CONTROL + 12, true) === SCM_RIGHTS)
      descriptors.push(memory.view.getInt32(CONTROL + 16, true));
    return { bytes: memory.bytes.slice(PAYLOAD, PAYLOAD + length), descriptors };
  }
}

/** Who is on the other side. */
export function peerUid(fd: number): number {
  const credentials = sys.allocate(12); // ucred: pid, uid, gid
  succeed(sys.getsockopt(fd, sys.SOL_SOCKET, SO_PEERCRED, credentials), "ask who connected");
  return new DataView(credentials.buffer).getUint32(4, true);
}

/** Fills the msghdr; its address. */
function prepareMessage(memory: sys.PinnedMemory, payload: number, control: number): number {
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

function timeval(ms: number): sys.Bytes {
  const bytes = sys.allocate(16);
  const view = new DataView(bytes.buffer);
  view.setBigInt64(0, BigInt(Math.floor(ms / 1000)), true);
  view.setBigInt64(8, BigInt((ms % 1000) * 1000), true);
  return bytes;
}
