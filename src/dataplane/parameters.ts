// The settings that the dataplane uses, and the configuration of the rules derived from them.
import { type IpAddress, tryParseAddress } from "../lib/ip/ip.ts";
import type { FelixConfig } from "../model/index.ts";
import { FLOWTABLE, type RulesConfig } from "./rules/config.ts";
import { allocateMarks } from "./rules/marks.ts";

/** Felix's settings that the dataplane uses. */
export type DataplaneParameters = Pick<
  FelixConfig,
  | "InterfacePrefix"
  | "InterfaceExclude"
  | "Ipv6Support"
  | "ChainInsertMode"
  | "DefaultEndpointToHostAction"
  | "FailsafeInboundHostPorts"
  | "FailsafeOutboundHostPorts"
  | "ServiceLoopPrevention"
  | "AllowVXLANPacketsFromWorkloads"
  | "AllowIPIPPacketsFromWorkloads"
  | "DisableConntrackInvalidCheck"
  | "ExternalNodesCIDRList"
  | "FloatingIPs"
  | "NATPortRange"
  | "NATOutgoingAddress"
  | "NATOutgoingExclusions"
  | "IptablesNATOutgoingInterfaceFilter"
  | "IptablesBackend"
  | "IptablesRefreshInterval"
  | "IptablesPostWriteCheckIntervalSecs"
  | "IptablesLockProbeIntervalMillis"
  | "IptablesFilterAllowAction"
  | "IptablesMangleAllowAction"
  | "IptablesFilterDenyAction"
  | "IptablesMarkMask"
  | "IpsetsRefreshInterval"
  | "MaxIpsetSize"
  | "KubeNodePortRanges"
  | "NFTablesMode"
  | "NftablesRefreshInterval"
  | "NftablesFilterAllowAction"
  | "NftablesMangleAllowAction"
  | "NftablesFilterDenyAction"
  | "NftablesMarkMask"
  | "NFTablesFlowTableOffload"
  | "NFTablesFlowTableDataIfacePattern"
  | "FeatureDetectOverride"
  | "LogPrefix"
  | "LogActionRateLimit"
  | "LogActionRateLimitBurst"
  | "HealthEnabled"
  | "HealthPort"
  | "IstioAmbientMode"
  | "IstioDSCPMark"
  | "FlowLogsGoldmaneServer"
  | "FlowLogsLocalReporter"
  | "ClusterType"
  | "MetadataAddr"
  | "MetadataPort"
  | "IpInIpTunnelAddr"
  | "IPv4VXLANTunnelAddr"
  | "IPv6VXLANTunnelAddr"
  | "VXLANPort"
  | "VXLANVNI"
  | "VXLANMTU"
  | "VXLANMTUV6"
  | "IpInIpEnabled"
  | "IpInIpMtu"
  | "WireguardMTU"
  | "WireguardMTUV6"
  | "MTUIfacePattern"
  | "RequireMTUFile"
  | "WireguardEnabled"
  | "WireguardEnabledV6"
  | "WireguardInterfaceName"
  | "WireguardInterfaceNameV6"
  | "WireguardListeningPort"
  | "WireguardListeningPortV6"
  | "WireguardHostEncryptionEnabled"
  | "WireguardRoutingRulePriority"
  | "WireguardPersistentKeepAlive"
  | "WireguardThreadingEnabled"
  | "RouteTableRange"
  | "RouteTableRanges"
  | "RouteRefreshInterval"
  | "InterfaceRefreshInterval"
  | "DeviceRouteProtocol"
  | "DeviceRouteSourceAddress"
  | "DeviceRouteSourceAddressIPv6"
  | "RemoveExternalRoutes"
  | "RouteSyncDisabled"
  | "ProgramClusterRoutes"
  | "IPv4NormalRoutePriority"
  | "IPv6NormalRoutePriority"
  | "IPv4ElevatedRoutePriority"
  | "IPv6ElevatedRoutePriority"
  | "LiveMigrationRouteConvergenceTime"
  | "LocalSubnetL2Reachability"
  | "LocalSubnetL2ReachabilityRefreshInterval"
  | "IPForwarding"
  | "ReportingIntervalSecs"
  | "DebugSimulateDataplaneApplyDelay"
>;

/** Facts that Felix determines before it starts the dataplane. */
export interface DataplaneFacts {
  readonly hostname: string;
  readonly ipipEnabled: boolean;
  readonly vxlanEnabled: boolean;
  readonly vxlanEnabledV6: boolean;
  /** Felix writes routes without encapsulation, and a pool needs them. */
  readonly noEncapNeeded: boolean;
  /** kube-proxy runs in IPVS mode. */
  readonly ipvs: boolean;
  /** The kernel supports flow offload. */
  readonly flowOffload?: boolean;
  /** The kernel supports NFLOG; undefined if not known. */
  readonly hasNflog?: boolean;
  /** The resolved address of the metadata server. */
  readonly metadataAddress?: IpAddress;
}

