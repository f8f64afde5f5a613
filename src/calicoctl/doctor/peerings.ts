// Checks that BGPPeers select nodes and agree with them, and that every node has a session that passes its routes on.
import { asNumberOf } from "../../bgp/index.ts";
import { type BgpPeer, isForNode, type Node } from "../../model/index.ts";
import { type ClusterFacts, type HostFacts, usesVxlan } from "./facts.ts";
import { type Finding, formatList, patchCommand, plural } from "./finding.ts";
import { type NodeGroup, nodesByAddress, type Plans } from "./plans.ts";

const isGlobal = (peer: BgpPeer): boolean => peer.node === undefined && peer.nodeSelector === undefined;

/** Returns the nodes that a BGPPeer selects. */
export function nodesOf({ nodes }: ClusterFacts, peer: BgpPeer): readonly Node[] {
  const named = peer.node === undefined ? undefined : nodes.get(peer.node);
  // A cluster may have one such BGPPeer per node, so each is compared only with the node that it names.
  const candidates = peer.nodeSelector !== undefined || named === undefined ? [...nodes.values()] : [named];
  return candidates.filter((node) => isForNode(peer, node));
}

export function* asMismatches(cluster: ClusterFacts): Generator<Finding> {
  const byAddress = nodesByAddress(cluster);
  for (const peer of cluster.bgp.peers.values()) {
    const address = peer.peerAddress?.address;
    const node = cluster.nodes.get(byAddress.get(address ?? "") ?? "");
    if (address === undefined || node === undefined || peer.asNumber === undefined) continue;
    const actual = asNumberOf(cluster.bgp, node);
    if (peer.asNumber === actual) continue;
    yield {
      id: "as-mismatch",
      severity: "error",
      object: `BGPPeer(${peer.name})`,
      problem: `BGPPeer ${peer.name} expects AS ${peer.asNumber} at ${address}, but that address belongs to node ${node.name} in AS ${actual}`,
      cause: "each side sends its AS number when it opens a session; an unexpected number ends the session",
      evidence: [
        `BGPPeer(${peer.name}) spec.asNumber is ${peer.asNumber}`,
        node.asNumber === undefined
          ? `Node(${node.name}) has no AS number, so that of the cluster is used: ${actual}`
          : `Node(${node.name}) spec.bgp.asNumber is ${actual}`,
      ],
      fix: `if AS ${actual} is correct: ${patchCommand("bgppeer", peer.name, { asNumber: actual })}. If AS ${peer.asNumber} is correct: ${patchCommand("node", node.name, { bgp: { asNumber: peer.asNumber } })}, and AS=${peer.asNumber} for its calico-node if AS is set there`,
      node: node.name,
      address,
      peer: address,
      setting: `BGPPeer(${peer.name}) spec.asNumber: ${actual}`,
    };
  }
}

export function* unmatchedPeers(cluster: ClusterFacts): Generator<Finding> {
  if (cluster.nodes.size === 0) return;
  const nodes = [...cluster.nodes.values()];
  for (const peer of cluster.bgp.peers.values()) {
    const empty: [field: string, value: string][] = [];
    if (nodesOf(cluster, peer).length === 0)
      empty.push(peer.node === undefined ? ["nodeSelector", peer.nodeSelector?.text ?? ""] : ["node", peer.node]);
    const { peerSelector } = peer;
    if (peerSelector !== undefined && !nodes.some((node) => peerSelector.matches(node.labels)))
      empty.push(["peerSelector", peerSelector.text]);
    for (const [field, value] of empty)
      yield {
        id: "selector-matches-nothing",
        severity: "warning",
        object: `BGPPeer(${peer.name})`,
        problem: `BGPPeer ${peer.name} has no effect: its ${field} ${JSON.stringify(value)} does not match any of ${plural(nodes.length, "node")}`,
        cause: field === "node" ? "there is no Node of that name" : "no Node has labels that match the selector",
        evidence: [
          `BGPPeer(${peer.name}) spec.${field} is ${value}`,
          field === "node"
            ? `the nodes are ${formatList(nodes.map(({ name }) => name))}`
            : `labels in the cluster: ${formatList(labelsOf(nodes), 6) || "none"}`,
        ],
        fix:
          field === "node"
            ? `set an existing node, or delete the BGPPeer`
            : `add the label to the nodes (calicoctl label node NAME KEY=VALUE), or correct the selector`,
        peer: peer.name,
        setting: `BGPPeer(${peer.name}) spec.${field}`,
      };
    for (const filter of peer.filters)
      if (!cluster.bgp.filters.has(filter))
        yield {
          id: "filter-missing",
          severity: "warning",
          object: `BGPPeer(${peer.name})`,
          problem: `BGPPeer ${peer.name} refers to BGPFilter ${filter}, which does not exist`,
          cause: "a missing filter has no effect: routes that it should reject are imported or exported",
          evidence: [`BGPPeer(${peer.name}) spec.filters has ${filter}`],
          fix: `create BGPFilter ${filter}, or remove it from the BGPPeer`,
          peer: peer.name,
          setting: `BGPPeer(${peer.name}) spec.filters`,
        };
  }
}

