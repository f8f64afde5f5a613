// Prevents one rule or set that the kernel rejects from blocking all other nftables changes.
//
// 1. Find the rejected rule or set. The kernel's error usually identifies it; otherwise bisect the transaction.
// 2. Replace it with a fallback, which never allows a packet that the rejected rule would have denied.
// 3. After the commit, log the rule, the setting that requires it, and the fallback.
// 4. After `retryMs`, try the rejected rule or set again.
//
// A rule can have several fallbacks. `level` selects one: 0 is closest to the rejected rule.
import { NftError, type NftChange, type NftRuleset, type TableRef } from "../../kernel/index.ts";
import type { Logger } from "../../lib/log/log.ts";
import type { RulePosition } from "../rules/fallback/active-fallbacks.ts";
import {
  describeRejectedRule,
  describeRejectedSet,
  isTransient,
  type RejectedItem,
  RejectionLog,
  type RejectedRuleOrSet,
} from "../rules/fallback/rejection-log.ts";
import { findCulprits, type Replacement, type Suspect } from "./find-culprits.ts";
import type { NftTable } from "./nft-table.ts";
import { LazyRule } from "./prepared-chain.ts";

export interface RejectedRulesOptions {
  readonly tables: readonly NftTable[];
  readonly ruleset: Pick<NftRuleset, "dryRun">;
  readonly logger: Logger;
  /** Delay before a rejected rule or set is tried again. */
  readonly retryMs?: number;
}

const DEFAULT_RETRY_MS = 60_000;

/** Transient errors (out of memory, interrupted) do not depend on the rules; retrying the same transaction helps. */
const isRejection = (error: unknown): error is NftError => error instanceof NftError && !isTransient(error.errno);

/** Jumps nested too deeply (`NFT_JUMP_STACK_SIZE`), or in a loop: properties of several chains, not of one rule. */
const JUMP_ERRNOS: ReadonlySet<string> = new Set(["EMLINK", "ELOOP"]);

export class RejectedRules {
  readonly #options: RejectedRulesOptions;
  readonly #log: RejectionLog;
  /** Why each rule or set was replaced since the last commit, by location. */
  readonly #unreportedErrors = new Map<string, NftError>();
  #retryAtMs = Number.POSITIVE_INFINITY;
  #cachedList: { readonly version: number; readonly items: readonly RejectedItem[] } | undefined;

  constructor(options: RejectedRulesOptions) {
    this.#options = options;
    this.#log = new RejectionLog(options.logger);
  }

