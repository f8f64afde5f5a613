// Whether every Node carries an address of its own, that its host has, and that its peers expect.
import {
  type HostInterface,
  holderOf,
  isPeerOf,
  type OtherNetwork,
  otherNetworks,
  routerIdOf,
} from "../../bgp/index.ts";
import { type Cidr, cidrLength, type IpVersion, ipVersion, maskCidr } from "../../lib/ip/ip.ts";
import type { Node } from "../../model/index.ts";
import type { ClusterFacts, HostFacts } from "./facts.ts";
import { type Finding, listed } from "./finding.ts";
import { nodesByAddress, type PeerFacts, type Plans } from "./plans.ts";

const VERSIONS = [4, 6] as const;
const variable = (version: IpVersion): string => (version === 4 ? "IP" : "IP6");
const methodFor = (version: IpVersion, nic: string): string =>
  `${variable(version)}_AUTODETECTION_METHOD=interface=${nic}`;

/** The host's own interfaces say more than what the node once recorded. */
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
      // What a node recorded without any address of the family tells nothing of the family.
      if (address === undefined || (others.length === 0 && !isHere) || holderOf(interfaces, address)) continue;
      yield {
        id: "address-not-on-host",
        severity: "error",
        object: `Node(${node.name})`,
        problem: `node ${node.name} carries ${address}, which none of its interfaces has`,
        cause:
          "BIRD sends from the Node's address and cannot: no session that uses it comes up, and packets to it are lost",
        evidence: [
          `Node(${node.name}) spec.bgp.ipv${version}Address is ${address}`,
          `${isHere ? "the host has" : "the node recorded"} ${listed(others, 8) || `no IPv${version} address`}`,
        ],
        fix: `set ${variable(version)}=autodetect (or the right address) for calico-node on ${node.name} and restart it, or put ${address} on an interface`,
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
        problem: `nodes ${listed(names)} ${names.length === 2 ? "both" : "all"} carry ${address}`,
        cause:
          "others open one session to that address and reach whichever host answers; the routes of the others are lost. Often a host was cloned, or a Node of a host that is gone was left behind",
        evidence: names.map((name) => `Node(${name}) spec.bgp.ipv${version}Address is ${address}`),
        fix: `delete the Node that has no host any more (calicoctl delete node NAME), or set ${variable(version)} on one of the hosts to its own address`,
        node: names[0] ?? "",
        address,
        setting: `${variable(version)}=<its own address>`,
      };
    }
  }
}

/** Router ids as the nodes last told them, as BIRD on this host has it, else as they follow from the resources. */
export function* duplicateRouterIds(cluster: ClusterFacts, host?: HostFacts): Generator<Finding> {
  const ids = [...cluster.nodes.values()].map((node) => {
    const own = host?.node === node.name ? (host.birds[4] ?? host.birds[6])?.routerId : undefined;
    const said = own || cluster.reported.get(node.name)?.routerId;
    return {
      name: node.name,
      id: said || routerIdOf(node, undefined, []),
      how: said ? "as BIRD says" : "planned",
    };
  });
  const addressOf = (name: string) => cluster.nodes.get(name)?.networks[4]?.address;
  for (const [id, nodes] of Map.groupBy(ids, (entry) => entry.id)) {
    const names = nodes.map(({ name }) => name);
    if (nodes.length < 2 || id === "") continue;
    if (names.every((name) => addressOf(name) === id)) continue; // one address on several nodes: told as that
    yield {
      id: "duplicate-router-id",
      severity: "error",
      object: `Node(${names[0]})`,
      problem: `nodes ${listed(names)} have the router id ${id}`,
      cause: "BGP refuses a session between two routers of one id, and reflectors take their routes for one's own",
      evidence: nodes.map(({ name, how }) => `${name}: router id ${id} (${how})`),
      fix: "set CALICO_ROUTER_ID for calico-node to a value of its own on each of them, or to `hash`",
      node: names[0] ?? "",
      setting: "CALICO_ROUTER_ID=hash",
    };
  }
}

