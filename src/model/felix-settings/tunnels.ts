// Declares the settings of VXLAN, IPIP and WireGuard.
import { interfaceName } from "./network-types.ts";
import { flag, integer, optionalFlag, seconds } from "./scalar-types.ts";
import { setting } from "./setting.ts";
import { withSchema } from "./value-type.ts";

const listeningPort = withSchema(integer(), (f) => f.pointer(f.integer(1, 65535)));
const rulePriority = withSchema(integer(), (f) => f.pointer(f.integer(1, 32765)));
const mtu = (tunnel: string) => `MTU of the ${tunnel} device. 0: detected`;

export const tunnelSettings = {
  VXLANEnabled: setting("vxlanEnabled", optionalFlag, "", "Use VXLAN. Unset: if an IP pool uses it"),
  VXLANPort: setting("vxlanPort", integer(), "4789", "UDP port of VXLAN"),
  VXLANVNI: setting("vxlanVNI", integer(), "4096", "Virtual network identifier of VXLAN"),
  VXLANMTU: setting("vxlanMTU", integer(), "0", mtu("VXLAN")),
  VXLANMTUV6: setting("vxlanMTUV6", integer(), "0", mtu("IPv6 VXLAN")),
  IpInIpEnabled: setting("ipipEnabled", optionalFlag, "", "Use IPIP. Unset: if an IP pool uses it"),
  IpInIpMtu: setting("ipipMTU", integer(), "0", mtu("IPIP")),
  WireguardEnabled: setting("wireguardEnabled", flag, "false", "Encrypt IPv4 between nodes with WireGuard"),
  WireguardEnabledV6: setting("wireguardEnabledV6", flag, "false", "Encrypt IPv6 between nodes with WireGuard"),
  WireguardListeningPort: setting("wireguardListeningPort", listeningPort, "51820", "UDP port of WireGuard for IPv4"),
  WireguardListeningPortV6: setting(
    "wireguardListeningPortV6",
    listeningPort,
    "51821",
    "UDP port of WireGuard for IPv6",
  ),
  WireguardRoutingRulePriority: setting(
    "wireguardRoutingRulePriority",
    rulePriority,
    "99",
    "Priority of the routing rule for WireGuard",
  ),
  WireguardInterfaceName: setting(
    "wireguardInterfaceName",
    interfaceName,
    "wireguard.cali",
    "Name of the WireGuard device for IPv4",
    { rejectsNone: true },
  ),
  WireguardInterfaceNameV6: setting(
    "wireguardInterfaceNameV6",
    interfaceName,
    "wg-v6.cali",
    "Name of the WireGuard device for IPv6",
    { rejectsNone: true },
  ),
  WireguardMTU: setting("wireguardMTU", integer(), "0", mtu("WireGuard")),
  WireguardMTUV6: setting("wireguardMTUV6", integer(), "0", mtu("IPv6 WireGuard")),
  WireguardHostEncryptionEnabled: setting(
    "wireguardHostEncryptionEnabled",
    flag,
    "false",
    "Also encrypt packets between hosts",
  ),
  WireguardPersistentKeepAlive: setting(
    "wireguardKeepAlive",
    seconds,
    "0",
    "Interval of WireGuard's keep-alive packets. 0 disables them",
  ),
  WireguardThreadingEnabled: setting("wireguardThreadingEnabled", flag, "false", "Threaded NAPI for WireGuard devices"),
};
