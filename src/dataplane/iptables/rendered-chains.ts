// Renders the desired chains of one iptables table as text. Dispatch chains, which iptables does not have, are split into
// trees of plain chains. iptables-table.ts compares the text with the kernel's chains.
import type { IptablesTable as TableName } from "../../kernel/index.ts";
import { listsEqual } from "../../lib/compare-lists.ts";
import { DesiredChains, usesSet } from "../rules/desired-chains.ts";
import { dispatchTree } from "../rules/dispatch-tree.ts";
import type { RulePosition } from "../rules/fallback/active-fallbacks.ts";
import { type Chain, chain, chainTargets, type Match, type Rule, type RuleChain, type SetId } from "../rules/rule.ts";
import { renderChain, type RenderContext } from "./render.ts";
import type { Suspect } from "./rejected-rules.ts";
import type { WrittenChain } from "./restore-text.ts";
import { appendsName, ruleHashes } from "./rule-hash.ts";

export type HookPlace = "insert" | "append";

interface RenderedHook extends WrittenChain {
  readonly rules: readonly Rule[];
  readonly targets: ReadonlySet<string>;
}

/** A rule that the kernel may have rejected. */
export interface RuleSuspect extends Suspect {
  readonly rule: Rule;
  /** The fallbacks that were not tried yet. */
  readonly fallbacks: readonly Rule[];
  /** The level of the first of them. */
  readonly firstLevel: number;
}

export interface RenderedChainsOptions {
  readonly tableName: TableName;
  readonly context: RenderContext;
  /** Called when the text of a needed chain changed, or the chain is not needed any more. */
  readonly onChange: (name: string) => void;
  /** Called when rules in the kernel's chains changed. */
  readonly onHook: () => void;
}

export class RenderedChains {
  readonly desired: DesiredChains<RuleChain>;
  readonly #options: RenderedChainsOptions;
  /** The names of the plain chains into which each chain was split. */
  readonly #parts = new Map<string, readonly string[]>();
  readonly #rendered = new Map<string, RenderedChain>();
  readonly #hooks: Readonly<Record<HookPlace, Map<string, RenderedHook>>> = { insert: new Map(), append: new Map() };

  constructor(options: RenderedChainsOptions) {
    this.#options = options;
    this.desired = new DesiredChains({
      kernelName: (_, name) => name,
      onContentChange: (name) => this.#render(name),
      onNeedChange: options.onChange,
    });
  }

