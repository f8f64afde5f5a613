// The server side of a Unix socket: listens, and receives requests in chunks with their file descriptors.
// https://man7.org/linux/man-pages/man7/unix.7.html
import { fchmodSync } from "node:fs";
import { EAGAIN, EINTR, errnoName } from "../sys/errno.ts";
import { SyscallError, checkSyscall } from "../sys/kernel-error.ts";
import * as sys from "../sys/sys.ts";
import { CONTROL, CONTROL_LENGTH, MAX_PAYLOAD, PAYLOAD, fillMsghdr, SCM_RIGHTS, unixAddress } from "./unix-message.ts";

const MSG_FLAGS = 48; // offset in msghdr
const MSG_CTRUNC = 8;

/** Listens at a path where no file exists. Only this user can connect. */
export function listenUnix(path: string): number {
  // Non-blocking, because a client may disconnect between poll() and accept(), which would then block.
  const fd = checkSyscall(sys.socket(sys.AF_UNIX, sys.SOCK_STREAM | sys.SOCK_NONBLOCK, 0), "create a Unix socket");
  try {
    fchmodSync(fd, 0o600); // bind() creates the file with the socket's mode, so it is never accessible to others
    checkSyscall(sys.bind(fd, unixAddress(path)), `bind ${path}`);
    checkSyscall(sys.listen(fd, 128), `listen on ${path}`);
    return fd;
  } catch (error) {
    sys.close(fd);
    throw error;
  }
}

export interface ReceivedChunk {
  /** Empty at the end of the request. */
  readonly bytes: sys.Bytes;
  readonly descriptors: readonly number[];
}

/**
 * Receives what has arrived; undefined if nothing has.
 * @throws SyscallError also if the kernel could not deliver all descriptors, because this process has too many
 */
export function receiveChunk(fd: number): ReceivedChunk | undefined {
  const memory = sys.pinnedMemory();
  const header = fillMsghdr(memory, MAX_PAYLOAD, CONTROL_LENGTH);
  for (;;) {
    const length = sys.recvmsg(fd, header, sys.MSG_DONTWAIT | sys.MSG_CMSG_CLOEXEC);
    if (length === -EINTR) continue;
    if (length === -EAGAIN) return undefined;
    if (length < 0) throw new SyscallError("read a request", errnoName(-length));
    const descriptors = receivedDescriptors(memory);
    if ((memory.view.getInt32(MSG_FLAGS, true) & MSG_CTRUNC) !== 0) {
      // A request without its descriptor would mean something else: that the namespace does not exist.
      for (const descriptor of descriptors) sys.close(descriptor);
      throw new SyscallError("receive the file descriptor of a request", "EMFILE");
    }
    return { bytes: memory.bytes.slice(PAYLOAD, PAYLOAD + length), descriptors };
  }
}

/** Returns all received descriptors, so that unexpected ones can be closed too. */
function receivedDescriptors({ view }: sys.PinnedMemory): number[] {
  const controlLength = Number(view.getBigUint64(40, true));
  if (controlLength < 20 || view.getInt32(CONTROL + 12, true) !== SCM_RIGHTS) return [];
  const end = Math.min(Number(view.getBigUint64(CONTROL, true)), CONTROL_LENGTH);
  const descriptors: number[] = [];
  for (let at = 16; at + 4 <= end; at += 4) descriptors.push(view.getInt32(CONTROL + at, true));
  return descriptors;
}
