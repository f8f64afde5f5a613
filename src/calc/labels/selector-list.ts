// A list of selectors without duplicates, in no fixed order. Most lists are short; in a long one the positions are indexed,
// because the owner of one policy decides how many selectors a list has: removing them one by one must not be quadratic.
import type { SelectorEntry } from "./selector-entry.ts";

/** Shorter lists are searched. */
const INDEXED = 32;

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
    if (this.#list.length === INDEXED) this.#positions = new Map(this.#list.map((each, i) => [each, i]));
  }

  has(selector: SelectorEntry): boolean {
    return this.#positions?.has(selector) ?? this.#list.includes(selector);
  }

  /** @returns whether it was in the list */
  delete(selector: SelectorEntry): boolean {
    const at = this.#positions === undefined ? this.#list.indexOf(selector) : (this.#positions.get(selector) ?? -1);
    if (at < 0) return false;
    const last = this.#list.pop();
    if (last !== undefined && last !== selector) {
      this.#list[at] = last;
      this.#positions?.set(last, at);
    }
    this.#positions?.delete(selector);
    if (this.#list.length < INDEXED) this.#positions = undefined;
    return true;
  }

  [Symbol.iterator](): Iterator<SelectorEntry> {
    return this.#list[Symbol.iterator]();
  }
}
