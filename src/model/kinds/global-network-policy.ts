// Defines the kind GlobalNetworkPolicy: rules for workloads of all namespaces and for host endpoints.
import { object } from "./fields.ts";
import { defineKind, type ResourceFor } from "./kind.ts";
import { checkGlobalPolicy, defaultTypes, globalPolicyFields, globalPolicyName } from "./policy.ts";

const spec = object(globalPolicyFields);
export type GlobalNetworkPolicyResource = ResourceFor<"GlobalNetworkPolicy", typeof spec>;

export default defineKind({
  kind: "GlobalNetworkPolicy",
  description: "Rules for the traffic of workloads in any namespace and of host endpoints.",
  spec,
  nameRule: globalPolicyName,
  prepare: defaultTypes,
  rules: checkGlobalPolicy,
  printerColumns: [
    { name: "Tier", type: "string", jsonPath: ".spec.tier" },
    { name: "Order", type: "number", jsonPath: ".spec.order" },
    { name: "Age", type: "date", jsonPath: ".metadata.creationTimestamp" },
  ],
});
