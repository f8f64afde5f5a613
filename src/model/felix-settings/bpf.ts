// Declares the settings of Calico's eBPF dataplane and XDP. calico-ts ignores them, but accepts them so that one
// FelixConfiguration can be used by nodes of both systems.
import { parseDuration } from "../validation/duration.ts";
import { cidrList, interfaceFilter, interfacePatterns, portRange } from "./network-types.ts";
import { anyCase, choice, flag, integer, keyValues, onOff, regexp, seconds, text } from "./scalar-types.ts";
import { setting, localSetting } from "./setting.ts";
import { type FieldSchemas, initial, omitEmpty, unserved, withSchema } from "./value-type.ts";

const NO_EBPF = { noEffect: "there is no eBPF dataplane" } as const;
const NOT_NONE = { ...NO_EBPF, rejectsNone: true } as const;

const timeout = (f: FieldSchemas) =>
  f.pointer(
    f.matching(
      (value) => value === "Auto" || parseDuration(value) !== undefined,
      "want a duration such as 20s, or Auto",
    ),
  );
const conntrackTimeouts = withSchema(keyValues, (f) =>
  f.pointer(
    f.object({
      creationGracePeriod: timeout(f),
      tcpSynSent: timeout(f),
      tcpEstablished: timeout(f),
      tcpFinsSeen: timeout(f),
      tcpResetSeen: timeout(f),
      udpTimeout: timeout(f),
      genericTimeout: timeout(f),
      icmpTimeout: timeout(f),
    }),
  ),
);
const mark = withSchema(integer(), (f) => f.pointer(f.uint32()));
const healthzPort = withSchema(integer(), (f) => f.pointer(f.portNumber()));
const queueSize = withSchema(integer(), (f) => f.pointer(f.integer(1)));
const logLevel = withSchema(choice("Off", "Info", "Debug"), (f) => f.always(f.anyCase("", "Off", "Info", "Debug"), ""));
const logFilters = withSchema(keyValues, (f) => f.pointer(f.map()));
const logFilter = withSchema(choice("all"), (f) => f.field(f.text()));
const trackedInterfaces = withSchema(interfacePatterns, (f) => f.pointer(f.list(interfaceFilter(f))));
const entries = (table: string) => `Entries of the ${table} map`;

