// Finds Nodes that probably have the address of the wrong interface, from resources alone: a host's interfaces are known only
// on the host itself and if calico-node recorded them. If a peer is in the network of some of its nodes, it is probably in a
// network of all of them, and a Node in another network probably has the address of another interface. A peer that is in the
// network of none of its nodes is assumed to be several hops away.
import { asNumberOf } from "../../bgp/index.ts";
import { type Cidr, cidrContains, type IpAddress, type IpVersion, ipVersion, maskCidr } from "../../lib/ip/ip.ts";
import type { Node } from "../../model/index.ts";
import { type ClusterFacts, type HostFacts, usesVxlan } from "./facts.ts";
import { type Finding, formatList, patchCommand } from "./finding.ts";
import { interfacesOf, stateOf } from "./node-addresses.ts";
import { nodesOf, nodesWithoutSession } from "./peerings.ts";
import { nodesByAddress, type PeerFacts, type Plans } from "./plans.ts";

interface PeerOfNode {
  readonly node: Node;
  readonly peer: PeerFacts;
  readonly neighbor: IpAddress;
}

/** From this prefix length on, a Node's address does not show which network it is in. */
const SINGLE_HOST: Readonly<Record<IpVersion, number>> = { 4: 31, 6: 127 };

export function* peersOfOtherNetworks(cluster: ClusterFacts, plans: Plans, host?: HostFacts): Generator<Finding> {
  const all = [...cluster.nodes.values()].flatMap((node) =>
    (plans.groupOf.get(node.name)?.externalPeers ?? [])
      .filter(({ kind, fromNodeAddress }) => fromNodeAddress && kind !== "localWorkload")
      .map((peer): PeerOfNode => ({ node, peer, neighbor: peer.neighbor as IpAddress })),
  );
  const isInOwnNetwork = ({ node, neighbor }: PeerOfNode) =>
    isInNetwork(networkOf(node, ipVersion(neighbor)), neighbor);
  const withNearPeer = new Set(all.filter(isInOwnNetwork).map(({ node, peer }) => `${node.name} ${peer.family}`));
  for (const [neighbor, sessions] of Map.groupBy(all, (each) => each.neighbor)) {
    const near = sessions.filter(isInOwnNetwork);
    const far = sessions.filter((each) => !isInOwnNetwork(each));
    if (near.length === 0) continue;
    const suspects = far.filter(
      ({ node, peer }) =>
        networkOf(node, peer.family) !== undefined &&
        !withNearPeer.has(`${node.name} ${peer.family}`) &&
        !hasRecordedInterfaces(node, peer.family, host) &&
        !isReachedByGateway(cluster, peer) &&
        stateOf(cluster, host, node.name, neighbor) !== "Established",
    );
    const [first] = suspects;
    if (first !== undefined) yield inOtherNetwork(cluster, host, { first, suspects, near });
  }
  yield* peersOfNoNode(cluster, plans);
}

function networkOf({ networks }: Node, version: IpVersion): Cidr | undefined {
  const own = networks[version];
  return own === undefined || own.length >= SINGLE_HOST[version] ? undefined : maskCidr(own.address, own.length);
}

const isInNetwork = (network: Cidr | undefined, address: IpAddress): boolean =>
  network !== undefined && cidrContains(network, address);

/** If true, `otherInterface` in node-addresses.ts reports whether the peer is in the network of another interface. */
const hasRecordedInterfaces = (node: Node, version: IpVersion, host: HostFacts | undefined): boolean =>
  interfacesOf(node, host).some(({ addresses }) => addresses.some(({ address }) => ipVersion(address) === version));

const isReachedByGateway = ({ bgp }: ClusterFacts, { because }: PeerFacts): boolean =>
  bgp.peers.get(because.replace(/^BGPPeer /, ""))?.reachableBy !== undefined;

