// Records which rules are replaced by fallbacks, because the kernel rejected the rule itself or an IP set that it uses.
import type { Chain, TableName, Rule, SetId } from "../rule.ts";
import { fallbacksFor, type RuleContext, ruleContext, usesAnySet, withFallbacks } from "./fallback-rules.ts";

/** The position of a rule: the kernel's name of its chain, and its index in all of `chainRules`. */
export interface RulePosition {
  readonly chain: string;
  readonly index: number;
}
export interface ActiveFallback extends RulePosition {
  /** The index in the list of the rule's fallbacks: 0 is closest to the rejected rule. */
  readonly level: number;
}

export class ActiveFallbacks {
  /** By chain, then by the index of the rule. */
  readonly #levels = new Map<string, Map<number, number>>();
  readonly #rejectedSets = new Set<SetId>();
  #version = 0;

  /** Changes whenever a fallback or rejected set is added or removed. */
  get version(): number {
    return this.#version;
  }
  get isEmpty(): boolean {
    return this.#levels.size === 0 && this.#rejectedSets.size === 0;
  }
  get rejectedSets(): ReadonlySet<SetId> {
    return this.#rejectedSets;
  }

  /** Returns the rule to program at this position instead of `rule`; undefined if `rule` itself is programmed. */
  fallbackAt(position: RulePosition, rule: Rule, context: RuleContext): Rule | undefined {
    const level = this.#levels.get(position.chain)?.get(position.index);
    if (level === undefined && !usesAnySet(rule, this.#rejectedSets)) return undefined;
    const candidates = fallbacksFor(rule, context).slice(level ?? 0);
    return candidates.find((candidate) => !usesAnySet(candidate, this.#rejectedSets));
  }

  /** Returns the chain to program: `chain` with its active fallbacks. */
  applyTo<C extends Chain>(name: string, tableName: TableName, chain: C): C {
    if (this.isEmpty) return chain; // nearly always
    const context = ruleContext(tableName, chain);
    return withFallbacks(chain, (index, rule) => this.fallbackAt({ chain: name, index }, rule, context));
  }

  set({ chain, index, level }: ActiveFallback): void {
    let levels = this.#levels.get(chain);
    if (levels === undefined) this.#levels.set(chain, (levels = new Map()));
    levels.set(index, level);
    this.#version++;
  }

  /**
   * Must be called if the kernel rejected the rule or fallback that is programmed at this position.
   * @returns false if there are no more fallbacks
   */
  useNext(position: RulePosition, rule: Rule, context: RuleContext): boolean {
    const level = this.nextLevel(position, rule, context);
    if (level >= fallbacksFor(rule, context).length) return false;
    this.set({ ...position, level });
    return true;
  }

  /** Returns the level after the one that is programmed at this position. */
  nextLevel(position: RulePosition, rule: Rule, context: RuleContext): number {
    const current = this.fallbackAt(position, rule, context);
    if (current === undefined) return 0;
    return fallbacksFor(rule, context).findIndex((each) => Bun.deepEquals(each, current)) + 1;
  }

  /** All rules that use the set are replaced. */
  addRejectedSet(set: SetId): void {
    this.#rejectedSets.add(set);
    this.#version++;
  }

  deleteRejectedSet(set: SetId): void {
    if (this.#rejectedSets.delete(set)) this.#version++;
  }

  /** Must be called if the rules of a chain change: another rule may be at a recorded position. */
  clearChain(chain: string): void {
    if (this.#levels.delete(chain)) this.#version++;
  }

  /** The replaced rules, without those that are replaced only because of a rejected set. */
  list(): ActiveFallback[] {
    return [...this.#levels].flatMap(([chain, levels]) =>
      [...levels].map(([index, level]) => ({ chain, index, level })),
    );
  }

  /** @returns the chains that had fallbacks */
  clearRules(): string[] {
    const chains = [...this.#levels.keys()];
    this.#levels.clear();
    this.#version++;
    return chains;
  }

  /** @returns the sets that were rejected */
  clearSets(): SetId[] {
    const sets = [...this.#rejectedSets];
    this.#rejectedSets.clear();
    this.#version++;
    return sets;
  }
}
