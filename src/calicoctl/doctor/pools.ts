// Whether pools keep out of each other's way, of the hosts' and the services' addresses, and have blocks for all nodes.
import {
  addressBits,
  type Cidr,
  cidrContains,
  cidrLength,
  cidrsOverlap,
  ipVersion,
  maskCidr,
  tryParseCidr,
} from "../../lib/ip/ip.ts";
import { type ClusterFacts, type HostFacts, type PoolFacts, poolCovers } from "./facts.ts";
import { type Finding, listed, patch, plural } from "./finding.ts";

export function* overlappingPools(cluster: ClusterFacts): Generator<Finding> {
  for (const [i, a] of cluster.pools.entries())
    for (const b of cluster.pools.slice(i + 1)) {
      if (!cidrsOverlap(a.cidr, b.cidr)) continue;
      yield {
        id: "pools-overlap",
        severity: "error",
        object: `IPPool(${b.name})`,
        problem: `pools ${a.name} (${a.cidr}) and ${b.name} (${b.cidr}) overlap`,
        cause: "an address in both can be given out twice, and its route follows the settings of either",
        evidence: [`IPPool(${a.name}) spec.cidr is ${a.cidr}`, `IPPool(${b.name}) spec.cidr is ${b.cidr}`],
        fix: "disable one (spec.disabled: true), move its pods, and delete it; a pool's CIDR cannot be changed",
        setting: `IPPool(${b.name}) spec.disabled: true`,
      };
    }
}

export function* poolsOnHosts(cluster: ClusterFacts, host?: HostFacts): Generator<Finding> {
  for (const pool of cluster.pools) {
    const inside = [...cluster.nodes.values()].flatMap((node) =>
      ([4, 6] as const).flatMap((version) => {
        const network = node.networks[version];
        return network !== undefined && cidrContains(pool.cidr, network.address)
          ? [{ node: node.name, address: network.address as string }]
          : [];
      }),
    );
    if (inside.length > 0)
      yield {
        ...poolFault(pool, "pool-holds-node-addresses"),
        severity: "error",
        problem: `pool ${pool.name} (${pool.cidr}) holds the address of ${listed(inside.map(({ node }) => node))}`,
        cause: "a pod can be given a node's address, and routes to pods' blocks catch traffic that is for nodes",
        evidence: inside.slice(0, 8).map(({ node, address }) => `Node(${node}) has ${address}`),
      };
    const crossed = crossedNetworks(cluster, pool, host);
    if (inside.length === 0 && crossed.length > 0)
      yield {
        ...poolFault(pool, "pool-overlaps-node-network"),
        severity: "warning",
        problem: `pool ${pool.name} (${pool.cidr}) overlaps networks that hosts are on`,
        cause: "hosts on those networks that are no nodes cannot be told from pods: one of the two is not reached",
        evidence: crossed.slice(0, 8).map(({ where, network }) => `${where}: ${network}`),
      };
  }
}

/** Interfaces of ours, and host routes of addresses, are no networks somebody else could be on. */
const OURS = /^(cali|tunl|vxlan|wireguard|wg-v6|lo$|kube-ipvs|nodelocaldns)/;

function crossedNetworks(cluster: ClusterFacts, pool: PoolFacts, host: HostFacts | undefined) {
  const found = new Map<Cidr, string>();
  const consider = (where: string, network: Cidr) => {
    if (cidrsOverlap(pool.cidr, network) && !found.has(network)) found.set(network, where);
  };
  for (const node of cluster.nodes.values())
    for (const version of [4, 6] as const) {
      const network = node.networks[version];
      if (network !== undefined) consider(`Node(${node.name})`, maskCidr(network.address, network.length));
    }
  for (const link of host?.links ?? [])
    if (!OURS.test(link.name) && link.isUp)
      for (const { address, length } of link.networks)
        if (!cidrContains(pool.cidr, address) || cidrLength(maskCidr(address, length)) < 31)
          consider(`${link.name} of this host`, maskCidr(address, length));
  return [...found].map(([network, where]) => ({ network, where }));
}

export function* poolsOnServices(cluster: ClusterFacts): Generator<Finding> {
  const common = cluster.bgp.configurations.get("default");
  const ranges = (["serviceClusterIps", "serviceExternalIps", "serviceLoadBalancerIps"] as const).flatMap((field) =>
    (common?.[field] ?? []).flatMap((text) => {
      const cidr = tryParseCidr(text);
      return cidr === undefined ? [] : [{ field: field.replace(/Ips$/, "IPs"), cidr }];
    }),
  );
  for (const pool of cluster.pools)
    for (const { field, cidr } of ranges) {
      const isForServices =
        field === "serviceLoadBalancerIPs" && pool.allowedUses.every((use) => use === "LoadBalancer");
      if (!cidrsOverlap(pool.cidr, cidr) || isForServices) continue;
      yield {
        ...poolFault(pool, "pool-overlaps-services"),
        severity: "error",
        problem: `pool ${pool.name} (${pool.cidr}) overlaps the service network ${cidr}`,
        cause: "a pod can be given a service's address; what is sent there goes to the service, never to the pod",
        evidence: [
          `BGPConfiguration(default) spec.${field} has ${cidr}`,
          `IPPool(${pool.name}) spec.cidr is ${pool.cidr}`,
        ],
      };
    }
}

const poolFault = (pool: PoolFacts, id: string) => ({
  id,
  object: `IPPool(${pool.name})`,
  fix: `make a pool elsewhere, disable this one (spec.disabled: true), move its pods, delete it`,
  setting: `IPPool(${pool.name}) spec.disabled: true`,
});

