// Builds the prefixes of NFLOG messages, which identify the rule for the flow log: `APE0|gnp/web`.
import { isOneWord, limitName } from "./names.ts";
import type { Direction } from "./names.ts";
import type { Decision } from "./rule.ts";

const PREFIX_LIMIT = 63;
const DECISION: Readonly<Record<Decision, string>> = { allow: "A", deny: "D", pass: "P" };

export const nflogGroup = (direction: Direction): number => (direction === "ingress" ? 1 : 2);

const letter = (direction: Direction): string => (direction === "ingress" ? "I" : "E");

/** `<decision><P|R><I|E><index>|<owner>` */
export function nflogPrefix(of: {
  readonly decision: Decision;
  readonly direction: Direction;
  readonly index: number;
  readonly owner: { readonly path: string; readonly isProfile: boolean };
}): string {
  const who = of.owner.isProfile ? "R" : "P";
  return shorten(`${DECISION[of.decision]}${who}${letter(of.direction)}${of.index}|${of.owner.path}`);
}

/** The end of a tier: `DPI|tier`, or `PPI|tier` if the default action of the tier is pass. */
export const nflogEndOfTier = (decision: "deny" | "pass", direction: Direction, tier: string): string =>
  shorten(`${DECISION[decision]}P${letter(direction)}|${tier}`);

/** No profile allowed the packet: `DRI`. */
export const nflogNoProfile = (direction: Direction): string => `DR${letter(direction)}`;

/** The middle of a long prefix is replaced by a hash. The result is one word in rule text, whatever the name of the policy. */
function shorten(given: string): string {
  const prefix = isOneWord(given) ? given : given.replace(/[^\x21-\x7e]|["'\\]/g, "_");
  if (prefix.length < PREFIX_LIMIT) return prefix;
  return `${prefix.slice(0, 10)}${limitName("", prefix, 42)}_${prefix.slice(-10)}`;
}
