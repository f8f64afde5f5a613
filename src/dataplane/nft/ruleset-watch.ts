// Notices within a second that somebody took our rules away, as `nft flush ruleset` or `iptables -F` do whenever a host's
// own firewall is loaded again: until they are back, nothing is denied. One small question to the kernel tells whether
// anybody wrote; only then is asked whether our tables are still there, and whether the kernel's chains still lead to ours.
// What was changed deeper inside is found by the reconcilers, in their own time.
import type { NftRuleset, TableRef } from "../../kernel/index.ts";

export interface RulesetWatchOptions {
  readonly ruleset: Pick<NftRuleset, "generation" | "tables" | "rules">;
  readonly tables: readonly TableRef[];
  /** The kernel's chains from which a jump must lead to one of ours. */
  readonly hooks: readonly WatchedHook[];
  /** Since the last time it was asked nobody but us wrote, for all that is known: looking costs milliseconds. */
  readonly isOurs?: (generation: number) => boolean;
  /** Before our tables were written for the first time nothing is missing. */
  readonly isBegun?: () => boolean;
  /** Something is missing: look and write again. */
  readonly onLoss: () => void;
}

export interface WatchedHook {
  readonly table: TableRef;
  readonly chain: string;
}

/** `cali-FORWARD`, or with its layer before it. */
const OURS = /^(?:\w+-)?cali-/;

export class RulesetWatch {
  readonly #options: RulesetWatchOptions;
  #generation: number | undefined;

  constructor(options: RulesetWatchOptions) {
    this.#options = options;
  }

  check(): void {
    const { ruleset, tables, hooks, isBegun, isOurs, onLoss } = this.#options;
    if (isBegun?.() === false) return;
    const generation = ruleset.generation();
    if (generation === this.#generation) return;
    this.#generation = generation;
    if (isOurs?.(generation) === true) return;
    const present = ruleset.tables().filter(({ isDormant }) => !isDormant);
    const isThere = (table: TableRef) =>
      present.some(({ family, name }) => family === table.family && name === table.name);
    const leadsToOurs = ({ table, chain }: WatchedHook) =>
      ruleset
        .rules(table, { chain, withTargets: true })
        .some(({ targets = [] }) => targets.some((name) => OURS.test(name)));
    if (!tables.every(isThere) || !hooks.every(leadsToOurs)) onLoss();
  }
}
