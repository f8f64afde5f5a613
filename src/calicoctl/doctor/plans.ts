// Computes the BGP sessions of all nodes, except those of the mesh, once per group of similar nodes. Nodes that differ only in
// name and address have the same kinds of sessions, so three samples represent a group: if all nodes peer with each other, a
// thousand nodes have a million sessions, three have six.
import { asNumberOf, type BgpState, type PlannedPeer, type Problem, plan } from "../../bgp/index.ts";
import type { IpVersion } from "../../lib/ip/ip.ts";
import type { BgpPeer, Node } from "../../model/index.ts";
import type { ClusterFacts } from "./facts.ts";

/** The properties of a session that the checks use. */
export type PeerFacts = Pick<PlannedPeer, "family" | "kind" | "neighbor" | "because"> & {
  /** Whether the session is opened from the Node's address. */
  readonly fromNodeAddress: boolean;
};

/** Nodes that differ only in name and address. */
export class NodeGroup {
  /** Sessions with peers that are not nodes. */
  readonly externalPeers: PeerFacts[] = [];
  /** One sample of the sessions with nodes of another group, by IP version. */
  readonly sampleSessions: Record<IpVersion, Map<NodeGroup, PeerFacts>> = { 4: new Map(), 6: new Map() };
  readonly problems: Problem[] = [];

  constructor(readonly nodes: readonly string[]) {}

  /** Three, so that one node and two of its neighbours can be in the same group. */
  get samples(): readonly string[] {
    return this.nodes.slice(0, 3);
  }

  get hasSessions(): boolean {
    return this.externalPeers.length + this.sampleSessions[4].size + this.sampleSessions[6].size > 0;
  }

  /** Groups of nodes that it peers with inside its own AS. */
  readonly sameAsGroups = new Set<NodeGroup>();
}

export interface Plans {
  readonly groups: readonly NodeGroup[];
  readonly groupOf: ReadonlyMap<string, NodeGroup>;
}

export function planAll({ withoutMesh: state }: ClusterFacts): Plans {
  const key = groupKey(state);
  const groups = [...Map.groupBy(state.nodes.values(), key).values()].map(
    (nodes) => new NodeGroup(nodes.map(({ name }) => name)),
  );
  const groupOf = new Map(groups.flatMap((group) => group.nodes.map((name) => [name, group] as const)));
  const samples = new Set(groups.flatMap((group) => group.samples));
  const reduced: BgpState = { ...state, nodes: new Map([...state.nodes].filter(([name]) => samples.has(name))) };
  const byAddress = nodesByAddress(reduced);
  const peersOf = peerFinder(state);
  for (const group of groups)
    for (const name of group.samples) {
      // Only the nodes can read their secrets, so a missing one cannot be detected here.
      const { peers, problems } = plan({ ...reduced, peers: peersOf(name) }, name, { hasSecret: () => true });
      if (name === group.samples[0]) group.problems.push(...problems);
      for (const peer of peers) {
        const there = state.nodes.get(byAddress.get(peer.neighbor) ?? "");
        const other = groupOf.get(there?.name ?? "");
        if (other === undefined) {
          if (name === group.samples[0]) group.externalPeers.push(peerFacts(peer));
          continue;
        }
        group.sampleSessions[peer.family].set(other, peerFacts(peer));
        // A session that expects another AS number than the node has is never established.
        const isExpected = there !== undefined && asNumberOf(state, there) === peer.remoteAs;
        if (peer.export.sameAs && isExpected) group.sameAsGroups.add(other);
      }
    }
  return { groups, groupOf };
}

/** Returns a function that finds the BGPPeers that can affect a node: all except those for another node and another address. */
function peerFinder(state: BgpState): (node: string) => BgpState["peers"] {
  const others: BgpPeer[] = [];
  const named = new Map<string, BgpPeer[]>();
  const byPeerAddress = Map.groupBy(state.peers.values(), ({ peerAddress }) => peerAddress?.address);
  for (const peer of state.peers.values())
    if (peer.node === undefined || peer.peerSelector !== undefined) others.push(peer);
    else named.set(peer.node, [...(named.get(peer.node) ?? []), peer]);
  return (name) => {
    const { networks } = state.nodes.get(name) ?? {};
    const here = [networks?.[4]?.address, networks?.[6]?.address].filter((address) => address !== undefined);
    const own = [...(named.get(name) ?? []), ...here.flatMap((address) => byPeerAddress.get(address) ?? [])];
    const all = own.length === 0 ? others : [...others, ...own].sort((a, b) => (a.name < b.name ? -1 : 1));
    return new Map(all.map((peer) => [peer.name, peer]));
  };
}

export function nodesByAddress({ nodes }: Pick<BgpState, "nodes">): ReadonlyMap<string, string> {
  return new Map(
    [...nodes.values()].flatMap(({ name, networks }) =>
      ([4, 6] as const).flatMap((version) => {
        const address = networks[version]?.address;
        return address === undefined ? [] : [[address as string, name] as const];
      }),
    ),
  );
}

/**
 * Returns a function that computes the key of a node's group from everything that determines its sessions. A node that a
 * BGPPeer or a BGPConfiguration refers to individually is a group of its own.
 */
function groupKey(state: BgpState): (node: Node) => string {
  const peers = [...state.peers.values()];
  const singleAddresses = new Set<string>(peers.flatMap(({ peerAddress }) => peerAddress?.address ?? []));
  const seen = new Set<string>();
  for (const { networks } of state.nodes.values())
    for (const address of [networks[4]?.address, networks[6]?.address]) {
      if (address === undefined) continue;
      if (seen.has(address)) singleAddresses.add(address); // on several nodes
      seen.add(address);
    }
  const named = new Set(peers.flatMap(({ node }) => node ?? []));
  const selectors = peers.flatMap(({ nodeSelector, peerSelector }) =>
    [nodeSelector, peerSelector].filter((each) => each !== undefined),
  );
  return (node) => {
    const { name, networks, clusterId } = node;
    const addresses = [networks[4]?.address, networks[6]?.address];
    const isAlone =
      named.has(name) ||
      state.configurations.has(`node.${name}`) ||
      addresses.some((address) => address !== undefined && singleAddresses.has(address));
    return [
      isAlone ? name : "",
      addresses.map((address) => (address === undefined ? "-" : "+")).join(""),
      asNumberOf(state, node),
      clusterId ?? "",
      selectors.map((selector) => (selector.matches(node.labels) ? "1" : "0")).join(""),
    ].join(" ");
  };
}

const peerFacts = ({ family, kind, neighbor, sourceAddress, because }: PlannedPeer): PeerFacts => ({
  family,
  kind,
  neighbor,
  because,

  fromNodeAddress: sourceAddress !== null,
});
