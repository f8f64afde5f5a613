export { createTyphaSyncer, type TyphaConnectOptions } from "./connect.ts";
export {
  addressText,
  DiscoveryError,
  orderInstances,
  parseAddresses,
  type TyphaAddress,
  TyphaUnreachable,
} from "./discovery.ts";
export { BGP_PREFIXES, FELIX_PREFIXES, NODE_PREFIXES, type TyphaSettings, typhaSettings } from "./settings.ts";
