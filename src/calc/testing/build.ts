// Short ways to write datastore contents in tests.
import { type Cidr, type IpAddress, ipVersion } from "../../lib/ip.ts";
import type {
  Block,
  HostEndpoint,
  KindName,
  Labels,
  NetworkSet,
  Policy,
  PolicyKind,
  Pool,
  Resource,
  Rule,
  RuleSide,
  Tier,
  WorkloadEndpoint,
} from "../../model/index.ts";
import type { GraphUpdate } from "../graph.ts";

export const LOCAL = "localhost";
export const REMOTE = "remotehostname";
export const REMOTE2 = "remotehost2";

const cidrs = (list: readonly string[] = []) => list as readonly Cidr[];
const family = (list: readonly string[], version: 4 | 6) => cidrs(list).filter((cidr) => ipVersion(cidr) === version);

export function wep(
  name: string,
  fields: Partial<Omit<WorkloadEndpoint, "ipv4Nets" | "ipv6Nets" | "profileIds">> & {
    readonly host?: string;
    readonly nets?: readonly string[];
    readonly profiles?: readonly string[];
  } = {},
): GraphUpdate {
  const { host = LOCAL, nets = ["10.0.0.1/32"], profiles = [], ...more } = fields;
  return {
    key: { type: "workloadEndpoint", host, orchestrator: "k8s", workload: `default/${name}`, endpoint: "eth0" },
    value: {
      state: "active",
      name: `cali-${name}`,
      mac: "01:02:03:04:05:06",
      profileIds: profiles,
      ipv4Nets: family(nets, 4),
      ipv6Nets: family(nets, 6),
      labels: {},
      ports: [],
      ...more,
    },
  };
}

export function hep(
  endpoint: string,
  fields: Partial<Omit<HostEndpoint, "profileIds">> & {
    readonly host?: string;
    readonly profiles?: readonly string[];
    readonly addresses?: readonly string[];
  } = {},
): GraphUpdate {
  const { host = LOCAL, profiles = [], addresses = [], ...more } = fields;
  return {
    key: { type: "hostEndpoint", host, endpoint },
    value: {
      name: endpoint,
      expectedIpv4Addrs: (addresses as IpAddress[]).filter((address) => ipVersion(address) === 4),
      expectedIpv6Addrs: (addresses as IpAddress[]).filter((address) => ipVersion(address) === 6),
      labels: {},
      profileIds: profiles,
      ports: [],
      ...more,
    },
  };
}

export const rule = (
  fields: Partial<Omit<Rule, "source" | "destination">> & { from?: RuleSide; to?: RuleSide } = {},
): Rule => {
  const { from = {}, to = {}, ...more } = fields;
  return { action: "allow", source: from, destination: to, ...more };
};

export function policy(name: string, fields: Partial<Policy> & { readonly kind?: PolicyKind } = {}): GraphUpdate {
  const { kind = "GlobalNetworkPolicy", ...more } = fields;
  return {
    key: { type: "policy", kind, namespace: more.namespace ?? "", name },
    value: {
      tier: "default",
      inboundRules: [],
      outboundRules: [],
      selector: "all()",
      types: ["ingress", "egress"],
      ...more,
    },
  };
}

/** Rules, labels and the resource they come from. */
export function profile(
  name: string,
  fields: { readonly labels?: Labels; readonly in?: readonly Rule[]; readonly out?: readonly Rule[] } = {},
): GraphUpdate[] {
  const { labels = {} } = fields;
  return [
    { key: { type: "profileRules", name }, value: { inboundRules: fields.in ?? [], outboundRules: fields.out ?? [] } },
    { key: { type: "profileLabels", name }, value: labels },
    resource("Profile", name, { labelsToApply: labels }),
  ];
}

export const tier = (name: string, fields: Partial<Tier> = {}): GraphUpdate => ({
  key: { type: "tier", name },
  value: { defaultAction: "Deny", ...fields },
});

export const networkSet = (
  name: string,
  nets: readonly string[],
  labels: Labels,
  profileIds: readonly string[] = [],
): GraphUpdate => ({
  key: { type: "networkSet", name },
  value: { nets: cidrs(nets), labels, profileIds } satisfies NetworkSet,
});

