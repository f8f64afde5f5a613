export {
  bgpConfigProcessor,
  clusterInformationProcessor,
  felixConfigProcessor,
  felixSettings,
} from "./configuration.ts";
export { conflictResolving } from "./conflict-cache.ts";
export {
  globalNetworkSetProcessor,
  hostEndpointProcessor,
  networkSetProcessor,
  parseDscp,
  workloadEndpointProcessor,
} from "./endpoints.ts";
export { bgpNodeProcessor, felixNodeProcessor } from "./nodes.ts";
export { convertPolicy, policyProcessor, profileProcessor, tierProcessor } from "./policies.ts";
export { convertPool, poolProcessor, tunnelPoolProcessor } from "./pools.ts";
export { passThroughOf } from "./shapes.ts";
export { type DerivedUpdate, passThrough, type StoredUpdate, type UpdateProcessor } from "./processor.ts";
