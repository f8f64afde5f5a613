// Defines the kind NetworkPolicy: rules for the workloads of one namespace.
import { object } from "./fields.ts";
import { defineKind, type ResourceFor } from "./kind.ts";
import { checkPolicy, defaultTypes, namespacedPolicyName, policyFields } from "./policy.ts";

const spec = object(policyFields);
export type NetworkPolicyResource = ResourceFor<"NetworkPolicy", typeof spec>;

export default defineKind({
  kind: "NetworkPolicy",
  description: "Rules for the traffic of the workloads of one namespace.",
  spec,
  nameRule: namespacedPolicyName,
  prepare: defaultTypes,
  rules: checkPolicy,
  printerColumns: [
    { name: "Tier", type: "string", jsonPath: ".spec.tier" },
    { name: "Order", type: "number", jsonPath: ".spec.order" },
  ],
});
