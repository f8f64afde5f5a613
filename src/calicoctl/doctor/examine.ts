// Runs all checks of doctor. A check that fails is reported and does not stop the others.
import type { ClusterFacts, HostFacts, LocalNode } from "./facts.ts";
import type { Finding } from "./finding.ts";
import { foreignFilters } from "./host-filters.ts";
import { staleConnections } from "./host-connections.ts";
import { closedWorkloads, ipv6WithoutRules } from "./host-guard.ts";
import { fullConntrack, fullNeighbourTable, missingFeatures, mixedBackends, sysctlFaults } from "./host-kernel.ts";
import { linksDown, sessionsOverLink } from "./host-links.ts";
import { noPodGateway, partsDown, sessionsDown } from "./host-network.ts";
import { mtuFaults } from "./host-mtu.ts";
import { rejectedByKernel } from "./host-rejected-rules.ts";
import { missingRoutes } from "./host-routes.ts";
import { duplicateAddresses, duplicateRouterIds, missingAddresses, otherInterface } from "./node-addresses.ts";
import { nodeNotInDatastore } from "./node-not-in-datastore.ts";
import { notUsed } from "./not-used.ts";
import { peersOfOtherNetworks } from "./peer-networks.ts";
import {
  asMismatches,
  ignoredByBgp,
  isolatedNodes,
  reflectorsWithoutClusterId,
  shadowedPeers,
  unmatchedPeers,
} from "./peerings.ts";
import { workloadsOutsidePools } from "./outside-pools.ts";
import { planAll, type Plans } from "./plans.ts";
import { fullPools, nodesWithoutPool, overlappingPools, poolsOnHosts, poolsOnServices, tooFewBlocks } from "./pools.ts";

/** A check that could not run. */
export interface NotChecked {
  readonly check: string;
  readonly reason: string;
}

export interface Examination {
  /** Errors before warnings. */
  readonly findings: readonly Finding[];
  readonly notChecked: readonly NotChecked[];
}

interface Inputs {
  readonly cluster: ClusterFacts;
  readonly plans: Plans;
  readonly host: HostFacts | undefined;
  /** Findings of the checks that ran before. */
  readonly found: readonly Finding[];
}
type Check = (inputs: Inputs) => Iterable<Finding>;

/** Keyed by the text that is printed after "could not check". */
const CLUSTER_CHECKS: Readonly<Record<string, Check>> = {
  "the nodes' addresses": ({ cluster, host }) => missingAddresses(cluster, host),
  "the source addresses of BGP sessions": ({ cluster, plans, host }) => otherInterface(cluster, plans, host),
  "the networks of BGP peers": ({ cluster, plans, host }) => peersOfOtherNetworks(cluster, plans, host),
  "duplicate addresses": ({ cluster }) => duplicateAddresses(cluster),
  "duplicate router IDs": ({ cluster, host }) => duplicateRouterIds(cluster, host),
  "AS numbers": ({ cluster }) => asMismatches(cluster),
  "nodes without a BGP session": ({ cluster, plans }) => isolatedNodes(cluster, plans),
  "route reflectors": ({ cluster, plans }) => reflectorsWithoutClusterId(cluster, plans),
  "BGPPeers for the same address": ({ cluster }) => shadowedPeers(cluster),
  "selectors of BGPPeers": ({ cluster }) => unmatchedPeers(cluster),
  "overlapping pools": ({ cluster }) => overlappingPools(cluster),
  "pools that contain node addresses": ({ cluster, host }) => poolsOnHosts(cluster, host),
  "pools that contain service addresses": ({ cluster }) => poolsOnServices(cluster),
  "the number of blocks": ({ cluster }) => tooFewBlocks(cluster),
  "nodes without a pool": ({ cluster }) => nodesWithoutPool(cluster),
  "full pools": ({ cluster }) => fullPools(cluster),
  "workloads with addresses in no pool": ({ cluster }) => workloadsOutsidePools(cluster),
  "invalid policies, sets and host endpoints": ({ cluster }) => notUsed(cluster),
  "objects that BGP ignores": ({ cluster, plans, host, found }) =>
    ignoredByBgp(cluster, plans, new Set(found.map(({ object }) => object)), host),
};

