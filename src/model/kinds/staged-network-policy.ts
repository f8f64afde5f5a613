// Defines the kind StagedNetworkPolicy: a NetworkPolicy whose verdicts are reported but not enforced.
import { object } from "./fields.ts";
import { defineKind, type ResourceFor } from "./kind.ts";
import {
  checkPolicy,
  checkStagedDelete,
  defaultStagedTypes,
  namespacedPolicyName,
  policyFields,
  stagedAction,
} from "./policy.ts";

const spec = object({ stagedAction: stagedAction(), ...policyFields });
export type StagedNetworkPolicyResource = ResourceFor<"StagedNetworkPolicy", typeof spec>;

export default defineKind({
  kind: "StagedNetworkPolicy",
  description: "A NetworkPolicy whose verdicts are reported, but not enforced.",
  spec,
  nameRule: namespacedPolicyName,
  prepare: defaultStagedTypes,
  rules: (staged, context) =>
    staged.stagedAction === "Delete" ? checkStagedDelete(staged, context) : checkPolicy(staged, context),
  printerColumns: [
    { name: "Tier", type: "string", jsonPath: ".spec.tier" },
    { name: "Order", type: "number", jsonPath: ".spec.order" },
  ],
});
