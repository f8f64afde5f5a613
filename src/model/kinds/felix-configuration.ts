// FelixConfiguration: the node agent's settings for the cluster (`default`), one node (`node.<name>`), or the nodes a
// selector picks. What each setting does is told where the agent declares it; here is only its form in the API.
import type * as z from "zod/mini";
import { isDnsLabel, isInterface } from "../formats.ts";
import { parseDuration } from "../duration.ts";
import { parsePort } from "../numbers.ts";
import {
  address,
  always,
  anyCase,
  choice,
  dscp,
  duration,
  field,
  flag,
  int64,
  integer,
  interfaceName,
  list,
  map,
  matching,
  network,
  object,
  pointer,
  port,
  portNumber,
  preset,
  regex,
  selector,
  text,
  uint32,
  initial,
  isDuration,
  unserved,
} from "./fields.ts";
import { defineKind, type ResourceFor, type RuleContext, type Stored } from "./kind.ts";

const onOff = () => choice("Enabled", "Disabled");
const bool = () => pointer(flag());
const int = () => pointer(int64());
const time = () => pointer(duration());
const words = () => field(text());
const maybeText = () => pointer(text());
const logLevel = () => field(anyCase("Trace", "Debug", "Info", "Warning", "Error", "Fatal"));
const acceptOrReturn = () => field(anyCase("Accept", "Return"));
const dropOrReject = () => field(anyCase("Drop", "Reject"));
const routePriority = () => pointer(integer(1, 2147483646));
const keyValues = () =>
  field(
    matching(
      (value) => value.trim() === "" || value.split(",").every((item) => item === "" || /^\s*\w+=.*$/.test(item)),
      "want name=value pairs, joined by commas",
    ),
  );
const interfaceFilter = () =>
  matching((value) => /^[a-zA-Z0-9:._+-]{1,15}$/.test(value), "want an interface name, which may end with +");
const networks = (version?: 4) => pointer(list(network(version)));
const hostPorts = () => pointer(list(object({ protocol: words(), port: always(portNumber(), 0), net: words() })));
const conntrackTimeout = () =>
  pointer(
    matching((value) => value === "Auto" || parseDuration(value) !== undefined, "want a duration such as 20s, or Auto"),
  );

