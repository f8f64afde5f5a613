// Notices within a second that somebody took our tables away whole, as `nft flush ruleset` does whenever a host's own
// firewall is loaded again: until they are back, nothing is denied. One small question to the kernel tells whether
// anybody wrote; only then is asked whether our tables are still there. What was changed inside them is found by the
// reconcilers, in their own time.
import type { NftRuleset, TableRef } from "../../kernel/index.ts";

export interface RulesetWatchOptions {
  readonly ruleset: Pick<NftRuleset, "generation" | "tables">;
  readonly tables: readonly TableRef[];
  /** Before our tables were written for the first time nothing is missing. */
  readonly isBegun?: () => boolean;
  /** Tables are missing: look and write again. */
  readonly onLoss: () => void;
}

export class RulesetWatch {
  readonly #options: RulesetWatchOptions;
  #generation: number | undefined;

  constructor(options: RulesetWatchOptions) {
    this.#options = options;
  }

  check(): void {
    const { ruleset, tables, isBegun, onLoss } = this.#options;
    if (isBegun?.() === false) return;
    const generation = ruleset.generation();
    if (generation === this.#generation) return;
    this.#generation = generation;
    const present = ruleset.tables().filter(({ isDormant }) => !isDormant);
    const isThere = (table: TableRef) =>
      present.some(({ family, name }) => family === table.family && name === table.name);
    if (!tables.every(isThere)) onLoss();
  }
}
