// Lists named datastore states with the expected state of the dataplane.
import type { GraphSettings } from "../graph.ts";
import type { DatastoreState } from "./run.ts";
import { clusterStates } from "./states/cluster.ts";
import { policyStates } from "./states/policies.ts";
import { portStates } from "./states/ports.ts";
import { routeStates } from "./states/routes.ts";
import type { Summary } from "./summary.ts";

export interface NamedState {
  readonly name: string;
  readonly state: DatastoreState;
  readonly want: Summary;
  readonly settings?: Partial<GraphSettings>;
}

/** For states about policies, because otherwise each address of a local endpoint would need an expected route. */
const withoutRoutes = (states: readonly NamedState[]): NamedState[] =>
  states.map((named) => ({ ...named, settings: { routes: "none" } }));

export const NAMED_STATES: readonly NamedState[] = [
  ...withoutRoutes([...policyStates, ...portStates]),
  ...routeStates,
  ...clusterStates,
];
