// Chains that come and go with their endpoints, and the groups of policies several endpoints share.
import { policyGroupChain } from "../rules/endpoint-chains.ts";
import type { RulesConfig } from "../rules/config.ts";
import type { RulePlane } from "../rules/layer-table.ts";
import type { Layer, RuleChain } from "../rules/rule.ts";
import type { PolicyGroup } from "./tier-chains.ts";

export interface PlacedChain {
  readonly layer: Layer;
  readonly chain: RuleChain;
}
interface Placed {
  readonly chains: readonly { readonly layer: Layer; readonly name: string }[];
  readonly groups: readonly string[];
}

const GROUP_LAYERS: readonly Layer[] = ["raw", "mangle", "filter"];

export class ChainPlacer {
  readonly #config: RulesConfig;
  readonly #planes: readonly RulePlane[];
  readonly #placed = new Map<string, Placed>();
  readonly #groupUsers = new Map<string, number>();

  constructor(config: RulesConfig, planes: readonly RulePlane[]) {
    this.#config = config;
    this.#planes = planes;
  }

  /** The chains of one owner, in every family; what it had before and has no more is removed. */
  place(owner: string, chains: readonly PlacedChain[], groups: readonly PolicyGroup[]): void {
    const before = this.#placed.get(owner);
    const names = new Set(chains.map(({ layer, chain: { name } }) => `${layer} ${name}`));
    for (const { tables } of this.#planes) {
      for (const { layer, chain: built } of chains) tables[layer].setChain(built);
      for (const { layer, name } of before?.chains ?? [])
        if (!names.has(`${layer} ${name}`)) tables[layer].removeChain(name);
    }
    for (const group of groups) this.#useGroup(group);
    for (const group of before?.groups ?? []) this.#releaseGroup(group);
    this.#placed.set(owner, {
      chains: chains.map(({ layer, chain: { name } }) => ({ layer, name })),
      groups: groups.map((group) => group.chain),
    });
  }

  remove(owner: string): void {
    const before = this.#placed.get(owner);
    if (before === undefined) return;
    this.#placed.delete(owner);
    for (const { tables } of this.#planes) for (const { layer, name } of before.chains) tables[layer].removeChain(name);
    for (const group of before.groups) this.#releaseGroup(group);
  }

  #useGroup(group: PolicyGroup): void {
    const users = this.#groupUsers.get(group.chain) ?? 0;
    this.#groupUsers.set(group.chain, users + 1);
    if (users > 0) return;
    const built = policyGroupChain(this.#config, group.chain, group.policyChains);
    for (const { tables } of this.#planes) for (const layer of GROUP_LAYERS) tables[layer].setChain(built);
  }

  #releaseGroup(name: string): void {
    const users = (this.#groupUsers.get(name) ?? 1) - 1;
    if (users > 0) {
      this.#groupUsers.set(name, users);
      return;
    }
    this.#groupUsers.delete(name);
    for (const { tables } of this.#planes) for (const layer of GROUP_LAYERS) tables[layer].removeChain(name);
  }
}
