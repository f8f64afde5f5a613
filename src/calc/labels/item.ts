// What bears labels. Items with the same labels and the same profiles, such as the pods of one deployment, are one class:
// they match the same selectors, so labels, inheritance and matching are kept once per class.
import type { Labels } from "../inputs.ts";
import { Postings } from "./postings.ts";
import { SelectorList } from "./selector-list.ts";
import type { LabelPair } from "./table.ts";

const NO_PAIRS: readonly LabelPair[] = [];
/** Longer lists of pairs get an index by name: a selector may ask for as many labels as an object has. */
const INDEXED_PAIRS = 32;

/** An endpoint or network set. To be extended by whoever hangs something on it. */
export class LabelItem {
  labelClass: LabelClass | undefined;
  /** Its place among the class's items. */
  place = 0;
}

export class LabelClass {
  readonly items: LabelItem[] = [];
  matches = new SelectorList();
  stamp = 0;
  /** Its last item is gone; it may still lie in a bag. */
  isForgotten = false;
  readonly #values: LabelValues;

  /** @param key tells the class from all others */
  constructor(
    readonly key: string,
    readonly pairs: readonly LabelPair[],
    readonly parents: readonly LabelParent[],
  ) {
    this.#values = valuesOf(pairs);
  }

  /** The effective value of a label: its own wins, then the first profile in the listed order that has it. */
  get(label: string): string | undefined {
    const own = valueIn(this.#values, label);
    if (own !== undefined) return own;
    for (const parent of this.parents) {
      const inherited = valueIn(parent.values, label);
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
}

/** A profile by name. It exists while it has labels or somebody inherits from it. */
export class LabelParent {
  /** As given; undefined while the profile is unknown. */
  labels: Labels | undefined;
  /** Interned only while there are children. */
  #pairs: ReadonlySet<LabelPair> = new Set();
  #values: LabelValues = NO_PAIRS;
  readonly children = new Postings<LabelClass>();
  stamp = 0;

  constructor(
    readonly name: string,
    readonly id: number,
  ) {}

  get pairs(): ReadonlySet<LabelPair> {
    return this.#pairs;
  }
  set pairs(pairs: ReadonlySet<LabelPair>) {
    this.#pairs = pairs;
    this.#values = valuesOf([...pairs]);
  }
  get values(): LabelValues {
    return this.#values;
  }
}

type LabelValues = readonly LabelPair[] | ReadonlyMap<string, string>;

function valuesOf(pairs: readonly LabelPair[]): LabelValues {
  if (pairs.length < INDEXED_PAIRS) return pairs;
  return new Map(pairs.map(({ name, value }) => [name.text, value]));
}

function valueIn(values: LabelValues, label: string): string | undefined {
  if ("get" in values) return values.get(label);
  for (const pair of values) if (pair.name.text === label) return pair.value;
  return undefined;
}
