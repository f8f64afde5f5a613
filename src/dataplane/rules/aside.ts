// What the kernel refused and stand-ins are written for: rules by their place, and sets with every rule that names them.
import { namesSet, type Rule, type SetId } from "./rule.ts";

/** The place of a rule of the tree: in a chain, by the kernel's name of that, counted over all of `chainRules`. */
export interface RuleAt {
  readonly chain: string;
  readonly index: number;
}

export class Aside {
  readonly #rules = new Map<string, Set<number>>();
  readonly #sets = new Set<SetId>();

  get isEmpty(): boolean {
    return this.#rules.size === 0 && this.#sets.size === 0;
  }

  /** Whether a stand-in is wanted for the rule at this place. */
  has(chain: string, index: number, rule: Rule): boolean {
    if (this.#rules.get(chain)?.has(index) === true) return true;
    for (const set of this.#sets) if (rule.match?.some((m) => namesSet(m, set)) === true) return true;
    return false;
  }

  /** False when it was there already. */
  add({ chain, index }: RuleAt): boolean {
    let indexes = this.#rules.get(chain);
    if (indexes === undefined) this.#rules.set(chain, (indexes = new Set()));
    if (indexes.has(index)) return false;
    indexes.add(index);
    return true;
  }

  addSet(set: SetId): void {
    this.#sets.add(set);
  }

  /** The chain is another now. */
  forget(chain: string): void {
    this.#rules.delete(chain);
  }

  /** All rules that are here for themselves, not for a set. */
  rules(): RuleAt[] {
    return [...this.#rules].flatMap(([chain, indexes]) => [...indexes].map((index) => ({ chain, index })));
  }

  /** Gives the chains they stood in. */
  clearRules(): string[] {
    const chains = [...this.#rules.keys()];
    this.#rules.clear();
    return chains;
  }

  /** Whether there were any. */
  clearSets(): boolean {
    const hadSets = this.#sets.size > 0;
    this.#sets.clear();
    return hadSets;
  }
}
