// The guard's rules (rules/guard-chains.ts) in an nftables table of their own, beside either renderer.
import { GUARD_HOOKS, GUARD_TABLE, type NftRuleset } from "../../kernel/index.ts";
import type { ApplyOutcome, Reconciler } from "../manager.ts";
import { type GuardOptions, installGuard } from "../rules/guard-chains.ts";
import type { BaseChains } from "./base-chains.ts";
import { NftPlane } from "./nft-plane.ts";
import { NftTables, type NftTablesOptions } from "./nft-tables.ts";

const GUARD_BASES: BaseChains = { raw: {}, mangle: {}, nat: {}, filter: GUARD_HOOKS };

export function guardPlane(options: Omit<GuardOptions, "family">): NftPlane {
  const plane = new NftPlane(4, options.config, { table: GUARD_TABLE, bases: GUARD_BASES });
  installGuard(plane.tables.filter, { ...options, family: "both" });
  return plane;
}

/** Whether the kernel accepts the guard's table. */
export function acceptsGuard(ruleset: NftRuleset, options: Omit<GuardOptions, "family">): boolean {
  try {
    ruleset.tryOut(guardPlane(options).changes({ anew: true }));
    return true;
  } catch {
    return false;
  }
}

/**
 * The guard's table beside iptables. It is first written after all policy rules: whoever finds the table in the kernel
 * may rely on these being there too.
 */
export class GuardTable implements Reconciler {
  readonly name = "nftables guard";
  readonly #tables: NftTables;
  #isWritten = false;

  constructor(plane: NftPlane, options: Omit<NftTablesOptions, "planes">) {
    this.#tables = new NftTables({ ...options, planes: [plane] });
  }

  get needsWholeRules(): boolean {
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
