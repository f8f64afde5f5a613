export {
  clusterInformationProcessor,
  felixConfigProcessor,
  felixSettings,
} from "./configuration.ts";
export {
  globalNetworkSetProcessor,
  hostEndpointProcessor,
  networkSetLabels,
  networkSetProcessor,
  workloadEndpointProcessor,
} from "./endpoints.ts";
export { bgpConfigurationProcessor, bgpPeerProcessor } from "./bgp.ts";
export { felixNodeProcessor, nodeProcessor } from "./nodes.ts";
export { policyProcessor, profileProcessor, tierProcessor } from "./policies.ts";
export { convertPool, poolProcessor, tunnelPoolProcessor } from "./pools.ts";
export { endpointSliceProcessor, kubernetesServiceProcessor, liveMigrationProcessor } from "./kubernetes.ts";
export { type DerivedUpdate, passThrough, type StoredUpdate, type UpdateProcessor } from "./processor.ts";