/** Either setting requires flow logs. */
export const areFlowLogsEnabled = (
  p: Pick<DataplaneParameters, "FlowLogsGoldmaneServer" | "FlowLogsLocalReporter">,
): boolean => p.FlowLogsGoldmaneServer !== "" || p.FlowLogsLocalReporter === "Enabled";

export type RulesBackend = "iptables" | "nftables";

/** Detected by the cluster type, the metadata service and the interface prefix, as in Calico. */
export const isOpenStack = (
  p: Pick<DataplaneParameters, "ClusterType" | "MetadataAddr" | "MetadataPort" | "InterfacePrefix">,
): boolean =>
  p.ClusterType.toLowerCase().includes("openstack") ||
  !["", "127.0.0.1"].includes(p.MetadataAddr) ||
  ![0, 8775].includes(p.MetadataPort) ||
  p.InterfacePrefix.includes("tap");

/** The network of Azure has a smaller MTU than its interfaces. */
export const isOnAzure = ({ ClusterType }: Pick<DataplaneParameters, "ClusterType">): boolean =>
  ClusterType.toLowerCase()
    .split(",")
    .some((part) => part.trim() === "aks");

const allow = (action: string): "accept" | "return" => (action === "Return" ? "return" : "accept");

export function rulesConfig(p: DataplaneParameters, facts: DataplaneFacts, backend: RulesBackend): RulesConfig {
  const isNft = backend === "nftables";
  const ports = p.NATPortRange;
  const limit = p.LogActionRateLimit;
  const metadata = facts.metadataAddress ?? tryParseAddress(p.MetadataAddr);
  return {
    workloadPrefixes: p.InterfacePrefix,
    marks: allocateMarks(isNft ? p.NftablesMarkMask : p.IptablesMarkMask, {
      withWireguard: p.WireguardEnabled || p.WireguardEnabledV6,
    }),
    filterAllow: allow(isNft ? p.NftablesFilterAllowAction : p.IptablesFilterAllowAction),
    mangleAllow: allow(isNft ? p.NftablesMangleAllowAction : p.IptablesMangleAllowAction),
    deny: (isNft ? p.NftablesFilterDenyAction : p.IptablesFilterDenyAction) === "Reject" ? "reject" : "drop",
    endpointToHost: ({ Accept: "accept", Return: "return", Drop: "drop", "": "drop" } as const)[
      p.DefaultEndpointToHostAction
    ],
    failsafeIn: p.FailsafeInboundHostPorts,
    failsafeOut: p.FailsafeOutboundHostPorts,
    disableConntrackInvalidCheck: p.DisableConntrackInvalidCheck,
    allowVxlanFromWorkloads: p.AllowVXLANPacketsFromWorkloads,
    allowIpipFromWorkloads: p.AllowIPIPPacketsFromWorkloads,
    ipipEnabled: facts.ipipEnabled,
    ipipTunnelAddress: p.IpInIpTunnelAddr || undefined,
    vxlanEnabled: facts.vxlanEnabled,
    vxlanEnabledV6: facts.vxlanEnabledV6,
    vxlanPort: p.VXLANPort,
    vxlanTunnelAddress: p.IPv4VXLANTunnelAddr || undefined,
    vxlanTunnelAddressV6: p.IPv6VXLANTunnelAddr || undefined,
    wireguardEnabled: p.WireguardEnabled,
    wireguardEnabledV6: p.WireguardEnabledV6,
    wireguardInterface: p.WireguardInterfaceName,
    wireguardInterfaceV6: p.WireguardInterfaceNameV6,
    wireguardPort: p.WireguardListeningPort,
    wireguardPortV6: p.WireguardListeningPortV6,
    wireguardHostEncryption: p.WireguardHostEncryptionEnabled,
    natPortRange: ports === undefined ? undefined : { first: ports.min, last: ports.max },
    natOutgoingAddress: p.NATOutgoingAddress || undefined,
    natOutgoingInterface: p.IptablesNATOutgoingInterfaceFilter || undefined,
    natExcludesHosts: p.NATOutgoingExclusions === "IPPoolsAndHostIPs",
    serviceLoop: ({ Drop: "drop", Reject: "reject", Disabled: "disabled", "": "drop" } as const)[
      p.ServiceLoopPrevention
    ],
    ...(isOpenStack(p) ? { openstack: { metadataPort: p.MetadataPort, metadataAddress: metadata } } : {}),
    ...(p.IstioAmbientMode === "Enabled" ? { istioDscp: p.IstioDSCPMark } : {}),
    logPrefix: p.LogPrefix,
    logRate: limit === undefined ? undefined : `${limit.count}/${limit.unit}`,
    logBurst: p.LogActionRateLimitBurst,
    flowLogs: areFlowLogsEnabled(p) && facts.hasNflog !== false,
    ipvs: facts.ipvs && !isNft,
    nodePortRanges: p.KubeNodePortRanges.map(({ min, max }) => ({ first: min, last: max })),
    ...(isNft && facts.flowOffload === true ? { flowtable: FLOWTABLE } : {}),
    ...(p.HealthEnabled ? { healthPort: p.HealthPort } : {}),
  };
}
