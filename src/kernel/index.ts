// The exports of this module: the only access of other modules to Linux.
export { watchGratuitousArp } from "./route/gratuitous-arp.ts";
export {
  type NeighbourResponder,
  type OpenNeighbourResponder,
  openNeighbourResponder,
} from "./route/neighbour-responder.ts";
export { type Addresses } from "./route/addresses.ts";
export { enlargeThreadPool } from "./sys/thread-pool.ts";
export { type Conntrack, type Flow, openConntrack } from "./netfilter/conntrack.ts";
export { hasTransmitChecksumOffload, setTransmitChecksumOffload } from "./route/ethtool.ts";
export {
  EventMonitor,
  type EventMonitorOptions,
  type EventSubject,
  type KernelEvent,
} from "./netlink/event-monitor.ts";
export { type FileLock, lockFile } from "./sys/file-lock.ts";
export { type LinkKind, type VxlanSettings } from "./route/link-kinds.ts";
export { type Link, type Links } from "./route/links.ts";
export { removeLink } from "./route/remove-link.ts";
export { LinkRemovalQueue } from "./route/link-removal-queue.ts";
export {
  createNamedNamespace,
  deleteNamedNamespace,
  listNamedNamespaces,
  NetworkNamespace,
  withNamespace,
} from "./sys/namespace.ts";
export { parseMountinfo, readMounts } from "./sys/mountinfo.ts";
export { type Neighbours } from "./route/neighbours.ts";
export { hasErrno, isGone, NetlinkError, SyscallError } from "./sys/kernel-error.ts";
export { NetlinkReader } from "./netlink/netlink-reader.ts";
export {
  NETLINK_ROUTE,
  NetlinkSocket,
} from "./netlink/netlink-socket.ts";
export { NetlinkWriter } from "./netlink/netlink-writer.ts";
export {
  PacketProber,
  type ProbeOutcome,
  type ProbeProtocol,
  type ProbeRequest,
  type ProbeEndpoint,
} from "./probe/packet-prober.ts";
export { openRtnetlink, type Rtnetlink } from "./route/rtnetlink.ts";
export { isRejecting, RT_TABLE_LOCAL, RT_TABLE_MAIN } from "./route/route-constants.ts";
export { type RouteType } from "./route/route-constants.ts";
export { type NewRoute, type Route } from "./route/route-message.ts";
export {
  defaultDestination,
  type RouteChange,
  type RejectedRouteChange,
  type Routes,
} from "./route/routes.ts";
export { type Rule, type Rules } from "./route/rules.ts";
export { procSysctls, setSysctl, sysctlsIn, type SysctlPath, type Sysctls } from "./sys/sysctl.ts";
export { memoryRtnetlink } from "./testing/memory-rtnetlink.ts";
export * from "./netfilter/exports.ts";
export { burstTicks, openTrafficControl, type TokenBucket, type TrafficControl } from "./route/traffic-control.ts";
export { setThreadedNapi } from "./route/threaded-napi.ts";
export { MemoryWireguard } from "./testing/memory-wireguard.ts";
export { openWireguard, type Wireguard } from "./wireguard/wireguard.ts";
export {
  type WireguardChange,
  type WireguardDevice,
  type WireguardPeer,
} from "./wireguard/wireguard-message.ts";
export { type ReceivedRequest, RequestServer } from "./unix/request-server.ts";
export { readStandardInput, writeStandardError, writeStandardOutput } from "./sys/standard-streams.ts";
export { exitNow, openReadOnly } from "./sys/sys.ts";
export { isListening, requestUnix } from "./unix/unix-client.ts";
export { openSyslog, type Syslog } from "./sys/syslog.ts";
