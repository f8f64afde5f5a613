// What the doctor looks at: the cluster as its resources tell it, and the host it runs on. Findings are pure functions
// of these two, so each can be tried without either.
import {
  BgpCollector,
  type BgpState,
  type BirdSession,
  type Problem,
  type SessionSurroundings,
} from "../../bgp/index.ts";
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
import { judge, JUDGED_KINDS, type NotUsed } from "./not-used.ts";

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

/** What a node last told of itself in a CalicoNodeStatus. */
export interface ReportedStatus {
  readonly routerId: string | undefined;
  readonly lastUpdated: string | undefined;
  /** BGP state by the neighbour's address. */
  readonly peers: ReadonlyMap<string, string>;
}

export interface ClusterFacts {
  readonly bgp: BgpState;
  /** The same without the mesh, which is everyone with everyone and needs no computing. */
  readonly withoutMesh: BgpState;
  readonly nodes: ReadonlyMap<string, Node>;
  readonly pools: readonly PoolFacts[];
  readonly felix: ReadonlyMap<string, ResourceOf<"FelixConfiguration">["spec"]>;
  readonly reported: ReadonlyMap<string, ReportedStatus>;
  readonly strictAffinity: boolean;
  readonly blocks: readonly { readonly host: string; readonly cidr: Cidr }[];
  /** How many addresses pools have and can still give, by CIDR, where it was asked. */
  readonly fill: ReadonlyMap<Cidr, PoolFill>;
  /** Resources that agents do not use as they are written. */
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

/** The node that this host is, as its files and processes say. */
export interface LocalNode {
  readonly name: string;
  /** Felix runs on this host. */
  readonly hasAgent: boolean;
  readonly evidence: readonly string[];
}

export interface NeighbourTable {
  readonly entries: number;
  readonly limit: number;
  /** How often it was full since the machine started. */
  readonly overflows: number;
}

export interface HostPart {
  readonly name: string;
  readonly isRunning: boolean;
  readonly detail: string;
  /** Its process is there, and does nothing. */
  readonly isStuck?: boolean;
  /** Where the usual advice does not do. */
  readonly fix?: string;
}

/**
 * The host we run on, which is a node. A value that does not exist here, or that only root may read, is undefined, and
 * nothing is concluded from it. A value whose reading failed throws the error, so that the checks that need it fail.
 */
export interface HostFacts {
  readonly node: string;
  readonly links: readonly HostLink[];
  readonly sysctl: (path: string) => string | undefined;
  readonly hasModule: (name: string) => boolean;
  /** Whether a route leads to the address pods know as their gateway. */
  readonly routesToPodGateway: boolean | undefined;
  /** The best routes to other nodes' blocks, undefined where there is none; blocks that were not looked up are missing. */
  readonly blockRoutes: ReadonlyMap<Cidr, KernelRoute | undefined>;
  /** MTU of the way to other nodes, by their names. */
  readonly pathMtu: ReadonlyMap<string, number>;
  readonly iptables: Readonly<Record<"legacy" | "nft", RuleCount | undefined>>;
  readonly hasCalicoNftTable: boolean | undefined;
  readonly guard: GuardFacts | undefined;
  /** Tracked connections of this node's pod addresses that nobody has now. */
  readonly staleConnections: readonly AddressConnections[] | undefined;
  /** Chains on the packets' way that are not Calico's. */
  readonly filters: readonly FilterChain[];
  readonly neighbourTable: Readonly<Record<IpVersion, NeighbourTable | undefined>>;
  readonly birds: Readonly<
    Record<IpVersion, { readonly routerId: string; readonly sessions: readonly BirdSession[] } | undefined>
  >;
  readonly surroundings: (session: BirdSession) => SessionSurroundings;
  /** What the BGP service on this host left out of the plan in force. */
  readonly planProblems: readonly Problem[];
  /** Rules, sets and features of calico-node that the kernel rejects. */
  readonly rejected: readonly RejectedPart[];
  /** Parts of calico-node that ought to run: all of them, with those that do not. */
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
  ...JUDGED_KINDS,
] as const satisfies readonly KindName[];

/** What could not be read from the datastore: a kind of resources, the block affinities, or how full the pools are. */
export type Unreadable = ReadonlyMap<KindName | "blocks" | "fill", Error>;

/** Facts without which the checks that use them cannot conclude anything, and what they are made from. */
const SOURCES: Readonly<Partial<Record<keyof ClusterFacts, readonly (KindName | "blocks" | "fill")[]>>> = {
  bgp: ["Node", "BGPConfiguration", "BGPPeer", "BGPFilter", "IPPool"],
  withoutMesh: ["Node", "BGPConfiguration", "BGPPeer", "BGPFilter", "IPPool"],
  nodes: ["Node"],
  pools: ["IPPool"],
  felix: ["FelixConfiguration"],
  strictAffinity: ["IPAMConfiguration"],
  blocks: ["blocks"],
  fill: ["fill"],
};

/**
 * From resources as they are stored. An invalid one is among the state's problems, the others are used. Facts whose
 * source could not be read throw the reason when they are used, so that only the checks that need them fail.
 */
export function clusterFacts(
  resources: readonly Resource[],
  blocks: readonly StoredBlock[] = [],
  fill: ClusterFacts["fill"] = new Map(),
  unreadable: Unreadable = new Map(),
): ClusterFacts {
  const facts = factsOf(resources, blocks, fill);
  for (const [name, sources] of Object.entries(SOURCES)) {
    const error = sources.map((source) => unreadable.get(source)).find((each) => each !== undefined);
    if (error !== undefined) Object.defineProperty(facts, name, { get: () => raise(error) });
  }
  return facts;
}

function raise(error: Error): never {
  throw error;
}

function factsOf(
  resources: readonly Resource[],
  blocks: readonly StoredBlock[],
  fill: ClusterFacts["fill"],
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
    reported: new Map(of("CalicoNodeStatus").flatMap(reportOf)),
    strictAffinity: of("IPAMConfiguration").some(({ spec }) => spec.strictAffinity === true),
    blocks: blocks.flatMap(({ host, cidr, affinity }) => {
      const parsed = tryParseCidr(cidr);
      return parsed === undefined || affinity.deleted ? [] : [{ host, cidr: parsed }];
    }),
    fill,
    notUsed: judge(resources),
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
    return undefined; // its own finding: the object is among the state's problems
  }
}

function reportOf({ spec, status }: ResourceOf<"CalicoNodeStatus">): readonly (readonly [string, ReportedStatus])[] {
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
