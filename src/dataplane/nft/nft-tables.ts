// Keeps several nftables tables equal to the desired state, with one transaction per round, so that no packet is processed
// by a partial change. The generation of the ruleset shows whether another program has written to nftables.
import { hasErrno, type NftChange, type NftRuleset } from "../../kernel/index.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import { delay } from "../../lib/retry.ts";
import { type ApplyOutcome, FatalDataplaneError, type Reconciler } from "../loop/manager.ts";
import type { RejectedItem } from "../rules/fallback/rejection-log.ts";
import type { Match } from "../rules/rule.ts";
import { ABSENT_TABLE, type NftTable } from "./nft-table.ts";
import { LazyRule } from "./prepared-chain.ts";
import { RejectedRules } from "./rejected-rules.ts";

export interface NftTablesOptions {
  readonly tables: readonly NftTable[];
  readonly ruleset: NftRuleset;
  readonly logger: Logger;
  /** Interval after which the tables are read even if the generation has not changed; 0 or less: never. */
  readonly refreshMs: number;
  readonly onCommit?: (ok: boolean, changes: number) => void;
  readonly onRead?: (ok: boolean) => void;
  /** Delay before rejected rules are tried again. */
  readonly retryMs?: number;
  /** The node works without these tables. If the kernel rejects them, this is logged once, and they are tried again later. */
  readonly isOptional?: boolean;
}

const MAX_ATTEMPTS = 10;
/** After this many failed attempts the tables are deleted and created again. */
const ATTEMPTS_BEFORE_ANEW = 5;
/** Minimum interval between reads that are caused by writes of other programs. */
const FOREIGN_READ_MS = 10_000;
/** After this many commits that were rejected because of an outdated generation, the generation is not checked. */
const MAX_OUTDATED = 3;
/** New tables with at least this many changes are written in several transactions. */
const MIN_SPLIT_CHANGES = 2000;
const SPLIT_PARTS = 4;
/** Transactions with at least this many elements are sent by another thread. The kernel needs 3 µs per element. */
const MIN_OFF_THREAD_ELEMENTS = 10_000;
/** The cost of other changes, as a number of elements: 15 µs for a rule; 50 µs for a set, beside 1,000 other sets. */
const RULE_COST = 5;
const SET_COST = 20;
const OPTIONAL_RETRY_MS = 60_000;

export class NftTables implements Reconciler {
  readonly name = "nftables";
  readonly #options: NftTablesOptions;
  readonly #log: Logger;
  readonly #rejectedRules: RejectedRules;
  #needsRead = true;
  /** The generation of the ruleset after the last check or write. */
  #generation: number | undefined;
  #readAtMs = 0;
  /** True if another program has written since the last read. */
  #hasForeignWrite = false;
  #isMissingLogged = false;

  constructor(options: NftTablesOptions) {
    this.#options = options;
    this.#log = options.logger;
    this.#rejectedRules = new RejectedRules(options);
  }

  /** The rules and sets that the kernel rejects. */
  rejected(): readonly RejectedItem[] {
    return this.#rejectedRules.list();
  }

  /** True if the ruleset of this generation is as calico-ts read or wrote it. */
  isKnown(generation: number): boolean {
    return generation === this.#generation && !this.#hasForeignWrite && !this.#needsRead;
  }

  queueResync(): void {
    this.#needsRead = true;
  }

  async apply(signal: AbortSignal): Promise<ApplyOutcome> {
    let outdated = 0;
    this.#rejectedRules.retryWhenDue(performance.now());
    for (let attempt = 0; ; ) {
      try {
        await this.#applyOnce({ isRetry: attempt + outdated > 0, anew: attempt >= ATTEMPTS_BEFORE_ANEW, outdated });
        this.#isMissingLogged = false;
        // A fallback may jump to a chain that its manager fills only while the chain is needed: apply again.
        return { againInMs: this.#rejectedRules.onCommitted() ? 0 : FOREIGN_READ_MS };
      } catch (error) {
        this.#needsRead = true;
        // Another program wrote between the read and the commit: read again at once. This is not a failure.
        if (hasErrno(error, "ERESTART")) {
          outdated++;
          continue;
        }
        this.#options.onCommit?.(false, 0);
        attempt++;
        if (this.#options.isOptional === true && attempt > 1) return this.#continueWithout(error);
        // The first error may be due to outdated knowledge of the kernel state. After a fresh read, the rules are the cause.
        if (attempt > 1 && this.#rejectedRules.replaceRejected(error)) {
          attempt = 1; // a fallback may be rejected too; this ends because each rule has a finite number of fallbacks
          continue;
        }
        if (attempt >= MAX_ATTEMPTS) throw new FatalDataplaneError("nftables cannot be programmed", { cause: error });
        this.#log.warn("nftables transaction was rejected; retrying", { error: describeError(error), attempt });
        await delay(2 ** (attempt - 1), signal);
      }
    }
  }

  #continueWithout(error: unknown): ApplyOutcome {
    const tables = this.#options.tables.map(({ ref }) => `${ref.family} ${ref.name}`).join(", ");
    if (!this.#isMissingLogged)
      this.#log.warn("kernel rejected optional nftables tables; continuing without them", {
        tables,
        error: describeError(error),
      });
    this.#isMissingLogged = true;
    return { againInMs: OPTIONAL_RETRY_MS };
  }