export const bpfSettings = {
  BPFEnabled: setting("bpfEnabled", flag, "false", "Use the eBPF dataplane", {
    noEffect: "there is no eBPF dataplane; rules are written with nftables or iptables",
  }),
  BPFOverlayHostSourceIP: setting(
    "bpfOverlayHostSourceIP",
    choice("TunnelAddress", "HostAddress"),
    "TunnelAddress",
    "Source address of packets that a host sends through a tunnel",
    NOT_NONE,
  ),
  BPFDisableUnprivileged: setting("bpfDisableUnprivileged", flag, "true", "Only root can load eBPF programs", NO_EBPF),
  BPFJITHardening: setting(
    "bpfJITHardening",
    choice("Auto", "Strict"),
    "Auto",
    "Whether Felix can relax the hardening of the eBPF compiler",
    NOT_NONE,
  ),
  BPFLogLevel: setting("bpfLogLevel", logLevel, "Off", "Log level of eBPF programs", NOT_NONE),
  BPFConntrackLogLevel: setting(
    "bpfConntrackLogLevel",
    omitEmpty(choice("Off", "Debug")),
    "Off",
    "Log level of the program that cleans up connection tracking",
    NOT_NONE,
  ),
  BPFConntrackCleanupMode: setting(
    "bpfConntrackMode",
    choice("Auto", "Userspace", "BPFProgram"),
    "Auto",
    "How expired connections are removed",
    NO_EBPF,
  ),
  BPFConntrackTimeouts: setting(
    "bpfConntrackTimeouts",
    conntrackTimeouts,
    "CreationGracePeriod=10s,TCPSynSent=20s,TCPEstablished=1h,TCPFinsSeen=Auto,TCPResetSeen=40s,UDPTimeout=60s,GenericTimeout=10m,ICMPTimeout=5s",
    "Timeouts of connection tracking, by state",
    NO_EBPF,
  ),
  BPFIPFragTimeout: setting("bpfIPFragTimeout", seconds, "0", "Timeout of IP fragments. 0: the kernel's", NO_EBPF),
  BPFLogFilters: setting("bpfLogFilters", logFilters, "", "pcap filters of logged packets, by interface", NO_EBPF),
  BPFCTLBLogFilter: setting("bpfCTLBLogFilter", logFilter, "", "Log connect-time load balancing", NO_EBPF),
  BPFDataIfacePattern: setting(
    "bpfDataIfacePattern",
    regexp,
    "^((en|wl|ww|sl|ib)[Popsx].*|(eth|wlan|wwan|bond).*)",
    "Interfaces of the host to which programs are attached",
    NO_EBPF,
  ),
  BPFL3IfacePattern: setting("bpfL3IfacePattern", regexp, "", "The same for interfaces without Ethernet", NO_EBPF),
  BPFConnectTimeLoadBalancingEnabled: setting(
    "bpfConnectTimeLoadBalancingEnabled",
    flag,
    "",
    "Replaced by BPFConnectTimeLoadBalancing",
    NO_EBPF,
  ),
  BPFConnectTimeLoadBalancing: setting(
    "bpfConnectTimeLoadBalancing",
    unserved(initial(choice("TCP", "Enabled", "Disabled"))),
    "TCP",
    "For which connections the address of a service is replaced when a process connects",
    NOT_NONE,
  ),
  BPFHostNetworkedNATWithoutCTLB: setting(
    "bpfHostNetworkedNATWithoutCTLB",
    unserved(initial(onOff)),
    "Enabled",
    "Translate packets of the host to services without connect-time load balancing",
    NOT_NONE,
  ),
  BPFExternalServiceMode: setting(
    "bpfExternalServiceMode",
    anyCase("Tunnel", "DSR"),
    "Tunnel",
    "Path of the replies of services to clients outside the cluster",
    NOT_NONE,
  ),
  BPFDSROptoutCIDRs: setting("bpfDSROptoutCIDRs", cidrList, "", "Clients without direct server return", NO_EBPF),
  BPFKubeProxyIptablesCleanupEnabled: setting(
    "bpfKubeProxyIptablesCleanupEnabled",
    flag,
    "true",
    "Remove kube-proxy's iptables chains",
    NO_EBPF,
  ),
  BPFKubeProxyMinSyncPeriod: setting(
    "bpfKubeProxyMinSyncPeriod",
    seconds,
    "1",
    "Shortest time between two updates of services",
    NO_EBPF,
  ),
  BPFKubeProxyHealthzPort: setting(
    "bpfKubeProxyHealthzPort",
    healthzPort,
    "10256",
    "Port on which the replacement of kube-proxy serves its health. 0 disables it",
    NO_EBPF,
  ),
  BPFExtToServiceConnmark: setting(
    "bpfExtToServiceConnmark",
    mark,
    "0",
    "Mark of connections from outside the cluster to services",
    NO_EBPF,
  ),
  BPFPSNATPorts: setting("bpfPSNATPorts", portRange, "20000:29999", "Source ports for conflicting ports", NO_EBPF),
  BPFMapSizeNATFrontend: setting("bpfMapSizeNATFrontend", integer(), "65536", entries("service"), NOT_NONE),
  BPFMapSizeNATBackend: setting("bpfMapSizeNATBackend", integer(), "262144", entries("service backend"), NOT_NONE),
  BPFMapSizeNATAffinity: setting("bpfMapSizeNATAffinity", integer(), "65536", entries("session affinity"), NOT_NONE),
  BPFMapSizeRoute: setting("bpfMapSizeRoute", integer(), "262144", entries("route"), NOT_NONE),
  BPFMapSizeConntrack: setting("bpfMapSizeConntrack", integer(), "512000", entries("connection"), NOT_NONE),
  BPFMapSizePerCPUConntrack: setting(
    "bpfMapSizePerCpuConntrack",
    integer(),
    "0",
    "Entries of the connection map per CPU. 0: BPFMapSizeConntrack in all",
    NO_EBPF,
  ),
  BPFMapSizeConntrackScaling: setting(
    "bpfMapSizeConntrackScaling",
    anyCase("Disabled", "DoubleIfFull"),
    "DoubleIfFull",
    "Whether the connection map grows when it is full",
    NOT_NONE,
  ),
  BPFMapSizeConntrackCleanupQueue: setting(
    "bpfMapSizeConntrackCleanupQueue",
    queueSize,
    "100000",
    entries("expired connection"),
    NOT_NONE,
  ),
  BPFMapSizeIPSets: setting("bpfMapSizeIPSets", integer(), "1048576", entries("IP set"), NOT_NONE),
  BPFMapSizeIfState: setting("bpfMapSizeIfState", integer(), "1000", entries("interface"), NOT_NONE),
  BPFHostConntrackBypass: setting(
    "bpfHostConntrackBypass",
    flag,
    "false",
    "Packets to and from workloads bypass the kernel's connection tracking",
    NO_EBPF,
  ),
  BPFIPFragmentReassemblyEnabled: setting(
    "bpfIPFragmentReassemblyEnabled",
    flag,
    "true",
    "Reassemble IP fragments",
    NO_EBPF,
  ),
  BPFEnforceRPF: setting(
    "bpfEnforceRPF",
    anyCase("Disabled", "Strict", "Loose"),
    "Loose",
    "Reverse-path filter on interfaces of the host",
    NOT_NONE,
  ),
  BPFPolicyDebugEnabled: setting("bpfPolicyDebugEnabled", flag, "true", "Keep policy programs for inspection", NO_EBPF),
  BPFForceTrackPacketsFromIfaces: setting(
    "bpfForceTrackPacketsFromIfaces",
    trackedInterfaces,
    "docker+",
    "Interfaces whose packets the kernel's connection tracking sees",
    NO_EBPF,
  ),
  BPFDisableGROForIfaces: setting(
    "bpfDisableGROForIfaces",
    regexp,
    "",
    "Interfaces on which generic receive offload is turned off",
    NO_EBPF,
  ),
  BPFExcludeCIDRsFromNAT: setting(
    "bpfExcludeCIDRsFromNAT",
    cidrList,
    "",
    "Service addresses that are left to other programs",
    NO_EBPF,
  ),
  BPFRedirectToPeer: setting(
    "bpfRedirectToPeer",
    omitEmpty(choice("Enabled", "Disabled", "L2Only")),
    "Enabled",
    "Send packets directly into the network namespace of a workload",
    NOT_NONE,
  ),
  BPFAttachType: setting("bpfAttachType", choice("TC", "TCX", "Netkit"), "Netkit", "Hook for programs", NOT_NONE),
  BPFExportBufferSizeMB: setting("bpfExportBufferSizeMB", integer(), "1", "Size of the event buffer in MB", NOT_NONE),
  BPFProfiling: setting("bpfProfiling", omitEmpty(onOff), "Disabled", "Profile programs", NOT_NONE),
  BPFMaglevMaxEndpointsPerService: setting(
    "bpfMaglevMaxEndpointsPerService",
    integer(1, 3000),
    "100",
    "Largest number of endpoints of a service with Maglev load balancing",
    NO_EBPF,
  ),
  BPFMaglevMaxServices: setting(
    "bpfMaglevMaxServices",
    integer(1, 3000),
    "100",
    "Largest number of services with Maglev load balancing",
    NO_EBPF,
  ),
  DebugBPFCgroupV2: localSetting(text, "", "For developers: cgroup of connect-time load balancing", NO_EBPF),
  CgroupV2Path: setting("cgroupV2Path", text, "", "Path of the cgroup file system, version 2", NO_EBPF),
  SidecarAccelerationEnabled: setting(
    "sidecarAccelerationEnabled",
    flag,
    "false",
    "Connect sidecars and applications directly",
    NO_EBPF,
  ),
  XDPEnabled: setting("xdpEnabled", flag, "true", "Use XDP for untracked policy that denies", NO_EBPF),
  GenericXDPEnabled: setting("genericXDPEnabled", flag, "false", "Use XDP without support of the driver", NO_EBPF),
  XDPRefreshInterval: setting(
    "xdpRefreshInterval",
    seconds,
    "90",
    "Interval at which XDP programs are read back and repaired. 0 disables it",
    NO_EBPF,
  ),
};
