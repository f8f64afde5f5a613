// A list of selectors without duplicates and without order. Most lists are short. The positions of a long list are indexed,
// because the author of one policy decides how long a list is, and removing all selectors must not take quadratic time.
import type { SelectorEntry } from "./selector-entry.ts";

/** Shorter lists are searched linearly. */
const MIN_INDEXED_LENGTH = 32;

export class SelectorList implements Iterable<SelectorEntry> {
  #list: SelectorEntry[] = [];
  #positions: Map<SelectorEntry, number> | undefined;

  get size(): number {
    return this.#list.length;
  }

  /** @param selector not in the list yet */
  add(selector: SelectorEntry): void {
    this.#positions?.set(selector, this.#list.length);
    this.#list.push(selector);
    if (this.#list.length === MIN_INDEXED_LENGTH) this.#positions = new Map(this.#list.map((each, i) => [each, i]));
  }

  has(selector: SelectorEntry): boolean {
    return this.#positions?.has(selector) ?? this.#list.includes(selector);
  }

  /** @returns true if the selector was in the list */
  delete(selector: SelectorEntry): boolean {
    const position =
      this.#positions === undefined ? this.#list.indexOf(selector) : (this.#positions.get(selector) ?? -1);
    if (position < 0) return false;
    const last = this.#list.pop();
    if (last !== undefined && last !== selector) {
      this.#list[position] = last;
      this.#positions?.set(last, position);
    }
    this.#positions?.delete(selector);
    if (this.#list.length < MIN_INDEXED_LENGTH) this.#positions = undefined;
    return true;
  }

  [Symbol.iterator](): Iterator<SelectorEntry> {
    return this.#list[Symbol.iterator]();
  }
}
