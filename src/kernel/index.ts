// What the rooms above may use of Linux.
export { type Errno, errnoName } from "./errno.ts";
export { type ExtendedAck, hasErrno, isGone, NetlinkError, SyscallError } from "./netlink-error.ts";
export { NetlinkMessage, NetlinkReader, type RawAttribute } from "./netlink-reader.ts";
export {
  type BatchFault,
  NETLINK_GENERIC,
  NETLINK_NETFILTER,
  NETLINK_ROUTE,
  type NetlinkOptions,
  type NetlinkRequest,
  NetlinkSocket,
} from "./netlink-socket.ts";
export { NetlinkWriter } from "./netlink-writer.ts";
