// Labels seen so far, each name and each name-value pair once: an endpoint's labels become a short array of pointers,
// and what must be found by label (classes of endpoints, profiles, selectors) hangs on the pair itself.
import type { Labels } from "../inputs.ts";
import type { LabelClass, LabelParent } from "./item.ts";
import { Postings } from "./postings.ts";
import { SelectorList } from "./selector-list.ts";

export class LabelName {
  readonly pairs = new Map<string, LabelPair>();
  /** Selectors that want the label with whatever value. */
  selectors: SelectorList | undefined;

  constructor(readonly text: string) {}
}

export class LabelPair {
  classes: Postings<LabelClass> | undefined;
  parents: Postings<LabelParent> | undefined;
  /** Selectors that want just this value. */
  selectors: SelectorList | undefined;

  constructor(
    readonly name: LabelName,
    readonly value: string,
    readonly id: number,
  ) {}

  get isUnused(): boolean {
    return (
      (this.classes === undefined || this.classes.live === 0) &&
      (this.parents === undefined || this.parents.live === 0) &&
      (this.selectors === undefined || this.selectors.size === 0)
    );
  }
}

export class LabelTable {
  readonly #names = new Map<string, LabelName>();
  readonly #ids = new IdPool();
  #walk = 0;

  /** A number no earlier walk over the index had. */
  readonly newWalk = (): number => ++this.#walk;

  findName(name: string): LabelName | undefined {
    return this.#names.get(name);
  }

  name(text: string): LabelName {
    let name = this.#names.get(text);
    if (name === undefined) this.#names.set(text, (name = new LabelName(text)));
    return name;
  }

  pair(nameText: string, value: string): LabelPair {
    const name = this.name(nameText);
    let pair = name.pairs.get(value);
    if (pair === undefined) name.pairs.set(value, (pair = new LabelPair(name, value, this.#ids.take())));
    return pair;
  }

  /** The pairs of a label map, in one order for equal maps. @param pairs where to put them: it may be used again */
  intern(labels: Labels, pairs: LabelPair[] = []): LabelPair[] {
    pairs.length = 0;
    for (const name in labels) pairs.push(this.pair(name, labels[name] ?? ""));
    if (pairs.length > SHORT) return pairs.sort((a, b) => a.id - b.id);
    for (let i = 1; i < pairs.length; i++) sink(pairs, i);
    return pairs;
  }

  postClass(pair: LabelPair, labelClass: LabelClass): void {
    pair.classes ??= new Postings();
    pair.classes.add(labelClass, isAlive, this.newWalk);
  }

  /** A class that has it has no item any more. */
  withdrawClass(pair: LabelPair): void {
    pair.classes?.remove(isAlive, this.newWalk);
    this.release(pair);
  }

  postParent(pair: LabelPair, parent: LabelParent): void {
    pair.parents ??= new Postings();
    pair.parents.add(parent, (other) => other.pairs.has(pair), this.newWalk);
  }

  withdrawParent(pair: LabelPair): void {
    pair.parents?.remove((other) => other.pairs.has(pair), this.newWalk);
    this.release(pair);
  }

  /** Forgets a pair that is no longer in use. */
  release(pair: LabelPair): void {
    if (!pair.isUnused || !pair.name.pairs.delete(pair.value)) return;
    this.#ids.giveBack(pair.id);
    this.releaseName(pair.name);
  }

  releaseName(name: LabelName): void {
    if (name.pairs.size === 0 && (name.selectors === undefined || name.selectors.size === 0))
      this.#names.delete(name.text);
  }
}

/** A class never changes its labels: it belongs until it is forgotten. */
export const isAlive = (labelClass: LabelClass): boolean => !labelClass.isForgotten;

/** Small numbers, used again once given back, so that they stay small however long the agent runs. */
export class IdPool {
  readonly #free: number[] = [];
  #next = 0;

  take(): number {
    return this.#free.pop() ?? this.#next++;
  }
  giveBack(id: number): void {
    this.#free.push(id);
  }
}

/** Longer lists are not sorted by insertion, which is quadratic. */
const SHORT = 32;

/** One step of insertion sort: nearly all label maps are short and mostly in order. */
function sink(pairs: LabelPair[], from: number): void {
  const moving = pairs[from];
  if (moving === undefined) return;
  let at = from;
  for (let before = pairs[at - 1]; before !== undefined && before.id > moving.id; before = pairs[at - 1]) {
    pairs[at] = before;
    at--;
  }
  pairs[at] = moving;
}
