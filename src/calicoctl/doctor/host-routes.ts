// Checks that this host's kernel has routes to the blocks of the other nodes.
import { isRejecting } from "../../kernel/index.ts";
import { type Cidr, cidrContains, cidrLength, ipVersion } from "../../lib/ip/ip.ts";
import { type ClusterFacts, type HostFacts, type KernelRoute, type PoolFacts, usesIpip, usesVxlan } from "./facts.ts";
import { type Finding, formatList, patchCommand, plural } from "./finding.ts";

/** Yields one finding for all blocks of a pool that have no route. */
export function* missingRoutes(cluster: ClusterFacts, host: HostFacts): Generator<Finding> {
  yield* rejectedBlocks(cluster, host);
  const missing = [...host.blockRoutes].flatMap(([cidr, route]) => {
    if (leadsInto(route) || rejects(route, cidr)) return [];
    const pool = cluster.pools.find((each) => cidrContains(each.cidr, cidr));
    const owner = cluster.blocks.find((block) => block.cidr === cidr)?.host;
    const node = cluster.nodes.get(owner ?? "");
    const address = node?.networks[ipVersion(cidr)]?.address;
    const session = host.birds[ipVersion(cidr)]?.sessions.find(({ neighbor }) => neighbor === address);
    const isOverlay = pool !== undefined && (usesVxlan(pool) || usesIpip(pool));
    // Without a direct BGP session, the node may be reached through a router's default route.
    if (pool === undefined || node === undefined || (!isOverlay && session?.state !== "up")) return [];
    return [{ cidr, pool, node: node.name, route }];
  });
  for (const [pool, blocks] of Map.groupBy(missing, (each) => each.pool)) {
    const nodes = [...new Set(blocks.map(({ node }) => node))];
    yield {
      id: "no-route-to-block",
      severity: "error",
      object: `host ${host.node}`,
      problem: `${host.node} has no route to ${plural(blocks.length, "block")} of pool ${pool.name} on ${formatList(nodes)}: pods on ${host.node} cannot reach the pods there`,
      ...reason(pool, host),
      evidence: [
        ...blocks
          .slice(0, 4)
          .map(({ cidr, node, route }) => `${cidr} of ${node}: ${route === undefined ? "no route" : described(route)}`),
        ...(pool.disableBgpExport ? [] : filtering(cluster)),
      ],
      node: host.node,
    };
  }
}

/** Yields a finding for each block with a rejecting route of the same or a longer prefix, which hides Calico's route. */
function* rejectedBlocks(cluster: ClusterFacts, host: HostFacts): Generator<Finding> {
  for (const [cidr, route] of host.blockRoutes) {
    const owner = cluster.blocks.find((block) => block.cidr === cidr)?.host;
    if (route === undefined || owner === undefined || !rejects(route, cidr)) continue;
    const command = `ip ${ipVersion(cidr) === 4 ? "" : "-6 "}route`;
    yield {
      id: "no-route-to-block",
      severity: "error",
      object: `host ${host.node}`,
      problem: `${host.node} rejects packets to ${route.destination} of ${owner}: a route of type ${route.type} takes precedence`,
      cause: `another program or a person added the route; the kernel prefers it to Calico's route to ${owner}, so that pods on ${host.node} cannot reach the pods there`,
      evidence: [`${command} show ${route.type} ${route.destination}`],
      fix: `${command} del ${route.type} ${route.destination}`,
      node: host.node,
      address: cidr,
    };
  }
}

/** A rejecting route with a shorter prefix than the block's only takes effect where the block's own route is missing. */
const rejects = (route: KernelRoute | undefined, block: Cidr): boolean =>
  route !== undefined && isRejecting(route.type) && cidrLength(route.destination) >= cidrLength(block);

/** Lists peerings with BGPFilters, which are the most likely cause of a missing route. */
const filtering = ({ bgp }: ClusterFacts): readonly string[] =>
  [...bgp.peers.values()]
    .filter(({ filters }) => filters.length > 0)
    .slice(0, 4)
    .map(({ name, filters }) => `BGPPeer ${name} passes routes through BGPFilter ${formatList(filters)}`);

function leadsInto(route: KernelRoute | undefined): boolean {
  return route !== undefined && !route.destination.endsWith("/0") && route.type === "unicast";
}

const described = ({ type, destination }: KernelRoute): string =>
  destination.endsWith("/0") ? "the default route only" : `${type} ${destination}`;

function reason(pool: PoolFacts, { node }: HostFacts): Pick<Finding, "cause" | "fix" | "setting"> {
  if (pool.disableBgpExport && !usesVxlan(pool))
    return {
      cause: `IPPool ${pool.name} has disableBGPExport: nodes announce its blocks to no peer, not even to each other`,
      fix: `${patchCommand("ippool", pool.name, { disableBGPExport: false })}; to hide the blocks only from routers, use a BGPFilter for those peers`,
      setting: `IPPool(${pool.name}) spec.disableBGPExport: false`,
    };
  if (usesVxlan(pool) || usesIpip(pool))
    return {
      cause: "Felix programs these routes and has not done so: Felix does not work, or the tunnel interface is missing",
      fix: "check calicoctl node status, ip -d link show type vxlan, and the log of calico-node; restarting calico-node programs the routes again",
    };
  return {
    cause:
      "the BGP session with that node is up, so either the node does not announce the block (its calico-node, or a filter there), or this host rejects the route",
    fix: `calicoctl bgp plan NODE, for both nodes, shows what each announces and accepts; birdc -s /var/run/calico/bird.ctl show route all on ${node} shows the received routes; a BGPFilter with importV4 or exportV4 may reject the route`,
  };
}
