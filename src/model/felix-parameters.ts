// Felix's parameters that a FelixConfiguration can set, by their own names, and how a field of the resource becomes the
// text a parameter is read from.
import { isJsonObject, type Json, type JsonObject } from "../lib/lossless-json.ts";
import { parseDuration } from "./duration.ts";

/** Every parameter that is a field of the resource. */
const PARAMETERS: readonly string[] = `
  AWSSrcDstCheck AllowIPIPPacketsFromWorkloads AllowVXLANPacketsFromWorkloads BPFAttachType BPFCTLBLogFilter
  BPFConnectTimeLoadBalancing BPFConnectTimeLoadBalancingEnabled BPFConntrackCleanupMode BPFConntrackLogLevel BPFConntrackTimeouts
  BPFDSROptoutCIDRs BPFDataIfacePattern BPFDisableGROForIfaces BPFDisableUnprivileged BPFEnabled
  BPFEnforceRPF BPFExcludeCIDRsFromNAT BPFExportBufferSizeMB BPFExtToServiceConnmark BPFExternalServiceMode
  BPFForceTrackPacketsFromIfaces BPFHostConntrackBypass BPFHostNetworkedNATWithoutCTLB BPFIPFragTimeout BPFIPFragmentReassemblyEnabled
  BPFJITHardening BPFKubeProxyHealthzPort BPFKubeProxyIptablesCleanupEnabled BPFKubeProxyMinSyncPeriod BPFL3IfacePattern
  BPFLogFilters BPFLogLevel BPFMaglevMaxEndpointsPerService BPFMaglevMaxServices BPFMapSizeConntrack
  BPFMapSizeConntrackCleanupQueue BPFMapSizeConntrackScaling BPFMapSizeIPSets BPFMapSizeIfState BPFMapSizeNATAffinity
  BPFMapSizeNATBackend BPFMapSizeNATFrontend BPFMapSizePerCPUConntrack BPFMapSizeRoute BPFOverlayHostSourceIP
  BPFPSNATPorts BPFPolicyDebugEnabled BPFProfiling BPFRedirectToPeer CgroupV2Path
  ChainInsertMode DataplaneDriver DataplaneWatchdogTimeout DebugDisableLogDropping DebugHost
  DebugMemoryProfilePath DebugPort DebugSimulateCalcGraphHangAfter DebugSimulateDataplaneApplyDelay DebugSimulateDataplaneHangAfter
  DefaultEndpointToHostAction DeviceRouteProtocol DeviceRouteSourceAddress DeviceRouteSourceAddressIPv6 DisableConntrackInvalidCheck
  EndpointReportingDelaySecs EndpointReportingEnabled EndpointStatusPathPrefix ExternalNodesCIDRList FailsafeInboundHostPorts
  FailsafeOutboundHostPorts FeatureDetectOverride FeatureGates FloatingIPs FlowLogsCollectorDebugTrace
  FlowLogsFlushInterval FlowLogsGoldmaneServer FlowLogsLocalReporter FlowLogsPolicyEvaluationMode GenericXDPEnabled
  GoGCThreshold GoMaxProcs GoMemoryLimitMB HealthEnabled HealthHost
  HealthPort HealthTimeoutOverrides IPForwarding IPv4ElevatedRoutePriority IPv4NormalRoutePriority
  IPv6ElevatedRoutePriority IPv6NormalRoutePriority InterfaceExclude InterfacePrefix InterfaceRefreshInterval
  IpInIpEnabled IpInIpMtu IpsetsRefreshInterval IptablesBackend IptablesFilterAllowAction
  IptablesFilterDenyAction IptablesLockProbeIntervalMillis IptablesMangleAllowAction IptablesMarkMask IptablesNATOutgoingInterfaceFilter
  IptablesPostWriteCheckIntervalSecs IptablesRefreshInterval Ipv6Support IstioAmbientMode IstioDSCPMark
  KubeNodePortRanges LiveMigrationRouteConvergenceTime LocalSubnetL2Reachability LocalSubnetL2ReachabilityRefreshInterval LogActionRateLimit
  LogActionRateLimitBurst LogDebugFilenameRegex LogFilePath LogPrefix LogSeverityFile
  LogSeverityScreen LogSeveritySys MTUIfacePattern MaxIpsetSize MetadataAddr
  MetadataPort NATOutgoingAddress NATOutgoingExclusions NATPortRange NFTablesFlowTableDataIfacePattern
  NFTablesFlowTableOffload NFTablesMode NetlinkTimeoutSecs NftablesFilterAllowAction NftablesFilterDenyAction
  NftablesMangleAllowAction NftablesMarkMask NftablesRefreshInterval OpenstackRegion PolicySyncPathPrefix
  ProgramClusterRoutes PrometheusGoMetricsEnabled PrometheusMetricsCAFile PrometheusMetricsCertFile PrometheusMetricsClientAuth
  PrometheusMetricsEnabled PrometheusMetricsHost PrometheusMetricsKeyFile PrometheusMetricsPort PrometheusProcessMetricsEnabled
  PrometheusWireGuardMetricsEnabled RemoveExternalRoutes ReportingIntervalSecs ReportingTTLSecs RequireMTUFile
  RouteRefreshInterval RouteSource RouteSyncDisabled RouteTableRange RouteTableRanges
  ServiceLoopPrevention SidecarAccelerationEnabled UsageReportingEnabled UsageReportingInitialDelaySecs UsageReportingIntervalSecs
  UseInternalDataplaneDriver VXLANEnabled VXLANMTU VXLANMTUV6 VXLANPort
  VXLANVNI WindowsManageFirewallRules WireguardEnabled WireguardEnabledV6 WireguardHostEncryptionEnabled
  WireguardInterfaceName WireguardInterfaceNameV6 WireguardListeningPort WireguardListeningPortV6 WireguardMTU
  WireguardMTUV6 WireguardPersistentKeepAlive WireguardRoutingRulePriority WireguardThreadingEnabled WorkloadSourceSpoofing
  XDPEnabled XDPRefreshInterval
`
  .trim()
  .split(/\s+/);

