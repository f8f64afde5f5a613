// The settings this room reads, under the names operators know them by. The agent's configuration has them all and is
// passed as it is.
import { type Cidr, type IpAddress, tryParseAddress } from "../lib/ip.ts";
import { type FailsafePort, FLOWTABLE, type RulesConfig } from "./rules/config.ts";
import { allocateMarks } from "./rules/marks.ts";

export interface Span {
  readonly min: number;
  readonly max: number;
}
type OnOff = "Enabled" | "Disabled" | "";
/** A choice that may be set to nothing. */
type Choice<T extends string> = T | "";

export interface DataplaneParameters {
  readonly InterfacePrefix: readonly string[];
  readonly InterfaceExclude: readonly RegExp[];
  readonly Ipv6Support: boolean;
  readonly ChainInsertMode: Choice<"insert" | "append">;
  readonly DefaultEndpointToHostAction: Choice<"DROP" | "RETURN" | "ACCEPT">;
  readonly FailsafeInboundHostPorts: readonly FailsafePort[];
  readonly FailsafeOutboundHostPorts: readonly FailsafePort[];
  readonly ServiceLoopPrevention: Choice<"Drop" | "Reject" | "Disabled">;
  readonly AllowVXLANPacketsFromWorkloads: boolean;
  readonly AllowIPIPPacketsFromWorkloads: boolean;
  readonly DisableConntrackInvalidCheck: boolean;
  readonly ExternalNodesCIDRList: readonly Cidr[];
  readonly FloatingIPs: OnOff;
  readonly NATPortRange: Span | undefined;
  readonly NATOutgoingAddress: IpAddress | "";
  readonly NATOutgoingExclusions: Choice<"IPPoolsOnly" | "IPPoolsAndHostIPs">;
  readonly IptablesNATOutgoingInterfaceFilter: string;
  readonly IptablesBackend: Choice<"legacy" | "nft" | "auto">;
  readonly IptablesRefreshInterval: number;
  readonly IptablesPostWriteCheckIntervalSecs: number;
  readonly IptablesLockProbeIntervalMillis: number;
  readonly IptablesFilterAllowAction: Choice<"ACCEPT" | "RETURN">;
  readonly IptablesMangleAllowAction: Choice<"ACCEPT" | "RETURN">;
  readonly IptablesFilterDenyAction: Choice<"DROP" | "REJECT">;
  readonly IptablesMarkMask: number;
  readonly IpsetsRefreshInterval: number;
  readonly MaxIpsetSize: number;
  readonly KubeNodePortRanges: readonly Span[];
  readonly NFTablesMode: Choice<"Enabled" | "Disabled" | "Auto">;
  readonly NftablesRefreshInterval: number;
  readonly NftablesFilterAllowAction: Choice<"ACCEPT" | "RETURN">;
  readonly NftablesMangleAllowAction: Choice<"ACCEPT" | "RETURN">;
  readonly NftablesFilterDenyAction: Choice<"DROP" | "REJECT">;
  readonly NftablesMarkMask: number;
  readonly NFTablesFlowTableOffload: Choice<"All" | "Disabled">;
  readonly NFTablesFlowTableDataIfacePattern: RegExp | undefined;
  readonly FeatureDetectOverride: ReadonlyMap<string, string>;
  readonly LogPrefix: string;
  readonly LogActionRateLimit: { readonly count: number; readonly unit: string } | undefined;
  readonly LogActionRateLimitBurst: number;
  readonly HealthEnabled: boolean;
  readonly HealthPort: number;
  readonly IstioAmbientMode: OnOff;
  readonly IstioDSCPMark: number;
  readonly FlowLogsGoldmaneServer: string;
  readonly FlowLogsLocalReporter: OnOff;
  readonly ClusterType: string;
  readonly MetadataAddr: string;
  readonly MetadataPort: number;
  readonly IpInIpTunnelAddr: IpAddress | "";
  readonly IPv4VXLANTunnelAddr: IpAddress | "";
  readonly IPv6VXLANTunnelAddr: IpAddress | "";
  readonly VXLANPort: number;
  readonly VXLANVNI: number;
  readonly VXLANMTU: number;
  readonly VXLANMTUV6: number;
  readonly IpInIpEnabled: boolean | "auto";
  readonly IpInIpMtu: number;
  readonly WireguardMTU: number;
  readonly WireguardMTUV6: number;
  readonly MTUIfacePattern: RegExp | undefined;
  readonly RequireMTUFile: boolean;
  readonly WireguardEnabled: boolean;
  readonly WireguardEnabledV6: boolean;
  readonly WireguardInterfaceName: string;
  readonly WireguardInterfaceNameV6: string;
  readonly WireguardListeningPort: number;
  readonly WireguardListeningPortV6: number;
  readonly WireguardHostEncryptionEnabled: boolean;
  readonly WireguardRoutingRulePriority: number;
  readonly WireguardPersistentKeepAlive: number;
  readonly WireguardThreadingEnabled: boolean;
  readonly RouteTableRange: Span | undefined;
  readonly RouteTableRanges: readonly Span[];
  readonly RouteRefreshInterval: number;
  readonly InterfaceRefreshInterval: number;
  readonly DeviceRouteProtocol: number;
  readonly DeviceRouteSourceAddress: IpAddress | "";
  readonly DeviceRouteSourceAddressIPv6: IpAddress | "";
  readonly RemoveExternalRoutes: boolean;
  readonly RouteSyncDisabled: boolean;
  readonly ProgramClusterRoutes: Choice<"Enabled" | "Disabled" | "EnabledIPIPOnly" | "EnabledNoEncapOnly">;
  readonly IPv4NormalRoutePriority: number;
  readonly IPv6NormalRoutePriority: number;
  readonly IPv4ElevatedRoutePriority: number;
  readonly IPv6ElevatedRoutePriority: number;
  readonly LiveMigrationRouteConvergenceTime: number;
  readonly LocalSubnetL2Reachability: Choice<"Disabled" | "PodsAndLoadBalancers">;
  readonly LocalSubnetL2ReachabilityRefreshInterval: number;
  readonly IPForwarding: OnOff;
  readonly ReportingIntervalSecs: number;
  readonly DebugSimulateDataplaneApplyDelay: number;
}

