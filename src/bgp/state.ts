// What BGP follows from, read once and typed: nodes, configurations, peers, filters, pools and this host's blocks. One
// object that makes no sense is reported and left out; the rest stands.
import type { Cidr } from "../lib/ip/ip.ts";
import {
  affects,
  type BgpConfiguration,
  type BgpFilter,
  type BgpPeer,
  type BlockAffinity,
  isValueError,
  type Node,
  type Pool,
  readBgpConfiguration,
  readBgpPeer,
  readNode,
  rejectUnreadable,
  type Resource,
} from "../model/index.ts";

export interface Block {
  readonly cidr: Cidr;
  readonly state: BlockAffinity["state"];
}

export interface Problem {
  /** Such as `BGPPeer(tor)`. */
  readonly object: string;
  readonly problem: string;
}

/** Everything, as of one moment. Names are in alphabetical order. */
export interface BgpState {
  readonly nodes: ReadonlyMap<string, Node>;
  /** `default` and `node.<name>`. */
  readonly configurations: ReadonlyMap<string, BgpConfiguration>;
  readonly peers: ReadonlyMap<string, BgpPeer>;
  readonly filters: ReadonlyMap<string, BgpFilter>;
  /** Names of filters that cannot be read. A session that needs one of them must not come up without it. */
  readonly unreadableFilters: ReadonlySet<string>;
  readonly pools: readonly Pool[];
  /** Blocks with an affinity for the host in question. */
  readonly blocks: readonly Block[];
  readonly problems: readonly Problem[];
}

/** Without these fields, a node's sessions would differ from what was meant. */
const SESSION_FIELDS = ["spec.bgp.asNumber", "spec.bgp.ipv4Address", "spec.bgp.ipv6Address"];
const CLUSTER_ID = "spec.bgp.routeReflectorClusterID";

/** A node with an unreadable cluster ID is used, but not as a route reflector. */
export function parseNode(resource: Resource, report: (problem: string) => void): Node {
  return readNode(resource, (error) => {
    if (affects(error, SESSION_FIELDS)) throw error;
    if (affects(error, [CLUSTER_ID])) report(`${error.message}: not used`);
  });
}

const MESH_FIELDS = ["spec.nodeToNodeMeshEnabled", "spec.nodeMeshPassword"];

/** Field by field: without its other settings, a node would have other sessions than were meant. */
export function parseConfiguration(resource: Resource, report: (problem: string) => void): BgpConfiguration {
  return readBgpConfiguration(resource, (error) => {
    if (error.path === "spec") throw error;
    report(`${error.message}: ${affects(error, MESH_FIELDS) ? "no mesh" : "not used"}`);
  });
}

export const parsePeer = (resource: Resource): BgpPeer => readBgpPeer(resource, rejectUnreadable);

/** Reads one object; what it cannot read is a problem. */
export function parseOrReport<T>(
  resource: Resource,
  parse: (resource: Resource, report: (problem: string) => void) => T,
  problems: Problem[],
): T | undefined {
  const object = `${resource.kind}(${resource.metadata.name})`;
  try {
    return parse(resource, (problem) => problems.push({ object, problem }));
  } catch (error) {
    if (!isValueError(error)) throw error;
    problems.push({ object, problem: `${error.message}: left out` });
    return undefined;
  }
}
