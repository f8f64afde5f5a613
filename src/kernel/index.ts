// What the rooms above may use of Linux.
export { type Addresses, type InterfaceAddress, type NewAddress } from "./addresses.ts";
export { type Conntrack, type Flow, type FlowTuple, openConntrack } from "./conntrack.ts";
export { type Errno, errnoName } from "./errno.ts";
export { hasTransmitChecksumOffload, setTransmitChecksumOffload } from "./ethtool.ts";
export { EventMonitor, type EventMonitorOptions, type EventSubject, type KernelEvent } from "./events.ts";
export { type FileLock, lockFile } from "./file-lock.ts";
export { type IpipSettings, type LinkKind, type VethPeer, type VxlanSettings } from "./link-kinds.ts";
export { isLinkName, type Link, type LinkSettings, type Links, type NewLink } from "./links.ts";
export { removeLink } from "./link-removal.ts";
export { macBytes, macText } from "./mac.ts";
export {
  createNamedNamespace,
  deleteNamedNamespace,
  listNamedNamespaces,
  NetworkNamespace,
  namedPath,
  withNamespace,
} from "./namespace.ts";
export {
  type ForwardingEntry,
  type Neighbour,
  type NeighbourState,
  type Neighbours,
  type ProxyNeighbour,
} from "./neighbours.ts";
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
export {
  PacketProber,
  type ProbeOutcome,
  type ProbeProtocol,
  type ProbeRequest,
  type ProbeTarget,
} from "./prober.ts";
export { openRouteKernel, type RouteKernel } from "./route-kernel.ts";
export { RT_TABLE_LOCAL, RT_TABLE_MAIN, RTPROT_BOOT, RTPROT_KERNEL, RTPROT_STATIC } from "./route-values.ts";
export { type RouteType, type Scope } from "./route-values.ts";
export { type NewRoute, type NextHop, type Route, type RouteKey, type RouteMetric } from "./route-wire.ts";
export {
  defaultDestination,
  leavesBy,
  type RouteChange,
  type RouteFault,
  type RouteFilter,
  type Routes,
} from "./routes.ts";
export { type Rule, type Rules } from "./rules.ts";
export { procSysctls, setSysctl, type SysctlPath, type Sysctls } from "./sysctl.ts";
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
  type WireguardPeerState,
} from "./wireguard-wire.ts";
export { type ReceivedRequest, RequestServer, type RequestServerOptions } from "./request-server.ts";
export { readStandardInput, writeStandardError, writeStandardOutput } from "./standard-streams.ts";
export { BriefCalls } from "./brief-calls.ts";
export { close, exitNow } from "./sys.ts";
export { isListening } from "./unix-client.ts";
export { openSyslog, type Syslog } from "./syslog.ts";