/** What the agent found out before it starts the dataplane. */
export interface DataplaneFacts {
  readonly hostname: string;
  readonly ipipEnabled: boolean;
  readonly vxlanEnabled: boolean;
  readonly vxlanEnabledV6: boolean;
  /** Felix owns plain routes and a pool needs them. */
  readonly noEncapNeeded: boolean;
  /** kube-proxy runs in IPVS mode. */
  readonly ipvs: boolean;
  /** The kernel can offload established flows. */
  readonly flowOffload?: boolean;
  /** The kernel can record flows; not known when absent. */
  readonly flowRecords?: boolean;
  /** The metadata server's address, looked up from its name. */
  readonly metadataAddress?: IpAddress;
}

/** Either wants every verdict recorded. */
export const wantsFlowLogs = (
  p: Pick<DataplaneParameters, "FlowLogsGoldmaneServer" | "FlowLogsLocalReporter">,
): boolean => p.FlowLogsGoldmaneServer !== "" || p.FlowLogsLocalReporter === "Enabled";

export type RulesBackend = "iptables" | "nftables";

/** Nobody says so outright: the cluster's type, the metadata service and the interfaces' names give it away. */
export const isOpenStack = (
  p: Pick<DataplaneParameters, "ClusterType" | "MetadataAddr" | "MetadataPort" | "InterfacePrefix">,
): boolean =>
  p.ClusterType.toLowerCase().includes("openstack") ||
  !["", "127.0.0.1"].includes(p.MetadataAddr) ||
  ![0, 8775].includes(p.MetadataPort) ||
  p.InterfacePrefix.includes("tap");

