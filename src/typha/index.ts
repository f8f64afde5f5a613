export { createTyphaSyncer } from "./connect.ts";
export {
  type TyphaAddress,
  TyphaUnreachable,
} from "./discovery.ts";
export { BGP_PREFIXES, NODE_PREFIXES, type TyphaSettings, typhaSettings } from "./settings.ts";