const labelsOf = (nodes: readonly Node[]): readonly string[] =>
  [...new Set(nodes.flatMap(({ labels }) => Object.entries(labels).map(([key, value]) => `${key}=${value}`)))].sort();

/** Finds BGPPeers that are not used because another one has the same address and port. */
export function* shadowedPeers(cluster: ClusterFacts): Generator<Finding> {
  const peers = [...cluster.bgp.peers.values()].filter((peer) => peer.peerAddress !== undefined);
  const inOrder = [...peers.filter(isGlobal), ...peers.filter((peer) => !isGlobal(peer))];
  const key = ({ peerAddress }: BgpPeer) => `${peerAddress?.address} ${peerAddress?.port ?? 179}`;
  for (const duplicates of Map.groupBy(inOrder, key).values()) {
    if (duplicates.length < 2) continue;
    const used = new Map<string, BgpPeer>(); // by node
    for (const peer of duplicates) {
      const shadowedBy = new Map<BgpPeer, string[]>(); // the nodes on which another BGPPeer is used
      for (const { name } of nodesOf(cluster, peer)) {
        const winner = used.get(name);
        if (winner === undefined) used.set(name, peer);
        else shadowedBy.set(winner, [...(shadowedBy.get(winner) ?? []), name]);
      }
      for (const [winner, nodes] of shadowedBy) yield shadowed(peer, winner, nodes);
    }
  }
}

function shadowed(peer: BgpPeer, winner: BgpPeer, nodes: readonly string[]): Finding {
  const address = peer.peerAddress?.address ?? "";
  return {
    id: "two-peers-one-address",
    severity: "warning",
    object: `BGPPeer(${peer.name})`,
    problem: `BGPPeer ${peer.name} is not used on ${formatList(nodes)}: BGPPeer ${winner.name} has the same address ${address}`,
    cause:
      "a node has one session per address and port; BGPPeers for all nodes take precedence over those for some, then the first in the order of names is used",
    evidence: [
      `BGPPeer(${winner.name}) spec.peerIP is ${address}${isGlobal(winner) ? ", for all nodes" : ""}`,
      `BGPPeer(${peer.name}) spec.peerIP is ${address}${isGlobal(peer) ? ", for all nodes" : ""}`,
    ],
    fix: `delete one of the two, or make them select different nodes`,
    peer: address,
    setting: `BGPPeer(${peer.name})`,
  };
}

/**
 * Finds objects, or parts of them, that BGP ignores.
 *
 * @param reported objects that have another finding
 */
