// Defines an entry for one selector in the index, under the label that restricts it most.
import { labelRestrictions, type LabelRestrictions, type ParsedSelector } from "../../model/index.ts";

/** Users of the index extend this class with their own data. */
export class SelectorEntry {
  readonly restrictions: LabelRestrictions;
  readonly indexKey: IndexKey;
  // Stamps of the last traversal in which the selector was evaluated, matched, and had matched before.
  seen = 0;
  matched = 0;
  matchedBefore = 0;

  constructor(readonly selector: ParsedSelector) {
    this.restrictions = labelRestrictions(selector.tree);
    this.indexKey = chooseIndexKey(this.restrictions);
  }
}

/** Determines where the index searches for the selector when an item changes. */
export type IndexKey =
  | { readonly kind: "none" } // no item can match
  | { readonly kind: "all" } // every item can match
  | { readonly kind: "name"; readonly label: string }
  | { readonly kind: "values"; readonly label: string; readonly values: readonly string[] };

function chooseIndexKey(restrictions: LabelRestrictions): IndexKey {
  let best: IndexKey = { kind: "all" };
  for (const [label, { presence, values }] of restrictions) {
    if (presence === "absent") continue;
    if (values?.length === 0) return { kind: "none" };
    if (values !== undefined) {
      if (best.kind !== "values" || values.length < best.values.length) best = { kind: "values", label, values };
    } else if (best.kind === "all") best = { kind: "name", label };
  }
  return best;
}
