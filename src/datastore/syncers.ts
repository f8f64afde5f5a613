// Lists the kinds that each syncer watches, and the processor that converts each kind.
import {
  bgpConfigurationProcessor,
  bgpPeerProcessor,
  clusterInformationProcessor,
  felixConfigProcessor,
  felixNodeProcessor,
  globalNetworkSetProcessor,
  hostEndpointProcessor,
  type KindName,
  networkSetProcessor,
  passThrough,
  liveMigrationProcessor,
  endpointSliceProcessor,
  kubernetesServiceProcessor,
  policyProcessor,
  poolProcessor,
  profileProcessor,
  type StoredQuery,
  tierProcessor,
  tunnelPoolProcessor,
  type UpdateProcessor,
  workloadEndpointProcessor,
} from "../model/index.ts";
import type { Datastore } from "./datastore.ts";
import type { WatchedKind } from "./kind-updates.ts";
import type { Syncer, SyncerName } from "./syncer.ts";
import { WatcherSyncer, type WatcherSyncerOptions } from "./watcher-syncer.ts";

export interface SyncerOptions extends WatcherSyncerOptions {
  /** This host: `bgp` watches only its block affinities, `tunnel-ip-allocation` only its Node. */
  readonly hostname?: string;
  /** Addresses come from the nodes' pod CIDRs: IPAM blocks are not watched. */
  readonly usePodCidr?: boolean;
  /** False: `felix` watches only ClusterInformation and FelixConfiguration. */
  readonly isLeader?: boolean;
}

export function createSyncer(name: SyncerName, datastore: Datastore, options: SyncerOptions = {}): Syncer {
  return new WatcherSyncer(datastore, () => KINDS_OF[name](datastore, options), options);
}

const KINDS_OF: Readonly<Record<SyncerName, (datastore: Datastore, options: SyncerOptions) => readonly WatchedKind[]>> =
  {
    felix: (datastore, options) => [
      resources("ClusterInformation", clusterInformationProcessor),
      resources("FelixConfiguration", felixConfigProcessor()),
      ...(options.isLeader === false ? [] : felixLeaderKinds(datastore, options)),
    ],
    bgp: (_datastore, options) => [
      resources("IPPool", poolProcessor()),
      resources("BGPConfiguration"),
      resources("Node"),
      resources("BGPPeer"),
      resources("BGPFilter"),
      ...(options.usePodCidr === true
        ? []
        : [
            stored({
              type: "blockAffinity",
              affinityType: "host",
              host: options.hostname,
            }),
          ]),
    ],
    "tunnel-ip-allocation": (_datastore, options) => [
      resources("IPPool", tunnelPoolProcessor()),
      stored({
        type: "resource",
        kind: "Node",
        name: options.hostname,
      }),
    ],
    "node-status": () => [resources("CalicoNodeStatus")],
  };

function felixLeaderKinds(datastore: Datastore, options: SyncerOptions): readonly WatchedKind[] {
  const usePodCidr = options.usePodCidr === true;
  return [
    resources("NetworkPolicy", policyProcessor),
    resources("GlobalNetworkPolicy", policyProcessor),
    resources("StagedNetworkPolicy", policyProcessor),
    resources("StagedGlobalNetworkPolicy", policyProcessor),
    resources("StagedKubernetesNetworkPolicy", policyProcessor),
    resources("Tier", tierProcessor),
    resources("Profile", profileProcessor),
    resources("IPPool", poolProcessor()),
    resources("NetworkSet", networkSetProcessor),
    resources("GlobalNetworkSet", globalNetworkSetProcessor()),
    resources("WorkloadEndpoint", workloadEndpointProcessor),
    resources("HostEndpoint", hostEndpointProcessor()),
    resources("Node", felixNodeProcessor({ usePodCidr })),
    resources("BGPConfiguration", bgpConfigurationProcessor),
    resources("BGPPeer", bgpPeerProcessor),
    // Written to etcd by OpenStack's driver.
    resources("LiveMigration", liveMigrationProcessor),
    ...(usePodCidr ? [] : [stored({ type: "block" })]),
    ...(datastore.name === "kubernetes"
      ? [
          resources("KubernetesNetworkPolicy", policyProcessor),
          resources("KubernetesClusterNetworkPolicy", policyProcessor),
          resources("KubernetesEndpointSlice", endpointSliceProcessor),
          resources("KubernetesService", kubernetesServiceProcessor),
        ]
      : []),
  ];
}

const stored = (query: StoredQuery, processor: UpdateProcessor = passThrough): WatchedKind => ({ query, processor });
const resources = (kind: KindName, processor?: UpdateProcessor): WatchedKind =>
  stored({ type: "resource", kind }, processor);