/** Azure's network carries less than its interfaces say. */
export const isOnAzure = ({ ClusterType }: Pick<DataplaneParameters, "ClusterType">): boolean =>
  ClusterType.toLowerCase()
    .split(",")
    .some((part) => part.trim() === "aks");

const allow = (action: string): "accept" | "return" => (action === "RETURN" ? "return" : "accept");
/** Left out when unset: what is not configured is not a key. */
function given<K extends string, V>(key: K, value: V | "" | undefined): Partial<Record<K, V>> {
  return value === "" || value === undefined ? {} : ({ [key]: value } as Record<K, V>);
}

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
    deny: (isNft ? p.NftablesFilterDenyAction : p.IptablesFilterDenyAction) === "REJECT" ? "reject" : "drop",
    endpointToHost: ({ ACCEPT: "accept", RETURN: "return", DROP: "drop", "": "drop" } as const)[
      p.DefaultEndpointToHostAction
    ],
    failsafeIn: p.FailsafeInboundHostPorts,
    failsafeOut: p.FailsafeOutboundHostPorts,
    disableConntrackInvalidCheck: p.DisableConntrackInvalidCheck,
    allowVxlanFromWorkloads: p.AllowVXLANPacketsFromWorkloads,
    allowIpipFromWorkloads: p.AllowIPIPPacketsFromWorkloads,
    ipipEnabled: facts.ipipEnabled,
    ...given("ipipTunnelAddress", p.IpInIpTunnelAddr),
    vxlanEnabled: facts.vxlanEnabled,
    vxlanEnabledV6: facts.vxlanEnabledV6,
    vxlanPort: p.VXLANPort,
    ...given("vxlanTunnelAddress", p.IPv4VXLANTunnelAddr),
    ...given("vxlanTunnelAddressV6", p.IPv6VXLANTunnelAddr),
    wireguardEnabled: p.WireguardEnabled,
    wireguardEnabledV6: p.WireguardEnabledV6,
    wireguardInterface: p.WireguardInterfaceName,
    wireguardInterfaceV6: p.WireguardInterfaceNameV6,
    wireguardPort: p.WireguardListeningPort,
    wireguardPortV6: p.WireguardListeningPortV6,
    wireguardHostEncryption: p.WireguardHostEncryptionEnabled,
    ...(ports === undefined ? {} : { natPortRange: { first: ports.min, last: ports.max } }),
    ...given("natOutgoingAddress", p.NATOutgoingAddress),
    ...given("natOutgoingInterface", p.IptablesNATOutgoingInterfaceFilter),
    natExcludesHosts: p.NATOutgoingExclusions === "IPPoolsAndHostIPs",
    serviceLoop: ({ Drop: "drop", Reject: "reject", Disabled: "disabled", "": "drop" } as const)[
      p.ServiceLoopPrevention
    ],
    ...(isOpenStack(p) ? { openstack: { metadataPort: p.MetadataPort, ...given("metadataAddress", metadata) } } : {}),
    ...(p.IstioAmbientMode === "Enabled" ? { istioDscp: p.IstioDSCPMark } : {}),
    logPrefix: p.LogPrefix,
    ...(limit === undefined ? {} : { logRate: `${limit.count}/${limit.unit}` }),
    logBurst: p.LogActionRateLimitBurst,
    flowLogs: wantsFlowLogs(p) && facts.flowRecords !== false,
    ipvs: facts.ipvs && !isNft,
    nodePortRanges: p.KubeNodePortRanges.map(({ min, max }) => ({ first: min, last: max })),
    ...(isNft && facts.flowOffload === true ? { flowtable: FLOWTABLE } : {}),
    ...(p.HealthEnabled ? { healthPort: p.HealthPort } : {}),
  };
}
