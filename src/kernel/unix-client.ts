// The client side of a Unix socket: one request with an optional file descriptor, then the complete reply. Every call
// blocks the thread. The CNI plugin uses it before anything else is loaded, so this file must not import `node:` modules.
// https://man7.org/linux/man-pages/man7/unix.7.html
import { EAGAIN, EINTR } from "./errno.ts";
import * as sys from "./sys.ts";
import {
  CONTROL,
  CONTROL_LENGTH,
  MAX_FIRST,
  PAYLOAD,
  peerOf,
  prepareMessage,
  SCM_RIGHTS,
  tryUnixAddress,
  unixAddress,
} from "./unix-message.ts";

const SO_RCVTIMEO = 20;
const SO_SNDTIMEO = 21;

export interface UnixRequest {
  readonly path: string;
  readonly bytes: sys.Bytes;
  /** An open file that the server receives with the first bytes. */
  readonly descriptor?: number | undefined;
  /** How long to wait until the server accepts the connection and each piece of the request. */
  readonly timeoutSeconds: number;
  /** Whether the same limit applies to each piece of the reply. */
  readonly limitsReply: boolean;
}

export type UnixReply =
  | { readonly kind: "reply"; readonly bytes: sys.Bytes }
  /** The request was not sent: nobody listens at the path, or a process of another user does. */
  | { readonly kind: "notSent" }
  /** A process listens, but neither accepted nor sent anything within the time limit. */
  | { readonly kind: "timeout" }
  /** The request was sent, and the connection failed before the server closed it. */
  | { readonly kind: "broken" };

/** Sends one request and waits until the server has sent everything and closed the connection. */
export function requestUnix(request: UnixRequest): UnixReply {
  const address = tryUnixAddress(request.path);
  const fd = address === undefined ? -1 : sys.socket(sys.AF_UNIX, sys.SOCK_STREAM, 0);
  if (address === undefined || fd < 0) return { kind: "notSent" };
  try {
    const sent = sendRequest(fd, address, request);
    if (sent < 0) return { kind: sent === -EAGAIN ? "timeout" : "notSent" };
    const reply = sys.readToEnd((piece) => sys.recv(fd, piece, 0));
    if (typeof reply === "number") return { kind: reply === -EAGAIN ? "timeout" : "broken" };
    return { kind: "reply", bytes: reply };
  } finally {
    sys.close(fd);
  }
}

/** @returns minus the errno if not everything was sent */
function sendRequest(fd: number, address: sys.Bytes, request: UnixRequest): number {
  const { bytes, descriptor, timeoutSeconds, limitsReply } = request;
  for (const option of limitsReply ? [SO_SNDTIMEO, SO_RCVTIMEO] : [SO_SNDTIMEO])
    sys.setsockopt(fd, sys.SOL_SOCKET, option, timeval(timeoutSeconds));
  const connected = sys.connect(fd, address);
  if (connected < 0) return connected;
  if (peerOf(fd).uid !== process.geteuid?.()) return -1;
  let at = 0;
  while (at < bytes.length) {
    const piece = bytes.subarray(at, at + MAX_FIRST);
    const sent = at === 0 && descriptor !== undefined ? sendWith(fd, piece, descriptor) : sendPlain(fd, piece);
    if (sent < 0 && sent !== -EINTR) return sent;
    if (sent > 0) at += sent;
  }
  sys.shutdownWrite(fd); // it fails if the server has closed the connection; then so does the reply
  return 0;
}

const sendPlain = (fd: number, piece: sys.Bytes): number => sys.send(fd, piece, piece.length, 0);

function sendWith(fd: number, piece: sys.Bytes, descriptor: number): number {
  const memory = sys.pinnedMemory();
  const header = prepareMessage(memory, piece.length, CONTROL_LENGTH);
  memory.view.setUint32(CONTROL, 20, true); // cmsghdr: 16 bytes and one int
  memory.view.setInt32(CONTROL + 8, sys.SOL_SOCKET, true);
  memory.view.setInt32(CONTROL + 12, SCM_RIGHTS, true);
  memory.view.setInt32(CONTROL + 16, descriptor, true);
  memory.bytes.set(piece, PAYLOAD);
  return sys.sendmsg(fd, header, 0);
}

function timeval(seconds: number): sys.Bytes {
  const bytes = sys.allocate(16);
  new DataView(bytes.buffer).setUint32(0, seconds, true);
  return bytes;
}

/** Returns whether a process listens at the path, even if it is stopped and its queue of connections is full. */
export function isListening(path: string): boolean {
  const fd = reachListener(path);
  if (fd !== undefined) sys.close(fd);
  return fd !== undefined;
}

/** A connection to the process that listens at the path (not connected if its queue is full); undefined if none does. */
export function reachListener(path: string): number | undefined {
  const fd = sys.socket(sys.AF_UNIX, sys.SOCK_STREAM | sys.SOCK_NONBLOCK, 0);
  if (fd < 0) return undefined;
  const result = sys.connect(fd, unixAddress(path));
  if (result === 0 || result === -EAGAIN) return fd;
  sys.close(fd);
  return undefined;
}