  /** Returns the rules and sets that are currently replaced by fallbacks. */
  list(): readonly RejectedItem[] {
    const version = this.#options.tables.reduce((sum, table) => sum + table.desired.fallbackVersion, 0);
    if (this.#cachedList?.version !== version)
      this.#cachedList = { version, items: this.#log.withErrors(this.#describeRejected()) };
    return this.#cachedList.items;
  }

  #describeRejected(): RejectedRuleOrSet[] {
    return this.#options.tables.flatMap((table) => [
      ...table.desired.activeFallbacks().flatMap((position) => describeRejectedAt(table, position)),
      ...table.rejectedSets().map((set) => describeRejectedSet(formatSetLocation(table, set))),
    ]);
  }

  /** If the retry is due, restores the rejected rules and sets, so that the next commit tries them again. */
  retryWhenDue(nowMs: number): void {
    if (nowMs < this.#retryAtMs) return;
    this.#retryAtMs = Number.POSITIVE_INFINITY;
    for (const table of this.#options.tables) table.clearFallbacks();
  }

  /**
   * Must be called after each successful commit: only then is it certain which fallbacks the kernel accepted.
   * @returns true if the commit contained new fallbacks
   */
  onCommitted(): boolean {
    const hasNewFallbacks = this.#unreportedErrors.size > 0;
    if (hasNewFallbacks) {
      for (const item of this.#describeRejected()) {
        const error = this.#unreportedErrors.get(item.where);
        if (error !== undefined) this.#log.report(item, error);
      }
      this.#cachedList = undefined; // it lacks the errors just reported
      this.#unreportedErrors.clear();
    }
    if (!this.#options.tables.some((table) => table.desired.hasFallbacks)) this.#log.reportResolved();
    return hasNewFallbacks;
  }

  /**
   * Replaces the rules or sets that caused `error` with fallbacks.
   * @returns false if the cause was not found or has no fallback; nothing was changed then
   */
  replaceRejected(error: unknown): boolean {
    if (!isRejection(error)) return false;
    const reported = collectRules(error.rejected);
    // The kernel checks some properties of a chain only when a base chain leads to it (jump depth, expressions that are
    // not allowed in that hook), and then reports the jump. The faulty rule may be any other.
    const uncertain = JUMP_ERRNOS.has(error.errno) ? reported : reported.filter(isJump);
    const certain = reported.filter((rule) => !uncertain.includes(rule));
    // Sets first, because rules that refer to a rejected set are rejected only for that reason.
    const isReplaced =
      this.#replaceSets(error) ||
      this.#replaceRules(certain, error) ||
      this.#replaceByBisection(error) ||
      this.#replaceRules(uncertain, error);
    if (isReplaced) this.#retryAtMs = performance.now() + (this.#options.retryMs ?? DEFAULT_RETRY_MS);
    return isReplaced;
  }

  #replaceSets(error: NftError): boolean {
    let isReplaced = false;
    for (const change of error.rejected) {
      if (!("set" in change) || change.op === "deleteSet") continue;
      const table = this.#tableOf(change);
      if (table?.markSetRejected(change.set) !== true) continue;
      isReplaced = true;
      this.#unreportedErrors.set(formatSetLocation(table, change.set), error);
    }
    return isReplaced;
  }

  #replaceRules(rules: readonly LazyRule[], error: NftError): boolean {
    const replaced = rules.filter((rule) => this.#tableOf(rule)?.desired.useNextFallback(rule) === true);
    for (const rule of replaced) this.#unreportedErrors.set(formatRuleLocation(rule.table, rule), error);
    return replaced.length > 0;
  }

  /** For an error that identifies no rule, or only uncertain ones. */
  #replaceByBisection(error: NftError): boolean {
    const { tables } = this.#options;
    const fallbacksBefore = tables.map((table) => table.desired.activeFallbacks());
    const restoreFallbacks = () => {
      for (const [i, table] of tables.entries()) {
        table.desired.clearRuleFallbacks();
        table.desired.useFallbacks(fallbacksBefore[i] ?? []);
      }
    };
    let replacements: Replacement<LazyRule>[];
    try {
      replacements = findCulprits(this.#suspects(), (candidates) => {
        restoreFallbacks();
        this.#applyReplacements(candidates);
        return this.#isAccepted();
      });
    } catch (dryRunError) {
      restoreFallbacks();
      if (!(dryRunError instanceof NftError)) throw dryRunError;
      return false; // a transient error, unrelated to any rule: stop searching
    }
    restoreFallbacks();
    this.#applyReplacements(replacements);
    for (const { rule } of replacements) this.#unreportedErrors.set(formatRuleLocation(rule.table, rule), error);
    return replacements.length > 0;
  }

  /** The rules of the pending changes that have fallbacks. */
  #suspects(): Suspect<LazyRule>[] {
    const suspects = collectRules(this.#computeChanges())
      .map((rule) => ({ rule, fallbacks: this.#tableOf(rule)?.desired.fallbacksFor(rule).length ?? 0 }))
      .filter(({ fallbacks }) => fallbacks > 0);
    // If replacing either of two rules would help, the earlier suspect is replaced. Jumps come last: they are often not
    // the faulty rule, and replacing one affects all packets of the target chain.
    return [...suspects.filter(({ rule }) => !isJump(rule)), ...suspects.filter(({ rule }) => isJump(rule))];
  }

  #applyReplacements(replacements: readonly Replacement<LazyRule>[]): void {
    for (const { rule, level } of replacements)
      this.#tableOf(rule)?.desired.useFallbacks([{ chain: rule.chain, index: rule.index, level }]);
  }

  /** Whether the kernel would accept the pending changes. */
  #isAccepted(): boolean {
    try {
      this.#options.ruleset.dryRun(this.#computeChanges());
      return true;
    } catch (error) {
      if (isRejection(error)) return false;
      throw error;
    }
  }

  #computeChanges(): NftChange[] {
    return this.#options.tables.flatMap((table) => table.changes());
  }

  #tableOf({ table: ref }: { readonly table: TableRef }): NftTable | undefined {
    return this.#options.tables.find((table) => table.ref.family === ref.family && table.ref.name === ref.name);
  }
}

/** Returns each rule of the rule tree once, even if it was rendered as several kernel rules. */
function collectRules(changes: readonly NftChange[]): LazyRule[] {
  const rules = new Map<string, LazyRule>();
  for (const change of changes)
    if (change instanceof LazyRule) {
      const { table, chain, index } = change;
      rules.set(`${table.family} ${table.name} ${chain} ${index}`, change);
    }
  return [...rules.values()];
}

const isJump = ({ source: { action } }: LazyRule): boolean => action?.kind === "jump" || action?.kind === "goto";

/** `ip calico filter-cali-INPUT rule 3`; the first three words are arguments of `nft list chain`. */
const formatRuleLocation = ({ family, name }: TableRef, { chain, index }: RulePosition): string =>
  `${family} ${name} ${chain} rule ${index + 1}`;
const formatSetLocation = ({ ref }: NftTable, set: string): string => `${ref.family} ${ref.name} ${set}`;

/** Empty if the rule no longer exists or is not replaced. */
function describeRejectedAt(table: NftTable, position: RulePosition): RejectedRuleOrSet[] {
  const found = table.desired.ruleAt(position);
  if (found?.fallback === undefined) return [];
  return [describeRejectedRule(formatRuleLocation(table.ref, position), found.rule, found.fallback)];
}