const spec = object({
  nodeSelector: pointer(selector(1024)),
  useInternalDataplaneDriver: bool(),
  dataplaneDriver: words(),
  dataplaneWatchdogTimeout: time(),
  ipv6Support: bool(),
  routeRefreshInterval: time(),
  interfaceRefreshInterval: time(),
  iptablesRefreshInterval: time(),
  iptablesPostWriteCheckInterval: time(),
  iptablesLockFilePath: words(),
  iptablesLockTimeout: time(),
  iptablesLockProbeInterval: time(),
  featureDetectOverride: keyValues(),
  featureGates: keyValues(),
  ipsetsRefreshInterval: time(),
  maxIpsetSize: int(),
  iptablesBackend: pointer(choice("Legacy", "NFT", "Auto")),
  xdpRefreshInterval: time(),
  netlinkTimeout: time(),
  metadataAddr: words(),
  metadataPort: int(),
  openstackRegion: words(),
  interfacePrefix: words(),
  interfaceExclude: words(),
  chainInsertMode: field(anyCase("Insert", "Append")),
  defaultEndpointToHostAction: field(anyCase("Drop", "Accept", "Return")),
  iptablesFilterAllowAction: acceptOrReturn(),
  iptablesMangleAllowAction: acceptOrReturn(),
  iptablesFilterDenyAction: dropOrReject(),
  logPrefix: field(
    matching((value) => /^[a-zA-Z0-9%: /_-]*$/.test(value), "want letters, digits, blanks and any of %:/_-"),
  ),
  logActionRateLimit: pointer(
    matching((value) => /^[1-9]\d{0,3}\/(second|minute|hour|day)$/.test(value), "want a rate such as 10/minute"),
  ),
  logActionRateLimitBurst: pointer(integer(0, 9999)),
  logFilePath: words(),
  logSeverityFile: logLevel(),
  logSeverityScreen: logLevel(),
  logSeveritySys: logLevel(),
  logDebugFilenameRegex: field(regex()),
  ipipEnabled: bool(),
  ipipMTU: int(),
  vxlanEnabled: bool(),
  vxlanMTU: int(),
  vxlanMTUV6: int(),
  vxlanPort: int(),
  vxlanVNI: int(),
  allowVXLANPacketsFromWorkloads: bool(),
  allowIPIPPacketsFromWorkloads: bool(),
  reportingInterval: time(),
  reportingTTL: time(),
  endpointReportingEnabled: bool(),
  endpointReportingDelay: time(),
  endpointStatusPathPrefix: words(),
  iptablesMarkMask: pointer(uint32()),
  disableConntrackInvalidCheck: bool(),
  healthEnabled: bool(),
  healthHost: maybeText(),
  healthPort: int(),
  healthTimeoutOverrides: field(
    list(
      object({
        name: matching((value) => /^[a-zA-Z0-9_ -]+$/.test(value), "want letters, digits, blanks, _ and -"),
        timeout: always(duration(), "0s"),
      }),
    ),
  ),
  prometheusMetricsEnabled: bool(),
  prometheusMetricsHost: field(
    matching(
      (value) => /^[a-zA-Z0-9:._+-]{1,64}$/.test(value),
      "want an address or host name of at most 64 characters",
    ),
  ),
  prometheusMetricsPort: int(),
  prometheusGoMetricsEnabled: bool(),
  prometheusProcessMetricsEnabled: bool(),
  prometheusWireGuardMetricsEnabled: bool(),
  prometheusMetricsCAFile: maybeText(),
  prometheusMetricsCertFile: maybeText(),
  prometheusMetricsKeyFile: maybeText(),
  prometheusMetricsClientAuth: pointer(
    choice("RequireAndVerifyClientCert", "RequireAnyClientCert", "VerifyClientCertIfGiven", "NoClientCert"),
  ),
  failsafeInboundHostPorts: hostPorts(),
  failsafeOutboundHostPorts: hostPorts(),
  kubeNodePortRanges: pointer(list(port(), 7)),
  policySyncPathPrefix: words(),
  usageReportingEnabled: bool(),
  usageReportingInitialDelay: time(),
  usageReportingInterval: time(),
  natPortRange: pointer(port()),
  natOutgoingAddress: field(address(4)),
  natOutgoingExclusions: pointer(choice("IPPoolsOnly", "IPPoolsAndHostIPs")),
  deviceRouteSourceAddress: field(address(4)),
  deviceRouteSourceAddressIPv6: field(address(6)),
  deviceRouteProtocol: int(),
  removeExternalRoutes: bool(),
  programClusterRoutes: pointer(choice("Enabled", "Disabled", "EnabledIPIPOnly", "EnabledNoEncapOnly")),
  ipForwarding: field(onOff()),
  externalNodesList: networks(4),
  debugMemoryProfilePath: words(),
  debugDisableLogDropping: bool(),
  debugSimulateCalcGraphHangAfter: time(),
  debugSimulateDataplaneHangAfter: time(),
  debugSimulateDataplaneApplyDelay: time(),
  debugHost: maybeText(),
  debugPort: pointer(portNumber()),
  iptablesNATOutgoingInterfaceFilter: field(interfaceFilter()),
  sidecarAccelerationEnabled: bool(),
  xdpEnabled: bool(),
  genericXDPEnabled: bool(),
  nftablesMode: initial(choice("Disabled", "Enabled", "Auto"), "Auto"),
  nftablesFlowTableOffload: initial(choice("All", "Disabled"), "Disabled"),
  nftablesFlowTableDataIfacePattern: field(regex()),
  nftablesRefreshInterval: time(),
  nftablesFilterAllowAction: acceptOrReturn(),
  nftablesMangleAllowAction: acceptOrReturn(),
  nftablesFilterDenyAction: dropOrReject(),
  nftablesMarkMask: pointer(uint32()),
  bpfEnabled: bool(),
  bpfOverlayHostSourceIP: pointer(choice("TunnelAddress", "HostAddress")),
  bpfDisableUnprivileged: bool(),
  bpfJITHardening: pointer(choice("Auto", "Strict")),
  bpfLogLevel: always(anyCase("", "Off", "Info", "Debug"), ""),
  bpfConntrackLogLevel: field(choice("Off", "Debug")),
  bpfConntrackMode: pointer(choice("Auto", "Userspace", "BPFProgram")),
  bpfConntrackTimeouts: pointer(
    object({
      creationGracePeriod: conntrackTimeout(),
      tcpSynSent: conntrackTimeout(),
      tcpEstablished: conntrackTimeout(),
      tcpFinsSeen: conntrackTimeout(),
      tcpResetSeen: conntrackTimeout(),
      udpTimeout: conntrackTimeout(),
      genericTimeout: conntrackTimeout(),
      icmpTimeout: conntrackTimeout(),
    }),
  ),
  bpfIPFragTimeout: time(),
  bpfLogFilters: pointer(map()),
  bpfCTLBLogFilter: words(),
  bpfDataIfacePattern: field(regex()),
  bpfL3IfacePattern: field(regex()),
  bpfConnectTimeLoadBalancingEnabled: bool(),
  bpfConnectTimeLoadBalancing: unserved(initial(choice("TCP", "Enabled", "Disabled"), "TCP")),
  bpfHostNetworkedNATWithoutCTLB: unserved(initial(onOff(), "Enabled")),
  bpfExternalServiceMode: field(anyCase("Tunnel", "DSR")),
  bpfDSROptoutCIDRs: networks(),
  bpfExtToServiceConnmark: pointer(uint32()),
  bpfKubeProxyIptablesCleanupEnabled: bool(),
  bpfKubeProxyMinSyncPeriod: time(),
  bpfKubeProxyHealthzPort: pointer(portNumber()),
  bpfKubeProxyEndpointSlicesEnabled: bool(),
  bpfPSNATPorts: pointer(port()),
  bpfMapSizeNATFrontend: int(),
  bpfMapSizeNATBackend: int(),
  bpfMapSizeNATAffinity: int(),
  bpfMapSizeRoute: int(),
  bpfMapSizeConntrack: int(),
  bpfMapSizePerCpuConntrack: int(),
  bpfMapSizeConntrackScaling: field(anyCase("Disabled", "DoubleIfFull")),
  bpfMapSizeConntrackCleanupQueue: pointer(integer(1)),
  bpfMapSizeIPSets: int(),
  bpfMapSizeIfState: int(),
  bpfHostConntrackBypass: bool(),
  bpfIPFragmentReassemblyEnabled: bool(),
  bpfEnforceRPF: field(anyCase("Disabled", "Strict", "Loose")),
  bpfPolicyDebugEnabled: bool(),
  bpfForceTrackPacketsFromIfaces: pointer(list(interfaceFilter())),
  bpfDisableGROForIfaces: field(regex()),
  bpfExcludeCIDRsFromNAT: networks(),
  bpfExportBufferSizeMB: int(),
  bpfRedirectToPeer: field(choice("Enabled", "Disabled", "L2Only")),
  bpfAttachType: pointer(choice("TC", "TCX", "Netkit")),
  bpfProfiling: field(onOff()),
  bpfMaglevMaxEndpointsPerService: pointer(integer(1, 3000)),
  bpfMaglevMaxServices: pointer(integer(1, 3000)),
  istioAmbientMode: pointer(onOff()),
  istioDSCPMark: pointer(dscp()),
  cgroupV2Path: words(),
  flowLogsPolicyEvaluationMode: pointer(choice("None", "Continuous")),
  flowLogsFlushInterval: time(),
  flowLogsCollectorDebugTrace: bool(),
  flowLogsGoldmaneServer: maybeText(),
  flowLogsLocalReporter: pointer(onOff()),
  routeSource: field(anyCase("WorkloadIPs", "CalicoIPAM")),
  routeTableRanges: pointer(list(object({ min: integer(), max: integer() }))),
  routeTableRange: pointer(object({ min: integer(), max: integer() })),
  routeSyncDisabled: bool(),
  ipv4NormalRoutePriority: routePriority(),
  ipv4ElevatedRoutePriority: routePriority(),
  ipv6NormalRoutePriority: routePriority(),
  ipv6ElevatedRoutePriority: routePriority(),
  liveMigrationRouteConvergenceTime: time(),
  wireguardEnabled: bool(),
  wireguardEnabledV6: bool(),
  wireguardThreadingEnabled: bool(),
  wireguardListeningPort: pointer(integer(1, 65535)),
  wireguardListeningPortV6: pointer(integer(1, 65535)),
  wireguardRoutingRulePriority: pointer(integer(1, 32765)),
  wireguardInterfaceName: field(interfaceName()),
  wireguardInterfaceNameV6: field(interfaceName()),
  wireguardMTU: int(),
  wireguardMTUV6: int(),
  wireguardHostEncryptionEnabled: bool(),
  wireguardKeepAlive: time(),
  awsSrcDstCheck: pointer(choice("DoNothing", "Enable", "Disable")),
  serviceLoopPrevention: field(choice("Drop", "Reject", "Disabled")),
  workloadSourceSpoofing: field(choice("Disabled", "Any")),
  mtuIfacePattern: field(regex()),
  floatingIPs: unserved(preset(onOff(), "Disabled")),
  localSubnetL2Reachability: pointer(choice("Disabled", "PodsAndLoadBalancers")),
  localSubnetL2ReachabilityRefreshInterval: time(),
  windowsManageFirewallRules: pointer(onOff()),
  goGCThreshold: pointer(integer(-1)),
  goMemoryLimitMB: pointer(integer(-1)),
  goMaxProcs: pointer(integer(-1)),
  requireMTUFile: bool(),
});
export type FelixConfigurationResource = ResourceFor<"FelixConfiguration", typeof spec>;
type Spec = Stored<typeof spec>;

