// Defines the inputs of doctor's checks: facts about the cluster, computed from its resources, and facts about the host
// that doctor runs on. Checks are pure functions of these inputs, so they can be tested without a cluster or a host.
import { BgpCollector, type BgpState, type BirdSession, type Problem, type SessionEvidence } from "../../bgp/index.ts";
import type { RouteType } from "../../kernel/index.ts";
import { type Cidr, type IpNetwork, type IpVersion, tryParseCidr } from "../../lib/ip/ip.ts";
import {
  API_VERSION,
  compileSelector,
  ignoreUnreadable,
  type IpPool,
  type KindName,
  lookupIn,
  type Matcher,
  type Node,
  parseSelector,
  readPool,
  type Resource,
  type ResourceOf,
} from "../../model/index.ts";
import type { StoredBlock } from "../input/cluster.ts";
import type { AddressConnections } from "./host-connections.ts";
import type { GuardFacts } from "./host-guard.ts";
import type { RejectedPart } from "./host-rejected-rules.ts";
import type { FilterChain } from "./packet-filters.ts";
import type { OutsidePools } from "./outside-pools.ts";
import { CHECKED_KINDS, findNotUsed, type NotUsed } from "./not-used.ts";

export type { StoredBlock };

export interface PoolFacts extends IpPool {
  readonly matches: Matcher;
}
export const usesIpip = ({ ipipMode }: IpPool): boolean => ipipMode !== "Never";
export const usesVxlan = ({ vxlanMode }: IpPool): boolean => vxlanMode !== "Never";

export interface PoolFill {
  readonly capacity: number;
  readonly available: number;
}

/** The BGP state that a node last reported in its CalicoNodeStatus. */
export interface ReportedStatus {
  readonly routerId: string | undefined;
  readonly lastUpdated: string | undefined;
  /** BGP state by the neighbour's address. */
  readonly peers: ReadonlyMap<string, string>;
}

/** Facts from IPAM. Both are empty if the resources come from files. */
export interface AddressFacts {
  /** The capacity and the free addresses of pools, by CIDR. */
  readonly fill: ReadonlyMap<Cidr, PoolFill>;
  /** Workloads with an address that IPAM assigned and that lies in no pool. */
  readonly outsidePools: readonly OutsidePools[];
}
const NO_ADDRESSES: AddressFacts = { fill: new Map(), outsidePools: [] };

export interface ClusterFacts extends AddressFacts {
  readonly bgp: BgpState;
  /** The same with the node-to-node mesh off: the mesh peers each node with each other node, so no plan is needed for it. */
  readonly withoutMesh: BgpState;
  readonly nodes: ReadonlyMap<string, Node>;
  readonly pools: readonly PoolFacts[];
  readonly felix: ReadonlyMap<string, ResourceOf<"FelixConfiguration">["spec"]>;
  readonly reported: ReadonlyMap<string, ReportedStatus>;
  readonly strictAffinity: boolean;
  readonly blocks: readonly { readonly host: string; readonly cidr: Cidr }[];
  /** Resources that Felix does not enforce as they are written. */
  readonly notUsed: readonly NotUsed[];
}

export interface HostLink {
  readonly name: string;
  readonly mtu: number;
  /** Administratively up. */
  readonly isUp: boolean;
  readonly hasCarrier: boolean;
  readonly networks: readonly IpNetwork[];
}

export interface RuleCount {
  readonly calico: number;
  readonly kubernetes: number;
  readonly all: number;
}

/** The kernel's best route to a block. */
export interface KernelRoute {
  readonly type: RouteType;
  readonly destination: Cidr;
}

/** The name of this host's node, according to its files and processes. */
export interface LocalNode {
  readonly name: string;
  /** Felix runs on this host. */
  readonly hasAgent: boolean;
  readonly evidence: readonly string[];
}

export interface NeighbourTable {
  readonly entries: number;
  readonly limit: number;
  /** How often the table was full since the machine started. */
  readonly overflows: number;
}

export interface HostPart {
  readonly name: string;
  readonly isRunning: boolean;
  readonly detail: string;
  /** The process exists, but is stopped or hangs. */
  readonly isStuck?: boolean;
  /** Replaces the general advice. */
  readonly fix?: string;
}

/**
 * The host that doctor runs on, which is a node. A value is undefined if it does not exist on this host or if only root may
 * read it; checks then conclude nothing from it. If reading a value failed, its getter throws that error, so that only the
 * checks that use the value fail.
 */
export interface HostFacts {
  readonly node: string;
  readonly links: readonly HostLink[];
  readonly sysctl: (path: string) => string | undefined;
  readonly hasModule: (name: string) => boolean;
  /** Whether the host has a route to the address that pods use as their gateway. */
  readonly routesToPodGateway: boolean | undefined;
  /** The best route to each block of the other nodes, undefined if there is none. Blocks that were not looked up are missing. */
  readonly blockRoutes: ReadonlyMap<Cidr, KernelRoute | undefined>;
  /** MTU of the path to each other node, by the node's name. */
  readonly pathMtu: ReadonlyMap<string, number>;
  readonly iptables: Readonly<Record<"legacy" | "nft", RuleCount | undefined>>;
  readonly hasCalicoNftTable: boolean | undefined;
  readonly guard: GuardFacts | undefined;
  /** Tracked connections of addresses in this node's blocks that no pod has. */
  readonly staleConnections: readonly AddressConnections[] | undefined;
  /** Base chains of other programs than Calico. */
  readonly filters: readonly FilterChain[];
  readonly neighbourTable: Readonly<Record<IpVersion, NeighbourTable | undefined>>;
  readonly birds: Readonly<
    Record<IpVersion, { readonly routerId: string; readonly sessions: readonly BirdSession[] } | undefined>
  >;
  readonly sessionEvidence: (session: BirdSession) => SessionEvidence;
  /** Objects that the BGP service on this host ignored in its current plan. */
  readonly planProblems: readonly Problem[];
  /** Rules, sets and features of calico-node that the kernel rejects. */
  readonly rejected: readonly RejectedPart[];
  /** The processes of calico-node that should run on this host, including those that do not. */
  readonly parts: readonly HostPart[];
}

