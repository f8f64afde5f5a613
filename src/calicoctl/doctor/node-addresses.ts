// Checks that every Node has a unique address and router ID, that its host has the address, and that its BGP peers expect it.
import {
  type HostInterface,
  interfaceWithAddress,
  isPeerOf,
  type OtherNetwork,
  otherNetworks,
  routerIdOf,
} from "../../bgp/index.ts";
import { type Cidr, cidrLength, type IpVersion, ipVersion, maskCidr } from "../../lib/ip/ip.ts";
import type { Node } from "../../model/index.ts";
import type { ClusterFacts, HostFacts } from "./facts.ts";
import { type Finding, formatList } from "./finding.ts";
import { nodesByAddress, type PeerFacts, type Plans } from "./plans.ts";

const VERSIONS = [4, 6] as const;
const variable = (version: IpVersion): string => (version === 4 ? "IP" : "IP6");
const methodFor = (version: IpVersion, nic: string): string =>
  `${variable(version)}_AUTODETECTION_METHOD=interface=${nic}`;

/** Returns the interfaces of this host as read from the kernel, and those of other nodes as calico-node recorded them. */
export function interfacesOf(node: Node, host: HostFacts | undefined): readonly HostInterface[] {
  if (host?.node !== node.name)
    return node.interfaces.map(({ name, addresses }) => ({
      name,
      addresses: addresses.map((address) => ({ address })),
    }));
  return host.links.map(({ name, networks }) => ({ name, addresses: networks }));
}

export function* missingAddresses(cluster: ClusterFacts, host?: HostFacts): Generator<Finding> {
  for (const node of cluster.nodes.values())
    for (const version of VERSIONS) {
      const address = node.networks[version]?.address;
      const interfaces = interfacesOf(node, host);
      const others = interfaces.flatMap((nic) =>
        nic.addresses.filter((own) => ipVersion(own.address) === version).map((own) => `${nic.name} ${own.address}`),
      );
      const isHere = host?.node === node.name;
      // calico-node may not have recorded addresses of this family, so an empty list proves nothing.
      if (address === undefined || (others.length === 0 && !isHere) || interfaceWithAddress(interfaces, address))
        continue;
      yield {
        id: "address-not-on-host",
        severity: "error",
        object: `Node(${node.name})`,
        problem: `Node ${node.name} is set to ${address}, but none of its interfaces has that address`,
        cause:
          "BIRD cannot send from the Node's address: no BGP session that uses it is established, and packets to it are lost",
        evidence: [
          `Node(${node.name}) spec.bgp.ipv${version}Address is ${address}`,
          `${isHere ? "the host has" : "the node recorded"} ${formatList(others, 8) || `no IPv${version} address`}`,
        ],
        fix: `set ${variable(version)}=autodetect (or the correct address) for calico-node on ${node.name} and restart it, or add ${address} to an interface`,
        node: node.name,
        address,
        setting: `${variable(version)}=autodetect`,
      };
    }
}

export function* duplicateAddresses(cluster: ClusterFacts): Generator<Finding> {
  for (const version of VERSIONS) {
    const byAddress = Map.groupBy(
      [...cluster.nodes.values()].filter((node) => node.networks[version] !== undefined),
      (node) => node.networks[version]?.address ?? "",
    );
    for (const [address, nodes] of byAddress) {
      if (nodes.length < 2) continue;
      const names = nodes.map(({ name }) => name);
      yield {
        id: "duplicate-address",
        severity: "error",
        object: `Node(${names[0]})`,
        problem: `nodes ${formatList(names)} ${names.length === 2 ? "both" : "all"} have the address ${address}`,
        cause:
          "peers open one session to that address and reach only the host that answers; the routes of the other nodes are lost. Often a host was cloned, or the Node of a removed host was not deleted",
        evidence: names.map((name) => `Node(${name}) spec.bgp.ipv${version}Address is ${address}`),
        fix: `delete the Node whose host no longer exists (calicoctl delete node NAME), or set ${variable(version)} on one of the hosts to its own address`,
        node: names[0] ?? "",
        address,
        setting: `${variable(version)}=<its own address>`,
      };
    }
  }
}

