// Plans a lab before anything is created: segments (layer-2 networks), hosts with interfaces and addresses, routers, and the
// initial resources of the datastore. The functions are pure, so topologies can be tested without root.
import { API_VERSION, type Resource } from "../model/index.ts";
import type { LabOptions } from "./options.ts";

export interface PlannedInterface {
  readonly name: string;
  readonly segment: string;
  /** With prefix length. */
  readonly addresses: readonly string[];
}

export interface PlannedRoute {
  readonly destination: string;
  readonly via: string;
}

export interface PlannedHost {
  readonly name: string;
  readonly interfaces: readonly PlannedInterface[];
  readonly routes: readonly PlannedRoute[];
}

export interface PlannedNode extends PlannedHost {
  readonly labels: Readonly<Record<string, string>>;
  readonly asNumber: number;
  /** Set for a route reflector. */
  readonly reflectorClusterId?: string;
  /** Variables of calico-node that differ between nodes. */
  readonly environment: Readonly<Record<string, string>>;
}

/** A top-of-rack router that runs BIRD. */
export interface PlannedRouter extends PlannedHost {
  readonly asNumber: number;
  readonly routerId: string;
  readonly neighbours: readonly { readonly address: string; readonly asNumber: number }[];
}

export interface LabPlan {
  readonly segments: readonly string[];
  readonly nodes: readonly PlannedNode[];
  readonly routers: readonly PlannedRouter[];
  readonly resources: readonly Resource[];
  /** Where the lab's etcd listens. */
  readonly control: {
    readonly segment: string;
    readonly addresses: readonly string[];
    /** Routes to hosts on other segments. */
    readonly routes?: readonly PlannedRoute[];
  };
}

export const POD_CIDR = { v4: "10.65.0.0/16", v6: "fd65::/64" } as const;
const DEFAULT_AS = 64512;
const TOR_AS = 65101;
const NODES_PER_RACK = 2;

export function planLab(options: LabOptions): LabPlan {
  switch (options.topology) {
    case "switch":
      return planSwitch(options);
    case "reflectors":
      return planReflectors(options);
    case "dual-nic":
      return planDualNic(options);
    case "racks":
      return planRacks(options);
  }
}

/** All nodes on one switch, with a full BGP mesh. */
function planSwitch(options: LabOptions): LabPlan {
  return {
    segments: ["lan"],
    nodes: numbered(options.nodes).map((i) => plainNode(options, i)),
    routers: [],
    resources: [],
    control: { segment: "lan", addresses: addresses(options, 77, 1) },
  };
}

/** The first two nodes are route reflectors for all others; the mesh is disabled. */
function planReflectors(options: LabOptions): LabPlan {
  const base = planSwitch(options);
  const reflectors = Math.min(2, options.nodes);
  return {
    ...base,
    nodes: base.nodes.map((node, i) =>
      i < reflectors
        ? {
            ...node,
            labels: { "route-reflector": "true" },
            reflectorClusterId: "244.0.0.1",
          }
        : node,
    ),
    resources: [
      meshOff(),
      resource("BGPPeer", "to-reflectors", {
        nodeSelector: "all()",
        peerSelector: "route-reflector == 'true'",
      }),
    ],
  };
}

/**
 * Two networks on each node, with a frequent fault: the router expects the nodes' addresses on eth0, but autodetection selects
 * those of eth1, the interface that was added last. `calicoctl doctor` shows the fix.
 */
function planDualNic(options: LabOptions): LabPlan {
  const base = planSwitch(options);
  const detected = { IP: "autodetect", IP6: options.ipv6 ? "autodetect" : "none" };
  const router: PlannedRouter = {
    name: "tor1",
    interfaces: [{ name: "eth0", segment: "lan", addresses: addresses(options, 77, 254) }],
    routes: [],
    asNumber: TOR_AS,
    routerId: "10.77.0.254",
    neighbours: base.nodes.flatMap((node) =>
      (node.interfaces[0]?.addresses ?? []).map((address) => ({ address: bare(address), asNumber: DEFAULT_AS })),
    ),
  };
  return {
    ...base,
    segments: ["lan", "storage"],
    nodes: base.nodes.map((node, i) => ({
      ...node,
      interfaces: [...node.interfaces, { name: "eth1", segment: "storage", addresses: addresses(options, 78, 11 + i) }],
      environment: { ...node.environment, ...detected },
    })),
    routers: [router],
    resources: addresses(options, 77, 254).map((address) =>
      resource("BGPPeer", `rack-${address.includes(":") ? "v6" : "v4"}`, { peerIP: bare(address), asNumber: TOR_AS }),
    ),
  };
}

