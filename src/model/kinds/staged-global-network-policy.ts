// Defines the kind StagedGlobalNetworkPolicy: a GlobalNetworkPolicy whose verdicts are reported but not enforced.
import { object } from "./fields.ts";
import { defineKind, type ResourceFor } from "./kind.ts";
import {
  checkGlobalPolicy,
  checkStagedDelete,
  defaultStagedTypes,
  globalPolicyFields,
  globalPolicyName,
  stagedAction,
} from "./policy.ts";

const spec = object({ stagedAction: stagedAction(), ...globalPolicyFields });
export type StagedGlobalNetworkPolicyResource = ResourceFor<"StagedGlobalNetworkPolicy", typeof spec>;

export default defineKind({
  kind: "StagedGlobalNetworkPolicy",
  description: "A GlobalNetworkPolicy whose verdicts are reported, but not enforced.",
  spec,
  nameRule: globalPolicyName,
  prepare: defaultStagedTypes,
  rules: (staged, context) =>
    staged.stagedAction === "Delete" ? checkStagedDelete(staged, context) : checkGlobalPolicy(staged, context),
  printerColumns: [
    { name: "Tier", type: "string", jsonPath: ".spec.tier" },
    { name: "Order", type: "number", jsonPath: ".spec.order" },
  ],
});
