// The chains that are wanted in one iptables table: what was offered, taken apart into what iptables can hold, which of
// it is needed, the rules in the kernel's own chains, and stand-ins for the rules the kernel refused. What the kernel has
// is iptables-table.ts' to know.
import type { IptablesTable as TableName } from "../../kernel/index.ts";
import { Aside, type AsideAt, type RuleAt } from "../rules/aside.ts";
import { ChainGraph } from "../rules/chain-graph.ts";
import { dispatchTree } from "../rules/dispatch-tree.ts";
import { type Chain, chain, chainTargets, namesSet, type Rule, type RuleChain, type SetId } from "../rules/rule.ts";
import { placeIn, standInsFor } from "../rules/stand-in.ts";
import { sameList } from "../../lib/same-list.ts";
import { lowerChain, type LoweringContext } from "./lower.ts";
import type { Suspect } from "./refused-rules.ts";
import type { WrittenChain } from "./restore-text.ts";
import { appendsName, ruleHashes } from "./rule-hash.ts";

export type HookPlace = "insert" | "append";

interface WrittenHook extends WrittenChain {
  readonly rules: readonly Rule[];
}

/** A rule that may be the one the kernel does not take. */
export interface RuleSuspect extends Suspect {
  readonly rule: Rule;
  /** Which of all its stand-ins the first candidate is. */
  readonly first: number;
  readonly candidates: readonly Rule[];
}

export class WantedChains {
  /** By the name they were offered under. */
  readonly #offered = new Map<string, RuleChain[]>();
  readonly #written = new Map<string, WrittenChain>();
  readonly #graph: ChainGraph;
  readonly #forced = new Set<string>();
  readonly #hooks: Readonly<Record<HookPlace, Map<string, WrittenHook>>> = { insert: new Map(), append: new Map() };
  readonly #aside = new Aside();
  readonly #layer: TableName;
  readonly #context: LoweringContext;
  readonly #onChange: (name: string) => void;
  readonly #onHook: () => void;

  constructor(deps: {
    readonly layer: TableName;
    readonly context: LoweringContext;
    /** A chain may have to be written anew, or to go. */
    readonly onChange: (name: string) => void;
    /** Rules in the kernel's chains changed. */
    readonly onHook: () => void;
  }) {
    this.#layer = deps.layer;
    this.#context = deps.context;
    this.#onChange = deps.onChange;
    this.#onHook = deps.onHook;
    this.#graph = new ChainGraph(deps.onChange);
  }

