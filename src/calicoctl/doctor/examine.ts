// All findings, the worst first.
import { type ClusterFacts, type HostFacts } from "./facts.ts";
import type { Finding } from "./finding.ts";
import { fullConntrack, fullNeighbourTable, missingFeatures, mixedBackends, sysctlFaults } from "./host-kernel.ts";
import { mtuFaults, noPodGateway, partsDown, sessionsDown } from "./host-network.ts";
import { refusedByKernel } from "./host-refused.ts";
import { duplicateAddresses, duplicateRouterIds, missingAddresses, otherInterface } from "./node-addresses.ts";
import { asMismatches, isolatedNodes, leftOut, matchNothing, shadowedPeers, silentReflectors } from "./peerings.ts";
import { notUsed } from "./not-used.ts";
import { planAll, type Plans } from "./plans.ts";
import { foreignFilters } from "./host-filters.ts";
import { missingRoutes } from "./host-routes.ts";
import { fullPools, nodesWithoutPool, overlappingPools, poolsOnHosts, poolsOnServices, tooFewBlocks } from "./pools.ts";

export function examine(cluster: ClusterFacts, host?: HostFacts): readonly Finding[] {
  const plans = planAll(cluster);
  const found = [
    ...missingAddresses(cluster, host),
    ...otherInterface(cluster, plans, host),
    ...duplicateAddresses(cluster),
    ...duplicateRouterIds(cluster, host),
    ...asMismatches(cluster),
    ...isolatedNodes(cluster, plans),
    ...silentReflectors(cluster, plans),
    ...shadowedPeers(cluster),
    ...matchNothing(cluster),
    ...overlappingPools(cluster),
    ...poolsOnHosts(cluster, host),
    ...poolsOnServices(cluster),
    ...tooFewBlocks(cluster),
    ...nodesWithoutPool(cluster),
    ...fullPools(cluster),
    ...notUsed(cluster),
  ];
  found.push(...leftOut(cluster, plans, new Set(found.map(({ object }) => object)), host));
  if (host !== undefined) found.push(...examineHost(cluster, plans, host, found));
  return found.sort((a, b) => rank(a) - rank(b));
}

function* examineHost(
  cluster: ClusterFacts,
  plans: Plans,
  host: HostFacts,
  found: readonly Finding[],
): Generator<Finding> {
  yield* partsDown(host);
  yield* sysctlFaults(cluster, host);
  yield* missingFeatures(cluster, host);
  yield* refusedByKernel(host);
  yield* noPodGateway(host);
  yield* mtuFaults(cluster, host);
  yield* mixedBackends(host);
  yield* fullConntrack(host);
  yield* fullNeighbourTable(host);
  yield* foreignFilters(cluster, host);
  yield* missingRoutes(cluster, host);
  yield* sessionsDown(cluster, plans, host, toldNeighbours(host, found));
}

/** Neighbours with whom a session is down for a reason that a finding of its own has. */
function toldNeighbours(host: HostFacts, found: readonly Finding[]): ReadonlySet<string> {
  const told = new Set<string>();
  for (const { id, node, peer, address } of found) {
    if (node === host.node && peer !== undefined) told.add(peer);
    if (id !== "address-not-on-host" || address === undefined) continue;
    // Without its own address this host speaks with nobody; another one's is nobody's.
    if (node !== host.node) told.add(address);
    else
      for (const { neighbor } of host.birds[address.includes(":") ? 6 : 4]?.sessions ?? [])
        if (neighbor !== undefined) told.add(neighbor);
  }
  return told;
}

const rank = ({ severity }: Finding): number => (severity === "error" ? 0 : 1);
