// Defines the common parts of the policy kinds: fields, rules across fields, the default of `types`, and names.
import { isDashed, isSubdomain } from "../validation/formats.ts";
import { DEFAULT_TIER } from "../keys/policy-names.ts";
import { choice, distinct, field, flag, list, number, pointer, preset, selector, text } from "./fields.ts";
import { isObject } from "./decode.ts";
import type { RuleContext } from "./kind.ts";
import { checkRule, type PolicyRule, policyRule } from "./policy-rule.ts";

export const policyFields = {
  tier: preset(text(), DEFAULT_TIER),
  order: pointer(number()),
  ingress: field(list(policyRule, 1024)),
  egress: field(list(policyRule, 1024)),
  selector: field(selector(1024)),
  types: field(distinct(choice("Ingress", "Egress"))),
  serviceAccountSelector: field(selector(1024)),
  performanceHints: field(distinct(choice("AssumeNeededOnEveryNode"))),
};
export const globalPolicyFields = {
  ...policyFields,
  doNotTrack: field(flag()),
  preDNAT: field(flag()),
  applyOnForward: field(flag()),
  namespaceSelector: field(selector(1024)),
};
export const stagedAction = () => preset(choice("Set", "Delete", "Learn", "Ignore"), "Set");

/** Without `types`, a policy applies to the directions for which it has rules; without rules, to ingress. */
export function defaultTypes(spec: Record<string, unknown>): void {
  if (spec["types"] !== undefined) return;
  const has = (direction: string) => Array.isArray(spec[direction]) && spec[direction].length > 0;
  if (!has("egress")) spec["types"] = ["Ingress"];
  else spec["types"] = has("ingress") ? ["Ingress", "Egress"] : ["Egress"];
}

interface PolicySpec {
  readonly tier?: string;
  readonly ingress?: readonly PolicyRule[];
  readonly egress?: readonly PolicyRule[];
  readonly selector?: string;
  readonly serviceAccountSelector?: string;
  readonly types?: readonly string[];
}
interface GlobalPolicySpec extends PolicySpec {
  readonly namespaceSelector?: string;
  readonly doNotTrack?: boolean;
  readonly preDNAT?: boolean;
  readonly applyOnForward?: boolean;
}

export function checkPolicy(
  spec: PolicySpec,
  { report }: RuleContext,
  home: "namespaced" | "global" = "namespaced",
): void {
  if (spec.tier !== undefined && !isSubdomain(spec.tier)) report(["tier"], spec.tier, "want the name of a tier");
  for (const name of ["selector", "serviceAccountSelector"] as const)
    if (spec[name]?.includes("global("))
      report([name], spec[name], "global() is possible only in the namespaceSelector of a rule");
  for (const direction of ["ingress", "egress"] as const)
    for (const [i, rule] of (spec[direction] ?? []).entries()) checkRule(rule, direction, home, [direction, i], report);
}

export function checkGlobalPolicy(spec: GlobalPolicySpec, context: RuleContext): void {
  checkPolicy(spec, context, "global");
  const { report } = context;
  if (spec.namespaceSelector?.includes("global("))
    report(
      ["namespaceSelector"],
      spec.namespaceSelector,
      "global() is possible only in the namespaceSelector of a rule",
    );
  if (spec.preDNAT && spec.doNotTrack) report(["preDNAT"], true, "cannot be combined with doNotTrack");
  if ((spec.preDNAT || spec.doNotTrack) && !spec.applyOnForward)
    report(["applyOnForward"], false, "must be true with preDNAT or doNotTrack");
  if (spec.preDNAT && spec.egress !== undefined)
    report(["egress"], undefined, "a preDNAT policy cannot have egress rules");
  if (spec.preDNAT && spec.types?.includes("Egress"))
    report(["types"], spec.types, "a preDNAT policy cannot have the type Egress");
}

/** A staged deletion may contain no fields other than stagedAction and tier. */
export function checkStagedDelete(spec: Readonly<Record<string, unknown>>, { report }: RuleContext): void {
  for (const [name, value] of Object.entries(spec))
    if (name !== "stagedAction" && name !== "tier")
      report(
        [name],
        isObject(value) ? undefined : value,
        "cannot be combined with stagedAction Delete, which allows only tier",
      );
}

/** A staged deletion has no types. They are removed, because they may be the defaults of the original policy. */
export function defaultStagedTypes(spec: Record<string, unknown>): void {
  if (spec["stagedAction"] !== "Delete") defaultTypes(spec);
  else delete spec["types"];
}

const WANTED_NAME = "want a-z, 0-9 and -, with at most one dot";
const isPolicyName = (name: string): boolean => {
  const [head = "", tail, ...more] = name.split(".");
  return more.length === 0 && isDashed(head) && (tail === undefined || isDashed(tail));
};

export const globalPolicyName = (name: string): string | undefined => (isPolicyName(name) ? undefined : WANTED_NAME);
/** Policies that were converted from Kubernetes or OpenStack have a prefix. */
export const namespacedPolicyName = (name: string): string | undefined =>
  isPolicyName(name) || /^(knp|ossg)\.default\../.test(name) ? undefined : WANTED_NAME;
