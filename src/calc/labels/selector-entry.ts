// One selector in the index: compiled, and filed under the label that restricts it most.
import {
  compileSelector,
  labelRestrictions,
  type LabelRestrictions,
  type Matcher,
  parseSelector,
} from "../../model/index.ts";

/** To be extended by whoever hangs something on it. */
export class SelectorEntry {
  readonly matcher: Matcher;
  readonly restrictions: LabelRestrictions;
  readonly filing: Filing;
  // Stamps of the last walk in which the selector was looked at, matched, and had matched before.
  seen = 0;
  matched = 0;
  matchedBefore = 0;

  constructor(readonly text: string) {
    const selector = parseSelector(text);
    this.matcher = compileSelector(selector);
    this.restrictions = labelRestrictions(selector);
    this.filing = fileBy(this.restrictions);
  }
}

/** Where an item that could match will look. */
export type Filing =
  | { readonly kind: "nowhere" } // nothing can match
  | { readonly kind: "everywhere" }
  | { readonly kind: "name"; readonly label: string }
  | { readonly kind: "values"; readonly label: string; readonly values: readonly string[] };

function fileBy(restrictions: LabelRestrictions): Filing {
  let best: Filing = { kind: "everywhere" };
  for (const [label, { presence, values }] of restrictions) {
    if (presence === "absent") continue;
    if (values?.length === 0) return { kind: "nowhere" };
    if (values !== undefined) {
      if (best.kind !== "values" || values.length < best.values.length) best = { kind: "values", label, values };
    } else if (best.kind === "everywhere") best = { kind: "name", label };
  }
  return best;
}
