// Removes what the other backend left behind, once ours is in place: rules nobody keeps up to date would go on judging
// packets by yesterday's policy. It runs after our own rules are written, so that there is never a moment without any.
import type { IpsetStore, IptablesStore, NftChange, NftRuleset } from "../kernel/index.ts";
import { describeError, type Logger } from "../lib/log.ts";
import { delay } from "../lib/retry.ts";
import { IpsetSets } from "./iptables/ipset-sets.ts";
import { IptablesTable } from "./iptables/iptables-table.ts";
import { ALL_FEATURES } from "./iptables/text.ts";
import type { ApplyOutcome, SetReconciler } from "./manager.ts";
import type { RulesConfig } from "./rules/config.ts";
import { LAYERS } from "./rules/rule.ts";
import { sweepSharedTables } from "./shared-tables.ts";

export interface SweepTargets {
  /** nftables tables called `calico` go. */
  readonly ruleset?: NftRuleset;
  /** Chains and hooks of ours in the tables shared with the nft variant of iptables go. */
  readonly shared?: { readonly ruleset: NftRuleset; readonly families: readonly ("ip" | "ip6")[] };
  /** Chains and hooks of ours in legacy iptables go. */
  readonly iptables?: readonly IptablesStore[];
  /** IP sets with our names go. */
  readonly ipsets?: IpsetStore;
}

const REPEAT_MS = 180_000;
/** What could not be removed, being in use for the moment, is tried again soon; then ever more rarely. */
const RETRY_MS = 1000;
/** Far longer than any packet takes through the rules. */
const ON_ITS_WAY_MS = 20;

export class Sweeper implements SetReconciler {
  readonly name = "leftovers of the other backend";
  readonly needsWholeRules = true;
  readonly #targets: SweepTargets;
  readonly #log: Logger;
  readonly #tables: readonly IptablesTable[];
  readonly #sets: readonly IpsetSets[];
  #nextAt = 0;
  #failures = 0;

  constructor(targets: SweepTargets, config: RulesConfig, logger: Logger) {
    this.#targets = targets;
    this.#log = logger;
    // A table that wants nothing removes whatever is ours.
    this.#tables = (targets.iptables ?? []).flatMap((store) =>
      LAYERS.map(
        (layer) =>
          new IptablesTable({
            layer,
            store,
            context: { config, version: store.family, layer, features: ALL_FEATURES },
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
      // Never a reason to fail: what we leave is what was there before us.
      this.#log.warn("rules of the other backend could not be removed; trying again", { error: describeError(error) });
      pauseMs = Math.min(REPEAT_MS, RETRY_MS * 2 ** this.#failures++);
    }
    this.#nextAt = now + pauseMs;
    return { againInMs: this.#nextAt - now };
  }

  /** One pass; returns when another may remove more, if any is left. */
  async sweep(signal: AbortSignal): Promise<number | undefined> {
    const pauses: number[] = [];
    await this.#sweepNftables(signal);
    const { shared } = this.#targets;
    const removed = shared === undefined ? 0 : sweepSharedTables(shared.ruleset, shared.families);
    if (removed > 0) this.#log.info("rules of an earlier run were removed from shared nftables tables", { removed });
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
   * In two steps: first no packet is shown to the tables any more, then they go. A packet that is on its way through
   * the rules while they go together with their maps finds itself in none of the maps, and would be dropped for it.
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
    await delay(ON_ITS_WAY_MS, signal);
    for (const table of tables) {
      ruleset.commit([{ op: "deleteTable", table }]);
      this.#log.info("nftables rules of an earlier run were removed", { table: `${table.family} ${table.name}` });
    }
  }
}
