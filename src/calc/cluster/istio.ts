// Workloads of an ambient mesh: marked where they are local, and all of them in one IP set.
import { parseSelector, printSelector, type WorkloadEndpointKey } from "../../model/index.ts";
import type { EndpointKey } from "../ids.ts";
import type { IpSetSpec } from "../ipsets/ip-set.ts";
import type { SelectionListener } from "../policy/active-rules.ts";

const MODE = "istio.io/dataplane-mode";
/** The namespace is in the mesh and the workload has not left it, or the workload itself is in. */
export const AMBIENT_SELECTOR = printSelector(
  parseSelector(`pcns.${MODE} == 'ambient' && ${MODE} != 'none' || ${MODE} == 'ambient'`),
);

export const AMBIENT_SET: IpSetSpec & { readonly content: { readonly kind: "selector"; readonly selector: string } } = {
  id: "all-istio-weps",
  type: "ip",
  content: { kind: "selector", selector: AMBIENT_SELECTOR },
};

export class AmbientMesh implements SelectionListener {
  readonly #say: (key: WorkloadEndpointKey, isAmbient: boolean) => void;

  constructor(say: (key: WorkloadEndpointKey, isAmbient: boolean) => void) {
    this.#say = say;
  }
  onSelected(_selector: string, key: EndpointKey): void {
    if (key.type === "workloadEndpoint") this.#say(key, true);
  }
  onDeselected(_selector: string, key: EndpointKey): void {
    if (key.type === "workloadEndpoint") this.#say(key, false);
  }
}
