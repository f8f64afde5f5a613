export { createTyphaSyncer } from "./connect.ts";
export {
  addressText,
  type TyphaAddress,
  TyphaUnreachable,
} from "./discovery.ts";
export { BGP_PREFIXES, FELIX_PREFIXES, NODE_PREFIXES, type TyphaSettings, typhaSettings } from "./settings.ts";
