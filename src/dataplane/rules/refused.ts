// What the kernel refused, for people: each told once in the log, and all of them listed for whoever asks.
import { describeError, type Logger } from "../../lib/log.ts";
import type { Rule } from "./rule.ts";
import { describeStandIn, neededFor } from "./stand-in.ts";

export interface Refused {
  readonly kind: "rule" | "set" | "feature";
  /** `ip calico filter-cali-INPUT, number 3` */
  readonly where: string;
  /** The rule as it was wanted. */
  readonly says?: string;
  /** Which setting asks for it, and what that needs of the kernel. */
  readonly setting?: string;
  readonly instead: string;
  /** The kernel's own words. */
  readonly error?: string;
}

/** As a transaction shows it. */
export type RefusedRule = Refused & { readonly kind: "rule" | "set" };

export const refusedRule = (where: string, rule: Rule, standIn: Rule): RefusedRule => {
  const setting = neededFor(rule);
  const { ifRefused: _, ...said } = rule;
  return {
    kind: "rule",
    where,
    says: JSON.stringify(said),
    ...(setting === undefined ? {} : { setting }),
    instead: describeStandIn(standIn),
  };
};
export const refusedSet = (where: string): RefusedRule => ({
  kind: "set",
  where,
  instead: "rules that name it stop what they would look up",
});

/** About the kernel's state and not about what it was asked for: it is asked again, and nothing gives way. */
export const isPassing = (errno: string): boolean => PASSING.has(errno);
const PASSING: ReadonlySet<string> = new Set([
  ...["ENOMEM", "ENOBUFS", "EAGAIN", "EINTR", "EPERM", "ERESTART", "EBUSY", "ENFILE", "EMFILE", "ETIMEDOUT", "EIO"],
]);

const SENTENCES = {
  rule: "the kernel refuses a rule; all others are written",
  set: "the kernel refuses an IP set; rules that name it stop what they would look up",
} as const;

export class RefusedLog {
  readonly #log: Logger;
  /** The kernel's words, by what was told: a rule refused again and again is told once. */
  readonly #told = new Map<string, string>();

  constructor(logger: Logger) {
    this.#log = logger;
  }

  tell(refused: RefusedRule, error: unknown): void {
    const { kind, where, ...fields } = refused;
    const key = JSON.stringify(refused);
    const words = describeError(error);
    this.#log[this.#told.has(key) ? "debug" : "error"](SENTENCES[kind], { [kind]: where, ...fields, error: words });
    this.#told.set(key, words);
  }

  /** With the kernel's words. */
  explained(refused: readonly Refused[]): Refused[] {
    return refused.map((each) => {
      const error = this.#told.get(JSON.stringify(each));
      return error === undefined ? each : { ...each, error };
    });
  }

  /** Nothing is refused any more. */
  settled(what: "rules" | "IP sets" = "rules"): void {
    if (this.#told.size === 0) return;
    this.#told.clear();
    this.#log.info(`the kernel takes all ${what} again`);
  }
}

/** For who reads a probe's answer; empty when nothing is refused. */
export function describeRefused(refused: readonly Refused[]): string {
  if (refused.length === 0) return "";
  const [first] = refused;
  const more = refused.length > 1 ? ` and ${refused.length - 1} more` : "";
  return `the kernel refuses ${first?.where ?? ""}${more}: calicoctl doctor`;
}
