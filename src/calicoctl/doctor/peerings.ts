// Whether the peerings that are written down lead anywhere, and whether routes find their way along them.
import { asNumberOf, type BgpNode, type BgpPeer, matchesNode } from "../../bgp/index.ts";
import type { IpAddress } from "../../lib/ip.ts";
import { ipVersion } from "../../lib/ip.ts";
import type { ClusterFacts, HostFacts } from "./facts.ts";
import { type Finding, listed, plural } from "./finding.ts";
import type { Plans } from "./plans.ts";

const isGlobal = (peer: BgpPeer): boolean => peer.node === undefined && peer.nodeSelector === undefined;

function nodesOf(cluster: ClusterFacts, peer: BgpPeer): readonly BgpNode[] {
  const nodes = [...cluster.nodes.values()];
  const { nodeSelector } = peer;
  if (nodeSelector !== undefined) return nodes.filter((node) => matchesNode(nodeSelector, node));
  return peer.node === undefined ? nodes : nodes.filter(({ name }) => name === peer.node);
}

const nodeAt = (cluster: ClusterFacts, address: IpAddress): BgpNode | undefined =>
  [...cluster.nodes.values()].find((node) => node.networks[ipVersion(address)]?.address === address);

export function* asMismatches(cluster: ClusterFacts): Generator<Finding> {
  for (const peer of cluster.bgp.peers.values()) {
    const address = peer.peerAddress?.address;
    const node = address === undefined ? undefined : nodeAt(cluster, address);
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
      fix: `set spec.asNumber of BGPPeer ${peer.name} to ${actual}, or AS=${peer.asNumber} for calico-node on ${node.name}`,
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
    const spec = cluster.peerSpecs.get(peer.name);
    const empty: [field: string, value: string][] = [];
    if (nodesOf(cluster, peer).length === 0)
      empty.push(peer.node === undefined ? ["nodeSelector", spec?.nodeSelector ?? ""] : ["node", peer.node]);
    const { peerSelector } = peer;
    if (peerSelector !== undefined && !nodes.some((node) => matchesNode(peerSelector, node)))
      empty.push(["peerSelector", spec?.peerSelector ?? ""]);
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

const labelsOf = (nodes: readonly BgpNode[]): readonly string[] =>
  [...new Set(nodes.flatMap(({ labels }) => Object.entries(labels).map(([key, value]) => `${key}=${value}`)))].sort();

/** Of two BGPPeers for one address and port, the one that does not count. */
export function* shadowedPeers(cluster: ClusterFacts): Generator<Finding> {
  const peers = [...cluster.bgp.peers.values()].filter((peer) => peer.peerAddress !== undefined);
  const inOrder = [...peers.filter(isGlobal), ...peers.filter((peer) => !isGlobal(peer))];
  const key = (peer: BgpPeer) => `${peer.peerAddress?.address} ${peer.peerAddress?.port ?? 179}`;
  for (const [at, [first, ...rest]] of Map.groupBy(inOrder, key))
    for (const peer of rest) {
      if (first === undefined) continue;
      const earlier = inOrder.slice(0, inOrder.indexOf(peer)).filter((other) => key(other) === at);
      const winner = earlier.find((other) => common(cluster, other, peer).length > 0);
      if (winner === undefined) continue;
      const both = common(cluster, winner, peer);
      const address = peer.peerAddress?.address ?? "";
      yield {
        id: "two-peers-one-address",
        severity: "warning",
        object: `BGPPeer(${peer.name})`,
        problem: `BGPPeer ${peer.name} is not used on ${listed(both)}: BGPPeer ${winner.name} has ${address} already`,
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
}

function common(cluster: ClusterFacts, a: BgpPeer, b: BgpPeer): readonly string[] {
  const names = new Set(nodesOf(cluster, a).map(({ name }) => name));
  return nodesOf(cluster, b).flatMap(({ name }) => (names.has(name) ? [name] : []));
}

/** Objects, or parts of them, that BGP does without, and why. */
export function* leftOut(
  cluster: ClusterFacts,
  plans: Plans,
  told: ReadonlySet<string>,
  host?: HostFacts,
): Generator<Finding> {
  const problems = new Map<string, { object: string; problem: string; nodes: string[] }>();
  const add = (object: string, problem: string, node?: string) => {
    const entry = problems.get(`${object} ${problem}`) ?? { object, problem, nodes: [] };
    problems.set(`${object} ${problem}`, entry);
    if (node !== undefined && !entry.nodes.includes(node)) entry.nodes.push(node);
  };
  for (const { object, problem } of cluster.bgp.problems) add(object, problem);
  const here = host === undefined ? [] : [[host.node, { problems: host.planProblems }] as const];
  for (const [node, { problems: own }] of [...plans, ...here])
    for (const { object, problem } of own) add(object, problem, node);
  for (const { object, problem, nodes } of problems.values()) {
    if (told.has(object)) continue;
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

/** Nodes that no route reaches: without the mesh, and without a session to anyone. */
export function* isolatedNodes(cluster: ClusterFacts, plans: Plans): Generator<Finding> {
  const usesBgp = cluster.pools.some((pool) => !pool.disabled && !pool.vxlan);
  const nodes = [...cluster.nodes.values()].filter((node) => node.networks[4] ?? node.networks[6]);
  if (!usesBgp || nodes.length < 2) return;
  const isMeshOn = cluster.bgp.configurations.get("default")?.meshEnabled !== false;
  const isMeshed = (node: BgpNode) =>
    isMeshOn &&
    node.clusterId === undefined &&
    nodes.some((other) => other.name !== node.name && other.clusterId === undefined);
  const alone = nodes.filter((node) => !isMeshed(node) && plans.get(node.name)?.peers.length === 0);
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
    cause: isMeshOn
      ? "a route reflector is not part of the mesh: it peers only with whom a BGPPeer says"
      : "the mesh is off, and no BGPPeer selects the node on either side",
    evidence: [
      `BGPConfiguration(default) spec.nodeToNodeMeshEnabled is ${isMeshOn}`,
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
  const byAddress = new Map(
    [...cluster.nodes.values()].flatMap((node) =>
      ([4, 6] as const).flatMap((version) => {
        const address = node.networks[version]?.address;
        return address === undefined ? [] : [[address as string, node.name] as const];
      }),
    ),
  );
  const inside = new Map<string, ReadonlySet<string>>();
  for (const [name, { peers }] of plans)
    inside.set(name, new Set(peers.flatMap((p) => (p.sameAs ? (byAddress.get(p.neighbor) ?? []) : []))));
  const reflectors = new Set([...cluster.nodes.values()].filter((node) => node.clusterId).map(({ name }) => name));
  const meet = (a: string, b: string) =>
    inside.get(a)?.has(b) || [...(inside.get(a) ?? [])].some((via) => reflectors.has(via) && inside.get(b)?.has(via));
  const hubs = [...cluster.nodes.keys()].flatMap((name) => {
    if (reflectors.has(name)) return [];
    const others = [...(inside.get(name) ?? [])].slice(0, 20);
    for (const [i, a] of others.entries())
      for (const b of others.slice(i + 1)) if (!meet(a, b)) return [{ name, a, b, count: inside.get(name)?.size ?? 0 }];
    return [];
  });
  // A client with several reflectors that do not meet is no hub: who has the most neighbours is the one meant to reflect.
  const most = Math.max(0, ...hubs.map(({ count }) => count));
  for (const { name, a, b } of hubs.filter(({ count }) => count === most))
    yield {
      id: "reflector-without-cluster-id",
      severity: "error",
      object: `Node(${name})`,
      problem: `node ${name} stands between others and reflects nothing: ${a} and ${b} both peer with it and do not learn each other's routes`,
      cause:
        "inside one AS a router does not pass on what it learnt there, unless it is a route reflector; a Node becomes one by its routeReflectorClusterID",
      evidence: [
        `Node(${name}) has no spec.bgp.routeReflectorClusterID`,
        `${name} peers with ${listed([...(inside.get(name) ?? [])])}`,
        `${a} and ${b} have neither a session nor a reflector in common`,
      ],
      fix: `calicoctl patch node ${name} -p '{"spec":{"bgp":{"routeReflectorClusterID":"244.0.0.1"}}}' (one id for all reflectors that serve the same nodes)`,
      node: name,
      setting: `Node(${name}) spec.bgp.routeReflectorClusterID: 244.0.0.1`,
    };
}
