// The answering side of a Unix socket: requests arrive in pieces, the first may bring an open file with it. https://man7.org/linux/man-pages/man7/unix.7.html
import { fchmodSync } from "node:fs";
import { EAGAIN, EINTR, errnoName } from "./errno.ts";
import { SyscallError, succeed } from "./netlink-error.ts";
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

/** Of msghdr: what the kernel says of what it gave. */
const FLAGS = 48;
const MSG_CTRUNC = 8;

/** Listens; the path must be free. For our own user alone: from its first moment, and without a second look at the path. */
export function listenUnix(path: string, mode = 0o600): number {
  const kind = sys.SOCK_STREAM | sys.SOCK_NONBLOCK; // whose connection went again must not block accept()
  const fd = succeed(sys.socket(sys.AF_UNIX, kind, 0), "make a Unix socket");
  try {
    fchmodSync(fd, mode); // bind() gives the file the socket's own mode
    succeed(sys.bind(fd, unixAddress(path)), `bind ${path}`);
    succeed(sys.listen(fd, 128), `listen on ${path}`);
    return fd;
  } catch (error) {
    sys.close(fd);
    throw error;
  }
}

export interface ReceivedPiece {
  /** Empty at the end. */
  readonly bytes: sys.Bytes;
  readonly descriptors: readonly number[];
}

/**
 * What is there now, with the descriptors that came along; nothing when there is nothing yet.
 * @throws SyscallError also when a descriptor came that this process has no room for
 */
export function receivePiece(fd: number): ReceivedPiece | undefined {
  const memory = sys.pinnedMemory();
  const header = prepareMessage(memory, MAX_FIRST, CONTROL_LENGTH);
  for (;;) {
    const length = sys.recvmsg(fd, header, sys.MSG_DONTWAIT | sys.MSG_CMSG_CLOEXEC);
    if (length === -EINTR) continue;
    if (length === -EAGAIN) return undefined;
    if (length < 0) throw new SyscallError("read a request", errnoName(-length));
    const descriptors = descriptorsIn(memory);
    if ((memory.view.getInt32(FLAGS, true) & MSG_CTRUNC) !== 0) {
      // Without its descriptor a request would read as one about a file that is gone.
      for (const descriptor of descriptors) sys.close(descriptor);
      throw new SyscallError("take the descriptor that came with a request", "EMFILE");
    }
    return { bytes: memory.bytes.slice(PAYLOAD, PAYLOAD + length), descriptors };
  }
}

/** All that came, wanted or not: they are open in this process and somebody must close them. */
function descriptorsIn({ view }: sys.PinnedMemory): number[] {
  const controlLength = Number(view.getBigUint64(40, true));
  if (controlLength < 20 || view.getInt32(CONTROL + 12, true) !== SCM_RIGHTS) return [];
  const end = Math.min(Number(view.getBigUint64(CONTROL, true)), CONTROL_LENGTH);
  const descriptors: number[] = [];
  for (let at = 16; at + 4 <= end; at += 4) descriptors.push(view.getInt32(CONTROL + at, true));
  return descriptors;
}
