// Defines the kind Profile: labels that endpoints inherit, and rules that apply if no policy applies.
import { field, labels, list, object } from "./fields.ts";
import { defineKind, type ResourceFor } from "./kind.ts";
import { checkRule, policyRule } from "./policy-rule.ts";

const spec = object({
  ingress: field(list(policyRule)),
  egress: field(list(policyRule)),
  labelsToApply: field(labels()),
});
export type ProfileResource = ResourceFor<"Profile", typeof spec>;

export default defineKind({
  kind: "Profile",
  description: "Rules and labels for the endpoints that refer to this profile.",
  spec,
  rules: (profile, { report }) => {
    for (const direction of ["ingress", "egress"] as const)
      for (const [i, rule] of (profile[direction] ?? []).entries())
        checkRule(rule, direction, "profile", [direction, i], report);
  },
});
