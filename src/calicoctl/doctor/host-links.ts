// Checks that the interfaces that lead to other nodes and BGP peers are up and have a carrier.
import { cidrContains, type IpAddress, type IpVersion, ipVersion, maskCidr } from "../../lib/ip/ip.ts";
import type { ClusterFacts, HostFacts, HostLink } from "./facts.ts";
import { type Finding, formatList } from "./finding.ts";

export function* linksDown(cluster: ClusterFacts, host: HostFacts): Generator<Finding> {
  for (const link of host.links) {
    if (link.isUp && link.hasCarrier) continue;
    const own = ownAddresses(cluster, host, link);
    const reached = remoteAddresses(cluster, host).filter((address) => isInNetworkOf(link, address));
    if (own.length === 0 && reached.length === 0) continue;
    const state = link.isUp ? "has no carrier" : "is administratively down";
    yield {
      id: "link-down",
      severity: "error",
      object: `host ${host.node}`,
      problem: `${link.name} on ${host.node} ${state}`,
      cause:
        own.length > 0
          ? `${link.name} has the node's address ${own.join(" and ")}: no other node or BGP peer can reach it`
          : `${link.name} is the interface to ${formatList(reached)}`,
      evidence: [
        link.isUp
          ? `ip link show ${link.name}: NO-CARRIER, the interface is up but gets no signal from the other end`
          : `ip link show ${link.name}: the interface is administratively down`,
        ...(reached.length === 0 ? [] : [`in its network: ${formatList(reached)}`]),
      ],
      fix: link.isUp
        ? `check the cable, the switch port, or the virtual interface at the other end of ${link.name}`
        : `ip link set ${link.name} up`,
      node: host.node,
      interface: link.name,
      address: own[0],
    };
  }
}

/** Returns the neighbours of the BGP sessions that cannot be up while this interface is down. */
export function sessionsOverLink(cluster: ClusterFacts, host: HostFacts, name: string): readonly string[] {
  const link = host.links.find((each) => each.name === name);
  if (link === undefined) return [];
  const ownVersions = new Set<IpVersion>(ownAddresses(cluster, host, link).map(ipVersion));
  return ([4, 6] as const).flatMap((version) =>
    (host.birds[version]?.sessions ?? []).flatMap(({ neighbor }) =>
      neighbor !== undefined && (ownVersions.has(version) || isInNetworkOf(link, neighbor)) ? [neighbor] : [],
    ),
  );
}

function ownAddresses(cluster: ClusterFacts, host: HostFacts, link: HostLink): readonly IpAddress[] {
  const node = cluster.nodes.get(host.node);
  const own = [node?.networks[4]?.address, node?.networks[6]?.address];
  return link.networks.map(({ address }) => address).filter((address) => own.includes(address));
}

/** Addresses of the other nodes and of BGP peers. */
function remoteAddresses(cluster: ClusterFacts, host: HostFacts): readonly IpAddress[] {
  const nodes = [...cluster.nodes.values()].filter(({ name }) => name !== host.node);
  const addresses = [
    ...nodes.flatMap(({ networks }) => [networks[4]?.address, networks[6]?.address]),
    ...[...cluster.bgp.peers.values()].map(({ peerAddress }) => peerAddress?.address),
  ];
  return [...new Set(addresses.filter((address) => address !== undefined))];
}

const isInNetworkOf = (link: HostLink, address: IpAddress): boolean =>
  link.networks.some(
    (own) =>
      own.address !== address &&
      ipVersion(own.address) === ipVersion(address) &&
      cidrContains(maskCidr(own.address, own.length), address),
  );
