// A peering that names a filter which is not there would let everything pass: refused.
import { ignoreUnreadable, readBgpPeer, type Resource } from "../../model/index.ts";
import { NotFound, ValidationFailed } from "../errors.ts";
import type { Flow, FlowContext } from "./kind-hooks.ts";

async function checkFilters(resource: Resource, { store, signal }: FlowContext): Promise<void> {
  const { filters } = readBgpPeer(resource, ignoreUnreadable);
  const missing: string[] = [];
  for (const name of new Set(filters)) {
    try {
      await store.get({ type: "resource", kind: "BGPFilter", name }, { ...(signal && { signal }) });
    } catch (error) {
      if (!(error instanceof NotFound)) throw error;
      missing.push(name);
    }
  }
  if (missing.length > 0)
    throw new ValidationFailed([
      { field: "spec.filters", value: filters.join(", "), reason: `BGPFilter(s) not found: ${missing.join(", ")}` },
    ]);
}

export const bgpPeerFlow: Flow = {
  beforeCreate: checkFilters,
  beforeUpdate: (resource, _current, context) => checkFilters(resource, context),
};
