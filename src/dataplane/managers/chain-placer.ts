// Sets and removes the chains of endpoints, and the chains of policy groups that several endpoints share.
import { policyGroupChain } from "../rules/endpoint-chains.ts";
import type { RulesConfig } from "../rules/config.ts";
import type { FamilyRules } from "../rules/rule-table.ts";
import type { TableName, RuleChain } from "../rules/rule.ts";
import type { PolicyGroup } from "./tier-chains.ts";

export interface PlacedChain {
  readonly tableName: TableName;
  readonly chain: RuleChain;
}
interface Placed {
  readonly chains: readonly { readonly tableName: TableName; readonly name: string }[];
  readonly groups: readonly string[];
}

const GROUP_TABLES: readonly TableName[] = ["raw", "mangle", "filter"];

export class ChainPlacer {
  readonly #config: RulesConfig;
  readonly #families: readonly FamilyRules[];
  readonly #placed = new Map<string, Placed>();
  readonly #groupUsers = new Map<string, number>();

  constructor(config: RulesConfig, families: readonly FamilyRules[]) {
    this.#config = config;
    this.#families = families;
  }

  /** Sets the chains of one owner in all families, and removes its previous chains that are not among them. */
  place(owner: string, chains: readonly PlacedChain[], groups: readonly PolicyGroup[]): void {
    const before = this.#placed.get(owner);
    const names = new Set(chains.map(({ tableName, chain: { name } }) => `${tableName} ${name}`));
    for (const { tables } of this.#families) {
      for (const { tableName, chain: built } of chains) tables[tableName].setChain(built);
      for (const { tableName, name } of before?.chains ?? [])
        if (!names.has(`${tableName} ${name}`)) tables[tableName].removeChain(name);
    }
    for (const group of groups) this.#useGroup(group);
    for (const group of before?.groups ?? []) this.#releaseGroup(group);
    this.#placed.set(owner, {
      chains: chains.map(({ tableName, chain: { name } }) => ({ tableName, name })),
      groups: groups.map((group) => group.chain),
    });
  }

  remove(owner: string): void {
    const before = this.#placed.get(owner);
    if (before === undefined) return;
    this.#placed.delete(owner);
    for (const { tables } of this.#families)
      for (const { tableName, name } of before.chains) tables[tableName].removeChain(name);
    for (const group of before.groups) this.#releaseGroup(group);
  }

  #useGroup(group: PolicyGroup): void {
    const users = this.#groupUsers.get(group.chain) ?? 0;
    this.#groupUsers.set(group.chain, users + 1);
    if (users > 0) return;
    const built = policyGroupChain(this.#config, group.chain, group.policyChains);
    for (const { tables } of this.#families) for (const tableName of GROUP_TABLES) tables[tableName].setChain(built);
  }

  #releaseGroup(name: string): void {
    const users = (this.#groupUsers.get(name) ?? 1) - 1;
    if (users > 0) {
      this.#groupUsers.set(name, users);
      return;
    }
    this.#groupUsers.delete(name);
    for (const { tables } of this.#families) for (const tableName of GROUP_TABLES) tables[tableName].removeChain(name);
  }
}