export const CLUSTER_KINDS = [
  "Node",
  "BGPConfiguration",
  "BGPPeer",
  "BGPFilter",
  "IPPool",
  "FelixConfiguration",
  "IPAMConfiguration",
  "CalicoNodeStatus",
  ...CHECKED_KINDS,
] as const satisfies readonly KindName[];

/**
 * What doctor reads from the datastore: a kind of resources, the block affinities, how full the pools are, or the workloads
 * with addresses in no pool.
 */
export type Source = KindName | "blocks" | "fill" | "outsidePools";
/** Errors of reading the datastore. */
export type Unreadable = ReadonlyMap<Source, Error>;

/** Facts that the checks cannot do without, and the data that each is computed from. */
const SOURCES: Readonly<Partial<Record<keyof ClusterFacts, readonly Source[]>>> = {
  bgp: ["Node", "BGPConfiguration", "BGPPeer", "BGPFilter", "IPPool"],
  withoutMesh: ["Node", "BGPConfiguration", "BGPPeer", "BGPFilter", "IPPool"],
  nodes: ["Node"],
  pools: ["IPPool"],
  felix: ["FelixConfiguration"],
  strictAffinity: ["IPAMConfiguration"],
  blocks: ["blocks"],
  fill: ["fill"],
  outsidePools: ["fill", "outsidePools"],
};

/**
 * Computes the facts from resources as they are stored. Invalid resources are skipped and listed in `bgp.problems` or
 * `notUsed`. If the source of a fact could not be read, its getter throws the error, so that only the checks that use the
 * fact fail.
 */
export function clusterFacts(
  resources: readonly Resource[],
  blocks: readonly StoredBlock[] = [],
  addresses: AddressFacts = NO_ADDRESSES,
  unreadable: Unreadable = new Map(),
): ClusterFacts {
  const facts = computeFacts(resources, blocks, addresses);
  for (const [name, sources] of Object.entries(SOURCES)) {
    const error = sources.map((source) => unreadable.get(source)).find((each) => each !== undefined);
    if (error !== undefined) Object.defineProperty(facts, name, { get: () => raise(error) });
  }
  return facts;
}

function raise(error: Error): never {
  throw error;
}

function computeFacts(
  resources: readonly Resource[],
  blocks: readonly StoredBlock[],
  addresses: AddressFacts,
): ClusterFacts {
  const collector = new BgpCollector();
  for (const resource of resources) collector.setResource(resource.metadata.name, resource, resource.kind);
  const of = <K extends KindName>(kind: K): readonly ResourceOf<K>[] =>
    resources.filter((each): each is ResourceOf<K> & Resource => each.kind === kind);
  const bgp = collector.stateFor("");
  collector.setResource("default", meshOff(of("BGPConfiguration")), "BGPConfiguration");
  return {
    bgp,
    withoutMesh: { ...collector.stateFor(""), problems: [] },
    nodes: bgp.nodes,
    pools: of("IPPool").flatMap(poolFacts),
    felix: new Map(of("FelixConfiguration").map(({ metadata, spec }) => [metadata.name, spec])),
    reported: new Map(of("CalicoNodeStatus").flatMap(reportedStatus)),
    strictAffinity: of("IPAMConfiguration").some(({ spec }) => spec.strictAffinity === true),
    blocks: blocks.flatMap(({ host, cidr, affinity }) => {
      const parsed = tryParseCidr(cidr);
      return parsed === undefined || affinity.deleted ? [] : [{ host, cidr: parsed }];
    }),
    ...addresses,
    notUsed: findNotUsed(resources),
  };
}

function meshOff(configurations: readonly ResourceOf<"BGPConfiguration">[]): Resource {
  const common = configurations.find(({ metadata }) => metadata.name === "default");
  const spec = { ...common?.spec, nodeToNodeMeshEnabled: false };
  return { apiVersion: API_VERSION, kind: "BGPConfiguration", metadata: { name: "default" }, spec };
}

function poolFacts(resource: Resource): readonly PoolFacts[] {
  const pool = readPool(resource, ignoreUnreadable);
  const nodeSelector = pool?.nodeSelector || "all()";
  const matches = tryMatcher(nodeSelector);
  return pool === undefined || matches === undefined ? [] : [{ ...pool, nodeSelector, matches }];
}

function tryMatcher(text: string): Matcher | undefined {
  try {
    return compileSelector(parseSelector(text));
  } catch {
    return undefined; // reported by another check: the pool is in `bgp.problems`
  }
}

function reportedStatus({
  spec,
  status,
}: ResourceOf<"CalicoNodeStatus">): readonly (readonly [string, ReportedStatus])[] {
  if (status?.lastUpdated === undefined || status.lastUpdated === null) return [];
  const peers = [...(status.bgp?.peersV4 ?? []), ...(status.bgp?.peersV6 ?? [])];
  return [
    [
      spec.node,
      {
        routerId: status.agent?.birdV4?.routerID || undefined,
        lastUpdated: status.lastUpdated,
        peers: new Map(peers.map(({ peerIP, state }) => [peerIP ?? "", state ?? ""])),
      },
    ],
  ];
}

export const poolCovers = (pool: PoolFacts, node: Node): boolean => pool.matches(lookupIn(node.labels));
