// Whether the peerings that are written down lead anywhere, and whether routes find their way along them.
import { asNumberOf } from "../../bgp/index.ts";
import { type BgpPeer, isForNode, type Node } from "../../model/index.ts";
import { type ClusterFacts, type HostFacts, usesVxlan } from "./facts.ts";
import { type Finding, listed, patch, plural } from "./finding.ts";
import { type NodeSort, nodesByAddress, type Plans } from "./plans.ts";

const isGlobal = (peer: BgpPeer): boolean => peer.node === undefined && peer.nodeSelector === undefined;

/** The nodes that a BGPPeer is for. */
export function nodesOf({ nodes }: ClusterFacts, peer: BgpPeer): readonly Node[] {
  const named = peer.node === undefined ? undefined : nodes.get(peer.node);
  // There may be as many peers that name a node as nodes: such a peer is compared with that node only.
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
      problem: `BGPPeer ${peer.name} expects AS ${peer.asNumber} at ${address}, but node ${node.name} there is in AS ${actual}`,
      cause: "each side states its AS number when a session opens; one that is not expected ends it",
      evidence: [
        `BGPPeer(${peer.name}) spec.asNumber is ${peer.asNumber}`,
        node.asNumber === undefined
          ? `Node(${node.name}) has no AS number, so the cluster's counts: ${actual}`
          : `Node(${node.name}) spec.bgp.asNumber is ${actual}`,
      ],
      fix: `if node ${node.name} is to be in AS ${actual}: ${patch("bgppeer", peer.name, { asNumber: actual })}. If AS ${peer.asNumber} is meant: ${patch("node", node.name, { bgp: { asNumber: peer.asNumber } })}, and AS=${peer.asNumber} for its calico-node where AS is set`,
      node: node.name,
      address,
      peer: address,
      setting: `BGPPeer(${peer.name}) spec.asNumber: ${actual}`,
    };
  }
}

export function* matchNothing(cluster: ClusterFacts): Generator<Finding> {
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
        problem: `BGPPeer ${peer.name} makes no session: its ${field} ${JSON.stringify(value)} matches none of ${plural(nodes.length, "node")}`,
        cause: field === "node" ? "there is no Node of that name" : "no Node has the labels it asks for",
        evidence: [
          `BGPPeer(${peer.name}) spec.${field} is ${value}`,
          field === "node"
            ? `the nodes are ${listed(nodes.map(({ name }) => name))}`
            : `labels in the cluster: ${listed(labelsOf(nodes), 6) || "none"}`,
        ],
        fix:
          field === "node"
            ? `name a node that is there, or delete the BGPPeer`
            : `give the nodes their label (calicoctl label node NAME KEY=VALUE), or correct the selector`,
        peer: peer.name,
        setting: `BGPPeer(${peer.name}) spec.${field}`,
      };
    for (const filter of peer.filters)
      if (!cluster.bgp.filters.has(filter))
        yield {
          id: "filter-missing",
          severity: "warning",
          object: `BGPPeer(${peer.name})`,
          problem: `BGPPeer ${peer.name} names the BGPFilter ${filter}, which does not exist`,
          cause: "a filter that is not there filters nothing: routes that were to be kept out come in, or go out",
          evidence: [`BGPPeer(${peer.name}) spec.filters has ${filter}`],
          fix: `create BGPFilter ${filter}, or take it out of the BGPPeer`,
          peer: peer.name,
          setting: `BGPPeer(${peer.name}) spec.filters`,
        };
  }
}

const labelsOf = (nodes: readonly Node[]): readonly string[] =>
  [...new Set(nodes.flatMap(({ labels }) => Object.entries(labels).map(([key, value]) => `${key}=${value}`)))].sort();