/** Compares router IDs: that of BIRD on this host, those that nodes last reported, or else those computed from resources. */
export function* duplicateRouterIds(cluster: ClusterFacts, host?: HostFacts): Generator<Finding> {
  const ids = [...cluster.nodes.values()].map((node) => {
    const own = host?.node === node.name ? (host.birds[4] ?? host.birds[6])?.routerId : undefined;
    const actual = own || cluster.reported.get(node.name)?.routerId;
    return {
      name: node.name,
      id: actual || routerIdOf(node, undefined, []),
      source: actual ? "reported by BIRD" : "planned",
    };
  });
  const addressOf = (name: string) => cluster.nodes.get(name)?.networks[4]?.address;
  for (const [id, nodes] of Map.groupBy(ids, (entry) => entry.id)) {
    const names = nodes.map(({ name }) => name);
    if (nodes.length < 2 || id === "") continue;
    if (names.every((name) => addressOf(name) === id)) continue; // reported as duplicate-address
    yield {
      id: "duplicate-router-id",
      severity: "error",
      object: `Node(${names[0]})`,
      problem: `nodes ${formatList(names)} have the same router ID ${id}`,
      cause:
        "BGP rejects a session between two routers with the same ID, and a node ignores reflected routes that carry its own ID",
      evidence: nodes.map(({ name, source }) => `${name}: router ID ${id} (${source})`),
      fix: "set CALICO_ROUTER_ID for calico-node to a different value on each of them, or to `hash`",
      node: names[0] ?? "",
      setting: "CALICO_ROUTER_ID=hash",
    };
  }
}

/** Finds peers that expect a node's session from another interface than the one whose address the Node has. */
export function* otherInterface(cluster: ClusterFacts, plans: Plans, host?: HostFacts): Generator<Finding> {
  const nodesIn = nodeFinder(cluster);
  for (const node of cluster.nodes.values()) {
    const group = plans.groupOf.get(node.name);
    const reported = new Set<string>();
    for (const other of group === undefined ? [] : otherNetworks(node.networks, interfacesOf(node, host))) {
      const isUnexpected = (peer: PeerFacts) =>
        peer.fromNodeAddress &&
        isPeerOf(other, peer.neighbor) &&
        !reported.has(peer.neighbor) &&
        stateOf(cluster, host, node.name, peer.neighbor) !== "Established";
      const outside = group?.externalPeers.filter(isUnexpected) ?? [];
      // One finding covers all nodes in that network: the same setting fixes the sessions with all of them.
      const inside = sessionsWith(plans, node, nodesIn(other.network)).find(isUnexpected);
      for (const peer of inside === undefined ? outside : [...outside, inside]) {
        reported.add(peer.neighbor);
        yield unexpectedSource(cluster, host, node, peer, other);
      }
    }
  }
  yield* peersAtOtherInterface(cluster, host);
}

/** Returns a function that finds the nodes with an address in a network. Lookups are indexed by prefix length. */
function nodeFinder(cluster: ClusterFacts): (network: Cidr) => readonly Node[] {
  const byLength = new Map<string, ReadonlyMap<string, readonly Node[]>>();
  return (network) => {
    const version = ipVersion(network);
    const length = cidrLength(network);
    const all =
      byLength.get(`${version} ${length}`) ??
      Map.groupBy(cluster.nodes.values(), ({ networks }) => {
        const address = networks[version]?.address;
        return address === undefined ? "" : maskCidr(address, length);
      });
    byLength.set(`${version} ${length}`, all);
    return all.get(network) ?? [];
  };
}

/** A node's sessions with some others. */
function* sessionsWith(plans: Plans, node: Node, others: readonly Node[]): Generator<PeerFacts> {
  for (const other of others)
    for (const version of VERSIONS) {
      const group = plans.groupOf.get(other.name);
      const sample = group && plans.groupOf.get(node.name)?.sampleSessions[version].get(group);
      const neighbor = other.networks[version]?.address;
      if (sample === undefined || neighbor === undefined || other.name === node.name) continue;
      yield { ...sample, neighbor, because: sample.because.replace(/, node .*$/, `, node ${other.name}`) };
    }
}

