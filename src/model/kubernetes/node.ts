// Converts Kubernetes Nodes to Calico Nodes and back. The fields of the Calico Node are stored in annotations of the
// Kubernetes Node. The labels of both are merged on reading; an annotation records which of them are those of Kubernetes,
// so that they can be separated on writing.
import {
  addressPlus,
  cidrAddress,
  ipVersion,
  tryParseAddress,
  tryParseCidr,
  tryParseNetwork,
} from "../../lib/ip/ip.ts";
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import { parseAsNumber } from "../validation/numbers.ts";
import { API_VERSION, type Labels, type Resource } from "../resource.ts";
import { compareText } from "../selector/ast.ts";
import { NotConvertible } from "../validation/value-error.ts";
import { namesOf, originOf } from "./metadata.ts";

const PREFIX = "projectcalico.org/";
const LABELS = `${PREFIX}labels`;
const ANNOTATIONS = `${PREFIX}annotations`;
const INTERFACES = `${PREFIX}Interfaces`;
/** An annotation of the Calico Node only: the labels of the Kubernetes Node when it was read. */
const KUBE_LABELS = `${PREFIX}kube-labels`;

export interface NodeSpecJson {
  readonly bgp?: {
    readonly asNumber?: number;
    readonly ipv4Address?: string;
    readonly ipv6Address?: string;
    readonly ipv4IPIPTunnelAddr?: string;
    readonly routeReflectorClusterID?: string;
  };
  readonly ipv4VXLANTunnelAddr?: string;
  readonly vxlanTunnelMACAddr?: string;
  readonly ipv6VXLANTunnelAddr?: string;
  readonly vxlanTunnelMACAddrV6?: string;
  readonly orchRefs: readonly { readonly nodeName: string; readonly orchestrator: "k8s" }[];
  readonly wireguard?: { readonly interfaceIPv4Address?: string; readonly interfaceIPv6Address?: string };
  readonly addresses?: readonly { readonly address: string; readonly type: string }[];
  readonly interfaces?: readonly { readonly name: string; readonly addresses?: readonly string[] }[];
}
export interface NodeStatusJson {
  readonly wireguardPublicKey?: string;
  readonly wireguardPublicKeyV6?: string;
  readonly podCIDRs?: readonly string[];
}
export type DerivedNode = Resource<"Node", NodeSpecJson, NodeStatusJson>;

/** Invalid annotations count as absent. */
export function nodeFromKubernetes(json: unknown, options: { readonly usePodCidr?: boolean } = {}): DerivedNode {
  const object = new JsonReader(json);
  const { name, labels, annotations } = namesOf(object);
  const spec = object.object("spec");
  const listed = spec?.texts("podCIDRs") ?? [];
  const single = spec?.filled("podCIDR");
  const podCidrs = listed.length > 0 || single === undefined ? listed : [single];
  const publicKey = annotation(annotations, "WireguardPublicKey");
  const publicKeyV6 = annotation(annotations, "WireguardPublicKeyV6");
  // If tunnel addresses are derived from the pod CIDR, annotations with other addresses are out of date.
  const isFixed = options.usePodCidr === true && podCidrs.length > 0;
  const podAddress = isFixed ? firstAddress(podCidrs) : undefined;
  const bgp = bgpOf(annotations, isFixed ? podAddress : addressIn(annotations, "IPv4IPIPTunnelAddr", 4));
  const wireguard = pick(
    isFixed
      ? { interfaceIPv4Address: publicKey === undefined ? undefined : podAddress }
      : {
          interfaceIPv4Address: addressIn(annotations, "IPv4WireguardInterfaceAddr", 4),
          interfaceIPv6Address: addressIn(annotations, "IPv6WireguardInterfaceAddr", 6),
        },
  );
  const merged = { ...jsonMap(annotations[LABELS]), ...labels };
  const addresses = addressesOf(object, bgp);
  const interfaces = interfacesOf(annotations[INTERFACES]);
  return {
    apiVersion: API_VERSION,
    kind: "Node",
    metadata: {
      ...originOf(object, "same"),
      name,
      ...(Object.keys(merged).length === 0 ? {} : { labels: merged }),
      annotations: { ...jsonMap(annotations[ANNOTATIONS]), [KUBE_LABELS]: stash(labels) },
    },
    spec: pick({
      bgp,
      ipv4VXLANTunnelAddr: addressIn(annotations, "IPv4VXLANTunnelAddr", 4),
      vxlanTunnelMACAddr: macIn(annotations, "VXLANTunnelMACAddr"),
      ipv6VXLANTunnelAddr: addressIn(annotations, "IPv6VXLANTunnelAddr", 6),
      vxlanTunnelMACAddrV6: macIn(annotations, "VXLANTunnelMACAddrV6"),
      orchRefs: [{ nodeName: name, orchestrator: "k8s" as const }],
      wireguard: Object.keys(wireguard).length === 0 ? undefined : wireguard,
      addresses: addresses.length === 0 ? undefined : addresses,
      interfaces: interfaces.length === 0 ? undefined : interfaces,
    }) as NodeSpecJson,
    status: pick({
      wireguardPublicKey: publicKey,
      wireguardPublicKeyV6: publicKeyV6,
      podCIDRs: podCidrs.length === 0 ? undefined : podCidrs,
    }),
  };
}

