// The routing rules that lead to one table of ours, kept as wanted. Rules to other tables are never looked at twice.
import { hasErrno, type Rule, type Rules } from "../../kernel/index.ts";
import type { IpVersion } from "../../lib/ip.ts";
import type { Logger } from "../../lib/log.ts";
import type { ApplyOutcome, Reconciler } from "../manager.ts";

export interface RoutingRulesOptions {
  readonly version: IpVersion;
  readonly table: number;
  readonly rules: Rules;
  readonly logger: Logger;
  /** Rules to the table that are ours to remove. */
  readonly isOurs: (rule: Rule) => boolean;
}

export class RoutingRules implements Reconciler {
  readonly name: string;
  readonly #options: RoutingRulesOptions;
  #wanted: readonly Rule[] = [];
  #needsWork = true;
  #hasWritten = false;

  constructor(options: RoutingRulesOptions) {
    this.#options = options;
    this.name = `routing rules IPv${options.version} to table ${options.table}`;
  }

  set(wanted: readonly Rule[]): void {
    if (JSON.stringify(wanted) === JSON.stringify(this.#wanted)) return;
    this.#wanted = wanted;
    this.#needsWork = true;
    this.#hasWritten = false;
  }

  queueResync(): void {
    this.#needsWork = true;
  }

  apply(): ApplyOutcome {
    if (!this.#needsWork) return {};
    const { version, table, rules, isOurs, logger } = this.#options;
    const missing = new Map(this.#wanted.map((rule) => [keyOf(rule), rule]));
    let changes = 0;
    for (const found of rules.list(version)) {
      if (found.table !== table || missing.delete(keyOf(found)) || !isOurs(found)) continue;
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
      logger.info("routing rules differed from what was written", { table, changes });
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