  set(offered: Chain): void {
    const parts = offered.kind === "rules" ? [offered] : dispatchTree(offered);
    const gone = new Set(this.#offered.get(offered.name)?.map((part) => part.name));
    this.#offered.set(offered.name, parts);
    for (const part of parts) {
      gone.delete(part.name);
      this.#aside.forget(part.name); // what was refused may be another rule now
      this.#setPart(part);
    }
    for (const name of gone) this.#removePart(name);
    const isForced = offered.kind === "rules" && offered.isForced === true;
    if (isForced && !this.#forced.has(offered.name)) {
      this.#forced.add(offered.name);
      this.#graph.hold(offered.name);
    } else if (!isForced && this.#forced.delete(offered.name)) this.#graph.letGo(offered.name);
  }

  remove(name: string): void {
    const parts = this.#offered.get(name);
    if (parts === undefined) return;
    this.#offered.delete(name);
    if (this.#forced.delete(name)) this.#graph.letGo(name);
    for (const part of parts) this.#removePart(part.name);
  }

  setHook(kernelChain: string, place: HookPlace, rules: readonly Rule[]): void {
    const hooks = this.#hooks[place];
    const texts = lowerChain(this.#context, chain(kernelChain, rules));
    const hashes = ruleHashes(place === "insert" ? kernelChain : appendsName(kernelChain), texts);
    for (const target of hooks.get(kernelChain)?.targets ?? []) this.#graph.letGo(target);
    const targets = chainTargets(chain(kernelChain, rules));
    for (const target of targets) this.#graph.hold(target);
    hooks.set(kernelChain, { name: kernelChain, texts, hashes, targets, rules });
    this.#onHook();
  }

  /** The kernel's name of a set changed: what names it is written anew. */
  renameSet(id: SetId): void {
    this.#lowerUsersOf(id);
  }

  #lowerUsersOf(id: SetId): void {
    const names = (rules: readonly Rule[]) => rules.some((rule) => rule.match?.some((m) => namesSet(m, id)) === true);
    for (const parts of this.#offered.values()) for (const part of parts) if (names(part.rules)) this.#setPart(part);
    for (const place of ["insert", "append"] as const)
      for (const [kernelChain, { rules }] of this.#hooks[place])
        if (names(rules)) this.setHook(kernelChain, place, rules);
  }

  isNeeded(name: string): boolean {
    return this.#graph.isNeeded(name) && this.#written.has(name);
  }

  /** @param names of the chains to look at; all when not given */
  *needed(names: Iterable<string> = this.#written.keys()): Iterable<WrittenChain> {
    for (const name of names) {
      const wanted = this.#written.get(name);
      if (wanted !== undefined && this.#graph.isNeeded(name)) yield wanted;
    }
  }

  hook(kernelChain: string, place: HookPlace): WrittenChain | undefined {
    return this.#hooks[place].get(kernelChain);
  }

  #setPart(part: RuleChain): void {
    const { name } = part;
    const stoodIn = this.#aside.stoodIn(name, this.#layer, part);
    const before = this.#written.get(name);
    const targets = stoodIn === part ? chainTargets(part) : chainTargets(part).union(chainTargets(stoodIn));
    const isNeeded = this.#graph.isNeeded(name);
    const after = new LoweredChain(name, targets, () => lowerChain(this.#context, stoodIn));
    if (before === undefined || !isNeeded || !sameList(before.texts, after.texts)) {
      this.#written.set(name, after);
      if (isNeeded) this.#onChange(name);
    }
    this.#graph.set(name, targets);
  }

  #removePart(name: string): void {
    if (!this.#written.delete(name)) return;
    this.#aside.forget(name);
    this.#graph.delete(name);
    this.#onChange(name);
  }

  // --- what the kernel refuses ------------------------------------------------------------------------------------------

  /** Another number whenever something was set aside or taken back. */
  get asideVersion(): number {
    return this.#aside.version;
  }
  /** Whether stand-ins are wanted for any rule. */
  get hasAside(): boolean {
    return !this.#aside.isEmpty;
  }

  /** Rules that name the set are closed, or as they were wanted. */
  setSetAside(id: SetId, isAside: boolean): void {
    if (isAside) this.#aside.addSet(id);
    else this.#aside.deleteSet(id);
    this.#lowerUsersOf(id);
  }

  /** Every rule, or what stands there now, with what could stand there instead. */
  suspects(): RuleSuspect[] {
    const hooks = this.#hooksLeadingTo();
    return [...this.#neededParts()].flatMap((part) => this.#suspectsIn(part, hooks.get(part.name) ?? []));
  }

  putAside(rules: readonly AsideAt[]): void {
    for (const rule of rules) this.#aside.set(rule);
    this.#lowerAgain(new Set(rules.map((rule) => rule.chain)));
  }

  /** All rules as they were wanted, to be tried again. */
  takeBack(): void {
    this.#lowerAgain(new Set(this.#aside.clearRules()));
  }

  /** The rules that others stand in for. */
  replaced(): { readonly at: RuleAt; readonly rule: Rule; readonly standIn: Rule }[] {
    if (this.#aside.isEmpty) return [];
    const parts = new Map([...this.#neededParts()].map((part) => [part.name, part]));
    return this.#aside.rules().flatMap((at) => {
      const part = parts.get(at.chain);
      const rule = part?.rules[at.index];
      if (part === undefined || rule === undefined) return [];
      const standIn = this.#aside.standIn(at, rule, placeIn(this.#layer, part));
      return standIn === undefined ? [] : [{ at, rule, standIn }];
    });
  }

  *#neededParts(): Iterable<RuleChain> {
    for (const parts of this.#offered.values())
      for (const part of parts) if (this.#graph.isNeeded(part.name)) yield part;
  }

  #suspectsIn(part: RuleChain, hooks: readonly string[]): RuleSuspect[] {
    const place = placeIn(this.#layer, part);
    const lower = (rule: Rule) => lowerChain(this.#context, chain(part.name, [rule]));
    return part.rules.map((rule, index) => {
      const at = { chain: part.name, index };
      const first = this.#aside.nextLevel(at, rule, place);
      const candidates = standInsFor(rule, place).slice(first);
      return {
        ...at,
        rule,
        texts: lower(this.#aside.standIn(at, rule, place) ?? rule),
        first,
        candidates,
        standIns: candidates.map(lower),
        hooks,
        likeness: `${likenessOf(rule)} ${first}`,
      };
    });
  }

  /** For each of our chains, which of the kernel's lead to it. */
  #hooksLeadingTo(): Map<string, string[]> {
    const found = new Map<string, string[]>();
    const walk = (name: string, hook: string): void => {
      const hooks = found.get(name) ?? [];
      if (hooks.includes(hook)) return;
      found.set(name, [...hooks, hook]);
      for (const target of this.#written.get(name)?.targets ?? []) walk(target, hook);
    };
    for (const hooks of [this.#hooks.insert, this.#hooks.append])
      for (const [hook, { targets }] of hooks) for (const target of targets) walk(target, hook);
    return found;
  }

  #lowerAgain(names: ReadonlySet<string>): void {
    if (names.size === 0) return;
    for (const parts of this.#offered.values()) for (const part of parts) if (names.has(part.name)) this.#setPart(part);
  }
}

/** Lowered when somebody looks: most chains are offered to tables that never use them. */
class LoweredChain implements WrittenChain {
  #texts: readonly string[] | undefined;
  #hashes: readonly string[] | undefined;

  constructor(
    readonly name: string,
    readonly targets: ReadonlySet<string>,
    readonly lower: () => readonly string[],
  ) {}
  get texts(): readonly string[] {
    return (this.#texts ??= this.lower());
  }
  get hashes(): readonly string[] {
    return (this.#hashes ??= ruleHashes(this.name, this.texts));
  }
}

/** Rules that need the same of the kernel are alike. */
const likenessOf = ({ match = [], action }: Rule): string =>
  [
    ...new Set(match.map(({ kind }) => kind)),
    action?.kind,
    action?.kind === "decide" && action.nflog !== undefined,
  ].join(" ");