  set(offered: Chain): void {
    const parts = offered.kind === "rules" ? [offered] : dispatchTree(offered);
    const removed = new Set(this.#parts.get(offered.name));
    const names = parts.map(({ name }) => name);
    this.#parts.set(offered.name, names);
    for (const part of parts) this.desired.set(this.#options.tableName, part);
    for (const name of removed) if (!names.includes(name)) this.desired.remove(name);
  }

  remove(name: string): void {
    for (const part of this.#parts.get(name) ?? []) this.desired.remove(part);
    this.#parts.delete(name);
  }

  setHook(kernelChain: string, place: HookPlace, rules: readonly Rule[]): void {
    const hooks = this.#hooks[place];
    const texts = renderChain(this.#options.context, chain(kernelChain, rules));
    const hashes = ruleHashes(place === "insert" ? kernelChain : appendsName(kernelChain), texts);
    for (const target of hooks.get(kernelChain)?.targets ?? []) this.desired.release(target);
    const targets = chainTargets(chain(kernelChain, rules));
    for (const target of targets) this.desired.hold(target);
    hooks.set(kernelChain, { name: kernelChain, texts, hashes, targets, rules });
    this.#options.onHook();
  }

  /** Must be called if the kernel's name of a set changed. */
  renameSet(id: SetId): void {
    this.desired.refreshUsersOf(id);
    for (const place of ["insert", "append"] as const)
      for (const [kernelChain, { rules }] of this.#hooks[place])
        if (usesSet(rules, id)) this.setHook(kernelChain, place, rules);
  }

  /** @param names the chains to consider; by default all */
  *needed(names: Iterable<string> = this.#rendered.keys()): Iterable<WrittenChain> {
    for (const name of names) {
      const rendered = this.#rendered.get(name);
      if (rendered !== undefined && this.desired.isNeeded(name)) yield rendered;
    }
  }

  hook(kernelChain: string, place: HookPlace): WrittenChain | undefined {
    return this.#hooks[place].get(kernelChain);
  }

  #render(name: string): void {
    const programmed = this.desired.programmed(name);
    if (programmed === undefined) {
      this.#rendered.delete(name);
      this.#options.onChange(name);
      return;
    }
    const before = this.#rendered.get(name);
    const after = new RenderedChain(name, () => renderChain(this.#options.context, programmed));
    const isNeeded = this.desired.isNeeded(name);
    if (before !== undefined && isNeeded && listsEqual(before.texts, after.texts)) return;
    this.#rendered.set(name, after);
    if (isNeeded) this.#options.onChange(name);
  }

  /** Returns every needed rule with the fallbacks that may replace it. */
  suspects(): RuleSuspect[] {
    const hooks = this.#hooksByChain();
    return [...this.desired.names()]
      .filter((name) => this.desired.isNeeded(name))
      .flatMap((name) => {
        const count = this.desired.programmed(name)?.rules.length ?? 0;
        const positions = Array.from({ length: count }, (_, index) => ({ chain: name, index }));
        return positions.flatMap((position) => this.#suspectAt(position, hooks.get(name) ?? []));
      });
  }

  #suspectAt(position: RulePosition, hooks: readonly string[]): RuleSuspect[] {
    const found = this.desired.ruleAt(position);
    if (found === undefined) return [];
    const { rule, fallback } = found;
    const render = (each: Rule) => renderChain(this.#options.context, chain(position.chain, [each]));
    const firstLevel = this.desired.nextLevel(position);
    const fallbacks = this.desired.fallbacksFor(position).slice(firstLevel);
    return [
      {
        ...position,
        rule,
        texts: render(fallback ?? rule),
        firstLevel,
        fallbacks,
        fallbackTexts: fallbacks.map(render),
        hooks,
        requirements: `${requirementsOf(rule)} ${firstLevel}`,
        renderSimplified: () => render(simplified(fallback ?? rule)),
      },
    ];
  }

  /** For each chain, the kernel's chains that lead to it. */
  #hooksByChain(): Map<string, string[]> {
    const found = new Map<string, string[]>();
    const walk = (name: string, hook: string): void => {
      const hooks = found.get(name) ?? [];
      if (hooks.includes(hook)) return;
      found.set(name, [...hooks, hook]);
      for (const target of this.desired.targetsOf(name)) walk(target, hook);
    };
    for (const hooks of [this.#hooks.insert, this.#hooks.append])
      for (const [hook, { targets }] of hooks) for (const target of targets) walk(target, hook);
    return found;
  }
}

/** A chain that is rendered when its text is read. Most chains are set in tables that never use them. */
class RenderedChain implements WrittenChain {
  #texts: readonly string[] | undefined;
  #hashes: readonly string[] | undefined;

  constructor(
    readonly name: string,
    readonly render: () => readonly string[],
  ) {}
  get texts(): readonly string[] {
    return (this.#texts ??= this.render());
  }
  get hashes(): readonly string[] {
    return (this.#hashes ??= ruleHashes(this.name, this.texts));
  }
}

/** Equal for rules that need the same kernel features. */
const requirementsOf = ({ match = [], action }: Rule): string =>
  [
    ...new Set(match.map(({ kind }) => kind)),
    action?.kind,
    action?.kind === "decide" && action.nflog !== undefined,
  ].join(" ");

/** Returns a rule with one match of each kind and one element of each list. */
function simplified(rule: Rule): Rule {
  const byKind = new Map((rule.match ?? []).map((each) => [each.kind, each]));
  return { ...rule, match: [...byKind.values()].map(withOneElement) };
}

function withOneElement(match: Match): Match {
  if (match.kind === "nets") return { ...match, nets: match.nets.slice(0, 1) };
  if (match.kind !== "ports") return match;
  const ranges = match.ranges.slice(0, 1);
  return { ...match, ranges, sets: ranges.length > 0 ? [] : match.sets?.slice(0, 1) };
}
