// Shares the objects of rules that occur in the chains of all endpoints. This saves memory, and renderers process each only
// once.
import type { Rule } from "./rule.ts";

const shared = new WeakSet<Rule>();

export const isSharedRule = (rule: Rule): boolean => shared.has(rule);

/** Returns the same object for the same key. The key must contain everything that the rule depends on. */
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
