// Detects within a second that another program removed the rules of calico-ts, for example with `nft flush ruleset` when the
// host's firewall is reloaded. Until the rules are restored, no packet is dropped by policy.
//
// The generation of the ruleset shows whether any program wrote. Only then the existence of the tables is checked, and
// whether the base chains still lead to chains of calico-ts. The reconcilers find other changes at their next read.
import type { NftRuleset, TableRef } from "../../kernel/index.ts";

export interface RulesetWatchOptions {
  readonly ruleset: Pick<NftRuleset, "generation" | "tables" | "rules">;
  readonly tables: readonly TableRef[];
  /** Base chains that must contain a jump to a chain of calico-ts. */
  readonly hooks: readonly WatchedHook[];
  /** True if only calico-ts wrote since the last call. Saves a check, which takes milliseconds. */
  readonly isKnown?: (generation: number) => boolean;
  /** False until the tables were written for the first time. */
  readonly isStarted?: () => boolean;
  /** Called if a table or jump is missing. */
  readonly onLoss: () => void;
}

export interface WatchedHook {
  readonly table: TableRef;
  readonly chain: string;
}

/** `cali-FORWARD`, or `filter-cali-FORWARD` in a table of calico-ts. */
const OWNED_CHAIN = /^(?:\w+-)?cali-/;

export class RulesetWatch {
  readonly #options: RulesetWatchOptions;
  #generation: number | undefined;

  constructor(options: RulesetWatchOptions) {
    this.#options = options;
  }

  check(): void {
    const { ruleset, tables, hooks, isStarted, isKnown, onLoss } = this.#options;
    if (isStarted?.() === false) return;
    const generation = ruleset.generation();
    if (generation === this.#generation) return;
    this.#generation = generation;
    if (isKnown?.(generation) === true) return;
    const present = ruleset.tables().filter(({ isDormant }) => !isDormant);
    const exists = (table: TableRef) =>
      present.some(({ family, name }) => family === table.family && name === table.name);
    const leadsToOwnedChain = ({ table, chain }: WatchedHook) =>
      ruleset
        .rules(table, { chain, withTargets: true })
        .some(({ targets = [] }) => targets.some((name) => OWNED_CHAIN.test(name)));
    if (!tables.every(exists) || !hooks.every(leadsToOwnedChain)) onLoss();
  }
}
