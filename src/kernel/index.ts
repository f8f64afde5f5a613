// What the rooms above may use of Linux.
export { listenForAnnouncement } from "./announcements.ts";
export { type NeighbourResponder, type OpenNeighbourResponder, openNeighbourResponder } from "./neighbour-responder.ts";
export { type Addresses } from "./addresses.ts";
export { allowManyAsides } from "./asides.ts";
export { type Conntrack, type Flow, openConntrack } from "./conntrack.ts";
export { hasTransmitChecksumOffload, setTransmitChecksumOffload } from "./ethtool.ts";
export { EventMonitor, type EventMonitorOptions, type EventSubject, type KernelEvent } from "./events.ts";
export { type FileLock, lockFile } from "./file-lock.ts";
export { type LinkKind, type VxlanSettings } from "./link-kinds.ts";
export { type Link, type Links } from "./links.ts";
export { removeLink } from "./link-removal.ts";
export { LinkRemover } from "./link-remover.ts";
export {
  createNamedNamespace,
  deleteNamedNamespace,
  listNamedNamespaces,
  NetworkNamespace,
  withNamespace,
} from "./namespace.ts";
export { parseMountinfo, readMounts } from "./mountinfo.ts";
export { type Neighbours } from "./neighbours.ts";
export { hasErrno, isGone, NetlinkError, SyscallError } from "./netlink-error.ts";
export { NetlinkReader } from "./netlink-reader.ts";
export {
  NETLINK_ROUTE,
  NetlinkSocket,
} from "./netlink-socket.ts";
export { NetlinkWriter } from "./netlink-writer.ts";
export {
  PacketProber,
  type ProbeOutcome,
  type ProbeProtocol,
  type ProbeRequest,
  type ProbeTarget,
} from "./prober.ts";
export { openRouteKernel, type RouteKernel } from "./route-kernel.ts";
export { isRejecting, RT_TABLE_LOCAL, RT_TABLE_MAIN } from "./route-values.ts";
export { type RouteType } from "./route-values.ts";
export { type NewRoute, type Route } from "./route-wire.ts";
export {
  defaultDestination,
  type RouteChange,
  type RouteFault,
  type Routes,
} from "./routes.ts";
export { type Rule, type Rules } from "./rules.ts";
export { procSysctls, setSysctl, sysctlsIn, type SysctlPath, type Sysctls } from "./sysctl.ts";
export { memoryRouteKernel } from "./memory-route-kernel.ts";
export * from "./netfilter.ts";
export { burstTicks, openTrafficControl, type TokenBucket, type TrafficControl } from "./traffic-control.ts";
export { setThreaded } from "./link-threading.ts";
export { MemoryWireguard } from "./memory-wireguard.ts";
export { openWireguard, type Wireguard } from "./wireguard.ts";
export {
  type WireguardChange,
  type WireguardDevice,
  type WireguardPeer,
} from "./wireguard-wire.ts";
export { type ReceivedRequest, RequestServer } from "./request-server.ts";
export { readStandardInput, writeStandardError, writeStandardOutput } from "./standard-streams.ts";
export { exitNow, openReadOnly } from "./sys.ts";
export { isListening, requestUnix } from "./unix-client.ts";
export { openSyslog, type Syslog } from "./syslog.ts";
