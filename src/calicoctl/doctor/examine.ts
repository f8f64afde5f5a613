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
import { overlappingPools, poolsOnHosts, poolsOnServices, tooFewBlocks } from "./pools.ts";

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
  const isTold = ({ node, peer }: Finding) => node === host.node && peer !== undefined;
  yield* partsDown(host);
  yield* sysctlFaults(cluster, host);
  yield* missingFeatures(cluster, host);
  yield* refusedByKernel(host);
  yield* noPodGateway(host);
  yield* mtuFaults(cluster, host);
  yield* mixedBackends(host);
  yield* fullConntrack(host);
  yield* fullNeighbourTable(host);
  yield* sessionsDown(cluster, plans, host, new Set(found.filter(isTold).map(({ peer }) => peer ?? "")));
}

const rank = ({ severity }: Finding): number => (severity === "error" ? 0 : 1);