export default defineKind({
  kind: "FelixConfiguration",
  description: "The node agent's settings: of the cluster when named default, of one node when named node.<name>.",
  spec,
  prepare: (config) => {
    // The older switch has the last word on both of its successors.
    const old = config["bpfConnectTimeLoadBalancingEnabled"];
    if (typeof old !== "boolean") return;
    config["bpfConnectTimeLoadBalancing"] = old ? "Enabled" : "Disabled";
    config["bpfHostNetworkedNATWithoutCTLB"] = "Disabled";
  },
  rules: (config, context) => {
    const { metadata, report } = context;
    if (config.nodeSelector !== undefined && (metadata.name === "default" || metadata.name.startsWith("node.")))
      report(
        ["nodeSelector"],
        config.nodeSelector,
        `has no place on ${metadata.name}: its name already says whom it is for`,
      );
    if (
      config.openstackRegion !== undefined &&
      !(isDnsLabel(config.openstackRegion) && config.openstackRegion.length <= 46)
    )
      report(["openstackRegion"], config.openstackRegion, "want at most 46 of a-z, 0-9 and -");
    for (const [i, override] of (config.healthTimeoutOverrides ?? []).entries())
      if (override.timeout.startsWith("-"))
        report(["healthTimeoutOverrides", i, "timeout"], override.timeout, "want no negative time");
    for (const name of Object.keys(config.bpfLogFilters ?? {}))
      if (name === "*" || !isInterface(name)) report(["bpfLogFilters"], name, "want names of interfaces");
    checkRouteTables(config, context);
    checkPorts(config, context);
    if (context.mode !== "stored") checkNewValues(config, context);
  },
});

