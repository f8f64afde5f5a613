// Maps the name of each kind to its resource type: `ResourceOf<"IPPool">`. This file contains only types; `loadSchemas`
// loads the schemas.
import type { KindName } from "./kinds.ts";
import type { BGPConfigurationResource } from "./kinds/bgp-configuration.ts";
import type { BGPFilterResource } from "./kinds/bgp-filter.ts";
import type { BGPPeerResource } from "./kinds/bgp-peer.ts";
import type { BlockAffinityResource } from "./kinds/block-affinity.ts";
import type { CalicoNodeStatusResource } from "./kinds/calico-node-status.ts";
import type { ClusterInformationResource } from "./kinds/cluster-information.ts";
import type { FelixConfigurationResource } from "./kinds/felix-configuration.ts";
import type { GlobalNetworkPolicyResource } from "./kinds/global-network-policy.ts";
import type { GlobalNetworkSetResource } from "./kinds/global-network-set.ts";
import type { HostEndpointResource } from "./kinds/host-endpoint.ts";
import type { IPPoolResource } from "./kinds/ip-pool.ts";
import type { IPReservationResource } from "./kinds/ip-reservation.ts";
import type { IPAMBlockResource } from "./kinds/ipam-block.ts";
import type { IPAMConfigurationResource } from "./kinds/ipam-configuration.ts";
import type { IPAMHandleResource } from "./kinds/ipam-handle.ts";
import type { KubeControllersConfigurationResource } from "./kinds/kube-controllers-configuration.ts";
import type { LiveMigrationResource } from "./kinds/live-migration.ts";
import type { NetworkPolicyResource } from "./kinds/network-policy.ts";
import type { NetworkSetResource } from "./kinds/network-set.ts";
import type { NodeResource } from "./kinds/node.ts";
import type { ProfileResource } from "./kinds/profile.ts";
import type { StagedGlobalNetworkPolicyResource } from "./kinds/staged-global-network-policy.ts";
import type { StagedKubernetesNetworkPolicyResource } from "./kinds/staged-kubernetes-network-policy.ts";
import type { StagedNetworkPolicyResource } from "./kinds/staged-network-policy.ts";
import type { TierResource } from "./kinds/tier.ts";
import type { WorkloadEndpointResource } from "./kinds/workload-endpoint.ts";
import type { Resource } from "./resource.ts";

/** Kinds with a typed spec. */
export interface ResourceTypes {
  IPPool: IPPoolResource;
  IPReservation: IPReservationResource;
  Node: NodeResource;
  WorkloadEndpoint: WorkloadEndpointResource;
  HostEndpoint: HostEndpointResource;
  NetworkPolicy: NetworkPolicyResource;
  GlobalNetworkPolicy: GlobalNetworkPolicyResource;
  StagedNetworkPolicy: StagedNetworkPolicyResource;
  StagedGlobalNetworkPolicy: StagedGlobalNetworkPolicyResource;
  StagedKubernetesNetworkPolicy: StagedKubernetesNetworkPolicyResource;
  Tier: TierResource;
  Profile: ProfileResource;
  NetworkSet: NetworkSetResource;
  GlobalNetworkSet: GlobalNetworkSetResource;
  BGPConfiguration: BGPConfigurationResource;
  BGPPeer: BGPPeerResource;
  BGPFilter: BGPFilterResource;
  CalicoNodeStatus: CalicoNodeStatusResource;
  FelixConfiguration: FelixConfigurationResource;
  ClusterInformation: ClusterInformationResource;
  KubeControllersConfiguration: KubeControllersConfigurationResource;
  IPAMConfiguration: IPAMConfigurationResource;
  IPAMBlock: IPAMBlockResource;
  BlockAffinity: BlockAffinityResource;
  IPAMHandle: IPAMHandleResource;
  LiveMigration: LiveMigrationResource;
}

/** The resource type of a kind. The spec of Kubernetes' own kinds is not typed. */
export type ResourceOf<K extends KindName> = K extends keyof ResourceTypes ? ResourceTypes[K] : Resource<K>;
export type SpecOf<K extends KindName> = ResourceOf<K>["spec"];
/** Kinds whose resources are validated by a schema. */
export type SchemaKind = Exclude<keyof ResourceTypes, "LiveMigration">;
