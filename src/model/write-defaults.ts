// What a write sets in a valid resource, and what a read sets in one that an older program stored: a policy's tier and
// its label. (A workload endpoint's name and labels are made where its name is.)
import { DEFAULT_TIER, isTieredKind } from "./policy-names.ts";
import type { Resource } from "./resource.ts";

const TIER_LABEL = "projectcalico.org/tier";

/** The resource as it is to be stored: policies say their tier in a label, so that they can be listed by it. */
export function withWriteDefaults<R extends Resource>(resource: R): R {
  return isTieredKind(resource.kind) ? withTier(resource) : resource;
}

/** The resource as users see it: a policy without a tier is in the default one. */
export const withReadDefaults = withWriteDefaults;

function withTier<R extends Resource>(policy: R): R {
  const spec = (policy.spec ?? {}) as { readonly tier?: string };
  const tier = spec.tier === undefined || spec.tier === "" ? DEFAULT_TIER : spec.tier;
  const { metadata } = policy;
  if (spec.tier === tier && metadata.labels?.[TIER_LABEL] === tier) return policy;
  return {
    ...policy,
    metadata: { ...metadata, labels: { ...metadata.labels, [TIER_LABEL]: tier } },
    spec: { ...spec, tier },
  };
}
