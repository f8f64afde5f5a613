// GlobalNetworkSet: addresses outside the cluster under labels, for all policies.
import { defineKind, type ResourceFor } from "./kind.ts";
import { checkNetworkSet, networkSetSpec } from "./network-set.ts";

export type GlobalNetworkSetResource = ResourceFor<"GlobalNetworkSet", typeof networkSetSpec>;

export default defineKind({
  kind: "GlobalNetworkSet",
  description: "Addresses that rules of all policies can select by labels.",
  spec: networkSetSpec,
  rules: checkNetworkSet,
  printerColumns: [{ name: "Age", type: "date", jsonPath: ".metadata.creationTimestamp" }],
});