export function* ignoredByBgp(
  cluster: ClusterFacts,
  plans: Plans,
  reported: ReadonlySet<string>,
  host?: HostFacts,
): Generator<Finding> {
  const problems = new Map<string, { object: string; problem: string; of: Set<string> }>();
  const add = (object: string, problem: string, nodes: readonly string[]) => {
    const entry = problems.get(`${object} ${problem}`) ?? { object, problem, of: new Set() };
    problems.set(`${object} ${problem}`, entry);
    for (const node of nodes) entry.of.add(node);
  };
  for (const { object, problem } of cluster.bgp.problems) add(object, problem, []);
  const here = host === undefined ? [] : [{ nodes: [host.node], problems: host.planProblems }];
  for (const { nodes, problems: own } of [...plans.groups, ...here])
    for (const { object, problem } of own) add(object, problem, nodes);
  for (const { object, problem, of } of problems.values()) {
    if (reported.has(object)) continue;
    const nodes = [...cluster.nodes.keys()].filter((name) => of.has(name));
    yield {
      id: "left-out",
      severity: "warning",
      object,
      problem: `${object}: ${problem}`,
      cause: "invalid objects are ignored, so that the rest of BIRD's configuration remains valid",
      evidence: nodes.length === 0 ? [`${object} as it is stored`] : [`in the plan of ${formatList(nodes)}`],
      fix: `correct or delete ${object}; calicoctl bgp plan NODE shows the result`,
    };
  }
}

/** Returns the nodes that have no BGP session, neither in the mesh nor by a BGPPeer. */
export function nodesWithoutSession(cluster: ClusterFacts, plans: Plans): readonly Node[] {
  const nodes = nodesWithAddress(cluster);
  if (nodes.length < 2) return [];
  const isMeshed = (node: Node) =>
    isMeshOn(cluster) &&
    node.clusterId === undefined &&
    nodes.some((other) => other.name !== node.name && other.clusterId === undefined);
  return nodes.filter((node) => !isMeshed(node) && plans.groupOf.get(node.name)?.hasSessions === false);
}

const nodesWithAddress = (cluster: ClusterFacts): readonly Node[] =>
  [...cluster.nodes.values()].filter((node) => node.networks[4] ?? node.networks[6]);
const isMeshOn = (cluster: ClusterFacts): boolean => cluster.bgp.configurations.get("default")?.meshEnabled !== false;

export function* isolatedNodes(cluster: ClusterFacts, plans: Plans): Generator<Finding> {
  if (!cluster.pools.some((pool) => !pool.isDisabled && !usesVxlan(pool))) return; // no routes to pods depend on BGP
  const nodes = nodesWithAddress(cluster);
  const alone = nodesWithoutSession(cluster, plans);
  if (alone.length === 0) return;
  const names = alone.map(({ name }) => name);
  const hasReflector = nodes.some(({ clusterId }) => clusterId !== undefined);
  if (alone.length === nodes.length) {
    yield {
      id: "no-peering",
      severity: "error",
      object: "BGPConfiguration(default)",
      problem: `the mesh is off and ${hasReflector ? "no BGPPeer leads to the reflectors" : "there is neither a reflector nor a BGPPeer"}: none of ${plural(nodes.length, "node")} has a session`,
      cause: "with nodeToNodeMeshEnabled false, all sessions are configured by BGPPeers",
      evidence: [
        "BGPConfiguration(default) spec.nodeToNodeMeshEnabled is false",
        `${plural(cluster.bgp.peers.size, "BGPPeer")} in the datastore`,
      ],
      fix: 'enable the mesh (calicoctl patch bgpconfiguration default -p \'{"spec":{"nodeToNodeMeshEnabled":true}}\'), or set routeReflectorClusterID on some Nodes and create a BGPPeer with nodeSelector and peerSelector',
      setting: "BGPConfiguration(default) spec.nodeToNodeMeshEnabled: true",
    };
    return;
  }
  yield {
    id: "node-without-session",
    severity: "error",
    object: `Node(${names[0]})`,
    problem: `${formatList(names)} ${names.length === 1 ? "has" : "have"} no BGP session: other nodes do not learn the routes to ${names.length === 1 ? "its" : "their"} pods`,
    cause: isMeshOn(cluster)
      ? "a route reflector is not part of the mesh: all its sessions are configured by BGPPeers"
      : "the mesh is off, and no BGPPeer selects the node on either side",
    evidence: [
      `BGPConfiguration(default) spec.nodeToNodeMeshEnabled is ${isMeshOn(cluster)}`,
      ...alone.slice(0, 4).map(({ name, labels, clusterId }) => {
        const reflector = clusterId === undefined ? "" : `, reflector cluster ${clusterId}`;
        return `Node(${name}): labels ${formatList(Object.entries(labels).map(([k, v]) => `${k}=${v}`)) || "none"}${reflector}`;
      }),
    ],
    fix: "create a BGPPeer that selects the node (nodeSelector) and its peers (peerSelector or peerIP), or correct the node's labels",
    node: names[0] ?? "",
  };
}

