// The chains that are wanted in one nftables table, by the kernel's names: what was offered, which of it is needed, and
// stand-ins for the rules the kernel refused. What the kernel has is nft-plane.ts' to know.
import type { BaseChain } from "../../kernel/index.ts";
import { Aside, type AsideAt, type RuleAt } from "../rules/aside.ts";
import { ChainGraph } from "../rules/chain-graph.ts";
import { type Chain, chainRules, chainTargets, hostChain, type Layer, type Rule, type SetId } from "../rules/rule.ts";
import { type Place, placeIn, standInsFor } from "../rules/stand-in.ts";
import { BASE_CHAINS, type BaseChains } from "./base-chains.ts";
import { prepareChain, type PreparedChain } from "./prepared-chain.ts";
import { nftChainName } from "./render.ts";
import { SlotNumbers } from "./rule-ports.ts";

interface WantedChain {
  readonly layer: Layer;
  readonly offered: Chain;
  /** Made when the chain is needed: most chains are offered to layers that never use them. */
  prepared?: PreparedChain;
}

export class WantedChains {
  readonly #chains = new Map<string, WantedChain>();
  readonly #graph: ChainGraph;
  readonly #hooks = new Map<string, { readonly layer: Layer; insert: readonly Rule[]; append: readonly Rule[] }>();
  readonly #forced = new Set<string>();
  readonly #usersOfSet = new Map<SetId, Set<string>>();
  readonly #setsOfChain = new Map<string, ReadonlySet<SetId>>();
  readonly #slots = new SlotNumbers();
  readonly #aside = new Aside();
  readonly #bases: BaseChains;
  readonly #onChange: (name: string) => void;

  /** @param onChange a chain may have to be written anew, or to go */
  constructor(onChange: (name: string) => void, bases = BASE_CHAINS) {
    this.#bases = bases;
    this.#onChange = onChange;
    this.#graph = new ChainGraph(onChange);
  }

