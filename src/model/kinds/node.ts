// Defines the kind Node: one host of the cluster, with its addresses, BGP identity and tunnel endpoints.
import { isWireguardKey } from "../validation/formats.ts";
import { address, always, asNumber, field, list, mac, matching, network, object, pointer, text } from "./fields.ts";
import { defineKind, type ResourceFor } from "./kind.ts";

const wireguardKey = () => matching(isWireguardKey, "want a WireGuard public key: base64 of 32 bytes");

const spec = object({
  bgp: pointer(
    object({
      asNumber: pointer(asNumber()),
      ipv4Address: field(network(4)),
      ipv6Address: field(network(6)),
      ipv4IPIPTunnelAddr: field(address(4)),
      routeReflectorClusterID: field(address(4)),
    }),
  ),
  ipv4VXLANTunnelAddr: field(address(4)),
  vxlanTunnelMACAddr: field(mac()),
  ipv6VXLANTunnelAddr: field(address(6)),
  vxlanTunnelMACAddrV6: field(mac()),
  orchRefs: field(list(object({ nodeName: field(text()), orchestrator: always(text(), "") }))),
  wireguard: pointer(object({ interfaceIPv4Address: field(address(4)), interfaceIPv6Address: field(address(6)) })),
  addresses: field(list(object({ address: always(text(), ""), type: field(text()) }))),
  interfaces: field(list(object({ name: field(text()), addresses: field(list(text())) }))),
});
const status = object({
  wireguardPublicKey: field(wireguardKey()),
  wireguardPublicKeyV6: field(wireguardKey()),
  podCIDRs: field(list(text())),
});
export type NodeResource = ResourceFor<"Node", typeof spec, typeof status>;

export default defineKind({
  kind: "Node",
  description: "One host of the cluster: its addresses, BGP identity and tunnel endpoints.",
  spec,
  status,
  initialStatus: {},
  rules: (node, { report }) => {
    if (node.bgp !== undefined && Object.keys(node.bgp).length === 0)
      report(["bgp"], undefined, "must not be empty: set a field or remove it");
  },
});
