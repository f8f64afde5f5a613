// Exports what other modules use of calico-node.

/** Loaded on demand, so that probes start faster. */
export const loadSessionEvidence = () => import("./bgp/session-evidence.ts");
export type { SupervisorState } from "./supervisor/supervisor.ts";
export {
  ENVIRONMENT_FILE,
  environmentText,
  serviceUnit,
  shownEnvironment,
  UNIT_NAME,
  UNIT_PATH,
} from "./supervisor/service-unit.ts";
