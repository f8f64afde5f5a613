// Rules that stand in the chains of every endpoint alike are one object each: less to hold, and a renderer works out
// once what it makes of them.
import type { Rule } from "./rule.ts";

const shared = new WeakSet<Rule>();

export const isSharedRule = (rule: Rule): boolean => shared.has(rule);

/** Gives the same object for the same key. The key must tell everything the rule depends on. */
export class SharedRules {
  readonly #rules = new Map<string, Rule>();

  get(key: string, make: () => Rule): Rule {
    let rule = this.#rules.get(key);
    if (rule === undefined) {
      rule = make();
      shared.add(rule);
      this.#rules.set(key, rule);
    }
    return rule;
  }
}