function inOtherNetwork(
  cluster: ClusterFacts,
  host: HostFacts | undefined,
  given: {
    readonly first: PeerOfNode;
    /** All nodes that are not in the peer's network, including `first`. */
    readonly suspects: readonly PeerOfNode[];
    readonly near: readonly PeerOfNode[];
  },
): Finding {
  const { suspects, near } = given;
  const { node, peer, neighbor } = given.first;
  const version = peer.family;
  const length = near[0]?.node.networks[version]?.length ?? 0;
  const network = maskCidr(neighbor, length);
  const address = node.networks[version]?.address ?? "";
  const described = formatList(suspects.map((each) => `${each.node.name} (${each.node.networks[version]?.address})`));
  const variable = version === 4 ? "IP" : "IP6";
  const setting = `${variable}_AUTODETECTION_METHOD=cidr=${network}`;
  const example = `ADDRESS/${length}`;
  const states = suspects.flatMap((each) => {
    const state = stateOf(cluster, host, each.node.name, neighbor);
    return state === undefined ? [] : [`BIRD on ${each.node.name}: ${state}`];
  });
  const isOne = suspects.length === 1;
  // The nodes may also be in several racks, with the peer being a route server in one of them.
  const isInSeveral = new Set(suspects.map((each) => networkOf(each.node, version))).size > 1;
  return {
    id: "dual-nic",
    severity: states.length > 0 ? "error" : "warning",
    object: `Node(${node.name})`,
    problem: `${isOne ? "node" : "nodes"} ${described} ${isOne ? "is" : "are"} not in the network of BGP peer ${neighbor}: its other nodes are in ${network}`,
    cause: `${isOne ? "the host probably has" : "the hosts probably have"} a second interface in ${network}, and the Node has the address of the wrong one; the peer does not expect sessions from there, so that the routes to the pods are not announced`,
    evidence: [
      ...suspects.slice(0, 3).map((each) => recorded(each, version)),
      ...near.slice(0, 3).map((each) => recorded(each, version)),
      ...states.slice(0, 3),
    ],
    fix: `set ${setting} (or ${variable}=${example}, the host's address in ${network}) for calico-node on ${formatList(suspects.map((each) => each.node.name))} and restart it; or, if calico-node does not set the address: ${patchCommand("node", node.name, { bgp: { [`ipv${version}Address`]: example } })}${isInSeveral ? `. If ${neighbor} is intended to be several hops away from these nodes, no change is needed` : ""}`,
    node: node.name,
    address,
    peer: neighbor,
    setting,
  };
}

const recorded = ({ node, peer }: PeerOfNode, version: IpVersion): string => {
  const own = node.networks[version];
  return `Node(${node.name}) spec.bgp.ipv${version}Address is ${own?.address}/${own?.length}, ${peer.because}`;
};

/**
 * Finds BGPPeers for an address that no Node has, which may be intended for a node without a session. If all pools use VXLAN,
 * nodes need no session, so its absence is not evidence. If no pool is enabled, the BGPPeer itself shows that BGP is used.
 */
function* peersOfNoNode(cluster: ClusterFacts, plans: Plans): Generator<Finding> {
  const pools = cluster.pools.filter(({ isDisabled }) => !isDisabled);
  if (pools.length > 0 && pools.every(usesVxlan)) return;
  const alone = nodesWithoutSession(cluster, plans);
  const byAddress = nodesByAddress(cluster);
  for (const peer of alone.length === 0 ? [] : cluster.bgp.peers.values()) {
    const { name, asNumber } = peer;
    const address = peer.peerAddress?.address;
    if (address === undefined || byAddress.has(address)) continue;
    const version = ipVersion(address);
    const near = nodesOf(cluster, peer).find((node) => isInNetwork(networkOf(node, version), address));
    const length = near?.networks[version]?.length;
    const candidates = alone.filter(
      (node) =>
        node.networks[version] !== undefined &&
        node.interfaces.length === 0 &&
        (asNumber === undefined || asNumber === asNumberOf(cluster.bgp, node)),
    );
    const [node] = candidates;
    if (near === undefined || length === undefined || node === undefined) continue;
    const own = node.networks[version]?.address;
    const variable = version === 4 ? "IP" : "IP6";
    const expected = `${address}/${length}`;
    yield {
      id: "dual-nic",
      severity: "warning",
      object: `BGPPeer(${name})`,
      problem: `BGPPeer ${name} is for ${address}, which no Node has, and ${formatList(candidates.map((each) => `node ${each.name} (${each.networks[version]?.address})`))} has no BGP session`,
      cause: `if ${address} is an address of ${node.name}, its Node has the address of another interface, and the session is never established`,
      evidence: [
        `BGPPeer(${name}) spec.peerIP is ${address}, in the network of node ${near.name}`,
        ...candidates
          .slice(0, 3)
          .map((each) => `Node(${each.name}) spec.bgp.ipv${version}Address is ${each.networks[version]?.address}`),
      ],
      fix: `if ${address} belongs to ${node.name}: set ${variable}=${expected} (or ${variable}_AUTODETECTION_METHOD=cidr=${maskCidr(address, length)}) for calico-node there and restart it, or ${patchCommand("node", node.name, { bgp: { [`ipv${version}Address`]: expected } })}. If ${own} is correct: ${patchCommand("bgppeer", name, { peerIP: own })}`,
      node: node.name,
      address,
      peer: address,
      setting: `${variable}=${expected}`,
    };
  }
}
