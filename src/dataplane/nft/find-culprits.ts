// Finds the rules because of which the kernel rejects a transaction, if the kernel's error does not identify them.
//
// The only test is whether the kernel accepts the whole transaction if some rules are replaced by fallbacks. Bisection finds
// one faulty rule with log2(number of suspects) tests.

/** A rule that may be faulty. */
export interface Suspect<R> {
  readonly rule: R;
  /** Number of its fallbacks, at least 1. The last one is the most likely to be accepted. */
  readonly fallbacks: number;
}
export interface Replacement<R> {
  readonly rule: R;
  /** Index of the fallback: 0 is closest to the rule. */
  readonly level: number;
}

/** Bisection finds at most this many faulty rules. If there are more, all remaining suspects are replaced. */
export const MAX_BISECTIONS = 16;

/**
 * Finds the faulty rules, and for each the closest fallback that is accepted. If replacing either of two rules is
 * sufficient, the earlier suspect is returned.
 * @param isAcceptedWith whether the kernel accepts the transaction if these rules are replaced
 * @returns an empty list if the rules are not the cause: replacing all of them does not help
 */
export function findCulprits<R>(
  suspects: readonly Suspect<R>[],
  isAcceptedWith: (replacements: readonly Replacement<R>[]) => boolean,
): Replacement<R>[] {
  let remaining = suspects.map(({ rule, fallbacks }): Replacement<R> => ({ rule, level: fallbacks - 1 }));
  if (remaining.length === 0 || !isAcceptedWith(remaining)) return [];

  const found: Replacement<R>[] = [];
  while (found.length < MAX_BISECTIONS && !isAcceptedWith(found)) {
    // Replacing the first `tooFew` suspects is not sufficient, replacing the first `enough` is. When they differ by one,
    // the last suspect of `enough` is faulty, and those after it are not.
    let [tooFew, enough] = [0, remaining.length];
    while (enough - tooFew > 1) {
      const middle = (tooFew + enough) >> 1;
      if (isAcceptedWith([...found, ...remaining.slice(0, middle)])) enough = middle;
      else tooFew = middle;
    }
    found.push(...remaining.slice(enough - 1, enough));
    remaining = remaining.slice(0, enough - 1);
  }
  if (!isAcceptedWith(found)) return [...found, ...remaining];

  // The search used the last fallback of each rule. A lower level, closer to the rejected rule, may be accepted too.
  for (const [i, { rule, level: lastLevel }] of found.entries())
    for (let level = 0; level < lastLevel; level++) {
      if (!isAcceptedWith(found.with(i, { rule, level }))) continue;
      found[i] = { rule, level };
      break;
    }
  return found;
}
