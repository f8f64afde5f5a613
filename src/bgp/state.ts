// Parses the resources from which BGP is planned: nodes, configurations, peers and filters. An invalid object is reported and
// left out; the others are used.
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

/** A snapshot of all inputs from the datastore. Nodes, peers and filters are sorted by name. */
export interface BgpState {
  readonly nodes: ReadonlyMap<string, Node>;
  /** `default` and `node.<name>`. */
  readonly configurations: ReadonlyMap<string, BgpConfiguration>;
  readonly peers: ReadonlyMap<string, BgpPeer>;
  readonly filters: ReadonlyMap<string, BgpFilter>;
  /** Names of filters that cannot be read. A session that uses one of them is left out. */
  readonly unreadableFilters: ReadonlySet<string>;
  readonly pools: readonly Pool[];
  /** Blocks with an affinity for the planned node. */
  readonly blocks: readonly Block[];
  readonly problems: readonly Problem[];
}

/** A node is left out if one of these is invalid, because its sessions would be wrong. */
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

/** Leaves out only invalid fields. If a field of the mesh is invalid, the mesh is disabled. */
export function parseConfiguration(resource: Resource, report: (problem: string) => void): BgpConfiguration {
  return readBgpConfiguration(resource, (error) => {
    if (error.path === "spec") throw error;
    report(`${error.message}: ${affects(error, MESH_FIELDS) ? "no mesh" : "not used"}`);
  });
}

export const parsePeer = (resource: Resource): BgpPeer => readBgpPeer(resource, rejectUnreadable);

/** Parses one object; reports an invalid one and returns undefined. */
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
