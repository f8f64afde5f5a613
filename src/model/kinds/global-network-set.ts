// Defines the kind GlobalNetworkSet: addresses that rules of all policies can select by labels.
import { NAMESPACE_LABEL } from "../labels.ts";
import { defineKind, type ResourceFor } from "./kind.ts";
import { networkSetSpec } from "./network-set.ts";

export type GlobalNetworkSetResource = ResourceFor<"GlobalNetworkSet", typeof networkSetSpec>;

export default defineKind({
  kind: "GlobalNetworkSet",
  description: "Addresses that rules of all policies can select by labels.",
  spec: networkSetSpec,
  rules: (_spec, { metadata, report }) => {
    const value = metadata.labels?.[NAMESPACE_LABEL];
    if (value !== undefined) report(`metadata.labels.${NAMESPACE_LABEL}`, value, "is reserved");
  },
  printerColumns: [{ name: "Age", type: "date", jsonPath: ".metadata.creationTimestamp" }],
});
