// Declares the settings of default actions, failsafe ports and network address translation.
import {
  address,
  cidrList,
  failsafePorts,
  interfaceFilter,
  interfaceName,
  portRange,
  portRanges,
} from "./network-types.ts";
import { anyCase, choice, flag, onOff, path } from "./scalar-types.ts";
import { setting } from "./setting.ts";
import { omitEmpty, preset, unserved, withSchema } from "./value-type.ts";

const FATAL_AND_NOT_NONE = { isFatal: true, rejectsNone: true } as const;

export const policySettings = {
  DefaultEndpointToHostAction: setting(
    "defaultEndpointToHostAction",
    anyCase("Drop", "Accept", "Return"),
    "Drop",
    "What happens to packets from a workload to its own host after the workload's egress policy. Return leaves them to the rules of other programs",
    FATAL_AND_NOT_NONE,
  ),
  FailsafeInboundHostPorts: setting(
    "failsafeInboundHostPorts",
    failsafePorts,
    "tcp:22,udp:68,tcp:179,tcp:2379,tcp:2380,tcp:5473,tcp:6443,tcp:6666,tcp:6667",
    "Ports of hosts that policy never closes for incoming connections. `none` removes all",
    { isFatal: true },
  ),
  FailsafeOutboundHostPorts: setting(
    "failsafeOutboundHostPorts",
    failsafePorts,
    "udp:53,udp:67,tcp:179,tcp:2379,tcp:2380,tcp:5473,tcp:6443,tcp:6666,tcp:6667",
    "Ports to which hosts can always connect. `none` removes all",
    { isFatal: true },
  ),
  ServiceLoopPrevention: setting(
    "serviceLoopPrevention",
    omitEmpty(choice("Drop", "Reject", "Disabled")),
    "Drop",
    "What happens to packets to service addresses that no service has, which would loop between host and router",
  ),
  WorkloadSourceSpoofing: setting(
    "workloadSourceSpoofing",
    omitEmpty(choice("Disabled", "Any")),
    "Disabled",
    "Whether pods can send from addresses named in their annotation `cni.projectcalico.org/allowedSourcePrefixes`",
  ),
  AllowVXLANPacketsFromWorkloads: setting(
    "allowVXLANPacketsFromWorkloads",
    flag,
    "false",
    "Workloads can send VXLAN packets",
  ),
  AllowIPIPPacketsFromWorkloads: setting(
    "allowIPIPPacketsFromWorkloads",
    flag,
    "false",
    "Workloads can send IPIP packets",
  ),
  DisableConntrackInvalidCheck: setting(
    "disableConntrackInvalidCheck",
    flag,
    "false",
    "Do not drop packets that connection tracking calls invalid",
  ),
  KubeNodePortRanges: setting(
    "kubeNodePortRanges",
    portRanges,
    "30000:32767",
    "Node ports of Kubernetes services, for kube-proxy in IPVS mode",
  ),
  FloatingIPs: setting(
    "floatingIPs",
    unserved(preset(onOff)),
    "Disabled",
    "Whether pods can have further addresses that are translated to their own, by annotation",
  ),
  NATPortRange: setting("natPortRange", portRange, "", "Source ports for outgoing NAT. Unset: chosen by the kernel"),
  NATOutgoingAddress: setting(
    "natOutgoingAddress",
    address(4),
    "",
    "Source address for outgoing NAT. Unset: the address of the outgoing interface",
  ),
  NATOutgoingExclusions: setting(
    "natOutgoingExclusions",
    choice("IPPoolsOnly", "IPPoolsAndHostIPs"),
    "IPPoolsOnly",
    "Destinations that are reached without outgoing NAT",
  ),
  IptablesNATOutgoingInterfaceFilter: setting(
    "iptablesNATOutgoingInterfaceFilter",
    withSchema(interfaceName, (f) => f.field(interfaceFilter(f))),
    "",
    "Outgoing interfaces to which outgoing NAT is limited; a name that may end with `+`",
  ),
  ExternalNodesCIDRList: setting(
    "externalNodesList",
    withSchema(cidrList, (f) => f.pointer(f.list(f.network(4)))),
    "",
    "Addresses outside the cluster from which tunnel packets are accepted",
    { isFatal: true },
  ),
  PolicySyncPathPrefix: setting("policySyncPathPrefix", path, "", "Directory of the sockets of the policy-sync API", {
    noEffect: "there is no policy-sync API; HTTP matches of policies are ignored",
  }),
};
