// Checks that this host's kernel has routes to the blocks of the other nodes.
import { isRejecting } from "../../kernel/index.ts";
import { type Cidr, cidrContains, cidrLength, ipVersion } from "../../lib/ip/ip.ts";
import { type ClusterFacts, type HostFacts, type KernelRoute, type PoolFacts, usesIpip, usesVxlan } from "./facts.ts";
import { type Finding, listed, patch, plural } from "./finding.ts";

/** One finding for all blocks of a pool that are missing for the same reason. */
export function* missingRoutes(cluster: ClusterFacts, host: HostFacts): Generator<Finding> {
  yield* rejectedBlocks(cluster, host);
  const missing = [...host.blockRoutes].flatMap(([cidr, route]) => {
    if (leadsInto(route) || rejects(route, cidr)) return [];
    const pool = cluster.pools.find((each) => cidrContains(each.cidr, cidr));
    const owner = cluster.blocks.find((block) => block.cidr === cidr)?.host;
    const node = cluster.nodes.get(owner ?? "");
    const address = node?.networks[ipVersion(cidr)]?.address;
    const session = host.birds[ipVersion(cidr)]?.sessions.find(({ neighbor }) => neighbor === address);
    const isOurs = pool !== undefined && (usesVxlan(pool) || usesIpip(pool));
    // A node we do not speak with directly may be reached by the way of a router's default route.
    if (pool === undefined || node === undefined || (!isOurs && session?.state !== "up")) return [];
    return [{ cidr, pool, node: node.name, route }];
  });
  for (const [pool, blocks] of Map.groupBy(missing, (each) => each.pool)) {
    const nodes = [...new Set(blocks.map(({ node }) => node))];
    yield {
      id: "no-route-to-block",
      severity: "error",
      object: `host ${host.node}`,
      problem: `${host.node} has no route to ${plural(blocks.length, "block")} of pool ${pool.name} on ${listed(nodes)}: pods here do not reach the pods there`,
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

/** Blocks whose packets a route of the block's own prefix, or a longer one, rejects. It hides any route of Calico's. */
function* rejectedBlocks(cluster: ClusterFacts, host: HostFacts): Generator<Finding> {
  for (const [cidr, route] of host.blockRoutes) {
    const owner = cluster.blocks.find((block) => block.cidr === cidr)?.host;
    if (route === undefined || owner === undefined || !rejects(route, cidr)) continue;
    const command = `ip ${ipVersion(cidr) === 4 ? "" : "-6 "}route`;
    yield {
      id: "no-route-to-block",
      severity: "error",
      object: `host ${host.node}`,
      problem: `${host.node} rejects packets to ${route.destination} of ${owner}: a route of type ${route.type} comes before any other`,
      cause: `another program or a person added the route; the kernel prefers it to Calico's route to ${owner}, so that pods here do not reach the pods there`,
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

/** Peerings that pass routes through filters: the first to suspect. */
const filtering = ({ bgp }: ClusterFacts): readonly string[] =>
  [...bgp.peers.values()]
    .filter(({ filters }) => filters.length > 0)
    .slice(0, 4)
    .map(({ name, filters }) => `BGPPeer ${name} passes routes through BGPFilter ${listed(filters)}`);

function leadsInto(route: KernelRoute | undefined): boolean {
  return route !== undefined && !route.destination.endsWith("/0") && route.type === "unicast";
}

const described = ({ type, destination }: KernelRoute): string =>
  destination.endsWith("/0") ? "the default route only" : `${type} ${destination}`;

function reason(pool: PoolFacts, { node }: HostFacts): Pick<Finding, "cause" | "fix" | "setting"> {
  if (pool.disableBgpExport && !usesVxlan(pool))
    return {
      cause: `IPPool ${pool.name} has disableBGPExport: nodes tell nobody of its blocks, not even each other`,
      fix: `${patch("ippool", pool.name, { disableBGPExport: false })}; to hide them from routers only, use a BGPFilter on those peers`,
      setting: `IPPool(${pool.name}) spec.disableBGPExport: false`,
    };
  if (usesVxlan(pool) || usesIpip(pool))
    return {
      cause: "the agent writes these routes by itself, and has not: it does not work, or the tunnel is not there",
      fix: "calicoctl node status, ip -d link show type vxlan, and the agent's log; restarting calico-node writes them again",
    };
  return {
    cause:
      "the BGP session with the node is up, so either it does not announce the block (its calico-node, or a filter there) or it is refused here",
    fix: `calicoctl bgp plan NODE of both says what one announces and the other takes; birdc -s /var/run/calico/bird.ctl show route all on ${node} shows what came, a BGPFilter with importV4 or exportV4 may reject it`,
  };
}
