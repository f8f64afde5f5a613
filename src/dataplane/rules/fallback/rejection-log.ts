// Reports rules and sets that the kernel rejects to operators: in the log, once each, and as a list for status and doctor.
import { describeError, type Logger } from "../../../lib/log/log.ts";
import type { Rule } from "../rule.ts";
import { describeFallback, requiringSettings } from "./fallback-rules.ts";

export interface RejectedItem {
  readonly kind: "rule" | "set" | "feature";
  /** `ip calico filter-cali-INPUT rule 3` */
  readonly where: string;
  /** The rejected rule, as JSON. */
  readonly definition?: string;
  /** The settings that require the rule, and the kernel modules that they need. */
  readonly setting?: string;
  /** What happens to packets instead. */
  readonly instead: string;
  /** The kernel's error. */
  readonly error?: string;
}

/** An item that was found in a rejected transaction. */
export type RejectedRuleOrSet = RejectedItem & { readonly kind: "rule" | "set" };

export const describeRejectedRule = (where: string, rule: Rule, fallback: Rule): RejectedRuleOrSet => {
  const setting = requiringSettings(rule);
  const { ifRejected: _, ...definition } = rule;
  return {
    kind: "rule",
    where,
    definition: JSON.stringify(definition),
    setting,
    instead: describeFallback(fallback),
  };
};
export const describeRejectedSet = (where: string): RejectedRuleOrSet => ({
  kind: "set",
  where,
  instead: "rules that use the set are replaced; packets that policy allows may be dropped",
});

/** True for errors that do not depend on the rules. Retrying the same transaction helps; fallbacks do not. */
export const isTransient = (errno: string): boolean => TRANSIENT_ERRNOS.has(errno);
const TRANSIENT_ERRNOS: ReadonlySet<string> = new Set([
  ...["ENOMEM", "ENOBUFS", "EAGAIN", "EINTR", "EPERM", "ERESTART", "EBUSY", "ENFILE", "EMFILE", "ETIMEDOUT", "EIO"],
]);

const SENTENCES = {
  rule: "kernel rejected a rule; a fallback is programmed instead",
  set: "kernel rejected an IP set; rules that use it are replaced by fallbacks",
} as const;

export class RejectionLog {
  readonly #log: Logger;
  /** The kernel's error for each reported item. */
  readonly #reportedErrors = new Map<string, string>();

  constructor(logger: Logger) {
    this.#log = logger;
  }

  /** Logs the item as an error the first time, at debug level after that. */
  report(item: RejectedRuleOrSet, error: unknown): void {
    const { kind, where, ...fields } = item;
    const key = JSON.stringify(item);
    const reason = describeError(error);
    const level = this.#reportedErrors.has(key) ? "debug" : "error";
    this.#log[level](SENTENCES[kind], { [kind]: where, ...fields, error: reason });
    this.#reportedErrors.set(key, reason);
  }

  /** Adds the kernel's errors to items that were reported. */
  withErrors(items: readonly RejectedItem[]): RejectedItem[] {
    return items.map((item) => {
      const error = this.#reportedErrors.get(JSON.stringify(item));
      return error === undefined ? item : { ...item, error };
    });
  }

  /** Must be called when the kernel has accepted everything. Logs it if items were reported before. */
  reportResolved(what: "rules" | "IP sets" = "rules"): void {
    if (this.#reportedErrors.size === 0) return;
    this.#reportedErrors.clear();
    this.#log.info(`kernel accepts all ${what} again`);
  }
}

/** Summarizes rejected items in the reply of the readiness probe; empty if there are none. */
export function summarizeRejected(items: readonly RejectedItem[]): string {
  if (items.length === 0) return "";
  const [first] = items;
  const more = items.length > 1 ? ` and ${items.length - 1} more` : "";
  return `the kernel rejects ${first?.where ?? ""}${more}: run calicoctl doctor`;
}