  set(layer: Layer, chain: Chain): void {
    const name = nftChainName(layer, chain.name);
    this.#chains.set(name, { layer, offered: chain });
    this.#aside.forget(name); // what was refused may be another rule now
    if (this.#graph.isNeeded(name)) this.#onChange(name);
    this.#link(name, layer, chain);
    const isForced = chain.kind === "rules" && chain.isForced === true;
    if (isForced && !this.#forced.has(name)) {
      this.#forced.add(name);
      this.#graph.hold(name);
    } else if (!isForced && this.#forced.delete(name)) this.#graph.letGo(name);
  }

  /** What stands in may lead elsewhere than what was offered. */
  #link(name: string, layer: Layer, offered: Chain): void {
    const targets = chainTargets(offered).union(chainTargets(this.#aside.stoodIn(name, layer, offered)));
    this.#graph.set(name, new Set([...targets].map((target) => nftChainName(layer, target))));
  }

  /** Whether there was such a chain. */
  remove(name: string): boolean {
    if (!this.#chains.delete(name)) return false;
    this.#aside.forget(name);
    this.#index(name, new Set());
    this.#slots.release(name);
    if (this.#forced.delete(name)) this.#graph.letGo(name);
    this.#graph.delete(name);
    this.#onChange(name);
    return true;
  }

  setHook(layer: Layer, kernelChain: string, place: "insert" | "append", rules: readonly Rule[]): void {
    const name = nftChainName(layer, kernelChain);
    let hooks = this.#hooks.get(name);
    if (hooks === undefined) this.#hooks.set(name, (hooks = { layer, insert: [], append: [] }));
    hooks[place] = rules;
    this.#graph.hold(name);
    this.set(layer, hostChain(kernelChain, [...hooks.insert, ...hooks.append]));
  }

  isNeeded(name: string): boolean {
    return this.#graph.isNeeded(name);
  }
  has(name: string): boolean {
    return this.#chains.has(name);
  }
  names(): Iterable<string> {
    return this.#chains.keys();
  }
  layerOf(name: string): Layer | undefined {
    return this.#chains.get(name)?.layer;
  }
  /** Whether packets come to it from the kernel itself. */
  isHook(name: string): boolean {
    return this.#hooks.has(name);
  }
  /** The hook of a kernel chain; nothing for chains of ours. */
  baseOf(name: string): BaseChain | undefined {
    const hooks = this.#hooks.get(name);
    return hooks === undefined ? undefined : this.#bases[hooks.layer][name.slice(hooks.layer.length + 1)];
  }
  usersOf(set: SetId): readonly string[] {
    return [...(this.#usersOfSet.get(set) ?? [])];
  }

  /** The chain as it shall be written; nothing when it is not needed. */
  needed(name: string): PreparedChain | undefined {
    const wanted = this.#chains.get(name);
    if (wanted === undefined || !this.#graph.isNeeded(name)) return undefined;
    if (wanted.prepared === undefined) {
      const { layer, offered } = wanted;
      wanted.prepared = prepareChain(name, this.#aside.stoodIn(name, layer, offered), this.#slots);
      this.#index(name, wanted.prepared.sets);
    }
    return wanted.prepared;
  }

  #index(name: string, after: ReadonlySet<SetId>): void {
    for (const set of this.#setsOfChain.get(name) ?? []) {
      if (after.has(set)) continue;
      const users = this.#usersOfSet.get(set);
      users?.delete(name);
      if (users?.size === 0) this.#usersOfSet.delete(set);
    }
    if (after.size === 0) this.#setsOfChain.delete(name);
    else this.#setsOfChain.set(name, after);
    for (const set of after) {
      let users = this.#usersOfSet.get(set);
      if (users === undefined) this.#usersOfSet.set(set, (users = new Set()));
      users.add(name);
    }
  }

  // --- what the kernel refuses ------------------------------------------------------------------------------------------

  /** Another number whenever something was set aside or taken back. */
  get asideVersion(): number {
    return this.#aside.version;
  }
  /** Whether stand-ins are wanted for rules or sets. */
  get hasAside(): boolean {
    return !this.#aside.isEmpty;
  }

  /** The kernel does not take what stands there: its next stand-in is wanted. False when it has none. */
  setAside(at: RuleAt): boolean {
    const found = this.#offeredAt(at);
    if (found === undefined || !this.#aside.raise(at, found.rule, found.place)) return false;
    this.#prepareAgain(at.chain);
    return true;
  }

  /** As `setAside`, with the stand-in that is wanted. */
  putAside(rules: readonly AsideAt[]): void {
    for (const rule of rules) {
      this.#aside.set(rule);
      this.#prepareAgain(rule.chain);
    }
  }

  /** Rules that name the set are closed. */
  closeUsersOf(set: SetId): void {
    this.#aside.addSet(set);
    for (const chain of this.usersOf(set)) this.#prepareAgain(chain);
  }

  /** All that may stand at this place instead, the nearest first. */
  standInsAt(at: RuleAt): readonly Rule[] {
    const found = this.#offeredAt(at);
    return found === undefined ? [] : standInsFor(found.rule, found.place);
  }

  /** The rule of the tree at this place, as it was offered, and what stands there now. */
  ruleAt(at: RuleAt): { readonly rule: Rule; readonly standIn: Rule | undefined } | undefined {
    const found = this.#offeredAt(at);
    return found === undefined
      ? undefined
      : { rule: found.rule, standIn: this.#aside.standIn(at, found.rule, found.place) };
  }

  /** All rules that are aside for themselves, not for a set. */
  aside(): AsideAt[] {
    return this.#aside.rules();
  }
  get setsAside(): ReadonlySet<SetId> {
    return this.#aside.sets;
  }

  takeBackRules(): void {
    for (const name of this.#aside.clearRules()) this.#prepareAgain(name);
  }

  /** The rules as they were wanted, to be tried again; whether sets were among what was aside. */
  takeBack(): boolean {
    this.takeBackRules();
    const hadSets = this.#aside.clearSets();
    if (hadSets) for (const name of this.#chains.keys()) this.#prepareAgain(name);
    return hadSets;
  }

  #offeredAt({ chain, index }: RuleAt): { readonly rule: Rule; readonly place: Place } | undefined {
    const wanted = this.#chains.get(chain);
    const rule = wanted === undefined ? undefined : chainRules(wanted.offered)[index];
    return wanted === undefined || rule === undefined
      ? undefined
      : { rule, place: placeIn(wanted.layer, wanted.offered) };
  }

  #prepareAgain(name: string): void {
    const wanted = this.#chains.get(name);
    if (wanted === undefined) return;
    delete wanted.prepared;
    this.#link(name, wanted.layer, wanted.offered);
    if (this.#graph.isNeeded(name)) this.#onChange(name);
  }
}
