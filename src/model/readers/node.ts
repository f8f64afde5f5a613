// Reads Nodes.
import {
  type Cidr,
  type IpAddress,
  type IpNetwork,
  type IpVersion,
  ipVersion,
  tryParseAddress,
  tryParseNetwork,
} from "../../lib/ip/ip.ts";
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import { quote } from "../../lib/shorten.ts";
import type { Labels, Resource } from "../resource.ts";
import { asNumberIn, type ByFamily, cidrsIn, networkIn } from "./fields.ts";
import { fieldReader, type OnUnreadable } from "./unreadable.ts";

export type TunnelType = "ipip" | "vxlan" | "wireguard";

export interface Node {
  readonly name: string;
  readonly labels: Labels;
  /** `spec.bgp` exists, and none of its fields is set. */
  readonly hasEmptyBgp: boolean;
  readonly asNumber: number | undefined;
  /** The node's addresses for BGP, with the length of their networks. */
  readonly networks: ByFamily<IpNetwork>;
  /** Only route reflectors have a cluster ID. */
  readonly clusterId: IpAddress | undefined;
  /** Addresses of the node's tunnel interfaces. IPIP has only IPv4. */
  readonly tunnels: Readonly<Record<TunnelType, ByFamily<IpAddress>>>;
  /** MAC addresses of the VXLAN interfaces, as stored. */
  readonly vxlanMacs: ByFamily<string>;
  readonly wireguardKeys: ByFamily<string>;
  /** Without entries that are not IP addresses, such as host names. */
  readonly addresses: readonly NodeAddress[];
  readonly interfaces: readonly NodeInterface[];
  readonly orchRefs: readonly OrchRef[];
  /** The CIDRs that Kubernetes assigned to the node's pods. */
  readonly podCidrs: readonly Cidr[];
}
export interface NodeAddress {
  readonly network: IpNetwork;
  /** `InternalIP`, `ExternalIP`, `CalicoNodeIP` or empty. */
  readonly type: string;
}
export interface NodeInterface {
  readonly name: string;
  readonly addresses: readonly IpAddress[];
}
export interface OrchRef {
  readonly orchestrator: string;
  readonly nodeName: string | undefined;
}

export function readNode({ metadata, spec: specJson, status: statusJson }: Resource, onUnreadable: OnUnreadable): Node {
  const read = fieldReader(onUnreadable);
  const spec = read(() => new JsonReader(specJson ?? {}, "spec"), undefined);
  const bgp = read(() => spec?.object("bgp"), undefined);
  const wireguard = read(() => spec?.object("wireguard"), undefined);
  const status = read(() => new JsonReader(statusJson ?? {}, "status"), undefined);
  const network = (version: IpVersion) => read(() => networkIn(bgp, `ipv${version}Address`, version), undefined);
  const address = (from: JsonReader | undefined, name: string, version: IpVersion) =>
    read(() => networkIn(from, name, version)?.address, undefined);
  const text = (from: JsonReader | undefined, name: string) => read(() => from?.filled(name), undefined);
  return {
    name: metadata.name,
    labels: metadata.labels ?? {},
    hasEmptyBgp: bgp?.names.every((name) => isZero(bgp.raw(name))) ?? false,
    asNumber: read(() => asNumberIn(bgp, "asNumber"), undefined),
    networks: { 4: network(4), 6: network(6) },
    clusterId: read(() => clusterIdIn(bgp), undefined),
    tunnels: {
      ipip: { 4: address(bgp, "ipv4IPIPTunnelAddr", 4), 6: undefined },
      vxlan: { 4: address(spec, "ipv4VXLANTunnelAddr", 4), 6: address(spec, "ipv6VXLANTunnelAddr", 6) },
      wireguard: { 4: address(wireguard, "interfaceIPv4Address", 4), 6: address(wireguard, "interfaceIPv6Address", 6) },
    },
    vxlanMacs: { 4: text(spec, "vxlanTunnelMACAddr"), 6: text(spec, "vxlanTunnelMACAddrV6") },
    wireguardKeys: { 4: text(status, "wireguardPublicKey"), 6: text(status, "wireguardPublicKeyV6") },
    addresses: read(() => spec?.objects("addresses").flatMap(addressesIn), undefined) ?? [],
    interfaces: read(() => spec?.objects("interfaces").map(interfaceOf), undefined) ?? [],
    orchRefs: read(() => spec?.objects("orchRefs").map(orchRefOf), undefined) ?? [],
    podCidrs: read(() => (status === undefined ? [] : cidrsIn(status, "podCIDRs")), []),
  };
}

/** All addresses of the node's tunnels: IPIP, then VXLAN, then WireGuard, IPv4 before IPv6. */
export function tunnelAddresses(node: Node): readonly { readonly type: TunnelType; readonly address: IpAddress }[] {
  return (["ipip", "vxlan", "wireguard"] as const).flatMap((type) =>
    [node.tunnels[type][4], node.tunnels[type][6]].flatMap((address) =>
      address === undefined ? [] : [{ type, address }],
    ),
  );
}

function clusterIdIn(bgp: JsonReader | undefined): IpAddress | undefined {
  const text = bgp?.filled("routeReflectorClusterID");
  if (text === undefined) return undefined;
  const id = tryParseAddress(text);
  return id !== undefined && ipVersion(id) === 4
    ? id
    : bgp?.fail("routeReflectorClusterID", `an IPv4 address, not ${quote(text)}`);
}

function addressesIn(entry: JsonReader): readonly NodeAddress[] {
  const type = entry.text("type") ?? "";
  const network = tryParseNetwork(entry.text("address"));
  return network === undefined ? [] : [{ network, type }];
}

const interfaceOf = (entry: JsonReader): NodeInterface => ({
  name: entry.text("name") ?? "",
  addresses: entry.texts("addresses").flatMap((text) => tryParseNetwork(text)?.address ?? []),
});

const orchRefOf = (entry: JsonReader): OrchRef => ({
  orchestrator: entry.text("orchestrator") ?? "",
  nodeName: entry.filled("nodeName"),
});

const isZero = (value: unknown): boolean => value === undefined || value === "" || value === 0;
