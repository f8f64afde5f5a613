// One table of one family, kept equal to what managers want. Chains of ours are replaced; in the kernel's chains only
// our own rules are touched. The table is read right before it is written, because others write it too; except where the
// kernel tells that nobody did since (`foreign-writes.ts`).
import { IptablesError, type IptablesStore, type IptablesTable as TableName } from "../../kernel/index.ts";
import type { IpVersion } from "../../lib/ip.ts";
import { describeError, type Logger } from "../../lib/log.ts";
import { delay } from "../../lib/retry.ts";
import { sameList } from "../../lib/same-list.ts";
import { type ApplyOutcome, FatalDataplaneError, type Reconciler } from "../manager.ts";
import type { RuleAt } from "../rules/aside.ts";
import type { LayerTable } from "../rules/layer-table.ts";
import { type Refused, RefusedLog, refusedRule } from "../rules/refused.ts";
import type { Chain, Rule, SetId } from "../rules/rule.ts";
import type { ForeignWrites } from "./foreign-writes.ts";
import type { LoweringContext } from "./lower.ts";
import { RecheckTimer, type RecheckOptions } from "./recheck.ts";
import { findRefused } from "./refused-rules.ts";
import { type ChainDelta, hookDelta, restoreText } from "./restore-text.ts";
import { isOwnedChain, parseSave, type SavedRule } from "./save-text.ts";
import { type HookPlace, WantedChains } from "./wanted-chains.ts";

export interface IptablesTableOptions extends RecheckOptions {
  readonly layer: TableName;
  readonly store: IptablesStore;
  readonly context: LoweringContext;
  readonly insertMode: "insert" | "append";
  readonly logger: Logger;
  /** Rules of old versions that only their text gives away. */
  readonly oldRule?: RegExp;
  /** Before rules that somebody changed are put back, and when they are refused. */
  readonly beforeRepair?: (signal: AbortSignal) => Promise<void>;
  /** Another word after a write by anybody, where the kernel can tell. */
  readonly outline?: () => string | undefined;
  /** Where the kernel can tell; one for all tables. */
  readonly foreign?: ForeignWrites;
  readonly onCall?: (what: "save" | "restore", ok: boolean, lines: number) => void;
  /** When rules that were refused are tried again. */
  readonly refusedRetryMs?: number;
}

const KERNEL_CHAINS: Readonly<Record<TableName, readonly string[]>> = {
  filter: ["INPUT", "FORWARD", "OUTPUT"],
  nat: ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
  mangle: ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
  raw: ["PREROUTING", "OUTPUT"],
};
const WRITE_ATTEMPTS = 10;
const READ_ATTEMPTS = 3;
const REFUSED_RETRY_MS = 600_000;
/** So often in one round rules are searched for that the kernel does not take, when none was found. */
const SEARCHES = 2;

export class IptablesTable implements LayerTable, Reconciler {
  readonly name: string;
  readonly layer: TableName;
  readonly version: IpVersion;
  readonly #options: IptablesTableOptions;
  readonly #log: Logger;
  readonly #wanted: WantedChains;
  /** Chains that changed since they were last written. */
  readonly #dirty = new Set<string>();
  /** Nothing new was asked for: whatever differs now is somebody else's doing. */
  #isOnlyLooking = false;
  #hasWritten = false;
  #isBusy = false;
  /** When it was last read or written. */
  #outline: string | undefined;
  #areHooksDirty = true;
  /** What the kernel holds, as last read or written; nothing when that is in doubt. */
  #actual: Map<string, SavedRule[]> | undefined;
  /** The epoch of foreign writes in which that was true. */
  #epoch: number | undefined;
  readonly #recheck: RecheckTimer;
  readonly #refusals: RefusedLog;
  #listed: { readonly version: number; readonly refused: readonly Refused[] } | undefined;
  #retryAt = Number.POSITIVE_INFINITY;

