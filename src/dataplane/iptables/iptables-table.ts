// Keeps one iptables table of one family equal to the desired chains. Owned chains are replaced; in the kernel's chains only
// owned rules are changed. The table is read before each write, because other programs write to it too, unless the kernel
// shows that none did (foreign-writes.ts).
import { IptablesError, type IptablesStore, type IptablesTable as TableName } from "../../kernel/index.ts";
import type { IpVersion } from "../../lib/ip/ip.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import { delay, yieldToEventLoop } from "../../lib/retry.ts";
import { listsEqual } from "../../lib/compare-lists.ts";
import { type ApplyOutcome, FatalDataplaneError, type Reconciler } from "../loop/manager.ts";
import type { RulePosition } from "../rules/fallback/active-fallbacks.ts";
import type { RuleTable } from "../rules/rule-table.ts";
import { type RejectedItem, RejectionLog, describeRejectedRule } from "../rules/fallback/rejection-log.ts";
import type { Chain, Rule, SetId } from "../rules/rule.ts";
import type { ForeignWrites } from "./foreign-writes.ts";
import type { RenderContext } from "./render.ts";
import { RecheckTimer, type RecheckOptions } from "./recheck-timer.ts";
import { ProbeChain } from "./probe-chain.ts";
import { findRejectedRules } from "./rejected-rules.ts";
import { type ChainDelta, hookDelta, restoreText } from "./restore-text.ts";
import { isOwnedChain, parseSave, type SavedRule } from "./save-text.ts";
import { type HookPlace, RenderedChains } from "./rendered-chains.ts";

export interface IptablesTableOptions extends RecheckOptions {
  readonly tableName: TableName;
  readonly store: IptablesStore;
  readonly context: RenderContext;
  readonly insertMode: "insert" | "append";
  readonly logger: Logger;
  /** Matches rules of old Calico versions, which have no hash in their comment. */
  readonly oldRule?: RegExp;
  /** Called before rules that another program changed are restored, and when the kernel rejected them. */
  readonly beforeRepair?: (signal: AbortSignal) => Promise<void>;
  /** Returns a text that changes when any program writes; undefined if that is not supported. */
  readonly fingerprint?: () => string | undefined;
  /** Shared by all tables; undefined if the kernel does not count writes. */
  readonly foreign?: ForeignWrites;
  readonly onCall?: (what: "save" | "restore", ok: boolean, lines: number) => void;
  /** Delay before rejected rules are tried again. */
  readonly rejectedRetryMs?: number;
}

const KERNEL_CHAINS: Readonly<Record<TableName, readonly string[]>> = {
  filter: ["INPUT", "FORWARD", "OUTPUT"],
  nat: ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
  mangle: ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
  raw: ["PREROUTING", "OUTPUT"],
};
const WRITE_ATTEMPTS = 10;
const READ_ATTEMPTS = 3;
/** A chain with fewer rules is rendered and hashed in less than 10 ms. */
const LARGE_CHAIN_RULES = 5000;
const REJECTED_RETRY_MS = 600_000;
/** Maximum number of searches for rejected rules in one round that find nothing. */
const MAX_SEARCHES = 2;

export class IptablesTable implements RuleTable, Reconciler {
  readonly name: string;
  readonly tableName: TableName;
  readonly version: IpVersion;
  readonly #options: IptablesTableOptions;
  readonly #log: Logger;
  readonly #chains: RenderedChains;
  /** Chains that changed since they were last written. */
  readonly #dirty = new Set<string>();
  /** True if nothing was changed by calico-ts: any difference is due to another program. */
  #isOnlyChecking = false;
  #hasWritten = false;
  #isBusy = false;
  /** The fingerprint after the last read or write. */
  #fingerprint: string | undefined;
  #areHooksDirty = true;
  /** The rules in the kernel, as last read or written; undefined if they must be read. */
  #actual: Map<string, SavedRule[]> | undefined;
  /** The epoch of `ForeignWrites` at that time. */
  #epoch: number | undefined;
  readonly #recheck: RecheckTimer;
  readonly #rejectionLog: RejectionLog;
  #cachedList: { readonly version: number; readonly items: readonly RejectedItem[] } | undefined;
  #retryAtMs = Number.POSITIVE_INFINITY;

