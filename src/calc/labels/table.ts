// Stores each label name and each name-value pair once. The labels of an endpoint are then a short array of references,
// and each pair holds the lists of classes, profiles and selectors that are searched by label.
import type { Labels } from "../inputs.ts";
import type { LabelClass, LabelParent } from "./item.ts";
import { PostingList } from "./posting-list.ts";
import { SelectorList } from "./selector-list.ts";

export class LabelName {
  readonly pairs = new Map<string, LabelPair>();
  /** Selectors that require the label with any value. */
  selectors: SelectorList | undefined;

  constructor(readonly text: string) {}
}

export class LabelPair {
  classes: PostingList<LabelClass> | undefined;
  parents: PostingList<LabelParent> | undefined;
  /** Selectors that require this value. */
  selectors: SelectorList | undefined;

  constructor(
    readonly name: LabelName,
    readonly value: string,
    readonly id: number,
  ) {}

  get isUnused(): boolean {
    return (
      (this.classes === undefined || this.classes.liveCount === 0) &&
      (this.parents === undefined || this.parents.liveCount === 0) &&
      (this.selectors === undefined || this.selectors.size === 0)
    );
  }
}

export class LabelTable {
  readonly #names = new Map<string, LabelName>();
  readonly #ids = new IdPool();
  #stamp = 0;

  /** Returns a number that no earlier traversal of the index used. */
  readonly newStamp = (): number => ++this.#stamp;

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
    if (pair === undefined) name.pairs.set(value, (pair = new LabelPair(name, value, this.#ids.allocate())));
    return pair;
  }

  /**
   * Returns the pairs of a label map, in the same order for equal maps.
   * @param pairs array for the result; it is cleared first
   */
  intern(labels: Labels, pairs: LabelPair[] = []): LabelPair[] {
    pairs.length = 0;
    for (const name in labels) pairs.push(this.pair(name, labels[name] ?? ""));
    if (pairs.length > MAX_INSERTION_SORT_LENGTH) return pairs.sort((a, b) => a.id - b.id);
    for (let i = 1; i < pairs.length; i++) insertSorted(pairs, i);
    return pairs;
  }

  addClass(pair: LabelPair, labelClass: LabelClass): void {
    pair.classes ??= new PostingList();
    pair.classes.add(labelClass, isAlive, this.newStamp);
  }

  /** Must be called when a class with this pair was removed. */
  removeClass(pair: LabelPair): void {
    pair.classes?.remove(isAlive, this.newStamp);
    this.release(pair);
  }

  addParent(pair: LabelPair, parent: LabelParent): void {
    pair.parents ??= new PostingList();
    pair.parents.add(parent, (other) => other.pairs.has(pair), this.newStamp);
  }

  removeParent(pair: LabelPair): void {
    pair.parents?.remove((other) => other.pairs.has(pair), this.newStamp);
    this.release(pair);
  }

  /** Deletes the pair if it is unused. */
  release(pair: LabelPair): void {
    if (!pair.isUnused || !pair.name.pairs.delete(pair.value)) return;
    this.#ids.release(pair.id);
    this.releaseName(pair.name);
  }

  releaseName(name: LabelName): void {
    if (name.pairs.size === 0 && (name.selectors === undefined || name.selectors.size === 0))
      this.#names.delete(name.text);
  }
}

/** The labels of a class never change, so its list entries are valid until the class is removed. */
export const isAlive = (labelClass: LabelClass): boolean => !labelClass.isRemoved;

/** Allocates small numbers. Released numbers are reused, so that the numbers stay small while the agent runs. */
export class IdPool {
  readonly #free: number[] = [];
  #next = 0;

  allocate(): number {
    return this.#free.pop() ?? this.#next++;
  }
  release(id: number): void {
    this.#free.push(id);
  }
}

/** Longer lists use `Array.sort`, because insertion sort takes quadratic time. */
const MAX_INSERTION_SORT_LENGTH = 32;

/** One step of insertion sort, which is fast for label maps: nearly all are short and almost sorted. */
function insertSorted(pairs: LabelPair[], from: number): void {
  const moving = pairs[from];
  if (moving === undefined) return;
  let position = from;
  for (let before = pairs[position - 1]; before !== undefined && before.id > moving.id; before = pairs[position - 1]) {
    pairs[position] = before;
    position--;
  }
  pairs[position] = moving;
}