/** Finds nodes that other nodes peer with, but that do not pass routes on: inside one AS only reflectors do (RFC 4456). */
export function* reflectorsWithoutClusterId(cluster: ClusterFacts, plans: Plans): Generator<Finding> {
  if (cluster.bgp.configurations.get("default")?.meshEnabled !== false) return;
  const isReflector = (group: NodeGroup) => cluster.nodes.get(group.nodes[0] ?? "")?.clusterId !== undefined;
  const exchangeRoutes = (a: NodeGroup, b: NodeGroup) =>
    a.sameAsGroups.has(b) || [...a.sameAsGroups].some((via) => isReflector(via) && b.sameAsGroups.has(via));
  const hubs = plans.groups.flatMap((group) => {
    const separated = isReflector(group) ? undefined : separatedNeighbours(group, exchangeRoutes);
    const count = [...group.sameAsGroups].reduce((sum, each) => sum + each.nodes.length - Number(each === group), 0);
    return separated === undefined ? [] : [{ group, separated, count }];
  });
  // A client of several reflectors that do not peer with each other is not a hub. The node with the most neighbours is
  // assumed to be the intended reflector.
  const most = Math.max(0, ...hubs.map(({ count }) => count));
  for (const { group, separated } of hubs.filter(({ count }) => count === most))
    for (const name of group.nodes) yield missingClusterId(name, group, separated);
}

/** Returns two groups of a node's neighbours that do not learn each other's routes. */
function separatedNeighbours(
  group: NodeGroup,
  exchangeRoutes: (a: NodeGroup, b: NodeGroup) => boolean,
): [NodeGroup, NodeGroup] | undefined {
  const neighbours = [...group.sameAsGroups].slice(0, 20); // bounds the number of pairs
  for (const [i, a] of neighbours.entries())
    for (const b of neighbours.slice(i)) {
      const hasTwoNodes = a !== b || a.nodes.length > (a === group ? 2 : 1);
      if (hasTwoNodes && !exchangeRoutes(a, b)) return [a, b];
    }
  return undefined;
}

function missingClusterId(name: string, group: NodeGroup, [one, two]: readonly [NodeGroup, NodeGroup]): Finding {
  const a = one.samples.find((each) => each !== name);
  const b = two.samples.find((each) => each !== name && each !== a);
  return {
    id: "reflector-without-cluster-id",
    severity: "error",
    object: `Node(${name})`,
    problem: `node ${name} does not reflect routes: ${a} and ${b} both peer with it and do not learn each other's routes`,
    cause:
      "a router does not pass on routes that it learned inside its own AS, unless it is a route reflector; a Node with a routeReflectorClusterID is one",
    evidence: [
      `Node(${name}) has no spec.bgp.routeReflectorClusterID`,
      `${name} peers with ${formatList([...group.sameAsGroups].flatMap(({ nodes }) => nodes).filter((other) => other !== name))}`,
      `${a} and ${b} have neither a session nor a reflector in common`,
    ],
    fix: `${patchCommand("node", name, { bgp: { routeReflectorClusterID: "244.0.0.1" } })} (the same ID for all reflectors that serve the same nodes)`,
    node: name,
    setting: `Node(${name}) spec.bgp.routeReflectorClusterID: 244.0.0.1`,
  };
}
