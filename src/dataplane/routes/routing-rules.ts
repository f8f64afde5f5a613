// Keeps the routing rules (`ip rule`) for one routing table. Rules for other tables are ignored.
import { hasErrno, type Rule, type Rules } from "../../kernel/index.ts";
import type { IpVersion } from "../../lib/ip/ip.ts";
import type { Logger } from "../../lib/log/log.ts";
import type { ApplyOutcome, Reconciler } from "../loop/manager.ts";

export interface RoutingRulesOptions {
  readonly version: IpVersion;
  readonly table: number;
  readonly rules: Rules;
  readonly logger: Logger;
  /** True for rules of calico-ts, which may be removed. */
  readonly isOwned: (rule: Rule) => boolean;
}

export class RoutingRules implements Reconciler {
  readonly name: string;
  readonly #options: RoutingRulesOptions;
  #desired: readonly Rule[] = [];
  #needsWork = true;
  #hasWritten = false;

  constructor(options: RoutingRulesOptions) {
    this.#options = options;
    this.name = `routing rules IPv${options.version} to table ${options.table}`;
  }

  set(desired: readonly Rule[]): void {
    if (JSON.stringify(desired) === JSON.stringify(this.#desired)) return;
    this.#desired = desired;
    this.#needsWork = true;
    this.#hasWritten = false;
  }

  queueResync(): void {
    this.#needsWork = true;
  }

  apply(): ApplyOutcome {
    if (!this.#needsWork) return {};
    const { version, table, rules, isOwned, logger } = this.#options;
    const missing = new Map(this.#desired.map((rule) => [keyOf(rule), rule]));
    let changes = 0;
    for (const found of rules.list(version)) {
      if (found.table !== table || missing.delete(keyOf(found)) || !isOwned(found)) continue;
      changes++;
      try {
        rules.delete(found);
      } catch (error) {
        if (!hasErrno(error, "ENOENT", "ESRCH")) throw error;
      }
    }
    for (const rule of missing.values())
      try {
        rules.add(rule);
        changes++;
      } catch (error) {
        if (!hasErrno(error, "EEXIST")) throw error;
      }
    if (changes > 0 && this.#hasWritten)
      logger.info("another program changed routing rules; restored them", { table, changes });
    this.#hasWritten = true;
    this.#needsWork = false;
    return {};
  }
}

const keyOf = (r: Rule): string =>
  JSON.stringify([
    r.priority,
    r.action,
    r.table,
    r.inverted ?? false,
    r.mark?.value ?? 0,
    r.mark?.mask ?? 0,
    r.source,
    r.destination,
    r.incoming,
    r.outgoing,
  ]);
