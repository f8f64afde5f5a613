// Finds the workloads in an Istio ambient mesh. Local workloads are marked; one IP set contains all of the cluster's.
import { ParsedSelector, type WorkloadEndpointKey } from "../../model/index.ts";
import type { EndpointKey } from "../ids.ts";
import type { IpSetSpec } from "../ipsets/ip-set.ts";
import type { SelectionListener } from "../policy/active-rules.ts";

const MODE = "istio.io/dataplane-mode";
/** Selects a workload whose namespace is in the mesh, unless it opted out, and a workload that opted in itself. */
export const AMBIENT_SELECTOR = ParsedSelector.parse(
  `pcns.${MODE} == 'ambient' && ${MODE} != 'none' || ${MODE} == 'ambient'`,
);

export const AMBIENT_SET: IpSetSpec = {
  id: "all-istio-weps",
  type: "ip",
  content: { kind: "selector", selector: AMBIENT_SELECTOR },
};

export class AmbientMesh implements SelectionListener {
  readonly #onAmbientChanged: (key: WorkloadEndpointKey, isAmbient: boolean) => void;

  constructor(onAmbientChanged: (key: WorkloadEndpointKey, isAmbient: boolean) => void) {
    this.#onAmbientChanged = onAmbientChanged;
  }
  onSelected(_selector: ParsedSelector, key: EndpointKey): void {
    if (key.type === "workloadEndpoint") this.#onAmbientChanged(key, true);
  }
  onDeselected(_selector: ParsedSelector, key: EndpointKey): void {
    if (key.type === "workloadEndpoint") this.#onAmbientChanged(key, false);
  }
}