/** Read as a number of seconds; fields of the resource say `90s`. */
const SECONDS: ReadonlySet<string> = new Set(
  `
  UsageReportingInitialDelaySecs UsageReportingIntervalSecs DebugSimulateCalcGraphHangAfter DebugSimulateDataplaneHangAfter DebugSimulateDataplaneApplyDelay
  DataplaneWatchdogTimeout NetlinkTimeoutSecs RouteRefreshInterval InterfaceRefreshInterval LiveMigrationRouteConvergenceTime
  LocalSubnetL2ReachabilityRefreshInterval IptablesRefreshInterval IptablesPostWriteCheckIntervalSecs IpsetsRefreshInterval NftablesRefreshInterval
  XDPRefreshInterval ReportingIntervalSecs ReportingTTLSecs EndpointReportingDelaySecs WireguardPersistentKeepAlive
  FlowLogsFlushInterval BPFIPFragTimeout BPFKubeProxyMinSyncPeriod
`
    .trim()
    .split(/\s+/),
);
const MILLISECONDS: ReadonlySet<string> = new Set(["IptablesLockProbeIntervalMillis"]);

/** Fields whose name is not the parameter's. */
const IRREGULAR: Readonly<Record<string, string>> = {
  externalnodeslist: "ExternalNodesCIDRList",
  bpfconntrackmode: "BPFConntrackCleanupMode",
  ipipenabled: "IpInIpEnabled",
  ipipmtu: "IpInIpMtu",
  wireguardkeepalive: "WireguardPersistentKeepAlive",
};

/** By field name in small letters: the fields drop `Secs` and `Millis`, and spell acronyms their own way. */
const BY_FIELD: ReadonlyMap<string, string> = new Map([
  ...PARAMETERS.map((name) => [name.replace(/(Secs|Millis)$/, "").toLowerCase(), name] as const),
  ...Object.entries(IRREGULAR),
]);

export const FELIX_PARAMETERS: readonly string[] = PARAMETERS;

/** A field we do not know is a parameter of its own name: newer than we are. */
export function felixParameterOf(field: string): string {
  return BY_FIELD.get(field.toLowerCase()) ?? field.charAt(0).toUpperCase() + field.slice(1);
}

/** The text for a parameter, or undefined where the field says nothing. */
export function felixParameterText(parameter: string, value: Json): string | undefined {
  if (value === null || value === "") return undefined;
  if (typeof value === "string") {
    const unitNs = SECONDS.has(parameter) ? 1e9 : MILLISECONDS.has(parameter) ? 1e6 : undefined;
    const ns = unitNs === undefined ? undefined : parseDuration(value);
    return unitNs === undefined || ns === undefined ? value : String(ns / unitNs);
  }
  if (Array.isArray(value)) return listText(parameter, value as readonly Json[]);
  if (isJsonObject(value)) return objectText(value);
  return String(value);
}

/** An empty list of failsafe ports closes them all; any other empty list says nothing. */
function listText(parameter: string, items: readonly Json[]): string | undefined {
  if (items.length === 0) return parameter.startsWith("Failsafe") ? "none" : undefined;
  return items.map((item) => (isJsonObject(item) ? itemText(item) : String(item))).join(",");
}

function itemText(item: JsonObject): string {
  if (item["port"] !== undefined) return failsafePortText(item);
  if (item["timeout"] !== undefined) return `${String(item["name"] ?? "")}=${String(item["timeout"])}`;
  return `${String(item["min"] ?? 0)}-${String(item["max"] ?? 0)}`;
}

/** `tcp:22`, `udp:10.0.0.0/8:68`, `tcp:[fd00::/64]:22` */
function failsafePortText(item: JsonObject): string {
  const protocol = String(item["protocol"] ?? "tcp").toLowerCase();
  const net = String(item["net"] ?? "");
  const middle = net === "" ? "" : net.includes(":") ? `[${net}]:` : `${net}:`;
  return `${protocol}:${middle}${String(item["port"])}`;
}

function objectText(value: JsonObject): string | undefined {
  if (value["min"] !== undefined || value["max"] !== undefined) return itemText(value);
  const pairs = Object.entries(value)
    .filter(([, inner]) => inner !== undefined && inner !== null && inner !== "")
    .map(([name, inner]) => `${name}=${String(inner)},`)
    .sort();
  return pairs.length === 0 ? undefined : pairs.join("");
}
