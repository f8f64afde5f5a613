// Finds the rules that the kernel rejects, and the closest fallbacks that it accepts.
//
// iptables-restore writes a table as a whole and seldom reports which rule was rejected. Therefore the rules are tried by
// bisection, in a chain that no packet reaches. Some rules are rejected only if one of the kernel's chains leads to them:
// if the first search finds nothing, a second one also adds jumps from these chains, which no packet takes.
//
// A rule counts as rejected only if it is rejected again while a harmless rule is accepted right before and after it. A
// lock that was held, or a short lack of memory, is not the fault of the rule.
import { IptablesError } from "../../kernel/index.ts";
import type { RulePosition } from "../rules/fallback/active-fallbacks.ts";
import type { RuleText } from "./render.ts";

export interface Suspect extends RulePosition {
  readonly texts: readonly RuleText[];
  /** The rule texts of each fallback, the closest first. */
  readonly fallbackTexts: readonly (readonly RuleText[])[];
  /** The kernel's chains that lead to the rule. */
  readonly hooks: readonly string[];
  /** Equal for rules that need the same kernel features. */
  readonly requirements: string;
  /** Renders the shortest rule that needs the same kernel features. */
  readonly renderSimplified: () => readonly RuleText[];
}

/** Tries rules. Methods throw `IptablesError` if the kernel cannot be tested at the moment. */
export interface RuleProbe {
  /** Returns the text to try. Equal for rules that differ only in comments and jump targets; empty if always accepted. */
  normalize(texts: readonly RuleText[]): string;
  /** @param hooks the kernel's chains from which the rules are reachable during the test */
  accepts(rules: readonly string[], hooks: readonly string[]): Promise<boolean>;
  acceptsHarmlessRule(hooks: readonly string[]): Promise<boolean>;
  remove(): Promise<void>;
}

export interface RejectedRule<S extends Suspect> {
  readonly suspect: S;
  /** The index in `fallbackTexts` of the closest accepted fallback; of the last one if none is accepted. */
  readonly level: number;
}

/**
 * Bisection finds at most this many different rules. Then rules with the same requirements are assumed to be rejected: in
 * all chains if the kernel lacks the feature, otherwise only in the chains with rejected rules. One tenant's rules may be
 * rejected because of their length, and must not affect the policies of others.
 */
const MAX_SEARCHED = 32;
/** Number of rejected rules with the same requirements from which the assumption is made. */
const MIN_SIMILAR = 8;

/** @returns an empty list if the rules are not the cause, or if a transient error occurs */
export async function findRejectedRules<S extends Suspect>(
  suspects: readonly S[],
  probe: RuleProbe,
): Promise<RejectedRule<S>[]> {
  try {
    if (!(await probe.acceptsHarmlessRule([]))) return [];
    const rejected = await search(probe, suspects, () => []);
    return rejected.length > 0 ? rejected : await search(probe, suspects, ({ hooks }) => hooks);
  } catch (error) {
    if (error instanceof IptablesError) return [];
    throw error;
  } finally {
    await probe.remove();
  }
}

async function search<S extends Suspect>(
  probe: RuleProbe,
  suspects: readonly S[],
  hooksOf: (suspect: S) => readonly string[],
): Promise<RejectedRule<S>[]> {
  const groups = new Map<string, Map<string, S[]>>();
  for (const suspect of suspects) {
    const text = probe.normalize(suspect.texts);
    if (text === "") continue;
    const byText = getOrSet(groups, hooksOf(suspect).join(" "), () => new Map<string, S[]>());
    getOrSet(byText, text, () => []).push(suspect);
  }
  const rejected: RejectedRule<S>[] = [];
  for (const [key, byText] of groups) {
    const hooks = key === "" ? [] : key.split(" ");
    for (const text of await findRejectedTexts(probe, [...byText.keys()], hooks)) {
      const same = byText.get(text) ?? [];
      const [first] = same;
      if (first === undefined || first.fallbackTexts.length === 0) continue;
      const level = await closestAccepted(probe, first, hooks);
      rejected.push(...same.map((suspect) => ({ suspect, level })));
    }
    if (rejected.length > MAX_SEARCHED) return [...rejected, ...(await similarRules(probe, suspects, rejected, hooks))];
  }
  return rejected;
}

/** Returns the rules that are assumed to be rejected, because they need the same kernel features as many rejected rules. */
async function similarRules<S extends Suspect>(
  probe: RuleProbe,
  suspects: readonly S[],
  rejected: readonly RejectedRule<S>[],
  hooks: readonly string[],
): Promise<RejectedRule<S>[]> {
  const found = new Set(rejected.map(({ suspect: { chain, index } }) => `${chain} ${index}`));
  const others = Map.groupBy(
    suspects.filter(({ chain, index }) => !found.has(`${chain} ${index}`)),
    ({ requirements }) => requirements,
  );
  const similar: RejectedRule<S>[] = [];
  for (const [requirements, same] of Map.groupBy(rejected, ({ suspect }) => suspect.requirements)) {
    const [first] = same;
    if (first === undefined || same.length < MIN_SIMILAR) continue;
    const { level } = first;
    const chains = new Set(same.map(({ suspect }) => suspect.chain));
    const isFeatureMissing = !(await probe.accepts([probe.normalize(first.suspect.renderSimplified())], hooks));
    for (const suspect of others.get(requirements) ?? [])
      if ((isFeatureMissing || chains.has(suspect.chain)) && suspect.fallbackTexts.length > level)
        similar.push({ suspect, level });
  }
  return similar;
}

async function findRejectedTexts(
  probe: RuleProbe,
  texts: readonly string[],
  hooks: readonly string[],
): Promise<string[]> {
  const rejected: string[] = [];
  const searchIn = async (part: readonly string[]): Promise<void> => {
    if (rejected.length > MAX_SEARCHED || (await probe.accepts(part, hooks))) return;
    const middle = part.length >> 1;
    if (middle > 0) {
      await searchIn(part.slice(0, middle));
      await searchIn(part.slice(middle));
    } else if (await isRejectedAgain(probe, part, hooks)) rejected.push(...part);
  };
  await searchIn(texts);
  return rejected;
}

/** Excludes transient errors, which legacy iptables does not distinguish: "line 4 failed". */
const isRejectedAgain = async (
  probe: RuleProbe,
  rules: readonly string[],
  hooks: readonly string[],
): Promise<boolean> =>
  (await probe.acceptsHarmlessRule(hooks)) &&
  !(await probe.accepts(rules, hooks)) &&
  (await probe.acceptsHarmlessRule(hooks));

async function closestAccepted(
  probe: RuleProbe,
  { fallbackTexts }: Suspect,
  hooks: readonly string[],
): Promise<number> {
  for (const [level, texts] of fallbackTexts.entries())
    if (await probe.accepts([probe.normalize(texts)], hooks)) return level;
  return fallbackTexts.length - 1;
}

function getOrSet<K, V>(map: Map<K, V>, key: K, make: () => V): V {
  const known = map.get(key);
  if (known !== undefined) return known;
  const made = make();
  map.set(key, made);
  return made;
}
