// What other programs use of calico-node.

/** What a host knows of its sessions; loaded by who asks, probes start without it. */
export const loadSurroundings = () => import("./bgp/session-evidence.ts");
export type { SupervisorState } from "./supervisor/supervisor.ts";
export {
  ENVIRONMENT_FILE,
  environmentText,
  serviceUnit,
  shownEnvironment,
  UNIT_NAME,
  UNIT_PATH,
} from "./supervisor/service-unit.ts";