/** Returns the annotations of the Kubernetes Node after the Calico Node is written to it. Other annotations are kept. */
export function kubernetesNodeFrom(node: Resource, kubernetes: unknown): { readonly annotations: Labels } {
  const object = new JsonReader(kubernetes);
  const before = namesOf(object);
  const spec = new JsonReader(node.spec ?? {}, "spec");
  const bgp = spec.object("bgp");
  const wireguard = spec.object("wireguard");
  const status = node.status === undefined ? undefined : new JsonReader(node.status, "status");
  const asNumber = bgp?.raw("asNumber");
  const interfaces = spec.list("interfaces");
  const values: Readonly<Record<string, string | undefined>> = {
    IPv4Address: bgp?.filled("ipv4Address"),
    IPv6Address: bgp?.filled("ipv6Address"),
    IPv4IPIPTunnelAddr: bgp?.filled("ipv4IPIPTunnelAddr"),
    ASNumber: asNumber === undefined ? undefined : String(parseAsNumber(asNumber) ?? asNumber),
    RouteReflectorClusterID: bgp?.filled("routeReflectorClusterID"),
    IPv4VXLANTunnelAddr: spec.filled("ipv4VXLANTunnelAddr"),
    VXLANTunnelMACAddr: spec.filled("vxlanTunnelMACAddr"),
    IPv6VXLANTunnelAddr: spec.filled("ipv6VXLANTunnelAddr"),
    VXLANTunnelMACAddrV6: spec.filled("vxlanTunnelMACAddrV6"),
    IPv4WireguardInterfaceAddr: wireguard?.filled("interfaceIPv4Address"),
    IPv6WireguardInterfaceAddr: wireguard?.filled("interfaceIPv6Address"),
    WireguardPublicKey: status?.filled("wireguardPublicKey"),
    WireguardPublicKeyV6: status?.filled("wireguardPublicKeyV6"),
    Interfaces: interfaces.length === 0 ? undefined : JSON.stringify(interfaces),
    labels: jsonText(ownLabels(node, jsonMap(before.annotations[LABELS]))),
    annotations: jsonText(without(node.metadata.annotations ?? {}, KUBE_LABELS)),
  };
  const annotations: Record<string, string> = { ...before.annotations };
  for (const [name, value] of Object.entries(values)) {
    if (value === undefined) delete annotations[PREFIX + name];
    else annotations[PREFIX + name] = value;
  }
  return { annotations };
}

/**
 * Returns the labels of the Calico Node: those that the Kubernetes Node did not have when it was read, and those whose
 * value has changed since.
 * @param hidden the Calico labels as stored; one that a Kubernetes label of the same name hides is kept
 */
function ownLabels(node: Resource, hidden: Labels): Labels {
  const kubernetesLabels = node.metadata.annotations?.[KUBE_LABELS];
  const labels = { ...node.metadata.labels };
  if (kubernetesLabels === undefined || kubernetesLabels === "") return labels;
  for (const [name, value] of Object.entries(parseKubernetesLabels(kubernetesLabels))) {
    if (labels[name] !== value) continue;
    if (Object.hasOwn(hidden, name) && hidden[name] !== undefined) labels[name] = hidden[name];
    else delete labels[name];
  }
  return labels;
}

function parseKubernetesLabels(text: string): Labels {
  try {
    const labels: unknown = JSON.parse(text);
    if (labels === null) return {};
    if (typeof labels === "object" && !Array.isArray(labels)) return labels as Labels;
  } catch {
    // falls through
  }
  throw new NotConvertible(
    `metadata.annotations.${KUBE_LABELS}: want the JSON object that the Node had when it was read`,
  );
}

