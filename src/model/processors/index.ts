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
  parseDscp,
  workloadEndpointProcessor,
} from "./endpoints.ts";
export { felixNodeProcessor } from "./nodes.ts";
export { policyProcessor, profileProcessor, tierProcessor } from "./policies.ts";
export { convertPool, poolProcessor, tunnelPoolProcessor } from "./pools.ts";
export { passThroughOf } from "./shapes.ts";
export { type DerivedUpdate, passThrough, type StoredUpdate, type UpdateProcessor } from "./processor.ts";
