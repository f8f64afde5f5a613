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
export { Nft, NftError, type NftRuleset } from "./nft.ts";
export {
  type BaseChain,
  describeChange,
  type Hook,
  type NftChange,
  type NftFamily,
  type RuleBody,
  type TableRef,
} from "./nft-change.ts";
export type { DumpedChain, DumpedElement, DumpedRule, DumpedSet, DumpedTable } from "./nft-dump.ts";
export type { Expression, LimitUnit } from "./nft-expression.ts";
export * as nftMatch from "./nft-match.ts";
export * from "./nft-set.ts";
export { formatVerdict, type Verdict } from "./nft-verdict.ts";
export {
  PacketProber,
  type ProbeOutcome,
  type ProbeProtocol,
  type ProbeRequest,
  type ProbeTarget,
} from "./prober.ts";