/** Of two BGPPeers for one address and port, the one that does not count. */
export function* shadowedPeers(cluster: ClusterFacts): Generator<Finding> {
  const peers = [...cluster.bgp.peers.values()].filter((peer) => peer.peerAddress !== undefined);
  const inOrder = [...peers.filter(isGlobal), ...peers.filter((peer) => !isGlobal(peer))];
  const key = ({ peerAddress }: BgpPeer) => `${peerAddress?.address} ${peerAddress?.port ?? 179}`;
  for (const rivals of Map.groupBy(inOrder, key).values()) {
    if (rivals.length < 2) continue;
    const used = new Map<string, BgpPeer>(); // by node
    for (const peer of rivals) {
      const lost = new Map<BgpPeer, string[]>();
      for (const { name } of nodesOf(cluster, peer)) {
        const winner = used.get(name);
        if (winner === undefined) used.set(name, peer);
        else lost.set(winner, [...(lost.get(winner) ?? []), name]);
      }
      for (const [winner, nodes] of lost) yield shadowed(peer, winner, nodes);
    }
  }
}

function shadowed(peer: BgpPeer, winner: BgpPeer, nodes: readonly string[]): Finding {
  const address = peer.peerAddress?.address ?? "";
  return {
    id: "two-peers-one-address",
    severity: "warning",
    object: `BGPPeer(${peer.name})`,
    problem: `BGPPeer ${peer.name} is not used on ${listed(nodes)}: BGPPeer ${winner.name} has ${address} already`,
    cause:
      "a node has one session with an address and port; BGPPeers for all nodes come before those for some, then the order of their names decides",
    evidence: [
      `BGPPeer(${winner.name}) spec.peerIP is ${address}${isGlobal(winner) ? ", for all nodes" : ""}`,
      `BGPPeer(${peer.name}) spec.peerIP is ${address}${isGlobal(peer) ? ", for all nodes" : ""}`,
    ],
    fix: `delete one of the two, or let them select different nodes`,
    peer: address,
    setting: `BGPPeer(${peer.name})`,
  };
}

/** Objects, or parts of them, that BGP does without, and why. */
export function* leftOut(
  cluster: ClusterFacts,
  plans: Plans,
  told: ReadonlySet<string>,
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
  for (const { nodes, problems: own } of [...plans.sorts, ...here])
    for (const { object, problem } of own) add(object, problem, nodes);
  for (const { object, problem, of } of problems.values()) {
    if (told.has(object)) continue;
    const nodes = [...cluster.nodes.keys()].filter((name) => of.has(name));
    yield {
      id: "left-out",
      severity: "warning",
      object,
      problem: `${object}: ${problem}`,
      cause: "what makes no sense to BIRD is left out, so that the rest of its configuration stands",
      evidence: nodes.length === 0 ? [`${object} as it is stored`] : [`in the plan of ${listed(nodes)}`],
      fix: `correct or delete ${object}; calicoctl bgp plan NODE shows what comes of it`,
    };
  }
}

/** Nodes that are not in the mesh and have no other session either. */
export function nodesWithoutSession(cluster: ClusterFacts, plans: Plans): readonly Node[] {
  const nodes = nodesWithAddress(cluster);
  if (nodes.length < 2) return [];
  const isMeshed = (node: Node) =>
    isMeshOn(cluster) &&
    node.clusterId === undefined &&
    nodes.some((other) => other.name !== node.name && other.clusterId === undefined);
  return nodes.filter((node) => !isMeshed(node) && plans.sortOf.get(node.name)?.hasSessions === false);
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
      problem: `the mesh is off and ${hasReflector ? "nobody peers with the reflectors" : "there is neither a reflector nor a BGPPeer"}: none of ${plural(nodes.length, "node")} has a session`,
      cause: "with nodeToNodeMeshEnabled false, sessions come from BGPPeers alone",
      evidence: [
        "BGPConfiguration(default) spec.nodeToNodeMeshEnabled is false",
        `${plural(cluster.bgp.peers.size, "BGPPeer")} in the datastore`,
      ],
      fix: 'switch the mesh on again (calicoctl patch bgpconfiguration default -p \'{"spec":{"nodeToNodeMeshEnabled":true}}\'), or give some Nodes a routeReflectorClusterID and make a BGPPeer with nodeSelector and peerSelector',
      setting: "BGPConfiguration(default) spec.nodeToNodeMeshEnabled: true",
    };
    return;
  }
  yield {
    id: "node-without-session",
    severity: "error",
    object: `Node(${names[0]})`,
    problem: `${listed(names)} ${names.length === 1 ? "has" : "have"} no BGP session: nobody learns the way to ${names.length === 1 ? "its" : "their"} pods`,
    cause: isMeshOn(cluster)
      ? "a route reflector is not part of the mesh: it peers only with whom a BGPPeer says"
      : "the mesh is off, and no BGPPeer selects the node on either side",
    evidence: [
      `BGPConfiguration(default) spec.nodeToNodeMeshEnabled is ${isMeshOn(cluster)}`,
      ...alone.slice(0, 4).map(({ name, labels, clusterId }) => {
        const reflector = clusterId === undefined ? "" : `, reflector cluster ${clusterId}`;
        return `Node(${name}): labels ${listed(Object.entries(labels).map(([k, v]) => `${k}=${v}`)) || "none"}${reflector}`;
      }),
    ],
    fix: "make a BGPPeer that selects the node (nodeSelector) and whom it is to peer with (peerSelector or peerIP), or correct its labels",
    node: names[0] ?? "",
  };
}

