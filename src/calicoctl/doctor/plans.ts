// What the nodes do in BGP but for the mesh, computed once for each sort of node. Nodes that differ in name and address
// only do the same, so three of a sort stand for all of it: with everyone peering with everyone, a thousand nodes have a
// million sessions, and three have six.
import { asNumberOf, type BgpState, type PlannedPeer, type Problem, plan } from "../../bgp/index.ts";
import type { IpVersion } from "../../lib/ip/ip.ts";
import type { BgpPeer, Node } from "../../model/index.ts";
import type { ClusterFacts } from "./facts.ts";

/** Of a session what findings need. */
export type PeerFacts = Pick<PlannedPeer, "family" | "kind" | "neighbor" | "because"> & {
  readonly sameAs: boolean;
  /** Whether it is opened from the Node's address. */
  readonly fromNodeAddress: boolean;
};

/** Nodes that differ in name and address only. */
export class NodeSort {
  /** Sessions with others than nodes. */
  readonly outside: PeerFacts[] = [];
  /** One session of those with nodes of a sort, by family. */
  readonly towards: Record<IpVersion, Map<NodeSort, PeerFacts>> = { 4: new Map(), 6: new Map() };
  readonly problems: Problem[] = [];

  constructor(readonly nodes: readonly string[]) {}

  /** Enough for one of them, and for two others that it might stand between. */
  get samples(): readonly string[] {
    return this.nodes.slice(0, 3);
  }

  get hasSessions(): boolean {
    return this.outside.length + this.towards[4].size + this.towards[6].size > 0;
  }

  /** Sorts of nodes it peers with inside its AS. */
  readonly inside = new Set<NodeSort>();
}

export interface Plans {
  readonly sorts: readonly NodeSort[];
  readonly sortOf: ReadonlyMap<string, NodeSort>;
}

export function planAll({ withoutMesh: state }: ClusterFacts): Plans {
  const key = sorter(state);
  const sorts = [...Map.groupBy(state.nodes.values(), key).values()].map(
    (nodes) => new NodeSort(nodes.map(({ name }) => name)),
  );
  const sortOf = new Map(sorts.flatMap((sort) => sort.nodes.map((name) => [name, sort] as const)));
  const samples = new Set(sorts.flatMap((sort) => sort.samples));
  const reduced: BgpState = { ...state, nodes: new Map([...state.nodes].filter(([name]) => samples.has(name))) };
  const byAddress = nodesByAddress(reduced);
  const peersOf = peerFinder(state);
  for (const sort of sorts)
    for (const name of sort.samples) {
      // Secrets are the nodes' to know: that one is missing cannot be told from here.
      const { peers, problems } = plan({ ...reduced, peers: peersOf(name) }, name, { hasSecret: () => true });
      if (name === sort.samples[0]) sort.problems.push(...problems);
      for (const peer of peers) {
        const there = state.nodes.get(byAddress.get(peer.neighbor) ?? "");
        const other = sortOf.get(there?.name ?? "");
        if (other === undefined) {
          if (name === sort.samples[0]) sort.outside.push(peerFacts(peer));
          continue;
        }
        sort.towards[peer.family].set(other, peerFacts(peer));
        // With another AS number than the node there has it never comes up, and leads nowhere.
        const isExpected = there !== undefined && asNumberOf(state, there) === peer.remoteAs;
        if (peer.export.sameAs && isExpected) sort.inside.add(other);
      }
    }
  return { sorts, sortOf };
}

/** The BGPPeers that can matter to a node: not those for another by name, unless it is the one they lead to. */
function peerFinder(state: BgpState): (node: string) => BgpState["peers"] {
  const others: BgpPeer[] = [];
  const named = new Map<string, BgpPeer[]>();
  const leadTo = Map.groupBy(state.peers.values(), ({ peerAddress }) => peerAddress?.address);
  for (const peer of state.peers.values())
    if (peer.node === undefined || peer.peerSelector !== undefined) others.push(peer);
    else named.set(peer.node, [...(named.get(peer.node) ?? []), peer]);
  return (name) => {
    const { networks } = state.nodes.get(name) ?? {};
    const here = [networks?.[4]?.address, networks?.[6]?.address].filter((address) => address !== undefined);
    const own = [...(named.get(name) ?? []), ...here.flatMap((address) => leadTo.get(address) ?? [])];
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

/** Says of a node what its sessions follow from; one that a BGPPeer or a configuration means by itself is its own sort. */
function sorter(state: BgpState): (node: Node) => string {
  const peers = [...state.peers.values()];
  const meant = new Set<string>(peers.flatMap(({ peerAddress }) => peerAddress?.address ?? []));
  const seen = new Set<string>();
  for (const { networks } of state.nodes.values())
    for (const address of [networks[4]?.address, networks[6]?.address]) {
      if (address === undefined) continue;
      if (seen.has(address)) meant.add(address); // on several nodes
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
      addresses.some((address) => address !== undefined && meant.has(address));
    return [
      isAlone ? name : "",
      addresses.map((address) => (address === undefined ? "-" : "+")).join(""),
      asNumberOf(state, node),
      clusterId ?? "",
      selectors.map((selector) => (selector.matches(node.labels) ? "1" : "0")).join(""),
    ].join(" ");
  };
}

const peerFacts = ({ family, kind, neighbor, sourceAddress, because, export: { sameAs } }: PlannedPeer): PeerFacts => ({
  family,
  kind,
  neighbor,
  because,
  sameAs,
  fromNodeAddress: sourceAddress !== null,
});