export const pool = (cidr: string, fields: Partial<Omit<Pool, "cidr">> = {}): GraphUpdate => ({
  key: { type: "pool", cidr: cidr as Cidr },
  value: {
    cidr: cidr as Cidr,
    ipipMode: "",
    vxlanMode: "",
    masquerade: false,
    ipam: true,
    disabled: false,
    disableBgpExport: false,
    assignmentMode: "Automatic",
    allowedUses: ["Workload", "Tunnel"],
    ...fields,
  },
});

/** @param held by ordinal, the node that has the address */
export function block(
  cidr: string,
  host: string | undefined,
  held: Readonly<Record<number, string>> = {},
): GraphUpdate {
  const nodes = [...new Set(Object.values(held))];
  const value: Block = {
    cidr: cidr as Cidr,
    ...(host !== undefined && { affinity: `host:${host}` }),
    allocations: Array.from({ length: 8 }, (_, ordinal) => {
      const node = held[ordinal];
      return node === undefined ? null : nodes.indexOf(node);
    }),
    unallocated: [],
    attributes: nodes.map((node) => ({ secondary: { node } })),
    sequenceNumber: 0n,
    sequenceNumberForAllocation: {},
    deleted: false,
  };
  return { key: { type: "block", cidr: cidr as Cidr }, value };
}

export function resource(
  kind: KindName,
  name: string,
  spec: unknown,
  more: {
    readonly namespace?: string;
    readonly labels?: Labels;
    readonly uid?: string;
    readonly created?: string;
  } = {},
): GraphUpdate {
  const { namespace, labels, uid, created } = more;
  const value: Resource = {
    apiVersion: "projectcalico.org/v3",
    kind,
    metadata: {
      name,
      ...(namespace !== undefined && { namespace }),
      ...(labels !== undefined && { labels }),
      ...(uid !== undefined && { uid }),
      ...(created !== undefined && { creationTimestamp: created }),
    },
    spec,
  };
  return { key: { type: "resource", kind, name, ...(namespace !== undefined && { namespace }) }, value };
}

/** A node with its tunnel settings, as a syncer tells them twice: whole, and as settings of the host. */
export function node(
  name: string,
  fields: {
    readonly ip?: string;
    readonly ip6?: string;
    readonly vxlan?: string;
    readonly vxlan6?: string;
    readonly mac?: string;
    readonly ipip?: string;
    readonly wireguard?: string;
    readonly addresses?: readonly { readonly address: string; readonly type?: string }[];
    readonly labels?: Labels;
    readonly asNumber?: number;
  } = {},
): GraphUpdate[] {
  const { ip, ip6, vxlan, vxlan6, mac, ipip, wireguard, addresses, labels, asNumber } = fields;
  const bgp = {
    ...(ip !== undefined && { ipv4Address: ip }),
    ...(ip6 !== undefined && { ipv6Address: ip6 }),
    ...(ipip !== undefined && { ipv4IPIPTunnelAddr: ipip }),
    ...(asNumber !== undefined && { asNumber }),
  };
  const setting = (setting: string, value: string | undefined): GraphUpdate[] =>
    value === undefined ? [] : [{ key: { type: "hostConfig", host: name, name: setting }, value }];
  return [
    resource(
      "Node",
      name,
      {
        ...(Object.keys(bgp).length > 0 && { bgp }),
        ...(vxlan !== undefined && { ipv4VXLANTunnelAddr: vxlan }),
        ...(vxlan6 !== undefined && { ipv6VXLANTunnelAddr: vxlan6 }),
        ...(wireguard !== undefined && { wireguard: { interfaceIPv4Address: wireguard } }),
        ...(addresses !== undefined && { addresses }),
      },
      labels === undefined ? {} : { labels },
    ),
    ...setting("IPv4VXLANTunnelAddr", vxlan),
    ...setting("IPv6VXLANTunnelAddr", vxlan6),
    ...setting("VXLANTunnelMACAddr", mac),
  ];
}

export const endpointSlice = (
  name: string,
  service: string,
  addresses: readonly string[],
  ports: readonly { readonly protocol?: string; readonly port?: number }[] = [],
): GraphUpdate => {
  const update = resource("KubernetesEndpointSlice", name, undefined, {
    namespace: "default",
    labels: { "kubernetes.io/service-name": service },
  });
  const value = { ...(update.value as Resource), endpoints: [{ addresses }], ports };
  return { ...update, value } as GraphUpdate;
};
