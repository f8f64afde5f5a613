// Policies belong to a tier that must exist, and carry its name as a label by which they are listed.
import { ignoreUnreadable, isBuiltInTier, readPolicyTarget, type Resource, TIER_LABEL } from "../../model/index.ts";
import type { Flow } from "./kind-hooks.ts";

export const tierOf = (resource: Resource): string => readPolicyTarget(resource.spec, ignoreUnreadable).tier;

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
