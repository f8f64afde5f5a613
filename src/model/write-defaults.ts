// What a write sets in a valid resource, and what a read sets in one that an older program stored: a policy's tier and
// its label, a workload endpoint's name and labels. And which of two writes owns the status.
import type { FieldFault } from "./faults.ts";
import { NAMESPACE_LABEL, ORCHESTRATOR_LABEL, TIER_LABEL } from "./labels.ts";
import { DEFAULT_TIER, isTieredKind } from "./policy-names.ts";
import type { Resource } from "./resource.ts";
import { WorkloadNameError, type WorkloadNameFields, workloadEndpointName } from "./workload-name.ts";

/** The resource as it is to be stored: policies say their tier in a label, so that they can be listed by it. */
export function withWriteDefaults<R extends Resource>(resource: R): R {
  if (isTieredKind(resource.kind)) return withTier(resource);
  return resource.kind === "WorkloadEndpoint" ? withWorkloadLabels(resource) : resource;
}

/** The resource as users see it: a policy without a tier is in the default one. */
export const withReadDefaults = <R extends Resource>(resource: R): R =>
  isTieredKind(resource.kind) ? withTier(resource) : resource;

/**
 * A workload endpoint's name says what it is of. Gives the endpoint with its name filled in, or what is wrong.
 */
export function nameWorkloadEndpoint<R extends Resource>(endpoint: R): R | readonly FieldFault[] {
  const { name } = endpoint.metadata;
  try {
    const wanted = workloadEndpointName((endpoint.spec ?? {}) as WorkloadNameFields);
    if (name === wanted) return endpoint;
    if (name === "") return { ...endpoint, metadata: { ...endpoint.metadata, name: wanted } };
    return [{ field: "metadata.name", value: name, reason: `want ${wanted}, as the spec has it` }];
  } catch (error) {
    if (!(error instanceof WorkloadNameError)) throw error;
    return [{ field: `spec.${error.field}`, reason: error.reason }];
  }
}

function withWorkloadLabels<R extends Resource>(endpoint: R): R {
  const { orchestrator } = (endpoint.spec ?? {}) as { readonly orchestrator?: string };
  const { metadata } = endpoint;
  const labels = {
    ...metadata.labels,
    [NAMESPACE_LABEL]: metadata.namespace ?? "",
    [ORCHESTRATOR_LABEL]: orchestrator ?? "",
  };
  return { ...endpoint, metadata: { ...metadata, labels } };
}

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

/** A status write changes the status and nothing else. */
export function withStatus<R extends Resource>(stored: R, wanted: R): R {
  const { status: _, ...rest } = stored;
  const metadata = { ...stored.metadata, ...revisionOf(wanted) };
  return { ...rest, metadata, ...(wanted.status === undefined ? {} : { status: wanted.status }) } as R;
}

/** A write of the spec leaves the status as it is. */
export function keepStatus<R extends Resource>(stored: R, wanted: R): R {
  const { status: _, ...rest } = wanted;
  return { ...rest, ...(stored.status === undefined ? {} : { status: stored.status }) } as R;
}

const revisionOf = ({ metadata }: Resource) =>
  metadata.resourceVersion === undefined ? {} : { resourceVersion: metadata.resourceVersion };
