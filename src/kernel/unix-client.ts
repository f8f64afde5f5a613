// Whether somebody listens on a Unix socket. https://man7.org/linux/man-pages/man7/unix.7.html
import { EAGAIN } from "./errno.ts";
import * as sys from "./sys.ts";
import { unixAddress } from "./unix-message.ts";

/** Also somebody who is stopped, and whose queue of connections may be full. */
export function isListening(path: string): boolean {
  const fd = sys.socket(sys.AF_UNIX, sys.SOCK_STREAM | sys.SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  const result = sys.connect(fd, unixAddress(path));
  sys.close(fd);
  return result === 0 || result === -EAGAIN;
}
