import { heapStats } from "bun:jsc";
import { expect, test } from "bun:test";
import fc from "fast-check";
import { eventually } from "../../lib/testing/eventually.ts";
import { anyTree } from "../testing/any-tree.ts";
import { ParseCounter } from "../testing/parse-counter.ts";
import { cancelDoubleNegations } from "./ast.ts";
import { ParsedSelector, parseSelector, prefixLabels, printSelector, SelectorError } from "./selector.ts";

const spellings = [
  { name: "blanks", texts: ["a == 'x' && has(b)", "a=='x'&&has( b )", '( a == "x" && has(b) )'] },
  { name: "order and repeats in sets", texts: ["a in {'x', 'y'}", "a in {'y','x','y'}"] },
  { name: "blank text and all()", texts: ["", "  ", "all()"] },
  { name: "double negation without parentheses", texts: ["has(a)", "!!has(a)"] },
];
for (const { name, texts } of spellings)
  test(`equal selectors are one object: ${name}`, () =>
    expect(new Set(texts.map((text) => ParsedSelector.parse(text))).size).toBe(1));

test("a double negation with parentheses is a different selector, with a different ID", () => {
  const [plain, twice] = [ParsedSelector.parse("has(a)"), ParsedSelector.parse("!(!has(a))")];
  expect(twice).not.toBe(plain);
  expect(twice).not.toEqual(plain);
  expect(twice.text).toBe("!(!has(a))");
  expect(twice.canonical).toBe("!!has(a)");
  expect(twice.id).not.toBe(plain.id);
});

test("property: the text parses to the same object, and the canonical text equals Calico's", () =>
  fc.assert(
    fc.property(anyTree({ hasDoubleNegations: true }), (tree) => {
      const selector = ParsedSelector.of(tree);
      expect(selector.tree).toEqual(tree);
      expect(parseSelector(selector.text)).toEqual(tree);
      expect(ParsedSelector.parse(selector.text)).toBe(selector);
      expect(selector.canonical).toBe(printSelector(tree));
      expect(JSON.parse(JSON.stringify({ selector }))).toEqual({ selector: selector.text });
    }),
  ));

test("property: printing and parsing cancels double negations", () =>
  fc.assert(
    fc.property(anyTree({ hasDoubleNegations: true }), (tree) => {
      expect(cancelDoubleNegations(tree)).toEqual(parseSelector(printSelector(tree)));
    }),
  ));

test("a label that is too long with its prefix is rejected, like the text", () => {
  const selector = parseSelector(`has(${"a".repeat(510)})`);
  expect(prefixLabels(selector, "p.")).toBeDefined();
  expect(() => prefixLabels(selector, "pcns.")).toThrow(SelectorError);
});

test("text that does not parse is rejected", () => {
  expect(() => ParsedSelector.parse("has(")).toThrow(SelectorError);
  expect(ParsedSelector.tryParse("has(")).toBeUndefined();
  expect(ParsedSelector.tryParse("has(a)")).toBe(ParsedSelector.parse("has(a)"));
});

test("the text of a selector in use is not parsed again", () => {
  using parses = new ParseCounter();
  const selector = ParsedSelector.parse("counted == 'yes'");
  expect(parses.take()).toBe(1);
  expect(ParsedSelector.parse(selector.text)).toBe(selector);
  expect(parses.take()).toBe(0);
});

test("selectors that are no longer used are not kept", async () => {
  const weakReferences = () => heapStats().objectTypeCounts["WeakRef"] ?? 0;
  const before = weakReferences();
  for (let i = 0; i < 5000; i++) ParsedSelector.parse(`unused == '${i}'`);
  expect(weakReferences()).toBeGreaterThan(before + 4000);
  await eventually(() => {
    Bun.gc(true);
    return weakReferences() < before + 500;
  });
});