/** Nodes on which no pod gets an address of a family that there are pools for. */
export function* nodesWithoutPool(cluster: ClusterFacts): Generator<Finding> {
  for (const version of [4, 6] as const) {
    const pools = cluster.pools.filter(
      ({ cidr, allowedUses }) => ipVersion(cidr) === version && allowedUses.includes("Workload"),
    );
    const enabled = pools.filter(({ isDisabled }) => !isDisabled);
    const without = [...cluster.nodes.values()].filter((node) => !enabled.some((pool) => poolCovers(pool, node)));
    if (pools.length === 0 || without.length === 0) continue;
    const names = without.map(({ name }) => name);
    yield {
      id: "no-pool-for-node",
      severity: "error",
      object: names.length === 1 ? `Node(${names[0]})` : "IPPools",
      problem: `no IPv${version} pool gives addresses to pods on ${listed(names)}`,
      cause: `new pods there stay in ContainerCreating, and the CNI plugin says "cannot find a qualified ippool" or "no configured Calico pools"; pods that run keep their addresses`,
      evidence: pools
        .slice(0, 8)
        .map(({ name, isDisabled, nodeSelector }) =>
          isDisabled ? `IPPool(${name}) is disabled` : `IPPool(${name}) is for nodes with ${nodeSelector}`,
        ),
      fix:
        enabled.length === 0
          ? `${patch("ippool", pools[0]?.name ?? "", { disabled: false })}, or add a pool`
          : "correct nodeSelector of a pool or the labels of the nodes, or add a pool for them",
      ...(names.length === 1 && names[0] !== undefined ? { node: names[0] } : {}),
      setting: enabled.length === 0 ? "IPPool spec.disabled: false" : "IPPool spec.nodeSelector",
    };
  }
}

const NEARLY_FULL = 0.95;

export function* fullPools(cluster: ClusterFacts): Generator<Finding> {
  for (const pool of cluster.pools) {
    const fill = cluster.fill.get(pool.cidr);
    if (fill === undefined || pool.isDisabled || fill.available > fill.capacity * (1 - NEARLY_FULL)) continue;
    const isFull = fill.available <= 0;
    yield {
      id: "pool-full",
      severity: isFull ? "error" : "warning",
      object: `IPPool(${pool.name})`,
      problem: `pool ${pool.name} (${pool.cidr}) has ${isFull ? "no address" : `${fill.available} of ${fill.capacity} addresses`} left`,
      cause: `when it is empty new pods stay in ContainerCreating: "No IPs available in pools: [${pool.cidr}]"`,
      evidence: [`${fill.capacity - fill.available} of ${fill.capacity} addresses are in use or reserved`],
      fix: "add a pool (calicoctl apply; pods take from any that fits); calicoctl ipam check finds addresses that nobody uses",
      setting: `IPPool(${pool.name}) spec.cidr`,
    };
  }
}

export function* tooFewBlocks(cluster: ClusterFacts): Generator<Finding> {
  for (const pool of cluster.pools) {
    const nodes = [...cluster.nodes.values()].filter((node) => poolCovers(pool, node));
    const isForPods = pool.allowedUses.includes("Workload") && !pool.isDisabled;
    if (isForPods && nodes.length === 0 && cluster.nodes.size > 0)
      yield {
        id: "pool-without-nodes",
        severity: "warning",
        object: `IPPool(${pool.name})`,
        problem: `pool ${pool.name} serves no node: its nodeSelector ${JSON.stringify(pool.nodeSelector)} matches none`,
        cause: "no Node has the labels it asks for",
        evidence: [`IPPool(${pool.name}) spec.nodeSelector is ${pool.nodeSelector}`],
        fix: "correct the selector or the nodes' labels, or disable the pool",
        setting: `IPPool(${pool.name}) spec.nodeSelector`,
      };
    const blocks = 2 ** Math.min(52, pool.blockSize - cidrLength(pool.cidr));
    const taken = cluster.blocks.filter(({ cidr }) => cidrContains(pool.cidr, cidr));
    const takers = new Set(taken.map(({ host }) => host));
    const without = nodes.filter(({ name }) => !takers.has(name));
    const isTooSmall = blocks < nodes.length;
    if (!isForPods || (!isTooSmall && (taken.length < blocks || without.length === 0))) continue;
    yield {
      id: "too-few-blocks",
      severity: cluster.strictAffinity ? "error" : "warning",
      object: `IPPool(${pool.name})`,
      problem: `pool ${pool.name} (${pool.cidr}, block size ${pool.blockSize}) has ${plural(blocks, "block")} for ${plural(nodes.length, "node")}${isTooSmall ? "" : ", all taken"}`,
      cause: `every node takes a block of ${2 ** (addressBits(ipVersion(pool.cidr)) - pool.blockSize)} addresses; one that finds none ${
        cluster.strictAffinity
          ? "gets no address at all, because strict affinity is on"
          : "borrows single addresses from other nodes' blocks, each with a route of its own in every kernel"
      }`,
      evidence: [
        `${plural(taken.length, "block")} taken by ${plural(takers.size, "node")}`,
        ...(without.length === 0 ? [] : [`without a block: ${listed(without.map(({ name }) => name))}`]),
      ],
      fix: "add a pool, or make one with smaller blocks (a larger spec.blockSize) and retire this one; calicoctl ipam split divides a pool",
      setting: `IPPool spec.blockSize: ${Math.min(addressBits(ipVersion(pool.cidr)), cidrLength(pool.cidr) + Math.ceil(Math.log2(Math.max(2, nodes.length * 2))))}`,
    };
  }
}
