// Declares the settings of host interfaces and the kernel, and of the integration with OpenStack, AWS and Istio.
import { dscp, hostname, interfacePatterns, interfacePrefixes, port, region } from "./network-types.ts";
import { choice, flag, onOff, regexp, seconds } from "./scalar-types.ts";
import { setting } from "./setting.ts";
import { omitEmpty } from "./value-type.ts";

export const hostSettings = {
  Ipv6Support: setting("ipv6Support", flag, "true", "Program IPv6. If false, IPv6 of workloads is dropped"),
  IPForwarding: setting("ipForwarding", omitEmpty(onOff), "Enabled", "Turn on IP forwarding in the kernel"),
  InterfacePrefix: setting(
    "interfacePrefix",
    interfacePrefixes,
    "cali",
    "Prefixes of the names of workload interfaces, separated by commas",
    { isFatal: true, rejectsNone: true },
  ),
  InterfaceExclude: setting(
    "interfaceExclude",
    interfacePatterns,
    "kube-ipvs0",
    "Interfaces whose addresses are not addresses of the host: names, or regular expressions between slashes",
  ),
  InterfaceRefreshInterval: setting(
    "interfaceRefreshInterval",
    seconds,
    "90",
    "Interval at which all interfaces are read again. 0 disables it",
  ),
  NetlinkTimeoutSecs: setting("netlinkTimeout", seconds, "10", "Timeout of netlink requests", {
    noEffect: "netlink requests are synchronous",
  }),
  MTUIfacePattern: setting(
    "mtuIfacePattern",
    regexp,
    "^((en|wl|ww|sl|ib)[Pcopsvx].*|(eth|wlan|wwan).*)",
    "Interfaces of the host from which the MTU is detected",
  ),
  RequireMTUFile: setting(
    "requireMTUFile",
    flag,
    "false",
    "Felix does not start if it cannot write the MTU of workloads to `/var/lib/calico/mtu`",
  ),
  AWSSrcDstCheck: setting(
    "awsSrcDstCheck",
    choice("DoNothing", "Enable", "Disable"),
    "DoNothing",
    "Source/destination check of this EC2 instance",
    { rejectsNone: true, noEffect: "change the source/destination check in AWS itself" },
  ),
  MetadataAddr: setting(
    "metadataAddr",
    hostname,
    "127.0.0.1",
    "Address of OpenStack's metadata server. Any other value than the default turns on OpenStack. `none` disables the server",
    { isFatal: true },
  ),
  MetadataPort: setting("metadataPort", port, "8775", "Port of OpenStack's metadata server", { isFatal: true }),
  OpenstackRegion: setting("openstackRegion", region, "", "OpenStack region, used in the keys of status reports", {
    isFatal: true,
  }),
  IstioAmbientMode: setting("istioAmbientMode", onOff, "Disabled", "Work with Istio's ambient mode"),
  IstioDSCPMark: setting("istioDSCPMark", dscp, "23", "DSCP of packets to Istio's ztunnel"),
  WindowsManageFirewallRules: setting(
    "windowsManageFirewallRules",
    onOff,
    "Disabled",
    "Open the port of metrics in the firewall of Windows",
    { noEffect: "only Linux is supported" },
  ),
};
