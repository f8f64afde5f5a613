// Defines the kind NetworkSet: addresses that rules can select by the labels of the set and of its namespace.
import { isSystemLabel } from "../labels.ts";
import { field, list, network, object } from "./fields.ts";
import { defineKind, type ResourceFor, type RuleContext } from "./kind.ts";

export const networkSetSpec = object({ nets: field(list(network())) });
export type NetworkSetResource = ResourceFor<"NetworkSet", typeof networkSetSpec>;

/** With a label that the system sets, the set would match rules that select another namespace or service account. */
function checkLabels(_spec: unknown, { metadata, mode, report }: RuleContext): void {
  if (mode === "stored") return; // readers remove these labels
  for (const [label, value] of Object.entries(metadata.labels ?? {}))
    if (isSystemLabel(label)) report(`metadata.labels.${label}`, value, "is reserved");
}

export default defineKind({
  kind: "NetworkSet",
  description: "Addresses that rules of this namespace's policies can select by labels.",
  spec: networkSetSpec,
  rules: checkLabels,
});
