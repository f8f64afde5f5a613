// Keeps the chains that managers set, by their kernel names: which of them are needed, and which of their rules are
// replaced by fallbacks. Both renderers use it; each compares the result with the kernel in its own way.
import { ChainGraph } from "./chain-graph.ts";
import { type ActiveFallback, ActiveFallbacks, type RulePosition } from "./fallback/active-fallbacks.ts";
import { fallbacksFor, type RuleContext, ruleContext } from "./fallback/fallback-rules.ts";
import { type Chain, chainRules, chainTargets, type TableName, namesSet, type Rule, type SetId } from "./rule.ts";

export interface DesiredChainsOptions {
  /** Returns the kernel's name of a chain. */
  readonly kernelName: (tableName: TableName, name: string) => string;
  /** Called when a chain was set or removed, or its fallbacks changed. */
  readonly onContentChange: (name: string) => void;
  /** Called when a chain becomes needed, or is not needed any more. */
  readonly onNeedChange: (name: string) => void;
}

interface DesiredChain<C extends Chain> {
  readonly tableName: TableName;
  readonly chain: C;
}

export class DesiredChains<C extends Chain = Chain> {
  readonly #options: DesiredChainsOptions;
  readonly #chains = new Map<string, DesiredChain<C>>();
  readonly #graph: ChainGraph;
  /** Chains that are needed even if no other chain leads to them. */
  readonly #forced = new Set<string>();
  readonly #fallbacks = new ActiveFallbacks();

  constructor(options: DesiredChainsOptions) {
    this.#options = options;
    this.#graph = new ChainGraph(options.onNeedChange);
  }

  set(tableName: TableName, chain: C): void {
    const name = this.#options.kernelName(tableName, chain.name);
    this.#chains.set(name, { tableName, chain });
    this.#fallbacks.clearChain(name);
    this.#refresh(name);
    this.#setForced(name, chain.kind === "rules" && chain.isForced === true);
  }

  /** @returns false if there is no such chain */
  remove(name: string): boolean {
    if (!this.#chains.delete(name)) return false;
    this.#fallbacks.clearChain(name);
    this.#setForced(name, false);
    this.#graph.delete(name);
    this.#options.onContentChange(name);
    return true;
  }

  /** Makes a chain needed, because one of the kernel's chains leads to it. Calls are counted. */
  hold(name: string): void {
    this.#graph.hold(name);
  }
  release(name: string): void {
    this.#graph.release(name);
  }

  has(name: string): boolean {
    return this.#chains.has(name);
  }
  names(): Iterable<string> {
    return this.#chains.keys();
  }
  tableNameOf(name: string): TableName | undefined {
    return this.#chains.get(name)?.tableName;
  }
  isNeeded(name: string): boolean {
    return this.#graph.isNeeded(name) && this.#chains.has(name);
  }
  targetsOf(name: string): ReadonlySet<string> {
    return this.#graph.targetsOf(name);
  }

  /** Returns the chain with its active fallbacks. */
  programmed(name: string): C | undefined {
    const desired = this.#chains.get(name);
    return desired === undefined ? undefined : this.#fallbacks.applyTo(name, desired.tableName, desired.chain);
  }

  /** Reports all chains that use a set as changed. */
  refreshUsersOf(set: SetId): void {
    for (const [name, { chain }] of this.#chains) if (usesSet(chainRules(chain), set)) this.#refresh(name);
  }

  #setForced(name: string, isForced: boolean): void {
    if (isForced === this.#forced.has(name)) return;
    if (isForced) {
      this.#forced.add(name);
      this.#graph.hold(name);
    } else {
      this.#forced.delete(name);
      this.#graph.release(name);
    }
  }

  #refresh(name: string): void {
    const desired = this.#chains.get(name);
    const programmed = this.programmed(name);
    if (desired === undefined || programmed === undefined) return;
    this.#options.onContentChange(name);
    // A fallback may lead to other chains than its rule. Managers fill these chains only while they are needed.
    const { tableName, chain } = desired;
    const targets = programmed === chain ? chainTargets(chain) : chainTargets(chain).union(chainTargets(programmed));
    this.#graph.set(name, new Set([...targets].map((target) => this.#options.kernelName(tableName, target))));
  }

  // --- rules that the kernel rejects ------------------------------------------------------------------------------------

  /** Changes whenever a fallback is added or removed. */
  get fallbackVersion(): number {
    return this.#fallbacks.version;
  }
  /** True if any rule or set is rejected. */
  get hasFallbacks(): boolean {
    return !this.#fallbacks.isEmpty;
  }
  get rejectedSets(): ReadonlySet<SetId> {
    return this.#fallbacks.rejectedSets;
  }

  /** The replaced rules, without those that are replaced only because of a rejected set. */
  activeFallbacks(): ActiveFallback[] {
    return this.#fallbacks.list();
  }

  /**
   * Must be called if the kernel rejected what is programmed at this position.
   * @returns false if the rule has no more fallbacks
   */
  useNextFallback(position: RulePosition): boolean {
    const found = this.#find(position);
    if (found === undefined || !this.#fallbacks.useNext(position, found.rule, found.context)) return false;
    this.#refresh(position.chain);
    return true;
  }

  useFallbacks(fallbacks: readonly ActiveFallback[]): void {
    for (const fallback of fallbacks) this.#fallbacks.set(fallback);
    for (const name of new Set(fallbacks.map(({ chain }) => chain))) this.#refresh(name);
  }

  /** Replaces all rules that use the set. */
  addRejectedSet(set: SetId): void {
    this.#fallbacks.addRejectedSet(set);
    this.refreshUsersOf(set);
  }

  deleteRejectedSet(set: SetId): void {
    this.#fallbacks.deleteRejectedSet(set);
    this.refreshUsersOf(set);
  }

  /** Returns all fallbacks of the rule at this position, the closest first. */
  fallbacksFor(position: RulePosition): readonly Rule[] {
    const found = this.#find(position);
    return found === undefined ? [] : fallbacksFor(found.rule, found.context);
  }

  /** Returns the level of the first fallback that was not tried yet at this position. */
  nextLevel(position: RulePosition): number {
    const found = this.#find(position);
    return found === undefined ? 0 : this.#fallbacks.nextLevel(position, found.rule, found.context);
  }

  /** Returns the rule at this position and the fallback that replaces it, if any. */
  ruleAt(position: RulePosition): { readonly rule: Rule; readonly fallback: Rule | undefined } | undefined {
    const found = this.#find(position);
    if (found === undefined) return undefined;
    const { rule, context } = found;
    return { rule, fallback: this.#fallbacks.fallbackAt(position, rule, context) };
  }

  clearRuleFallbacks(): void {
    for (const name of this.#fallbacks.clearRules()) this.#refresh(name);
  }

  clearRejectedSets(): void {
    for (const set of this.#fallbacks.clearSets()) this.refreshUsersOf(set);
  }

  #find({ chain: name, index }: RulePosition): { readonly rule: Rule; readonly context: RuleContext } | undefined {
    const desired = this.#chains.get(name);
    const rule = desired === undefined ? undefined : chainRules(desired.chain)[index];
    return desired === undefined || rule === undefined
      ? undefined
      : { rule, context: ruleContext(desired.tableName, desired.chain) };
  }
}

export const usesSet = (rules: readonly Rule[], set: SetId): boolean =>
  rules.some((rule) => rule.match?.some((m) => namesSet(m, set)) === true);
