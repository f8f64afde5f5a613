// Generates random selectors for property tests.
import fc from "fast-check";
import { negate, type Selector, type SelectorLeaf } from "../selector/selector.ts";

export const anyLabel = fc.constantFrom("a", "b", "c", "in", "x/y.z-1");
export const anyValue = fc.oneof(
  fc.constantFrom("", "x", "y", "xy", 'q"', "it's"),
  fc.string({ unit: "grapheme", maxLength: 4 }).filter((text) => !(text.includes("'") && text.includes('"'))),
);
const leaf: fc.Arbitrary<SelectorLeaf> = fc.oneof(
  fc.constantFrom<SelectorLeaf>({ kind: "all" }, { kind: "global" }),
  fc.record({ kind: fc.constant("has" as const), label: anyLabel }),
  fc.record({
    kind: fc.constantFrom("equals" as const, "notEquals", "contains", "startsWith", "endsWith"),
    label: anyLabel,
    value: anyValue,
  }),
  fc.record({
    kind: fc.constantFrom("in" as const, "notIn"),
    label: anyLabel,
    values: fc
      .array(anyValue, { maxLength: 4 })
      .map((values) => [...new Set(values)].sort((x, y) => Buffer.compare(Buffer.from(x), Buffer.from(y)))),
  }),
);

/** @param options.hasDoubleNegations whether the operand of a `not` may be another `not` */
export function anyTree(options: { readonly hasDoubleNegations: boolean }): fc.Arbitrary<Selector> {
  return fc.letrec<{ tree: Selector }>((tie) => ({
    tree: fc.oneof(
      { maxDepth: 4, withCrossShrink: true },
      leaf as fc.Arbitrary<Selector>,
      tie("tree").map((operand) => (operand.kind === "not" && !options.hasDoubleNegations ? operand : negate(operand))),
      fc.record({
        kind: fc.constantFrom("and" as const, "or"),
        operands: fc.array(tie("tree"), { minLength: 2, maxLength: 4 }),
      }) as fc.Arbitrary<Selector>,
    ),
  })).tree;
}
