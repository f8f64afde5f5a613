// Declares the settings that are derived from resources other than FelixConfiguration. Syncers emit them in this order.
import { address, macAddress } from "./network-types.ts";
import { text } from "./scalar-types.ts";
import { derivedSetting } from "./setting.ts";

const NO_USAGE_REPORTS = { noEffect: "it is only for usage reports, which are not sent" } as const;
const cluster = (path: string) => ({ kind: "ClusterInformation", path }) as const;
const node = (path: string) => ({ kind: "Node", path }) as const;

export const derivedSettings = {
  ClusterGUID: derivedSetting(cluster("clusterGUID"), text, "baddecaf", "Identity of the cluster", {
    isLive: true,
    ...NO_USAGE_REPORTS,
  }),
  // Felix restarts if a change turns OpenStack or Azure on or off, see felix/config/checks.ts.
  ClusterType: derivedSetting(
    cluster("clusterType"),
    text,
    "",
    "Comma-separated properties of the cluster. `openstack` adds rules for OpenStack, `aks` lowers the MTU of WireGuard",
    { isLive: true },
  ),
  CalicoVersion: derivedSetting(
    cluster("calicoVersion"),
    text,
    "",
    "Version of the program that set up the datastore",
    {
      isLive: true,
      ...NO_USAGE_REPORTS,
    },
  ),
  Variant: derivedSetting(cluster("variant"), text, "Calico", "Felix programs the host only if this is `Calico`"),
  IpInIpTunnelAddr: derivedSetting(
    node("bgp.ipv4IPIPTunnelAddr"),
    address(4),
    "",
    "Address of this node's IPIP tunnel device",
  ),
  IPv4VXLANTunnelAddr: derivedSetting(
    node("ipv4VXLANTunnelAddr"),
    address(4),
    "",
    "IPv4 address of this node's VXLAN tunnel device",
  ),
  VXLANTunnelMACAddr: derivedSetting(
    node("vxlanTunnelMACAddr"),
    macAddress,
    "",
    "MAC address of this node's VXLAN tunnel device. Unset: computed from the node's name",
  ),
  IPv6VXLANTunnelAddr: derivedSetting(
    node("ipv6VXLANTunnelAddr"),
    address(6),
    "",
    "IPv6 address of this node's VXLAN tunnel device",
  ),
  VXLANTunnelMACAddrV6: derivedSetting(
    node("vxlanTunnelMACAddrV6"),
    macAddress,
    "",
    "MAC address of this node's VXLAN tunnel device for IPv6. Unset: computed from the node's name",
  ),
};
