export { createTyphaSyncer, type TyphaConnectOptions } from "./connect.ts";
export { addressText, DiscoveryError, orderInstances, parseAddresses, type TyphaAddress } from "./discovery.ts";
export { BGP_PREFIXES, FELIX_PREFIXES, NODE_PREFIXES, type TyphaSettings, typhaSettings } from "./settings.ts";
