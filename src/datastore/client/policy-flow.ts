// Policies belong to a tier that must exist, and carry its name as a label by which they are listed.
import { DEFAULT_TIER, isBuiltInTier, type Resource, TIER_LABEL } from "../../model/index.ts";
import type { Flow } from "./flow.ts";

export const tierOf = (resource: Resource): string => {
  const { tier } = resource.spec as { readonly tier?: string };
  return tier === undefined || tier === "" ? DEFAULT_TIER : tier;
};

export const policyFlow: Flow = {
  prepare: (resource) => withTierLabel(resource),
  beforeCreate: async (resource, { store, signal }) => {
    const name = tierOf(resource);
    // Built-in tiers are there, written down or not.
    if (!isBuiltInTier(name)) await store.get({ type: "resource", kind: "Tier", name }, { ...(signal && { signal }) });
  },
};

export function withTierLabel(resource: Resource): Resource {
  const labels = { ...resource.metadata.labels, [TIER_LABEL]: tierOf(resource) };
  return { ...resource, metadata: { ...resource.metadata, labels } };
}