  constructor(options: IptablesTableOptions) {
    this.#options = options;
    this.tableName = options.tableName;
    this.version = options.store.family;
    this.name = `iptables ${options.tableName} IPv${this.version}`;
    this.#log = options.logger.with({ table: options.tableName, ipVersion: this.version });
    this.#rejectionLog = new RejectionLog(this.#log);
    this.#chains = new RenderedChains({
      tableName: options.tableName,
      context: options.context,
      onChange: (name) => this.#dirty.add(name),
      onHook: () => (this.#areHooksDirty = true),
    });
    this.#recheck = new RecheckTimer(options);
  }

  /** True if the fingerprint shows that another program wrote since the last read or write. */
  get isOverwritten(): boolean {
    const { fingerprint } = this.#options;
    return fingerprint !== undefined && this.#hasWritten && !this.#isBusy && fingerprint() !== this.#fingerprint;
  }
  /** The duration of a read. */
  get readMs(): number {
    return this.#recheck.readMs;
  }

  /** The number of desired chains and rules. */
  get size(): { readonly chains: number; readonly rules: number } {
    let chains = 0;
    let rules = 0;
    for (const { hashes } of this.#chains.needed()) {
      chains++;
      rules += hashes.length;
    }
    return { chains, rules };
  }

  setChain(offered: Chain): void {
    this.#chains.set(offered);
  }
  removeChain(name: string): void {
    this.#chains.remove(name);
  }
  isNeeded(name: string): boolean {
    return this.#chains.desired.isNeeded(name);
  }
  setHook(kernelChain: string, place: HookPlace, rules: readonly Rule[]): void {
    this.#chains.setHook(kernelChain, place, rules);
  }
  renameSet(id: SetId): void {
    this.#chains.renameSet(id);
  }
  setSetRejected(id: SetId, isRejected: boolean): void {
    const { desired } = this.#chains;
    if (isRejected) desired.addRejectedSet(id);
    else desired.deleteRejectedSet(id);
  }

  queueResync(): void {
    this.#actual = undefined;
  }

  async apply(signal: AbortSignal): Promise<ApplyOutcome> {
    this.#isBusy = true;
    try {
      return await this.#apply(signal);
    } finally {
      this.#isBusy = false;
    }
  }

  async #apply(signal: AbortSignal): Promise<ApplyOutcome> {
    this.#retryRejected();
    const isKnown =
      this.#actual !== undefined && this.#epoch !== undefined && this.#options.foreign?.epoch() === this.#epoch;
    if (this.#recheck.isDue()) {
      if (isKnown && !this.#recheck.isRefreshDue()) this.#recheck.confirmed();
      else this.#actual = undefined;
    }
    const hasChanges = this.#dirty.size > 0 || this.#areHooksDirty;
    this.#isOnlyChecking = !hasChanges && this.#hasWritten;
    if (this.#actual !== undefined && !hasChanges) return this.#outcome();
    // Another program may have written. The desired state is compared with a fresh read, unless the last one is still valid.
    if (!isKnown) this.#actual = undefined;
    let searches = 0;
    let hasNewFallbacks = false;
    for (let attempt = 0; ; attempt++) {
      try {
        await this.#applyOnce(signal);
        // A fallback may jump to a chain that its manager fills only while the chain is needed: apply again.
        return hasNewFallbacks ? { againInMs: 0 } : this.#outcome();
      } catch (error) {
        if (signal.aborted) throw error;
        this.#actual = undefined;
        if (attempt + 1 >= WRITE_ATTEMPTS || error instanceof FatalDataplaneError)
          throw new FatalDataplaneError(`${this.name} cannot be programmed`, { cause: error });
        // The kernel rejects rules that use a set which another program replaced by one of another type: check the sets once.
        if (attempt === 0) await this.#options.beforeRepair?.(signal);
        if (attempt >= 1 && searches < MAX_SEARCHES && isRejection(error)) {
          searches++;
          if (await this.#replaceRejected(error, signal)) {
            hasNewFallbacks = true;
            [attempt, searches] = [0, 0]; // there may be more; this ends because each rule has finitely many fallbacks
            continue;
          }
        }
        this.#log.warn("iptables-restore failed; retrying", { error: describeError(error), attempt });
        await delay(2 ** attempt, signal);
      }
    }
  }

  async #applyOnce(signal: AbortSignal): Promise<void> {
    const { store, insertMode, foreign } = this.#options;
    const known = this.#actual;
    if (known === undefined) {
      this.#epoch = foreign?.epoch();
      this.#fingerprint = this.#options.fingerprint?.(); // before the read, so that a write during the read is detected
    }
    const actual = known ?? (await this.#read(signal));
    this.#actual = actual;
    await this.#prepareLargeChains(known === undefined ? undefined : this.#dirty);
    // If the last read is valid, only changed chains can differ.
    const compare = () => {
      const found = known === undefined ? this.#difference(actual) : this.#difference(actual, this.#dirty);
      return { delta: found, texts: restoreText(this.tableName, found, store.variant) };
    };
    let { delta, texts } = compare();
    if (texts.length > 0 && this.#isOnlyChecking) {
      this.#log.warn("another program changed iptables rules; restoring them", {
        missing: delta.create.length,
        changed: delta.change.length,
        strange: delta.delete.length,
        hooks: delta.hooks.length,
      });
      await this.#options.beforeRepair?.(signal);
      ({ delta, texts } = compare()); // the name of a set may have changed
    }
    // Later changes are written in the next round. After a failure, everything is compared again.
    this.#dirty.clear();
    this.#areHooksDirty = false;
    for (const text of texts) {
      const lines = text.split("\n").length - 1;
      const started = performance.now();
      try {
        await this.#restore(text, signal);
        this.#options.onCall?.("restore", true, lines);
      } catch (error) {
        this.#options.onCall?.("restore", false, lines);
        throw error;
      }
      this.#recheck.wrote(performance.now() - started);
      if (this.#log.enabled("debug")) this.#log.debug("wrote iptables", { lines, insertMode });
    }
    this.#hasWritten = true;
    if (texts.length > 0) this.#adopt(actual, delta);
  }

  /**
   * Renders and hashes large chains, with other tasks of the event loop in between: a policy with 80,000 prefixes has as many
   * rules, and comparing its chains would block Felix for 0.2 s.
   */
  async #prepareLargeChains(names: Iterable<string> | undefined): Promise<void> {
    for (const chain of [...this.#chains.needed(names)]) {
      if (chain.texts.length < LARGE_CHAIN_RULES) continue;
      await yieldToEventLoop();
      void chain.hashes; // computed when it is first read
      await yieldToEventLoop();
    }
  }

  async #restore(text: string, signal: AbortSignal): Promise<void> {
    const { store, foreign } = this.#options;
    const write = () => store.restore(text, signal);
    try {
      await (foreign === undefined ? write() : foreign.during(write));
    } finally {
      this.#fingerprint = this.#options.fingerprint?.();
    }
  }

  /**
   * Finds the rules that the kernel rejects, and replaces them with fallbacks.
   * @returns false if no such rule was found
   */
  async #replaceRejected(error: IptablesError, signal: AbortSignal): Promise<boolean> {
    const probe = new ProbeChain(this.tableName, (text) => this.#restore(text, signal));
    const rejected = await findRejectedRules(this.#chains.suspects(), probe);
    if (rejected.length === 0) return false;
    for (const { suspect, level } of rejected) {
      const fallback = suspect.fallbacks[level];
      if (fallback === undefined) continue;
      this.#rejectionLog.report(describeRejectedRule(this.#formatLocation(suspect), suspect.rule, fallback), error);
    }
    this.#retryAtMs = performance.now() + (this.#options.rejectedRetryMs ?? REJECTED_RETRY_MS);
    this.#chains.desired.useFallbacks(
      rejected.map(({ suspect: { chain, index, firstLevel }, level }) => ({
        chain,
        index,
        level: firstLevel + level,
      })),
    );
    return true;
  }

  /** The rules that the kernel rejects. */
  rejected(): readonly RejectedItem[] {
    const { desired } = this.#chains;
    const version = desired.fallbackVersion;
    if (this.#cachedList?.version !== version) {
      const items = desired.activeFallbacks().flatMap((position) => {
        const found = desired.isNeeded(position.chain) ? desired.ruleAt(position) : undefined;
        if (found?.fallback === undefined) return [];
        return [describeRejectedRule(this.#formatLocation(position), found.rule, found.fallback)];
      });
      this.#cachedList = { version, items: this.#rejectionLog.withErrors(items) };
    }
    return this.#cachedList.items;
  }

  /** `iptables filter cali-INPUT rule 3` */
  #formatLocation({ chain, index }: RulePosition): string {
    return `${this.version === 4 ? "iptables" : "ip6tables"} ${this.tableName} ${chain} rule ${index + 1}`;
  }

  #retryRejected(): void {
    if (performance.now() < this.#retryAtMs) return;
    this.#retryAtMs = Number.POSITIVE_INFINITY;
    this.#chains.desired.clearRuleFallbacks();
  }

  /** @param names the chains that may differ; by default all */
  #difference(actual: ReadonlyMap<string, readonly SavedRule[]>, names?: ReadonlySet<string>): ChainDelta {
    const delta: ChainDelta = { create: [], change: [], delete: [], hooks: [] };
    for (const desired of this.#chains.needed(names)) {
      const rules = actual.get(desired.name);
      if (rules === undefined) delta.create.push(desired);
      else {
        const hashes = rules.map((rule) => rule.hash ?? "");
        if (!listsEqual(hashes, desired.hashes)) delta.change.push({ chain: desired, actual: hashes });
      }
    }
    for (const name of names ?? actual.keys())
      if (actual.has(name) && isOwnedChain(name) && !this.#chains.desired.isNeeded(name)) delta.delete.push(name);
    for (const kernelChain of KERNEL_CHAINS[this.tableName]) {
      const found = hookDelta({
        kernelChain,
        actual: actual.get(kernelChain) ?? [],
        insert: this.#chains.hook(kernelChain, "insert"),
        append: this.#chains.hook(kernelChain, "append"),
        mode: this.#options.insertMode,
      });
      if (found !== undefined) delta.hooks.push(found);
    }
    return delta;
  }

  /** Records the written chains as the kernel state. */
  #adopt(actual: Map<string, SavedRule[]>, delta: ChainDelta): void {
    for (const written of [...delta.create, ...delta.change.map(({ chain: changed }) => changed)])
      actual.set(
        written.name,
        written.hashes.map((hash) => ({ hash, isOwned: true, line: "" })),
      );
    for (const name of delta.delete) actual.delete(name);
    // The positions of owned rules in the kernel's chains are only known after a read.
    if (delta.hooks.length > 0) this.#actual = undefined;
  }

  async #read(signal: AbortSignal): Promise<Map<string, SavedRule[]>> {
    for (let attempt = 0; ; attempt++) {
      const started = performance.now();
      try {
        const text = await this.#options.store.save(this.tableName, signal);
        this.#options.onCall?.("save", true, 0);
        this.#recheck.read(performance.now() - started);
        return parseSave(text, this.#options.oldRule);
      } catch (error) {
        this.#options.onCall?.("save", false, 0);
        if (signal.aborted) throw error;
        if (attempt + 1 >= READ_ATTEMPTS)
          throw new FatalDataplaneError(`${this.name} cannot be read`, { cause: error });
        this.#log.warn("iptables-save failed; retrying", { error: describeError(error), attempt });
        await delay(100 * 2 ** attempt, signal);
      }
    }
  }

  #outcome(): ApplyOutcome {
    if (!this.#chains.desired.hasFallbacks) this.#rejectionLog.reportResolved();
    const retryInMs = Math.max(0, this.#retryAtMs - performance.now());
    const againInMs = Math.min(this.#recheck.dueInMs() ?? Number.POSITIVE_INFINITY, retryInMs);
    return againInMs === Number.POSITIVE_INFINITY ? {} : { againInMs };
  }
}

/** True if the error depends on the rules. */
const isRejection = (error: unknown): error is IptablesError => error instanceof IptablesError && !error.isTransient;
