// Policies, tiers and profiles as calculations need them.
import { JsonReader } from "../../lib/json-reader.ts";
import { policySelector } from "../compose-selector.ts";
import type { Policy, ProfileRules, Tier, ValueOf } from "../derived.ts";
import type { PolicyKey, PolicyKind, ResourceKey } from "../keys.ts";
import { convertKubernetesPolicySpec } from "../kubernetes/network-policy.ts";
import { convertClusterNetworkPolicy } from "../kubernetes/cluster-network-policy.ts";
import { policyKindOf } from "../policy-key.ts";
import { DEFAULT_TIER } from "../policy-names.ts";
import type { Labels, Resource } from "../resource.ts";
import { convertRules } from "../rule-conversion.ts";
import { tryParseSelector, writeSelector } from "../selector.ts";
import type { ReportProblem } from "../value-error.ts";
import {
  convertOrReport,
  type DerivedUpdate,
  oneToOne,
  resourceKey,
  resourceOf,
  type UpdateProcessor,
} from "./processor.ts";
import { shapely } from "./shapes.ts";

const policyKey = (key: ResourceKey): PolicyKey => ({
  type: "policy",
  kind: key.kind as PolicyKind,
  namespace: key.namespace ?? "",
  name: key.name,
});

export const policyProcessor: UpdateProcessor = oneToOne(policyKey, convertPolicy);

/** Any kind of policy. A staged deletion converts to nothing. */
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
      // Without rules it is active in neither direction: no defaults here.
      const types = spec.types.map((type) => type.toLowerCase() as "ingress" | "egress");
      return { ...convertSpec(resource, new JsonReader(spec, "spec"), report), types };
    }
    default:
      return withStaging(resource, convertSpec(resource, new JsonReader(resource.spec, "spec"), report));
  }
}

function convertSpec(resource: Resource, spec: JsonReader, report: ReportProblem): Policy {
  const namespace = resource.metadata.namespace;
  const selector = policySelector(
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
  // Who else it is for cannot be known: what it allows must not be theirs, what it denies may.
  const isWide = selectsTooMuch(spec, namespace, report);
  const rules = (of: readonly JsonReader[]) => {
    const converted = convertRules(of, namespace, report);
    return isWide ? converted.filter(({ action }) => action === "deny") : converted;
  };
  return {
    ...(namespace === undefined ? {} : { namespace }),
    tier: spec.filled("tier") ?? DEFAULT_TIER,
    ...(order === undefined ? {} : { order }),
    inboundRules: rules(ingress),
    outboundRules: rules(egress),
    selector: writeSelector(selector),
    ...(namespace === undefined ? hostEndpointFlags(spec) : {}),
    types: policyTypes(spec, ingress.length > 0, egress.length > 0),
    ...(hints.length === 0 ? {} : { performanceHints: hints }),
  };
}

/** Only global policies have these fields: they concern host endpoints. */
function hostEndpointFlags(spec: JsonReader): Partial<Policy> {
  return {
    ...(spec.flag("doNotTrack") === true ? { untracked: true } : {}),
    ...(spec.flag("preDNAT") === true ? { preDnat: true } : {}),
    ...(spec.flag("applyOnForward") === true ? { applyOnForward: true } : {}),
  };
}

/** Whether a selector that narrows the policy's own does not parse: it was left out. */
function selectsTooMuch(spec: JsonReader, namespace: string | undefined, report: ReportProblem): boolean {
  const narrowing = ["serviceAccountSelector", ...(namespace === undefined ? ["namespaceSelector"] : [])];
  const lost = narrowing.filter((field) => {
    const text = spec.filled(field);
    return text !== undefined && tryParseSelector(text) === undefined;
  });
  for (const field of lost) report(`${spec.at(field)} is no selector: of the policy only what it denies is used`);
  return lost.length > 0;
}

/** Said, or what there are rules for; without rules, ingress. */
function policyTypes(spec: JsonReader, hasIngress: boolean, hasEgress: boolean): Policy["types"] {
  const said = spec.texts("types");
  if (said.length > 0) {
    return said.map((type) => {
      const lower = type.toLowerCase();
      return lower === "ingress" || lower === "egress" ? lower : spec.fail("types", "Ingress or Egress");
    });
  }
  if (!hasEgress) return ["ingress"];
  return hasIngress ? ["ingress", "egress"] : ["egress"];
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
  (resource): Tier => {
    const spec = new JsonReader(resource.spec, "spec");
    const order = spec.number("order");
    return {
      ...(order === undefined ? {} : { order }),
      defaultAction: spec.text("defaultAction") === "Pass" ? "Pass" : "Deny",
    };
  },
);

/** A profile's rules, its labels, and the resource itself. */
export const profileProcessor: UpdateProcessor = {
  restart: () => {},
  process: (update, report) => {
    const key = resourceKey(update.key, "Profile");
    const resource = resourceOf(update);
    const rules = convertOrReport<ProfileRules>(resource, convertProfileRules, report);
    // A profile whose rules make no sense is no profile: its labels would let its endpoints into selectors.
    const labels =
      rules === undefined
        ? undefined
        : convertOrReport<Labels>(resource, (r) => new JsonReader(r.spec, "spec").map("labelsToApply") ?? {}, report);
    return [
      { key: { type: "profileRules", name: key.name }, value: labels === undefined ? undefined : rules },
      { key: { type: "profileLabels", name: key.name }, value: labels },
      {
        key,
        value: convertOrReport(resource, (profile) => shapely("Profile", profile), report) as ValueOf<ResourceKey>,
      },
    ] satisfies DerivedUpdate[];
  },
};

function convertProfileRules(resource: Resource, report: ReportProblem): ProfileRules {
  const spec = new JsonReader(resource.spec, "spec");
  return {
    inboundRules: convertRules(spec.objects("ingress"), undefined, report),
    outboundRules: convertRules(spec.objects("egress"), undefined, report),
  };
}
