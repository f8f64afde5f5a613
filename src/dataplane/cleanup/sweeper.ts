// Removes the rules that another backend left, because they would continue to enforce outdated policy. This happens after
// the rules of the selected backend are written, so that some rules are in force all the time.
import type { IpsetStore, IptablesStore, NftChange, NftRuleset } from "../../kernel/index.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import { delay } from "../../lib/retry.ts";
import { IpsetSets } from "../iptables/ipset-sets.ts";
import { IptablesTable } from "../iptables/iptables-table.ts";
import { ALL_FEATURES } from "../iptables/rule-text.ts";
import type { ApplyOutcome, SetReconciler } from "../loop/manager.ts";
import type { RulesConfig } from "../rules/config.ts";
import { TABLE_NAMES } from "../rules/rule.ts";
import { sweepSharedTables } from "./shared-tables.ts";

export interface SweepTargets {
  /** Where nftables tables named `calico` are deleted. */
  readonly ruleset?: NftRuleset;
  /** Where owned chains and rules are deleted from tables that iptables-nft shares with other programs. */
  readonly shared?: { readonly ruleset: NftRuleset; readonly families: readonly ("ip" | "ip6")[] };
  /** Where owned chains and rules are deleted from iptables tables. */
  readonly iptables?: readonly IptablesStore[];
  /** Where IP sets with owned names are deleted. */
  readonly ipsets?: IpsetStore;
}

const REPEAT_MS = 180_000;
/** First delay after a failure; it doubles with each failure. */
const RETRY_MS = 1000;
/** Much longer than the rules take to process a packet. */
const PACKET_MS = 20;

export class Sweeper implements SetReconciler {
  readonly name = "leftover rules";
  readonly requiresAllRules = true;
  readonly #targets: SweepTargets;
  readonly #log: Logger;
  readonly #tables: readonly IptablesTable[];
  readonly #sets: readonly IpsetSets[];
  #nextAt = 0;
  #failures = 0;

  constructor(targets: SweepTargets, config: RulesConfig, logger: Logger) {
    this.#targets = targets;
    this.#log = logger;
    // Without desired chains, a table deletes everything that it owns.
    this.#tables = (targets.iptables ?? []).flatMap((store) =>
      TABLE_NAMES.map(
        (tableName) =>
          new IptablesTable({
            tableName,
            store,
            context: { config, version: store.family, tableName, features: ALL_FEATURES },
            insertMode: "insert",
            logger,
            postWriteMs: REPEAT_MS,
            refreshMs: 0,
          }),
      ),
    );
    const { ipsets } = targets;
    this.#sets =
      ipsets === undefined
        ? []
        : ([4, 6] as const).map((version) => new IpsetSets({ version, store: ipsets, maxElements: 1, logger }));
  }

  queueResync(): void {}
  apply(): ApplyOutcome {
    return {};
  }

  async applyDeletions(signal: AbortSignal): Promise<ApplyOutcome> {
    const now = performance.now();
    if (now < this.#nextAt) return { againInMs: this.#nextAt - now };
    let pauseMs = REPEAT_MS;
    try {
      pauseMs = (await this.sweep(signal)) ?? REPEAT_MS;
      this.#failures = 0;
    } catch (error) {
      if (signal.aborted) throw error;
      // Not a failure of the round: the same rules were in force before.
      this.#log.warn("removing rules of another backend failed; retrying", { error: describeError(error) });
      pauseMs = Math.min(REPEAT_MS, RETRY_MS * 2 ** this.#failures++);
    }
    this.#nextAt = now + pauseMs;
    return { againInMs: this.#nextAt - now };
  }

  /** @returns the delay after which another call may remove more; undefined if nothing is left */
  async sweep(signal: AbortSignal): Promise<number | undefined> {
    const pauses: number[] = [];
    await this.#sweepNftables(signal);
    const { shared } = this.#targets;
    const removed = shared === undefined ? 0 : sweepSharedTables(shared.ruleset, shared.families);
    if (removed > 0) this.#log.info("removed rules of another backend from shared nftables tables", { removed });
    for (const table of this.#tables) {
      table.queueResync();
      await table.apply(signal);
    }
    for (const set of this.#sets) {
      set.queueResync();
      await set.apply(signal);
      const { againInMs } = await set.applyDeletions(signal);
      if (againInMs !== undefined) pauses.push(againInMs);
    }
    return pauses.length === 0 ? undefined : Math.min(...pauses);
  }

  /**
   * Deletes base chains first, and the tables a moment later. A packet that is being processed while its table and verdict
   * maps are deleted would not be found in the maps, and be dropped.
   */
  async #sweepNftables(signal: AbortSignal): Promise<void> {
    const { ruleset } = this.#targets;
    if (ruleset === undefined) return;
    const tables = (["ip", "ip6"] as const).flatMap((family) =>
      ruleset.tables(family).flatMap(({ name }) => (name === "calico" ? [{ family, name }] : [])),
    );
    if (tables.length === 0) return;
    for (const table of tables) {
      const hooked = ruleset.chains(table).filter(({ base }) => base !== undefined);
      ruleset.commit(
        hooked.flatMap(({ name }): NftChange[] => [
          { op: "flushChain", table, chain: name },
          { op: "deleteChain", table, chain: name },
        ]),
      );
    }
    await delay(PACKET_MS, signal);
    for (const table of tables) {
      ruleset.commit([{ op: "deleteTable", table }]);
      this.#log.info("removed the nftables rules of another backend", { table: `${table.family} ${table.name}` });
    }
  }
}