function bgpOf(annotations: Labels, tunnelAddress: string | undefined): NodeSpecJson["bgp"] {
  const bgp = pick({
    asNumber: parseAsNumber(annotation(annotations, "ASNumber")),
    ipv4Address: networkIn(annotations, "IPv4Address", 4),
    ipv6Address: networkIn(annotations, "IPv6Address", 6),
    ipv4IPIPTunnelAddr: tunnelAddress,
    routeReflectorClusterID: addressIn(annotations, "RouteReflectorClusterID", 4),
  });
  return Object.keys(bgp).length === 0 ? undefined : bgp;
}

function addressesOf(object: JsonReader, bgp: NodeSpecJson["bgp"]): readonly { address: string; type: string }[] {
  const own = [bgp?.ipv4Address, bgp?.ipv6Address].flatMap((address) =>
    address === undefined ? [] : [{ address, type: "CalicoNodeIP" }],
  );
  const reported = object.object("status")?.objects("addresses") ?? [];
  return [
    ...own,
    ...reported.flatMap((entry) => {
      const type = entry.text("type");
      const address = entry.filled("address");
      return address !== undefined && (type === "InternalIP" || type === "ExternalIP") ? [{ address, type }] : [];
    }),
  ];
}

/** Entries that are not addresses, such as CIDRs, are ignored. */
function interfacesOf(text: string | undefined): NonNullable<NodeSpecJson["interfaces"]> {
  if (text === undefined || text === "") return [];
  try {
    const list: unknown = JSON.parse(text);
    if (!Array.isArray(list)) return [];
    return list.flatMap((item: unknown) => {
      const entry = new JsonReader(item);
      const addresses = entry.texts("addresses").filter((address) => tryParseAddress(address) !== undefined);
      return [{ name: entry.text("name") ?? "", ...(addresses.length === 0 ? {} : { addresses }) }];
    });
  } catch {
    return [];
  }
}

function annotation(annotations: Labels, name: string): string | undefined {
  const value = annotations[PREFIX + name];
  return value === "" ? undefined : value;
}

function addressIn(annotations: Labels, name: string, version: 4 | 6): string | undefined {
  const address = tryParseAddress(annotation(annotations, name) ?? "");
  return address !== undefined && ipVersion(address) === version ? address : undefined;
}

function macIn(annotations: Labels, name: string): string | undefined {
  const text = annotation(annotations, name);
  return text !== undefined && /^[0-9a-f]{2}([:-])[0-9a-f]{2}(\1[0-9a-f]{2}){4}$/i.test(text) ? text : undefined;
}

/** Returns an address with or without prefix length, as written. */
function networkIn(annotations: Labels, name: string, version: 4 | 6): string | undefined {
  const text = annotation(annotations, name) ?? "";
  const network = tryParseNetwork(text);
  return network !== undefined && ipVersion(network.address) === version ? text : undefined;
}

/** Returns the address after the network address of the first IPv4 pod CIDR. */
function firstAddress(podCidrs: readonly string[]): string | undefined {
  for (const text of podCidrs) {
    const cidr = tryParseCidr(text);
    if (cidr !== undefined && ipVersion(cidr) === 4) return addressPlus(cidrAddress(cidr), 1);
  }
  return undefined;
}

function jsonMap(text: string | undefined): Labels {
  try {
    const map: unknown = JSON.parse(text ?? "{}");
    if (typeof map !== "object" || map === null || Array.isArray(map)) return {};
    return Object.fromEntries(Object.entries(map).filter(([, value]) => typeof value === "string")) as Labels;
  } catch {
    return {};
  }
}

const sorted = (labels: Labels): Labels =>
  Object.fromEntries(Object.entries(labels).sort(([a], [b]) => compareText(a, b)));
const stash = (labels: Labels): string => (Object.keys(labels).length === 0 ? "null" : JSON.stringify(sorted(labels)));
const jsonText = (labels: Labels): string | undefined =>
  Object.keys(labels).length === 0 ? undefined : JSON.stringify(sorted(labels));
const without = (labels: Labels, name: string): Labels =>
  Object.fromEntries(Object.entries(labels).filter(([key]) => key !== name));

function pick<T extends object>(fields: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]?: Exclude<T[K], undefined>;
  };
}
