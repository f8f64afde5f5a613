import { expect, test } from "bun:test";
import fc from "fast-check";
import { findCulprits, MAX_BISECTIONS, type Replacement } from "./find-culprits.ts";

/**
 * A kernel that rejects a transaction unless each of these rules is replaced by a fallback of at least this level, by rule.
 * It counts how often it is called.
 */
function kernelWith(faulty: ReadonlyMap<number, number>) {
  const kernel = {
    calls: 0,
    accepts: (replacements: readonly Replacement<number>[]): boolean => {
      kernel.calls++;
      const levels = new Map(replacements.map(({ rule, level }) => [rule, level]));
      return [...faulty].every(([rule, least]) => (levels.get(rule) ?? -1) >= least);
    },
  };
  return kernel;
}

const rules = (count: number, fallbacks = 1) => Array.from({ length: count }, (_, rule) => ({ rule, fallbacks }));
const byRule = (a: Replacement<number>, b: Replacement<number>) => a.rule - b.rule;

test("no rule is returned if the kernel accepts the transaction, or if there are no suspects", () => {
  expect(findCulprits(rules(8), kernelWith(new Map()).accepts)).toEqual([]);
  expect(findCulprits([], () => false)).toEqual([]);
});

test("no rule is returned if replacing all rules does not help", () => {
  const kernel = kernelWith(new Map([[99, 0]]));
  expect(findCulprits(rules(8), kernel.accepts)).toEqual([]);
  expect(kernel.calls).toBe(1);
});

test("one faulty rule among 1,000 is found with a dozen tests", () => {
  for (const faulty of [0, 500, 999]) {
    const kernel = kernelWith(new Map([[faulty, 0]]));
    expect(findCulprits(rules(1000), kernel.accepts)).toEqual([{ rule: faulty, level: 0 }]);
    expect(kernel.calls).toBeLessThan(16);
  }
});

test("several faulty rules are found, and no other rule is replaced", () => {
  const kernel = kernelWith(new Map([3, 4, 70].map((rule) => [rule, 0])));
  expect(findCulprits(rules(100), kernel.accepts).sort(byRule)).toEqual([3, 4, 70].map((rule) => ({ rule, level: 0 })));
});

test("if replacing either of two rules is sufficient, the earlier one is replaced", () => {
  const accepts = (replacements: readonly Replacement<number>[]) =>
    replacements.some(({ rule }) => rule === 2 || rule === 6);
  expect(findCulprits(rules(8), accepts)).toEqual([{ rule: 2, level: 0 }]);
});

test("if more rules are faulty than the limit, all suspects up to the last faulty one are replaced", () => {
  const faulty = Array.from({ length: MAX_BISECTIONS + 4 }, (_, i) => 2 * i);
  const kernel = kernelWith(new Map(faulty.map((rule) => [rule, 0])));
  const replaced = findCulprits(rules(100), kernel.accepts).map(({ rule }) => rule);
  expect(faulty.filter((rule) => !replaced.includes(rule))).toEqual([]);
  expect(Math.max(...replaced)).toBe(38);
  // The bisections found the last 16, so only the suspects before the first of them are replaced without a test.
  expect(replaced.filter((rule) => rule % 2 === 1)).toEqual([1, 3, 5, 7]);
});

test("of a rule whose closest fallbacks are rejected too, the closest accepted one is used", () => {
  const kernel = kernelWith(
    new Map([
      [1, 2],
      [5, 0],
    ]),
  );
  expect(findCulprits(rules(8, 4), kernel.accepts).sort(byRule)).toEqual([
    { rule: 1, level: 2 },
    { rule: 5, level: 0 },
  ]);
});

test("no rule is returned if all fallbacks of a faulty rule are rejected too", () => {
  expect(findCulprits(rules(8, 2), kernelWith(new Map([[1, 2]])).accepts)).toEqual([]);
});

test("the kernel accepts the result, whichever rules are faulty", () =>
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 60 }),
      fc.dictionary(fc.integer({ min: 0, max: 59 }).map(String), fc.integer({ min: 0, max: 2 })),
      (count, dictionary) => {
        const faulty = new Map(
          Object.entries(dictionary)
            .map(([rule, level]) => [Number(rule), level] as const)
            .filter(([rule]) => rule < count),
        );
        const { accepts } = kernelWith(faulty);
        const found = findCulprits(rules(count, 3), accepts);
        expect(accepts(found)).toBe(true);
        if (faulty.size <= MAX_BISECTIONS)
          expect(found.sort(byRule)).toEqual([...faulty].map(([rule, level]) => ({ rule, level })).sort(byRule));
      },
    ),
  ));
