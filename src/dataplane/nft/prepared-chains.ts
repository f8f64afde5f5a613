// Caches the prepared form of the chains of one nftables table, and records which chains use which sets.
import type { DesiredChains } from "../rules/desired-chains.ts";
import type { SetId } from "../rules/rule.ts";
import { prepareChain, type PreparedChain } from "./prepared-chain.ts";
import { SlotNumbers } from "./rule-ports.ts";

export class PreparedChains {
  readonly #desired: DesiredChains;
  /** Only needed chains are prepared. Most chains are set in tables that never use them. */
  readonly #prepared = new Map<string, PreparedChain>();
  readonly #slots = new SlotNumbers();
  readonly #usersOfSet = new Map<SetId, Set<string>>();
  readonly #setsOfChain = new Map<string, ReadonlySet<SetId>>();

  constructor(desired: DesiredChains) {
    this.#desired = desired;
  }

  /** Returns undefined if the chain is not needed. */
  get(name: string): PreparedChain | undefined {
    if (!this.#desired.isNeeded(name)) return undefined;
    const cached = this.#prepared.get(name);
    if (cached !== undefined) return cached;
    const chain = this.#desired.programmed(name);
    if (chain === undefined) return undefined;
    const prepared = prepareChain(name, chain, this.#slots);
    this.#prepared.set(name, prepared);
    this.#recordSets(name, prepared.sets);
    return prepared;
  }

  /** Must be called when a desired chain was changed or removed. */
  invalidate(name: string): void {
    this.#prepared.delete(name);
    if (this.#desired.has(name)) return;
    this.#recordSets(name, new Set());
    this.#slots.release(name);
  }

  /** Returns the prepared chains that use the set. */
  usersOf(set: SetId): readonly string[] {
    return [...(this.#usersOfSet.get(set) ?? [])];
  }

  #recordSets(name: string, after: ReadonlySet<SetId>): void {
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
}
