// Rejects a BGPPeer that refers to a missing BGPFilter: without the filter, all routes would pass.
import { ignoreUnreadable, readBgpPeer, type Resource } from "../../model/index.ts";
import { NotFound, ValidationFailed } from "../errors.ts";
import type { KindHooks, HookContext } from "./kind-hooks.ts";

async function checkFilters(resource: Resource, { store, signal }: HookContext): Promise<void> {
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

export const bgpPeerHooks: KindHooks = {
  beforeCreate: checkFilters,
  beforeUpdate: (resource, _current, context) => checkFilters(resource, context),
};