/** Racks of two nodes, each with a router; eBGP inside the racks and between the routers. */
function planRacks(options: LabOptions): LabPlan {
  const racks = numbered(Math.ceil(options.nodes / NODES_PER_RACK));
  const rackOf = (node: number) => Math.floor(node / NODES_PER_RACK);
  const nodeAs = (rack: number) => 65001 + rack;
  const torAs = (rack: number) => TOR_AS + rack;
  const nodes = numbered(options.nodes).map((i): PlannedNode => {
    const rack = rackOf(i);
    const plain = plainNode(options, i, 80 + rack);
    return {
      ...plain,
      interfaces: plain.interfaces.map((nic) => ({ ...nic, segment: `rack${rack + 1}` })),
      labels: { rack: `rack${rack + 1}` },
      asNumber: nodeAs(rack),
      environment: { ...plain.environment, AS: String(nodeAs(rack)) },
    };
  });
  const routers = racks.map((rack): PlannedRouter => {
    const members = nodes.filter((_, i) => rackOf(i) === rack);
    const others = racks.filter((other) => other !== rack);
    return {
      name: `tor${rack + 1}`,
      interfaces: [
        { name: "eth0", segment: `rack${rack + 1}`, addresses: addresses(options, 80 + rack, 1) },
        { name: "eth1", segment: "spine", addresses: addresses(options, 79, 11 + rack) },
      ],
      routes: [],
      asNumber: torAs(rack),
      routerId: `10.79.0.${11 + rack}`,
      neighbours: [
        ...members.flatMap((node) =>
          (node.interfaces[0]?.addresses ?? []).map((address) => ({ address: bare(address), asNumber: nodeAs(rack) })),
        ),
        ...others.flatMap((other) =>
          addresses(options, 79, 11 + other).map((address) => ({ address: bare(address), asNumber: torAs(other) })),
        ),
      ],
    };
  });
  return {
    segments: [...racks.map((rack) => `rack${rack + 1}`), "spine"],
    nodes,
    routers,
    resources: [
      meshOff(),
      ...racks.flatMap((rack) =>
        addresses(options, 80 + rack, 1).map((address) =>
          resource("BGPPeer", `tor${rack + 1}-${address.includes(":") ? "v6" : "v4"}`, {
            nodeSelector: `rack == 'rack${rack + 1}'`,
            peerIP: bare(address),
            asNumber: torAs(rack),
          }),
        ),
      ),
    ],
    control: {
      segment: "spine",
      addresses: addresses(options, 79, 1),
      routes: racks.map((rack) => ({ destination: `10.${80 + rack}.0.0/24`, via: `10.79.0.${11 + rack}` })),
    },
  };
}

function plainNode(options: LabOptions, index: number, net = 77): PlannedNode {
  const own = addresses(options, net, 11 + index);
  const [v4, v6] = own;
  return {
    name: `node${index + 1}`,
    interfaces: [{ name: "eth0", segment: "lan", addresses: own }],
    // Any default route is sufficient: a host answers ARP requests for the pods' gateway only if it has a route to it.
    routes: addresses(options, net, 1).map((gateway) => ({
      destination: gateway.includes(":") ? "::/0" : "0.0.0.0/0",
      via: bare(gateway),
    })),
    labels: {},
    asNumber: DEFAULT_AS,
    environment: { IP: v4 ?? "none", IP6: v6 ?? "none" },
  };
}

/** Host `host` of underlay `net`: 10.net.0.host/24 and, with IPv6, fd00:net::host/64. */
function addresses(options: LabOptions, net: number, host: number): string[] {
  const v4 = `10.${net}.0.${host}/24`;
  return options.ipv6 ? [v4, `fd00:${net}::${host.toString(16)}/64`] : [v4];
}

const numbered = (count: number): number[] => Array.from({ length: count }, (_, i) => i);
const bare = (network: string): string => network.slice(0, network.indexOf("/"));
const meshOff = (): Resource => resource("BGPConfiguration", "default", { nodeToNodeMeshEnabled: false });

function resource(kind: Resource["kind"], name: string, spec: object): Resource {
  return { apiVersion: API_VERSION, kind, metadata: { name }, spec };
}
