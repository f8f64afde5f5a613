// Defines the kind Tier: an ordered group of policies, and the action for traffic that no rule of them matches.
import { BUILT_IN_TIERS, isBuiltInTier } from "../built-in-tiers.ts";
import { isDnsLabel } from "../validation/formats.ts";
import { choice, condition, field, initial, list, number, object, unserved } from "./fields.ts";
import { defineKind, type ResourceFor } from "./kind.ts";

const spec = object({
  order: unserved(initial(number(), 1_000_000)),
  defaultAction: initial(choice("Deny", "Pass"), "Deny"),
});
const status = object({ conditions: field(list(condition())) });
export type TierResource = ResourceFor<"Tier", typeof spec, typeof status>;

export default defineKind({
  kind: "Tier",
  description: "An ordered group of policies and its default action.",
  spec,
  status,
  initialStatus: {},
  nameRule: (name) => (isDnsLabel(name) ? undefined : "want at most 63 of a-z, 0-9 and -, without dots"),
  rules: (tier, { metadata, report }) => {
    if (!isBuiltInTier(metadata.name)) return;
    const fixed = BUILT_IN_TIERS[metadata.name];
    for (const name of ["order", "defaultAction"] as const)
      if (tier[name] !== fixed[name])
        report([name], tier[name], `want ${fixed[name]} in the built-in tier ${metadata.name}`);
  },
  printerColumns: [
    { name: "Order", type: "integer", jsonPath: ".spec.order" },
    { name: "DefaultAction", type: "string", jsonPath: ".spec.defaultAction" },
    { name: "Status", type: "string", jsonPath: ".status.conditions[?(@.type=='Ready')].reason" },
  ],
});
