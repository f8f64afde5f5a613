// The client side of a Unix socket (unix(7)): sends one request with an optional file descriptor and reads the complete
// reply. Every call blocks the thread. The CNI plugin uses this file before it loads anything else, so it must not import
// `node:` modules.
// https://man7.org/linux/man-pages/man7/unix.7.html
import { EAGAIN, EINTR } from "../sys/errno.ts";
import * as sys from "../sys/sys.ts";
import {
  CONTROL,
  CONTROL_LENGTH,
  MAX_PAYLOAD,
  PAYLOAD,
  peerCredentials,
  fillMsghdr,
  SCM_RIGHTS,
  tryUnixAddress,
  unixAddress,
} from "./unix-message.ts";

const SO_SNDTIMEO = 21;

export interface UnixRequest {
  readonly path: string;
  readonly bytes: sys.Bytes;
  /** An open file that the server receives with the first bytes. */
  readonly descriptor?: number;
  /** Limit for connecting and for sending each chunk of the request. */
  readonly timeoutSeconds: number;
  /** Whether the same limit applies to each chunk of the reply. */
  readonly hasReplyTimeout: boolean;
}

export type UnixReply =
  | { readonly kind: "reply"; readonly bytes: sys.Bytes }
  /** The request was not sent, because no process of this user listens at the path. */
  | { readonly kind: "notSent" }
  /** A process listens, but did not accept the request or send anything within the limit. */
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
    const reply = sys.readToEnd((chunk) => sys.recv(fd, chunk, 0));
    if (typeof reply === "number") return { kind: reply === -EAGAIN ? "timeout" : "broken" };
    return { kind: "reply", bytes: reply };
  } finally {
    sys.close(fd);
  }
}

/** @returns minus the errno if not everything was sent */
function sendRequest(fd: number, address: sys.Bytes, request: UnixRequest): number {
  const { bytes, descriptor, timeoutSeconds, hasReplyTimeout } = request;
  const timeout = sys.timeval(timeoutSeconds * 1000);
  for (const option of hasReplyTimeout ? [SO_SNDTIMEO, sys.SO_RCVTIMEO] : [SO_SNDTIMEO])
    sys.setsockopt(fd, sys.SOL_SOCKET, option, timeout);
  const connected = sys.connect(fd, address);
  if (connected < 0) return connected;
  if (peerCredentials(fd).uid !== process.geteuid?.()) return -1;
  let at = 0;
  while (at < bytes.length) {
    const chunk = bytes.subarray(at, at + MAX_PAYLOAD);
    const sent =
      at === 0 && descriptor !== undefined
        ? sendWithDescriptor(fd, chunk, descriptor)
        : sys.send(fd, chunk, chunk.length, 0);
    if (sent < 0 && sent !== -EINTR) return sent;
    if (sent > 0) at += sent;
  }
  sys.shutdownWrite(fd); // not checked: if the server has closed the connection, reading the reply fails too
  return 0;
}

function sendWithDescriptor(fd: number, chunk: sys.Bytes, descriptor: number): number {
  const memory = sys.pinnedMemory();
  const header = fillMsghdr(memory, chunk.length, CONTROL_LENGTH);
  memory.view.setUint32(CONTROL, 20, true); // cmsghdr: 16 bytes and one int
  memory.view.setInt32(CONTROL + 8, sys.SOL_SOCKET, true);
  memory.view.setInt32(CONTROL + 12, SCM_RIGHTS, true);
  memory.view.setInt32(CONTROL + 16, descriptor, true);
  memory.bytes.set(chunk, PAYLOAD);
  return sys.sendmsg(fd, header, 0);
}

/** Returns whether a process listens at the path, even if it is stopped (SIGSTOP) and its backlog is full. */
export function isListening(path: string): boolean {
  const fd = connectToListener(path);
  if (fd !== undefined) sys.close(fd);
  return fd !== undefined;
}

/**
 * Returns undefined if no process listens. Otherwise returns a socket, which is connected unless the backlog of the
 * listening process is full.
 */
export function connectToListener(path: string): number | undefined {
  const fd = sys.socket(sys.AF_UNIX, sys.SOCK_STREAM | sys.SOCK_NONBLOCK, 0);
  if (fd < 0) return undefined;
  const result = sys.connect(fd, unixAddress(path));
  if (result === 0 || result === -EAGAIN) return fd;
  sys.close(fd);
  return undefined;
}