  async #applyOnce(how: {
    readonly isRetry: boolean;
    readonly anew: boolean;
    readonly outdated: number;
  }): Promise<void> {
    const { tables, ruleset } = this.#options;
    this.#checkGeneration();
    if (this.#needsRead) this.#read(how.isRetry);
    if (!how.anew && !tables.some((table) => table.hasChanges)) return;
    const transactions = this.#transactions(how.anew);
    // With the generation, the kernel rejects the commit if another program wrote since the read. If another program
    // writes all the time, the commit would never succeed: then it is sent without, and the next round reads again.
    const checksGeneration = how.outdated < MAX_OUTDATED;
    let pending: Promise<void> | undefined;
    for (const changes of transactions) {
      const options = checksGeneration && this.#generation !== undefined ? { generation: this.#generation } : {};
      if (transactions.length === 1 && !isLarge(changes)) ruleset.commit(changes, options);
      else {
        const next = await ruleset.commitOffThread(changes, options);
        await pending;
        pending = next.send();
        pending.catch(() => {}); // awaited below or in the next iteration
      }
      // A commit increments the generation by one.
      if (this.#generation !== undefined) this.#generation = nextGeneration(this.#generation);
    }
    if (pending !== undefined) await pending;
    for (const changes of transactions) this.#options.onCommit?.(true, changes.length);
    if (transactions.length > 0) {
      const generation = ruleset.generation();
      if (generation !== this.#generation) this.#needsRead = this.#generation !== undefined; // another program wrote
      this.#generation = generation;
    }
    for (const table of tables) table.committed();
  }

  /**
   * Returns the changes, in one transaction. Only if large tables do not exist yet, everything except their base chains is
   * written in several transactions, and each one is encoded while the kernel processes the previous one. No packet reaches
   * these chains yet, and if the process is killed meanwhile, its next run continues with what exists.
   */
  #transactions(anew: boolean): NftChange[][] {
    let inactive: NftChange[] = [];
    let active: NftChange[] = [];
    for (const table of this.#options.tables) {
      const isNew = table.isAbsent && !anew;
      const changes = table.changesByEffect({ anew });
      if (isNew) inactive = inactive.concat(changes.inactive);
      else active = active.concat(changes.inactive);
      active = active.concat(changes.active);
    }
    if (inactive.length < MIN_SPLIT_CHANGES) {
      const all = inactive.concat(active);
      return all.length === 0 ? [] : [all];
    }
    const size = Math.ceil(inactive.length / SPLIT_PARTS);
    const parts = Array.from({ length: SPLIT_PARTS }, (_, i) => inactive.slice(i * size, (i + 1) * size));
    return [...parts.slice(0, -1), (parts.at(-1) ?? []).concat(active)];
  }

  /** Detects writes of other programs. Whether they affect the tables is only known after a read. */
  #checkGeneration(): void {
    const nowMs = performance.now();
    const { refreshMs, ruleset } = this.#options;
    if (refreshMs > 0 && nowMs - this.#readAtMs >= refreshMs) this.#needsRead = true;
    if (this.#needsRead) return;
    const generation = ruleset.generation();
    if (generation !== this.#generation) this.#hasForeignWrite = true;
    this.#generation = generation;
    // Other programs write often, for example kube-proxy. Reading the tables each time would be expensive.
    if (this.#hasForeignWrite && nowMs - this.#readAtMs >= FOREIGN_READ_MS * 0.9) this.#needsRead = true;
  }

  #read(isRetry: boolean): void {
    const { tables, ruleset, onRead } = this.#options;
    const before = this.#generation;
    this.#generation = ruleset.generation();
    const isUntouched = before === this.#generation && !this.#hasForeignWrite;
    try {
      for (const table of tables) this.#readTable(table, isRetry, isUntouched);
      onRead?.(true);
    } catch (error) {
      onRead?.(false);
      throw error;
    }
    this.#needsRead = false;
    this.#hasForeignWrite = false;
    this.#readAtMs = performance.now();
  }

  #readTable(table: NftTable, isRetry: boolean, isUntouched: boolean): void {
    const { ruleset, refreshMs } = this.#options;
    const { ref } = table;
    const hadChanges = table.hasChanges;
    const found = ruleset.tables(ref.family).find(({ name }) => name === ref.name);
    if (found === undefined) table.found(ABSENT_TABLE);
    else
      table.found({
        table: found.isDormant ? "dormant" : "present",
        chains: ruleset.chains(ref),
        rules: ruleset.rules(ref),
        sets: ruleset.sets(ref),
        elementsOf: (set) => ruleset.elements(ref, set),
        flowtables: ruleset.flowtables(ref),
        options: { isUntouched, trustMs: refreshMs },
      });
    // If there was nothing to write before the read, any difference is due to another program.
    if (!hadChanges && !isRetry && table.hasChanges && this.#readAtMs > 0)
      this.#log.warn("another program changed nftables rules; restoring them", { table: `${ref.family} ${ref.name}` });
  }
}

/** True if encoding or programming the changes would block the event loop for a long time. */
function isLarge(changes: readonly NftChange[]): boolean {
  let cost = 0;
  for (const change of changes) {
    cost += costOf(change);
    if (cost >= MIN_OFF_THREAD_ELEMENTS) return true;
  }
  return false;
}

/** The cost of a change, as a number of elements. Elements of lists inside rules count too. */
function costOf(change: NftChange): number {
  if ("elements" in change) return change.elements.length;
  if (change.op === "addSet" || change.op === "deleteSet") return SET_COST;
  if (!(change instanceof LazyRule)) return 1;
  return (change.source.match ?? []).reduce((cost, m) => cost + listLength(m), RULE_COST);
}

function listLength(m: Match): number {
  if (m.kind === "nets") return m.nets.length;
  return m.kind === "ports" ? m.ranges.length : 0;
}

const nextGeneration = (generation: number): number => (generation + 1) >>> 0 || 1;