/** The classic: two interfaces, the Node carries one's address, the peering was made for the other's. */
export function* otherInterface(cluster: ClusterFacts, plans: Plans, host?: HostFacts): Generator<Finding> {
  const nodesIn = nodeFinder(cluster);
  for (const node of cluster.nodes.values()) {
    const sort = plans.sortOf.get(node.name);
    const told = new Set<string>();
    for (const other of sort === undefined ? [] : otherNetworks(node.networks, interfacesOf(node, host))) {
      const isFault = (peer: PeerFacts) =>
        peer.fromNodeAddress &&
        isPeerOf(other, peer.neighbor) &&
        !told.has(peer.neighbor) &&
        stateOf(cluster, host, node.name, peer.neighbor) !== "Established";
      const outside = sort?.outside.filter(isFault) ?? [];
      // Of the nodes there one will do: the same setting cures the sessions with all of them.
      const inside = sessionsWith(plans, node, nodesIn(other.network)).find(isFault);
      for (const peer of inside === undefined ? outside : [...outside, inside]) {
        told.add(peer.neighbor);
        yield expectsOther(cluster, host, node, peer, other);
      }
    }
  }
  yield* peersAtOtherInterface(cluster, host);
}

/** Finds the nodes whose address lies in a network. */
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
      const sort = plans.sortOf.get(other.name);
      const sample = sort && plans.sortOf.get(node.name)?.towards[version].get(sort);
      const neighbor = other.networks[version]?.address;
      if (sample === undefined || neighbor === undefined || other.name === node.name) continue;
      yield { ...sample, neighbor, because: sample.because.replace(/, node .*$/, `, node ${other.name}`) };
    }
}

function expectsOther(
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
    problem: `node ${node.name} speaks to peer ${peer.neighbor} (${peer.because}) from ${own}${carrier === undefined ? "" : ` of ${carrier}`}, but the peer is a neighbour of ${nic}, where the node is ${address}`,
    cause: `the host has several interfaces, and the Node was given the address of ${carrier ?? "another one"} while the peer expects that of ${nic}: it does not know ${own}, or has no way back to it, so the session never comes up`,
    evidence: [
      `Node(${node.name}) spec.bgp.ipv${peer.family}Address is ${own}${carrier === undefined ? "" : `, the address of ${carrier}`}`,
      `${node.name} has ${address} on ${nic}, the network of ${peer.neighbor}`,
      `${peer.because} makes the session, source address ${own}`,
      ...(state === undefined ? [] : [`BIRD on ${node.name}: ${state}`]),
    ],
    fix: `set ${setting} for calico-node on ${node.name} and restart it; the Node then carries ${address}. If ${own} is meant, let the peer expect it, or set sourceAddress: None in the BGPPeer`,
    node: node.name,
    interface: nic,
    address,
    peer: peer.neighbor,
    setting,
  };
}

/** BGPPeers made for an address that a node has on another interface than the one its Node carries. */
function* peersAtOtherInterface(cluster: ClusterFacts, host: HostFacts | undefined): Generator<Finding> {
  const carried = nodesByAddress(cluster);
  const holders = Map.groupBy(
    [...cluster.nodes.values()].flatMap((node) =>
      interfacesOf(node, host).flatMap((nic) => nic.addresses.map(({ address }) => ({ node, nic, address }))),
    ),
    ({ address }) => address,
  );
  for (const peer of cluster.bgp.peers.values()) {
    const wanted = peer.peerAddress?.address;
    if (wanted === undefined || carried.has(wanted)) continue;
    for (const { node, nic } of holders.get(wanted) ?? []) {
      const interfaces = interfacesOf(node, host);
      const version = ipVersion(wanted);
      const own = node.networks[version]?.address;
      if (own === undefined) continue;
      const carrier = holderOf(interfaces, own);
      const setting = methodFor(version, nic.name);
      yield {
        id: "dual-nic",
        severity: "error",
        object: `BGPPeer(${peer.name})`,
        problem: `BGPPeer ${peer.name} is for ${wanted}, which is ${nic.name} of node ${node.name}, but that Node carries ${own}${carrier === undefined ? "" : ` of ${carrier.name}`}`,
        cause: `the host has several interfaces; ${node.name} speaks BGP with the address of ${carrier?.name ?? "another one"}, does not recognise itself in the BGPPeer, and refuses those who connect to ${wanted}`,
        evidence: [
          `BGPPeer(${peer.name}) spec.peerIP is ${wanted}`,
          `${node.name} has ${wanted} on ${nic.name}`,
          `Node(${node.name}) spec.bgp.ipv${version}Address is ${own}${carrier === undefined ? "" : `, the address of ${carrier.name}`}`,
        ],
        fix: `set ${setting} for calico-node on ${node.name} and restart it; or change the BGPPeer to ${own}`,
        node: node.name,
        interface: nic.name,
        address: wanted,
        peer: wanted,
        setting,
      };
    }
  }
}

/** As BIRD on this host has it, or as the node last reported. */
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