/** Ports are numbers here: nothing names them. */
function checkPorts(config: Spec, { report }: RuleContext): void {
  const check = (path: readonly (string | number)[], value: string | number | undefined) => {
    const port = value === undefined ? undefined : parsePort(value);
    if (port !== undefined && ("name" in port || port.min < 1))
      report(path, value, "want a port from 1 to 65535 or a range of them, such as 1024:2047");
  };
  check(["natPortRange"], config.natPortRange);
  check(["bpfPSNATPorts"], config.bpfPSNATPorts);
  for (const [i, range] of (config.kubeNodePortRanges ?? []).entries()) check(["kubeNodePortRanges", i], range);
}

const isTime = (name: string): boolean => isDuration((spec.shape as Record<string, z.ZodMiniType>)[name]);

/** What older programs stored is read as it is. */
function checkNewValues(config: Spec, { report }: RuleContext): void {
  const checkTime = (path: readonly string[], value: unknown) => {
    if (typeof value === "string" && value.startsWith("-")) report(path, value, "want no negative time");
  };
  for (const [name, value] of Object.entries(config)) if (isTime(name)) checkTime([name], value);
  for (const [name, value] of Object.entries(config.bpfConntrackTimeouts ?? {}))
    checkTime(["bpfConntrackTimeouts", name], value);
  const features = config.featureDetectOverride;
  if (features !== undefined && !/^([\w-]+=(true|false|)(,|$))*$/.test(features))
    report(["featureDetectOverride"], features, "want name=true or name=false, joined by commas");
  const gates = config.featureGates;
  if (gates !== undefined && !/^([\w-]+=[^=]+,)*([\w-]+=[^=]+)?$/.test(gates))
    report(["featureGates"], gates, "want name=value pairs, joined by commas");
}

function checkRouteTables(config: Spec, { report }: RuleContext): void {
  const single = config.routeTableRange;
  if (single !== undefined && !(single.min >= 1 && single.max >= single.min && single.max <= 250))
    report(["routeTableRange"], single, "want min and max within 1 to 250");
  if (single !== undefined && config.routeTableRanges !== undefined)
    report(["routeTableRange"], single, "cannot stand beside routeTableRanges");
  let total = 0;
  for (const [i, range] of (config.routeTableRanges ?? []).entries()) {
    if (range.min < 1) report(["routeTableRanges", i, "min"], range.min, "want a table from 1 on");
    if (range.min > range.max) report(["routeTableRanges", i, "max"], range.max, `want at least min, ${range.min}`);
    total += Math.max(0, range.max - range.min + 1);
  }
  if (total > 65535) report(["routeTableRanges"], undefined, `name ${total} tables, want at most 65535`);
}