  constructor(options: IptablesTableOptions) {
    this.#options = options;
    this.layer = options.layer;
    this.version = options.store.family;
    this.name = `iptables ${options.layer} IPv${this.version}`;
    this.#log = options.logger.with({ table: options.layer, ipVersion: this.version });
    this.#refusals = new RefusedLog(this.#log);
    this.#wanted = new WantedChains({
      layer: options.layer,
      context: options.context,
      onChange: (name) => this.#dirty.add(name),
      onHook: () => (this.#areHooksDirty = true),
    });
    this.#recheck = new RecheckTimer(options);
  }

  /** Somebody else wrote since we last read or wrote, as far as the outline tells. */
  get isOverwritten(): boolean {
    const { outline } = this.#options;
    return outline !== undefined && this.#hasWritten && !this.#isBusy && outline() !== this.#outline;
  }
  /** How long it takes to read. */
  get readMs(): number {
    return this.#recheck.readMs;
  }

  /** What is written, or shall be. */
  get size(): { readonly chains: number; readonly rules: number } {
    let chains = 0;
    let rules = 0;
    for (const { hashes } of this.#wanted.needed()) {
      chains++;
      rules += hashes.length;
    }
    return { chains, rules };
  }

  setChain(offered: Chain): void {
    this.#wanted.set(offered);
  }
  removeChain(name: string): void {
    this.#wanted.remove(name);
  }
  isNeeded(name: string): boolean {
    return this.#wanted.isNeeded(name);
  }
  setHook(kernelChain: string, place: HookPlace, rules: readonly Rule[]): void {
    this.#wanted.setHook(kernelChain, place, rules);
  }
  renameSet(id: SetId): void {
    this.#wanted.renameSet(id);
  }
  setSetAside(id: SetId, isAside: boolean): void {
    this.#wanted.setSetAside(id, isAside);
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
    this.#retryRefused();
    const isKnown =
      this.#actual !== undefined && this.#epoch !== undefined && this.#options.foreign?.epoch() === this.#epoch;
    if (this.#recheck.isDue()) {
      if (isKnown && !this.#recheck.isRefreshDue()) this.#recheck.confirmed();
      else this.#actual = undefined;
    }
    const hasChanges = this.#dirty.size > 0 || this.#areHooksDirty;
    this.#isOnlyLooking = !hasChanges && this.#hasWritten;
    if (this.#actual !== undefined && !hasChanges) return this.#outcome();
    // Somebody may have written since: what we compare with is always fresh, or known to be as good.
    if (!isKnown) this.#actual = undefined;
    let searches = 0;
    let hasStandIns = false;
    for (let attempt = 0; ; attempt++) {
      try {
        await this.#applyOnce(signal);
        // What stands in may lead to a chain that its manager has to fill first.
        return hasStandIns ? { againInMs: 0 } : this.#outcome();
      } catch (error) {
        if (signal.aborted) throw error;
        this.#actual = undefined;
        if (attempt + 1 >= WRITE_ATTEMPTS || error instanceof FatalDataplaneError)
          throw new FatalDataplaneError(`${this.name} cannot be programmed`, { cause: error });
        // No rule is taken that names a set which somebody made again as another kind: first look there.
        if (attempt === 0) await this.#options.beforeRepair?.(signal);
        if (attempt >= 1 && searches < SEARCHES && isRefusal(error)) {
          searches++;
          if (await this.#setAside(error, signal)) {
            hasStandIns = true;
            [attempt, searches] = [0, 0]; // there may be more; that goes on only as long as something gives way
            continue;
          }
        }
        this.#log.warn("iptables refused the rules; trying again", { error: describeError(error), attempt });
        await delay(2 ** attempt, signal);
      }
    }
  }

  async #applyOnce(signal: AbortSignal): Promise<void> {
    const { store, insertMode, foreign } = this.#options;
    const known = this.#actual;
    if (known === undefined) {
      this.#epoch = foreign?.epoch();
      this.#outline = this.#options.outline?.(); // before: who writes while we read is noticed
    }
    const actual = known ?? (await this.#read(signal));
    this.#actual = actual;
    // Of what is known, only what changed since can differ.
    const compare = () => {
      const found = known === undefined ? this.#difference(actual) : this.#difference(actual, this.#dirty);
      return { delta: found, texts: restoreText(this.layer, found, store.variant) };
    };
    let { delta, texts } = compare();
    if (texts.length > 0 && this.#isOnlyLooking) {
      this.#log.warn("somebody changed our iptables rules; repairing", {
        missing: delta.create.length,
        changed: delta.change.length,
        strange: delta.delete.length,
        hooks: delta.hooks.length,
      });
      await this.#options.beforeRepair?.(signal);
      ({ delta, texts } = compare()); // a set may have another name now
    }
    // From here on a change is one for the next round; after a failure everything is compared again.
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
      // What we believe the kernel holds is no longer what was read; the next look decides.
      if (this.#log.enabled("debug")) this.#log.debug("wrote iptables", { lines, insertMode });
    }
    this.#hasWritten = true;
    if (texts.length > 0) this.#adopt(actual, delta);
  }

  async #restore(text: string, signal: AbortSignal): Promise<void> {
    const { store, foreign } = this.#options;
    const write = () => store.restore(text, signal);
    try {
      await (foreign === undefined ? write() : foreign.during(write));
    } finally {
      this.#outline = this.#options.outline?.();
    }
  }

  /** Rules the kernel does not take give way to stand-ins, which let nothing more pass. False when it is none of them. */
  async #setAside(error: IptablesError, signal: AbortSignal): Promise<boolean> {
    const refused = await findRefused(this.layer, this.#wanted.suspects(), (text) => this.#restore(text, signal));
    if (refused.length === 0) return false;
    for (const { chain, index, level, rule, candidates } of refused) {
      const standIn = candidates[level];
      if (standIn !== undefined)
        this.#refusals.tell(refusedRule(this.#describe({ chain, index }), rule, standIn), error);
    }
    this.#retryAt = performance.now() + (this.#options.refusedRetryMs ?? REFUSED_RETRY_MS);
    this.#wanted.putAside(refused.map(({ chain, index, first, level }) => ({ chain, index, level: first + level })));
    return true;
  }

  /** What the kernel does not take. */
  refused(): readonly Refused[] {
    const version = this.#wanted.asideVersion;
    if (this.#listed?.version !== version) {
      const found = this.#wanted.replaced();
      const refused = found.map(({ at, rule, standIn }) => refusedRule(this.#describe(at), rule, standIn));
      this.#listed = { version, refused: this.#refusals.explained(refused) };
    }
    return this.#listed.refused;
  }

  #describe({ chain, index }: RuleAt): string {
    return `${this.version === 4 ? "iptables" : "ip6tables"} ${this.layer} ${chain}, number ${index + 1}`;
  }

  #retryRefused(): void {
    if (performance.now() < this.#retryAt) return;
    this.#retryAt = Number.POSITIVE_INFINITY;
    this.#wanted.takeBack();
  }

  /** @param names of the chains that may differ; all when not given */
  #difference(actual: ReadonlyMap<string, readonly SavedRule[]>, names?: ReadonlySet<string>): ChainDelta {
    const delta: ChainDelta = { create: [], change: [], delete: [], hooks: [] };
    for (const wanted of this.#wanted.needed(names)) {
      const rules = actual.get(wanted.name);
      if (rules === undefined) delta.create.push(wanted);
      else {
        const hashes = rules.map((rule) => rule.hash ?? "");
        if (!sameList(hashes, wanted.hashes)) delta.change.push({ chain: wanted, actual: hashes });
      }
    }
    for (const name of names ?? actual.keys())
      if (actual.has(name) && isOwnedChain(name) && !this.#wanted.isNeeded(name)) delta.delete.push(name);
    for (const kernelChain of KERNEL_CHAINS[this.layer]) {
      const found = hookDelta({
        kernelChain,
        actual: actual.get(kernelChain) ?? [],
        insert: this.#wanted.hook(kernelChain, "insert"),
        append: this.#wanted.hook(kernelChain, "append"),
        mode: this.#options.insertMode,
      });
      if (found !== undefined) delta.hooks.push(found);
    }
    return delta;
  }

  /** After a write: what we wrote is what is there, until someone looks. */
  #adopt(actual: Map<string, SavedRule[]>, delta: ChainDelta): void {
    for (const written of [...delta.create, ...delta.change.map(({ chain: changed }) => changed)])
      actual.set(
        written.name,
        written.hashes.map((hash) => ({ hash, isOurs: true, line: "" })),
      );
    for (const name of delta.delete) actual.delete(name);
    // Where our rules stand among others' in the kernel's chains, only reading tells.
    if (delta.hooks.length > 0) this.#actual = undefined;
  }

  async #read(signal: AbortSignal): Promise<Map<string, SavedRule[]>> {
    for (let attempt = 0; ; attempt++) {
      const started = performance.now();
      try {
        const text = await this.#options.store.save(this.layer, signal);
        this.#options.onCall?.("save", true, 0);
        this.#recheck.read(performance.now() - started);
        return parseSave(text, this.#options.oldRule);
      } catch (error) {
        this.#options.onCall?.("save", false, 0);
        if (signal.aborted) throw error;
        if (attempt + 1 >= READ_ATTEMPTS)
          throw new FatalDataplaneError(`${this.name} cannot be read`, { cause: error });
        this.#log.warn("iptables-save failed; trying again", { error: describeError(error), attempt });
        await delay(100 * 2 ** attempt, signal);
      }
    }
  }

  #outcome(): ApplyOutcome {
    if (!this.#wanted.hasAside) this.#refusals.settled();
    const retryInMs = Math.max(0, this.#retryAt - performance.now());
    const againInMs = Math.min(this.#recheck.dueInMs() ?? Number.POSITIVE_INFINITY, retryInMs);
    return againInMs === Number.POSITIVE_INFINITY ? {} : { againInMs };
  }
}

/** Said of what was asked for, and not of the moment. */
const isRefusal = (error: unknown): error is IptablesError => error instanceof IptablesError && !error.isPassing;