function unexpectedSource(
  cluster: ClusterFacts,
  host: HostFacts | undefined,
  node: Node,
  peer: PeerFacts,
  { holder: carrier, interface: nic, address }: OtherNetwork,
): Finding {
  const own = node.networks[peer.family]?.address ?? "";
  const setting = methodFor(peer.family, nic);
  const state = stateOf(cluster, host, node.name, peer.neighbor);
  return {
    id: "dual-nic",
    severity: "error",
    object: `Node(${node.name})`,
    problem: `node ${node.name} connects to peer ${peer.neighbor} (${peer.because}) from ${own}${carrier === undefined ? "" : ` of ${carrier}`}, but the peer is in the network of ${nic}, where the node has ${address}`,
    cause: `the host has several interfaces; the Node has the address of ${carrier ?? "another one"}, but the peer expects that of ${nic}. The peer does not accept ${own}, or has no route to it, so the session is never established`,
    evidence: [
      `Node(${node.name}) spec.bgp.ipv${peer.family}Address is ${own}${carrier === undefined ? "" : `, the address of ${carrier}`}`,
      `${node.name} has ${address} on ${nic}, the network of ${peer.neighbor}`,
      `${peer.because} requests the session, source address ${own}`,
      ...(state === undefined ? [] : [`BIRD on ${node.name}: ${state}`]),
    ],
    fix: `set ${setting} for calico-node on ${node.name} and restart it; the Node then has ${address}. If ${own} is correct, configure the peer for it, or set sourceAddress: None in the BGPPeer`,
    node: node.name,
    interface: nic,
    address,
    peer: peer.neighbor,
    setting,
  };
}

/** Finds BGPPeers for an address that a node has on another interface than the one whose address its Node has. */
function* peersAtOtherInterface(cluster: ClusterFacts, host: HostFacts | undefined): Generator<Finding> {
  const byNodeAddress = nodesByAddress(cluster);
  const holders = Map.groupBy(
    [...cluster.nodes.values()].flatMap((node) =>
      interfacesOf(node, host).flatMap((nic) => nic.addresses.map(({ address }) => ({ node, nic, address }))),
    ),
    ({ address }) => address,
  );
  for (const peer of cluster.bgp.peers.values()) {
    const address = peer.peerAddress?.address;
    if (address === undefined || byNodeAddress.has(address)) continue;
    for (const { node, nic } of holders.get(address) ?? []) {
      const interfaces = interfacesOf(node, host);
      const version = ipVersion(address);
      const own = node.networks[version]?.address;
      if (own === undefined) continue;
      const carrier = interfaceWithAddress(interfaces, own);
      const setting = methodFor(version, nic.name);
      yield {
        id: "dual-nic",
        severity: "error",
        object: `BGPPeer(${peer.name})`,
        problem: `BGPPeer ${peer.name} is for ${address}, which is on ${nic.name} of node ${node.name}, but that Node has ${own}${carrier === undefined ? "" : ` of ${carrier.name}`}`,
        cause: `the host has several interfaces; ${node.name} uses the address of ${carrier?.name ?? "another one"} for BGP, does not match the BGPPeer to itself, and rejects connections to ${address}`,
        evidence: [
          `BGPPeer(${peer.name}) spec.peerIP is ${address}`,
          `${node.name} has ${address} on ${nic.name}`,
          `Node(${node.name}) spec.bgp.ipv${version}Address is ${own}${carrier === undefined ? "" : `, the address of ${carrier.name}`}`,
        ],
        fix: `set ${setting} for calico-node on ${node.name} and restart it; or change the BGPPeer to ${own}`,
        node: node.name,
        interface: nic.name,
        address,
        peer: address,
        setting,
      };
    }
  }
}

/** Returns the state of a session: on this host from BIRD, for other nodes as they last reported it. */
export function stateOf(
  cluster: ClusterFacts,
  host: HostFacts | undefined,
  node: string,
  neighbor: string,
): string | undefined {
  const reported = cluster.reported.get(node);
  if (host?.node !== node) return reported?.peers.get(neighbor);
  const session = host.birds[neighbor.includes(":") ? 6 : 4]?.sessions.find((each) => each.neighbor === neighbor);
  return session === undefined
    ? undefined
    : session.bgpState === "Established"
      ? "Established"
      : session.info || session.bgpState;
}
