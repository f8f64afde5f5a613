// What this host's calico-node last wrote of the parts that it keeps running.
import { readIfThere } from "../../lib/whole-file.ts";
import type { SupervisorState } from "../../node/index.ts";

const FILE = "/var/run/calico/supervisor.json";

/** Nothing where somebody else supervises, or the file is none of calico-node's. */
export function readSupervision(): SupervisorState | undefined {
  try {
    const state = JSON.parse(readIfThere(FILE) ?? "null") as SupervisorState | null;
    return state !== null && Number.isInteger(state.pid) && Array.isArray(state.children) ? state : undefined;
  } catch {
    return undefined;
  }
}
