// Converts the resources of a cluster, such as a folder of YAML files, to the entries that a syncer would emit for them.
// It uses the update processors of the syncers, but no datastore.
import {
  clusterInformationProcessor,
  type DerivedUpdate,
  felixConfigProcessor,
  globalNetworkSetProcessor,
  hostEndpointProcessor,
  type KeyValue,
  type KindName,
  keyPath,
  networkSetProcessor,
  nodeProcessor,
  endpointSliceProcessor,
  policyProcessor,
  profileProcessor,
  type Resource,
  type StoredUpdate,
  tierProcessor,
  type UpdateProcessor,
  workloadEndpointProcessor,
} from "../model/index.ts";

/** The Calico kinds that influence a verdict. */
export const STATE_KINDS = [
  "WorkloadEndpoint",
  "HostEndpoint",
  "NetworkPolicy",
  "GlobalNetworkPolicy",
  "StagedNetworkPolicy",
  "StagedGlobalNetworkPolicy",
  "StagedKubernetesNetworkPolicy",
  "Tier",
  "Profile",
  "NetworkSet",
  "GlobalNetworkSet",
  "FelixConfiguration",
  "Node",
] as const satisfies readonly KindName[];

const processors = (): Partial<Record<KindName, UpdateProcessor>> => ({
  WorkloadEndpoint: workloadEndpointProcessor,
  HostEndpoint: hostEndpointProcessor(),
  NetworkPolicy: policyProcessor,
  GlobalNetworkPolicy: policyProcessor,
  StagedNetworkPolicy: policyProcessor,
  StagedGlobalNetworkPolicy: policyProcessor,
  StagedKubernetesNetworkPolicy: policyProcessor,
  KubernetesNetworkPolicy: policyProcessor,
  KubernetesClusterNetworkPolicy: policyProcessor,
  Tier: tierProcessor,
  Profile: profileProcessor,
  NetworkSet: networkSetProcessor,
  GlobalNetworkSet: globalNetworkSetProcessor(),
  FelixConfiguration: felixConfigProcessor(),
  ClusterInformation: clusterInformationProcessor,
  Node: nodeProcessor,
  KubernetesEndpointSlice: endpointSliceProcessor,
});

/** Reports and omits invalid resources, or the invalid parts of them. Kinds that do not influence policy are ignored. */
export function entriesFromResources(
  resources: Iterable<Resource>,
  report: (resource: Resource, reason: string) => void,
): readonly KeyValue[] {
  const byKind = processors();
  const entries = new Map<string, KeyValue>();
  for (const resource of resources) {
    const { namespace, name } = resource.metadata;
    const key = {
      type: "resource",
      kind: resource.kind,
      name,
      namespace,
    } as const;
    const update: StoredUpdate = { key, value: resource };
    const updates: readonly DerivedUpdate[] =
      byKind[resource.kind]?.process(update, (reason) => report(resource, reason)) ?? [];
    for (const { key: derived, value } of updates)
      if (value === undefined) entries.delete(keyPath(derived));
      else entries.set(keyPath(derived), { key: derived, value } as KeyValue);
  }
  return [...entries.values()];
}
