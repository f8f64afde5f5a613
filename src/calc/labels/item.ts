// Defines the labelled items of the index. Items with the same labels and profiles, such as the pods of one deployment,
// form a class. They match the same selectors, so labels, inherited labels and matches are stored once per class.
import type { Labels } from "../inputs.ts";
import { PostingList } from "./posting-list.ts";
import type { SelectorEntry } from "./selector-entry.ts";
import { SelectorList } from "./selector-list.ts";
import type { LabelPair } from "./table.ts";

const NO_PAIRS: readonly LabelPair[] = [];
/** Lists of at least this length are indexed by name: a selector may refer to as many labels as an object has. */
const INDEXED_PAIRS = 32;

/** An endpoint or network set. Users of the index extend this class with their own data. */
export class LabelItem {
  labelClass: LabelClass | undefined;
  /** Index in the class's `items`. */
  position = 0;
}

export class LabelClass {
  readonly items: LabelItem[] = [];
  matches = new SelectorList();
  stamp = 0;
  /** The class has no items left. Posting lists may still contain it. */
  isRemoved = false;
  readonly #values: LabelValues;

  /** @param key unique for the pairs and parents */
  constructor(
    readonly key: string,
    readonly pairs: readonly LabelPair[],
    readonly parents: readonly LabelParent[],
  ) {
    this.#values = valuesOf(pairs);
  }

  /** Returns the effective value of a label: the item's own value, otherwise that of the first profile that has it. */
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
    item.position = this.items.length;
    this.items.push(item);
  }

  removeItem(item: LabelItem): void {
    const last = this.items.pop();
    if (last !== undefined && last !== item) {
      this.items[item.position] = last;
      last.position = item.position;
    }
    item.labelClass = undefined;
  }
}

/** A profile. It stays in the index while it has labels or a class inherits from it. */
export class LabelParent {
  /** Undefined while the profile does not exist. */
  labels: Labels | undefined;
  /** Empty while no class inherits from the profile. */
  #pairs: ReadonlySet<LabelPair> = new Set();
  #values: LabelValues = NO_PAIRS;
  readonly children = new PostingList<LabelClass>();
  stamp = 0;
  /** Cached selectors that are indexed under one of its labels, as of `selectorsVersion`. */
  selectors: readonly SelectorEntry[] = [];
  selectorsVersion = -1;

  constructor(
    readonly name: string,
    readonly id: number,
  ) {}

  get pairs(): ReadonlySet<LabelPair> {
    return this.#pairs;
  }
  set pairs(pairs: ReadonlySet<LabelPair>) {
    this.#pairs = pairs;
    this.selectorsVersion = -1;
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
