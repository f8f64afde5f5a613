// What bears labels. Items with the same labels and the same profiles, such as the pods of one deployment, are one class:
// they match the same selectors, so labels, inheritance and matching are kept once per class.
import type { Labels } from "../inputs.ts";
import { Postings } from "./postings.ts";
import type { SelectorEntry } from "./selector-entry.ts";
import type { LabelPair } from "./table.ts";

export const NO_PAIRS: readonly LabelPair[] = [];

/** An endpoint or network set. To be extended by whoever hangs something on it. */
export class LabelItem {
  labelClass: LabelClass | undefined;
  /** Its place among the class's items. */
  place = 0;
}

export class LabelClass {
  readonly items: LabelItem[] = [];
  matches: SelectorEntry[] = [];
  stamp = 0;
  /** Its last item is gone; it may still lie in a bag. */
  isForgotten = false;

  /** @param key tells the class from all others */
  constructor(
    readonly key: string,
    readonly pairs: readonly LabelPair[],
    readonly parents: readonly LabelParent[],
  ) {}

  /** The effective value of a label: its own wins, then the first profile in the listed order that has it. */
  get(label: string): string | undefined {
    const own = valueIn(this.pairs, label);
    if (own !== undefined) return own;
    for (const parent of this.parents) {
      const inherited = valueIn(parent.pairs, label);
      if (inherited !== undefined) return inherited;
    }
    return undefined;
  }

  addItem(item: LabelItem): void {
    item.labelClass = this;
    item.place = this.items.length;
    this.items.push(item);
  }

  removeItem(item: LabelItem): void {
    const last = this.items.pop();
    if (last !== undefined && last !== item) {
      this.items[item.place] = last;
      last.place = item.place;
    }
    item.labelClass = undefined;
  }

  /** Whether it did match. */
  removeMatch(selector: SelectorEntry): boolean {
    const at = this.matches.indexOf(selector);
    if (at < 0) return false;
    const last = this.matches.pop();
    if (last !== undefined && last !== selector) this.matches[at] = last;
    return true;
  }
}

/** A profile by name. It exists while it has labels or somebody inherits from it. */
export class LabelParent {
  /** As given; undefined while the profile is unknown. */
  labels: Labels | undefined;
  /** Interned only while there are children. */
  pairs: readonly LabelPair[] = NO_PAIRS;
  readonly children = new Postings<LabelClass>();
  stamp = 0;

  constructor(
    readonly name: string,
    readonly id: number,
  ) {}
}

function valueIn(pairs: readonly LabelPair[], label: string): string | undefined {
  for (const pair of pairs) if (pair.name.text === label) return pair.value;
  return undefined;
}
