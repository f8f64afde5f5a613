// Builds datastore updates for tests.
import { type Cidr, type IpAddress, ipVersion } from "../../lib/ip/ip.ts";
import {
  type Block,
  type HostEndpoint,
  type KindName,
  type Labels,
  type NetworkSet,
  ParsedSelector,
  type Policy,
  type PolicyKind,
  type Pool,
  type Resource,
  type Rule,
  type RuleSide,
  type Tier,
  type WorkloadEndpoint,
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

/** Source or destination of a rule, with selectors as text. */
export type TextSide = Omit<RuleSide, "selector" | "notSelector"> & {
  readonly selector?: string;
  readonly notSelector?: string;
};

function side({ selector, notSelector, ...more }: TextSide): RuleSide {
  return {
    ...more,
    selector: selector === undefined ? undefined : ParsedSelector.parse(selector),
    notSelector: notSelector === undefined ? undefined : ParsedSelector.parse(notSelector),
  };
}

export const rule = (
  fields: Partial<Omit<Rule, "source" | "destination">> & { from?: TextSide; to?: TextSide } = {},
): Rule => {
  const { from = {}, to = {}, ...more } = fields;
  return { action: "allow", source: side(from), destination: side(to), ...more };
};

export function policy(
  name: string,
  fields: Partial<Omit<Policy, "selector">> & { readonly kind?: PolicyKind; readonly selector?: string } = {},
): GraphUpdate {
  const { kind = "GlobalNetworkPolicy", selector = "all()", ...more } = fields;
  return {
    key: { type: "policy", kind, namespace: more.namespace ?? "", name },
    value: {
      tier: "default",
      inboundRules: [],
      outboundRules: [],
      selector: ParsedSelector.parse(selector),
      types: ["ingress", "egress"],
      ...more,
    },
  };
}

/** Returns the rules, the labels, and the Profile resource that contains both. */
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

/** @param allocations the node that has the address, by ordinal */
export function block(
  cidr: string,
  host: string | undefined,
  allocations: Readonly<Record<number, string>> = {},
): GraphUpdate {
  const nodes = [...new Set(Object.values(allocations))];
  const value: Block = {
    cidr: cidr as Cidr,
    affinity: host === undefined ? undefined : `host:${host}`,
    allocations: Array.from({ length: 8 }, (_, ordinal) => {
      const node = allocations[ordinal];
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
      namespace,
      labels,
      uid,
      creationTimestamp: created,
    },
    spec,
  };
  return { key: { type: "resource", kind, name, namespace }, value };
}

/** Returns a node with its tunnel settings, which a syncer sends twice: in the Node, and as settings of the host. */
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