/** A node between others that does not pass their routes on: inside one AS only reflectors do. */
export function* silentReflectors(cluster: ClusterFacts, plans: Plans): Generator<Finding> {
  if (cluster.bgp.configurations.get("default")?.meshEnabled !== false) return;
  const isReflector = (sort: NodeSort) => cluster.nodes.get(sort.nodes[0] ?? "")?.clusterId !== undefined;
  const meet = (a: NodeSort, b: NodeSort) =>
    a.inside.has(b) || [...a.inside].some((via) => isReflector(via) && b.inside.has(via));
  const hubs = plans.sorts.flatMap((sort) => {
    const strangers = isReflector(sort) ? undefined : strangersOf(sort, meet);
    const count = [...sort.inside].reduce((sum, each) => sum + each.nodes.length - Number(each === sort), 0);
    return strangers === undefined ? [] : [{ sort, strangers, count }];
  });
  // A client with several reflectors that do not meet is no hub: who has the most neighbours is the one meant to reflect.
  const most = Math.max(0, ...hubs.map(({ count }) => count));
  for (const { sort, strangers } of hubs.filter(({ count }) => count === most))
    for (const name of sort.nodes) yield silentReflector(name, sort, strangers);
}

/** Two sorts among a node's neighbours of which not all learn each other's routes. */
function strangersOf(sort: NodeSort, meet: (a: NodeSort, b: NodeSort) => boolean): [NodeSort, NodeSort] | undefined {
  const around = [...sort.inside].slice(0, 20); // enough to tell
  for (const [i, a] of around.entries())
    for (const b of around.slice(i)) {
      const areTwo = a !== b || a.nodes.length > (a === sort ? 2 : 1);
      if (areTwo && !meet(a, b)) return [a, b];
    }
  return undefined;
}

function silentReflector(name: string, sort: NodeSort, [one, two]: readonly [NodeSort, NodeSort]): Finding {
  const a = one.samples.find((each) => each !== name);
  const b = two.samples.find((each) => each !== name && each !== a);
  return {
    id: "reflector-without-cluster-id",
    severity: "error",
    object: `Node(${name})`,
    problem: `node ${name} stands between others and reflects nothing: ${a} and ${b} both peer with it and do not learn each other's routes`,
    cause:
      "inside one AS a router does not pass on what it learnt there, unless it is a route reflector; a Node becomes one by its routeReflectorClusterID",
    evidence: [
      `Node(${name}) has no spec.bgp.routeReflectorClusterID`,
      `${name} peers with ${listed([...sort.inside].flatMap(({ nodes }) => nodes).filter((other) => other !== name))}`,
      `${a} and ${b} have neither a session nor a reflector in common`,
    ],
    fix: `${patch("node", name, { bgp: { routeReflectorClusterID: "244.0.0.1" } })} (one id for all reflectors that serve the same nodes)`,
    node: name,
    setting: `Node(${name}) spec.bgp.routeReflectorClusterID: 244.0.0.1`,
  };
}
