// Writes the guard rules (rules/guard-chains.ts) to an nftables table of their own, with either renderer.
import { GUARD_HOOKS, GUARD_TABLE, type NftRuleset } from "../../kernel/index.ts";
import type { ApplyOutcome, Reconciler } from "../loop/manager.ts";
import { type GuardOptions, installGuard } from "../rules/guard-chains.ts";
import type { BaseChains } from "./base-chains.ts";
import { NftTable } from "./nft-table.ts";
import { NftTables, type NftTablesOptions } from "./nft-tables.ts";
import { nftChainName } from "./render.ts";
import type { WatchedHook } from "./ruleset-watch.ts";

/** A base chain that the guard table always has. */
export const GUARD_HOOK: WatchedHook = { table: GUARD_TABLE, chain: nftChainName("filter", "INPUT") };

const GUARD_BASES: BaseChains = { raw: {}, mangle: {}, nat: {}, filter: GUARD_HOOKS };

export function createGuardTable(options: Omit<GuardOptions, "family">): NftTable {
  const table = new NftTable(4, options.config, { ref: GUARD_TABLE, bases: GUARD_BASES });
  installGuard(table.tables.filter, { ...options, family: "both" });
  return table;
}

/** True if the kernel accepts the guard table. */
export function acceptsGuard(ruleset: NftRuleset, options: Omit<GuardOptions, "family">): boolean {
  try {
    ruleset.dryRun(createGuardTable(options).changes({ anew: true }));
    return true;
  } catch {
    return false;
  }
}

/**
 * Reconciles the guard table if the renderer is iptables. The table is first written after all policy rules, so its existence
 * shows that these rules exist too.
 */
export class GuardReconciler implements Reconciler {
  readonly name = "nftables guard";
  readonly #tables: NftTables;
  #isWritten = false;

  constructor(table: NftTable, options: Omit<NftTablesOptions, "tables">) {
    this.#tables = new NftTables({ ...options, tables: [table] });
  }

  get requiresAllRules(): boolean {
    return !this.#isWritten;
  }

  queueResync(): void {
    this.#tables.queueResync();
  }

  async apply(signal: AbortSignal): Promise<ApplyOutcome> {
    const outcome = await this.#tables.apply(signal);
    this.#isWritten = true;
    return outcome;
  }
}
