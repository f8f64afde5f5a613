// Checks that pools do not overlap each other, host networks or service addresses, and that they have addresses for all nodes.
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
import { type Finding, formatList, patchCommand, plural } from "./finding.ts";

export function* overlappingPools(cluster: ClusterFacts): Generator<Finding> {
  for (const [i, a] of cluster.pools.entries())
    for (const b of cluster.pools.slice(i + 1)) {
      if (!cidrsOverlap(a.cidr, b.cidr)) continue;
      yield {
        id: "pools-overlap",
        severity: "error",
        object: `IPPool(${b.name})`,
        problem: `pools ${a.name} (${a.cidr}) and ${b.name} (${b.cidr}) overlap`,
        cause: "an address in both can be assigned twice, and its route may follow the settings of either pool",
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
        problem: `pool ${pool.name} (${pool.cidr}) contains the address of ${formatList(inside.map(({ node }) => node))}`,
        cause: "a pod can be assigned a node's address, and routes to blocks capture traffic to nodes",
        evidence: inside.slice(0, 8).map(({ node, address }) => `Node(${node}) has ${address}`),
      };
    const crossed = crossedNetworks(cluster, pool, host);
    if (inside.length === 0 && crossed.length > 0)
      yield {
        ...poolFault(pool, "pool-overlaps-node-network"),
        severity: "warning",
        problem: `pool ${pool.name} (${pool.cidr}) overlaps networks of hosts`,
        cause: "other hosts on those networks can have the same address as a pod: one of the two is unreachable",
        evidence: crossed.slice(0, 8).map(({ where, network }) => `${where}: ${network}`),
      };
  }
}

/** Interfaces of Calico and Kubernetes, which do not lead to a network of other hosts. */
const VIRTUAL_INTERFACE = /^(cali|tunl|vxlan|wireguard|wg-v6|lo$|kube-ipvs|nodelocaldns)/;

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
    if (!VIRTUAL_INTERFACE.test(link.name) && link.isUp)
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
        cause: "a pod can be assigned the address of a service; packets to it then reach the service, never the pod",
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
  fix: `create a pool with other addresses, disable this one (spec.disabled: true), move its pods, and delete it`,
  setting: `IPPool(${pool.name}) spec.disabled: true`,
});

/** Finds nodes whose pods get no address of an IP version for which there are pools. */
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
      problem: `no IPv${version} pool provides addresses for pods on ${formatList(names)}`,
      cause: `new pods there stay in ContainerCreating, with the CNI error "cannot find a qualified ippool" or "no configured Calico pools"; running pods keep their addresses`,
      evidence: pools
        .slice(0, 8)
        .map(({ name, isDisabled, nodeSelector }) =>
          isDisabled ? `IPPool(${name}) is disabled` : `IPPool(${name}) is for nodes with ${nodeSelector}`,
        ),
      fix:
        enabled.length === 0
          ? `${patchCommand("ippool", pools[0]?.name ?? "", { disabled: false })}, or add a pool`
          : "correct the nodeSelector of a pool or the labels of the nodes, or add a pool for them",
      ...(names.length === 1 && names[0] !== undefined ? { node: names[0] } : {}),
      setting: enabled.length === 0 ? "IPPool spec.disabled: false" : "IPPool spec.nodeSelector",
    };
  }
}

const POOL_WARNING_RATIO = 0.95;

export function* fullPools(cluster: ClusterFacts): Generator<Finding> {
  for (const pool of cluster.pools) {
    const fill = cluster.fill.get(pool.cidr);
    if (fill === undefined || pool.isDisabled || fill.available > fill.capacity * (1 - POOL_WARNING_RATIO)) continue;
    const isFull = fill.available <= 0;
    yield {
      id: "pool-full",
      severity: isFull ? "error" : "warning",
      object: `IPPool(${pool.name})`,
      problem: `pool ${pool.name} (${pool.cidr}) has ${isFull ? "no address" : `${fill.available} of ${fill.capacity} addresses`} left`,
      cause: `when no address is left, new pods stay in ContainerCreating: "No IPs available in pools: [${pool.cidr}]"`,
      evidence: [`${fill.capacity - fill.available} of ${fill.capacity} addresses are in use or reserved`],
      fix: "add a pool (calicoctl apply; pods use any pool that selects their node); calicoctl ipam check finds unused addresses",
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
        problem: `pool ${pool.name} is not used by any node: its nodeSelector ${JSON.stringify(pool.nodeSelector)} matches none`,
        cause: "no Node has labels that match the selector",
        evidence: [`IPPool(${pool.name}) spec.nodeSelector is ${pool.nodeSelector}`],
        fix: "correct the selector or the nodes' labels, or disable the pool",
        setting: `IPPool(${pool.name}) spec.nodeSelector`,
      };
    const blocks = 2 ** Math.min(52, pool.blockSize - cidrLength(pool.cidr));
    const claimed = cluster.blocks.filter(({ cidr }) => cidrContains(pool.cidr, cidr));
    const owners = new Set(claimed.map(({ host }) => host));
    const without = nodes.filter(({ name }) => !owners.has(name));
    const isTooSmall = blocks < nodes.length;
    if (!isForPods || (!isTooSmall && (claimed.length < blocks || without.length === 0))) continue;
    yield {
      id: "too-few-blocks",
      severity: cluster.strictAffinity ? "error" : "warning",
      object: `IPPool(${pool.name})`,
      problem: `pool ${pool.name} (${pool.cidr}, block size ${pool.blockSize}) has ${plural(blocks, "block")} for ${plural(nodes.length, "node")}${isTooSmall ? "" : ", all in use"}`,
      cause: `every node claims a block of ${2 ** (addressBits(ipVersion(pool.cidr)) - pool.blockSize)} addresses; a node without a free block ${
        cluster.strictAffinity
          ? "gets no address, because strict affinity is on"
          : "borrows single addresses from other nodes' blocks, each of which adds a route to every node"
      }`,
      evidence: [
        `${plural(claimed.length, "block")} claimed by ${plural(owners.size, "node")}`,
        ...(without.length === 0 ? [] : [`without a block: ${formatList(without.map(({ name }) => name))}`]),
      ],
      fix: "add a pool, or create one with smaller blocks (a larger spec.blockSize) and delete this one later; calicoctl ipam split divides a pool",
      setting: `IPPool spec.blockSize: ${Math.min(addressBits(ipVersion(pool.cidr)), cidrLength(pool.cidr) + Math.ceil(Math.log2(Math.max(2, nodes.length * 2))))}`,
    };
  }
}
