// The IP set of each selector text. Many rules say the same: parsing, printing and hashing is done once.
import { parseSelector } from "../../model/index.ts";
import { type IpSetSpec, selectorSet } from "../ipsets/ip-set.ts";

/** Cached texts; beyond that the cache is emptied. A policy's rules are converted one after the other, so few suffice. */
const LIMIT = 1000;

export class SelectorSets {
  readonly #byText = new Map<string, IpSetSpec>();

  get(text: string): IpSetSpec {
    const known = this.#byText.get(text);
    if (known !== undefined) return known;
    const set = selectorSet(parseSelector(text));
    if (this.#byText.size >= LIMIT) this.#byText.clear();
    this.#byText.set(text, set);
    return set;
  }

  /** The canonical text of a selector. */
  canonical(text: string): string {
    const { content } = this.get(text);
    return content.kind === "selector" ? content.selector : text;
  }
}
