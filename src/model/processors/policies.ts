// Converts policies, tiers and profiles to the form that the calculation graph uses.
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import { policySelector } from "../selector/compose-selector.ts";
import type { Policy, ProfileRules } from "../stored/derived.ts";
import type { PolicyKey, PolicyKind, ResourceKey } from "../keys/keys.ts";
import { convertKubernetesPolicySpec } from "../kubernetes/network-policy.ts";
import { convertClusterNetworkPolicy } from "../kubernetes/cluster-network-policy.ts";
import { policyKindOf } from "../keys/policy-key.ts";
import { DEFAULT_TIER } from "../keys/policy-names.ts";
import { policyTypesIn } from "../readers/policy.ts";
import { readProfileLabels } from "../readers/profile.ts";
import { readTier } from "../readers/tier.ts";
import { rejectUnreadable } from "../readers/unreadable.ts";
import type { Labels, Resource } from "../resource.ts";
import { convertRules } from "../rule-conversion.ts";
import { ParsedSelector } from "../selector/selector.ts";
import type { ReportProblem } from "../validation/value-error.ts";
import {
  convertOrReport,
  type DerivedUpdate,
  limitDepth,
  oneToOne,
  resourceKey,
  resourceOf,
  type UpdateProcessor,
} from "./processor.ts";

const policyKey = (key: ResourceKey): PolicyKey => ({
  type: "policy",
  kind: key.kind as PolicyKind,
  namespace: key.namespace ?? "",
  name: key.name,
});

export const policyProcessor: UpdateProcessor = oneToOne(policyKey, convertPolicy);

/** Converts a policy of any kind. Returns undefined for a staged deletion. */
export function convertPolicy(resource: Resource, report: ReportProblem): Policy | undefined {
  switch (resource.kind) {
    case "KubernetesNetworkPolicy":
    case "StagedKubernetesNetworkPolicy": {
      const spec = convertKubernetesPolicySpec(resource.spec, report);
      return withStaging(resource, convertSpec(resource, new JsonReader(spec, "spec"), report));
    }
    case "KubernetesClusterNetworkPolicy": {
      const spec = convertClusterNetworkPolicy(resource, report);
      if (spec === undefined) return undefined;
      // Without rules the policy applies to neither direction, so `types` has no default here.
      const types = spec.types.map((type) => type.toLowerCase() as "ingress" | "egress");
      return { ...convertSpec(resource, new JsonReader(spec, "spec"), report), types };
    }
    default:
      return withStaging(resource, convertSpec(resource, new JsonReader(resource.spec, "spec"), report));
  }
}

function convertSpec(resource: Resource, spec: JsonReader, report: ReportProblem): Policy {
  const namespace = resource.metadata.namespace;
  const { selector, ignored } = policySelector(
    {
      selector: spec.filled("selector"),
      namespaceSelector: spec.filled("namespaceSelector"),
      serviceAccountSelector: spec.filled("serviceAccountSelector"),
    },
    namespace,
  );
  const ingress = spec.objects("ingress");
  const egress = spec.objects("egress");
  const order = spec.number("order");
  const hints = spec.texts("performanceHints");
  for (const field of ignored) report(`${spec.at(field)} is not a selector: only Deny rules of the policy are used`);
  const rules = (of: readonly JsonReader[]) => {
    const converted = convertRules(of, namespace, report);
    // Without the ignored selectors the policy applies to more endpoints than intended. It must not allow their traffic.
    return ignored.length === 0 ? converted : converted.filter(({ action }) => action === "deny");
  };
  return {
    ...(namespace === undefined ? {} : { namespace }),
    tier: spec.filled("tier") ?? DEFAULT_TIER,
    ...(order === undefined ? {} : { order }),
    inboundRules: rules(ingress),
    outboundRules: rules(egress),
    selector: ParsedSelector.of(selector),
    ...(namespace === undefined ? hostEndpointFlags(spec) : {}),
    types: policyTypesIn(spec),
    ...(hints.length === 0 ? {} : { performanceHints: hints }),
  };
}

/** Only global policies have these fields, because they apply only to host endpoints. */
function hostEndpointFlags(spec: JsonReader): Partial<Policy> {
  return {
    ...(spec.flag("doNotTrack") === true ? { untracked: true } : {}),
    ...(spec.flag("preDNAT") === true ? { preDnat: true } : {}),
    ...(spec.flag("applyOnForward") === true ? { applyOnForward: true } : {}),
  };
}

function withStaging(resource: Resource, policy: Policy): Policy | undefined {
  if (policyKindOf(resource.kind)?.staged !== true) return policy;
  const action = new JsonReader(resource.spec, "spec").filled("stagedAction") ?? "Set";
  if (action === "Delete") return undefined;
  if (action !== "Set" && action !== "Learn" && action !== "Ignore")
    return new JsonReader(resource.spec, "spec").fail("stagedAction", "Set, Delete, Learn or Ignore");
  return { ...policy, stagedAction: action };
}

export const tierProcessor: UpdateProcessor = oneToOne(
  (key) => ({ type: "tier", name: key.name }),
  (resource) => readTier(resource, rejectUnreadable),
);

/** Emits the rules of a profile, its labels, and the resource itself. */
export const profileProcessor: UpdateProcessor = {
  reset: () => {},
  process: (update, report) => {
    const key = resourceKey(update.key, "Profile");
    const resource = resourceOf(update);
    const rules = convertOrReport<ProfileRules>(resource, convertProfileRules, report);
    // If the rules are invalid, the labels are not emitted either: with them, endpoints would match selectors of policies.
    const labels =
      rules === undefined
        ? undefined
        : convertOrReport<Labels>(resource, (r) => readProfileLabels(r, rejectUnreadable), report);
    return [
      { key: { type: "profileRules", name: key.name }, value: labels === undefined ? undefined : rules },
      { key: { type: "profileLabels", name: key.name }, value: labels },
      { key, value: convertOrReport(resource, checkProfile, report) },
    ] satisfies DerivedUpdate[];
  },
};

/** @throws WrongShape if the labels cannot be read */
function checkProfile(resource: Resource): Resource {
  readProfileLabels(resource, rejectUnreadable);
  return limitDepth(resource);
}

function convertProfileRules(resource: Resource, report: ReportProblem): ProfileRules {
  const spec = new JsonReader(resource.spec, "spec");
  return {
    inboundRules: convertRules(spec.objects("ingress"), undefined, report),
    outboundRules: convertRules(spec.objects("egress"), undefined, report),
  };
}
