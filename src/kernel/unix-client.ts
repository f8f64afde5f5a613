// Whether somebody listens on a Unix socket. https://man7.org/linux/man-pages/man7/unix.7.html
import { EAGAIN } from "./errno.ts";
import * as sys from "./sys.ts";
import { unixAddress } from "./unix-message.ts";

/** Also somebody who is stopped, and whose queue of connections may be full. */
export function isListening(path: string): boolean {
  const fd = reachListener(path);
  if (fd !== undefined) sys.close(fd);
  return fd !== undefined;
}

/** A connection to who listens, unless that one's queue is full; nothing when nobody does. */
export function reachListener(path: string): number | undefined {
  const fd = sys.socket(sys.AF_UNIX, sys.SOCK_STREAM | sys.SOCK_NONBLOCK, 0);
  if (fd < 0) return undefined;
  const result = sys.connect(fd, unixAddress(path));
  if (result === 0 || result === -EAGAIN) return fd;
  sys.close(fd);
  return undefined;
}