const HOST_CHECKS: Readonly<Record<string, (host: HostFacts, inputs: Inputs) => Iterable<Finding>>> = {
  "the processes of calico-node": (host) => partsDown(host),
  "network interfaces": (host, { cluster }) => linksDown(cluster, host),
  sysctls: (host, { cluster }) => sysctlFaults(cluster, host),
  "kernel modules": (host, { cluster }) => missingFeatures(cluster, host),
  "the guard table": (host) => [...closedWorkloads(host), ...ipv6WithoutRules(host)],
  "rules that the kernel rejects": (host) => rejectedByKernel(host),
  "the pods' gateway": (host) => noPodGateway(host),
  MTUs: (host, { cluster }) => mtuFaults(cluster, host),
  "iptables backends": (host) => mixedBackends(host),
  "connection tracking": (host) => fullConntrack(host),
  "connections of removed pods": (host) => staleConnections(host),
  "the neighbour table": (host) => fullNeighbourTable(host),
  "packet filters of other programs": (host, { cluster }) => foreignFilters(cluster, host),
  "routes to blocks": (host, { cluster }) => missingRoutes(cluster, host),
  "BGP sessions": (host, { cluster, plans, found }) =>
    sessionsDown(cluster, plans, host, explainedNeighbours(cluster, host, found)),
};

/** @param local this host's node, if the datastore has no such Node */
export function examine(cluster: ClusterFacts, host?: HostFacts, local?: LocalNode): Examination {
  const found: Finding[] = [];
  const notChecked: NotChecked[] = [];
  const run = (check: string, find: () => Iterable<Finding>) => {
    try {
      for (const finding of find()) found.push(finding);
    } catch (error) {
      notChecked.push({ check, reason: error instanceof Error ? error.message : String(error) });
    }
  };
  let plans: Plans | undefined;
  const inputs: Inputs = {
    cluster,
    host,
    found,
    get plans() {
      return (plans ??= planAll(cluster));
    },
  };
  if (local !== undefined) run("whether this host is a node", () => [nodeNotInDatastore(cluster, local)]);
  for (const [check, find] of Object.entries(CLUSTER_CHECKS)) run(check, () => find(inputs));
  if (host !== undefined) for (const [check, find] of Object.entries(HOST_CHECKS)) run(check, () => find(host, inputs));
  return { findings: found.sort((a, b) => rank(a) - rank(b)), notChecked };
}

/** Finds nodes with an address from which a BGP peer does not expect a session, from resources alone. */
export function sourceAddressFaults(cluster: ClusterFacts): readonly Finding[] {
  const plans = planAll(cluster);
  return [...otherInterface(cluster, plans), ...peersOfOtherNetworks(cluster, plans)];
}

/** Returns the neighbours whose session is down for a reason that another finding reports. */
function explainedNeighbours(cluster: ClusterFacts, host: HostFacts, found: readonly Finding[]): ReadonlySet<string> {
  const explained = new Set<string>();
  for (const { id, node, peer, address, interface: nic } of found) {
    if (node === host.node && peer !== undefined) explained.add(peer);
    if (id === "link-down" && nic !== undefined)
      for (const neighbor of sessionsOverLink(cluster, host, nic)) explained.add(neighbor);
    if (id !== "address-not-on-host" || address === undefined) continue;
    // If this host lacks its own address, all its sessions are down; if another node lacks its address, only that session is.
    if (node !== host.node) explained.add(address);
    else
      for (const { neighbor } of host.birds[address.includes(":") ? 6 : 4]?.sessions ?? [])
        if (neighbor !== undefined) explained.add(neighbor);
  }
  return explained;
}

const rank = ({ severity }: Finding): number => (severity === "error" ? 0 : 1);
