// NetworkSet: addresses outside the cluster under labels, for the rules of one namespace.
import { field, list, network, object } from "./fields.ts";
import { defineKind, type ResourceFor, type RuleContext } from "./kind.ts";

export const networkSetSpec = object({ nets: field(list(network())) });
export type NetworkSetResource = ResourceFor<"NetworkSet", typeof networkSetSpec>;

/** The namespace label is ours: a set that carried it could pass for a workload's namespace. */
export function checkNetworkSet(_spec: unknown, { metadata, report }: RuleContext): void {
  const label = "projectcalico.org/namespace";
  if (metadata.labels?.[label] !== undefined) report(`metadata.labels.${label}`, metadata.labels[label], "is reserved");
}

export default defineKind({
  kind: "NetworkSet",
  description: "Addresses that rules of this namespace's policies can select by labels.",
  spec: networkSetSpec,
  rules: checkNetworkSet,
});
