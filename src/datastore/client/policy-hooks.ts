// Sets the tier label of a policy, by which policies are listed, and rejects a policy whose tier does not exist.
import { ignoreUnreadable, isBuiltInTier, readPolicyTarget, type Resource, TIER_LABEL } from "../../model/index.ts";
import type { KindHooks } from "./kind-hooks.ts";

export const tierOf = (resource: Resource): string => readPolicyTarget(resource.spec, ignoreUnreadable).tier;

export const policyHooks: KindHooks = {
  prepare: (resource) => withTierLabel(resource),
  beforeCreate: async (resource, { store, signal }) => {
    const name = tierOf(resource);
    // Built-in tiers need not be stored.
    if (!isBuiltInTier(name)) await store.get({ type: "resource", kind: "Tier", name }, { ...(signal && { signal }) });
  },
};

export function withTierLabel(resource: Resource): Resource {
  const labels = { ...resource.metadata.labels, [TIER_LABEL]: tierOf(resource) };
  return { ...resource, metadata: { ...resource.metadata, labels } };
}
