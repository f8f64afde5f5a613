import { expect, test } from "bun:test";
import fc from "fast-check";
import { differingParts } from "./compare-lists.ts";

const cases = [
  { name: "equal lists", a: [1, 2, 3], b: [1, 2, 3], want: { a: [], b: [] } },
  { name: "one element replaced", a: [1, 2, 3], b: [1, 9, 3], want: { a: [2], b: [9] } },
  { name: "one element inserted", a: [1, 3], b: [1, 2, 3], want: { a: [], b: [2] } },
  { name: "a repeated element removed", a: [1, 1, 1], b: [1, 1], want: { a: [1], b: [] } },
  { name: "an empty list", a: [], b: [1], want: { a: [], b: [1] } },
];
for (const { name, a, b, want } of cases)
  test(`differingParts: ${name}`, () => expect(differingParts(a, b)).toEqual(want));

test("differingParts: the number of each element differs as in the whole lists", () =>
  fc.assert(
    fc.property(fc.array(fc.integer({ max: 3, min: 0 })), fc.array(fc.integer({ max: 3, min: 0 })), (a, b) => {
      const parts = differingParts(a, b);
      const balance = (plus: readonly number[], minus: readonly number[]) =>
        [0, 1, 2, 3].map((n) => plus.filter((x) => x === n).length - minus.filter((x) => x === n).length);
      expect(balance(parts.a, parts.b)).toEqual(balance(a, b));
      expect(parts.a.length === 0 || parts.b.length === 0 || parts.a[0] !== parts.b[0]).toBe(true);
    }),
  ));
