// Whether somebody listens on a Unix socket. https://man7.org/linux/man-pages/man7/unix.7.html
import * as sys from "./sys.ts";
import { unixAddress } from "./unix-message.ts";

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
