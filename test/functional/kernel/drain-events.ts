// Reads the events of a netlink socket's multicast groups in a test.
import { EAGAIN, EINTR, ENOBUFS, errnoName } from "../../../src/kernel/sys/errno.ts";
import { type NetlinkSocket, SyscallError } from "../../../src/kernel/index.ts";
import { forEachMessage, type NetlinkMessage } from "../../../src/kernel/netlink/netlink-reader.ts";
import { allocate, MSG_DONTWAIT, recv } from "../../../src/kernel/sys/sys.ts";

/** Reads all queued events without waiting. Returns "overrun" if the kernel dropped events because the queue was full. */
export function drainEvents(
  { fd }: Pick<NetlinkSocket, "fd">,
  each: (event: NetlinkMessage) => void,
): "drained" | "overrun" {
  const buffer = allocate(256 * 1024);
  let result: "drained" | "overrun" = "drained";
  for (;;) {
    const length = recv(fd, buffer, MSG_DONTWAIT);
    if (length === -EAGAIN) return result;
    if (length === -EINTR) continue;
    if (length === -ENOBUFS) result = "overrun";
    else if (length < 0) throw new SyscallError("read events", errnoName(-length));
    else forEachMessage(buffer, length, each);
  }
}
