import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import {
  compileSelector,
  labelRestrictions,
  lengthLimitedId,
  lookupIn,
  matchesSelector,
  ParsedSelector,
  parseSelector,
  prefixLabels,
  printSelector,
  SelectorError,
  uniqueId,
} from "./selector.ts";
import { anyLabel, anyTree, anyValue } from "../testing/any-tree.ts";
import { interpretSelector } from "../testing/interpret-selector.ts";

const canonical = (text: string): string => printSelector(parseSelector(text));
const faultOf = (text: string): SelectorError => {
  try {
    parseSelector(text);
  } catch (error) {
    if (error instanceof SelectorError) return error;
    throw error;
  }
  throw new Error(`${text} was accepted`);
};

describe("DM-047 selector lexer", () => {
  const same = [
    ["a=='b'", 'a == "b"'],
    ['a\t==\t"b"', 'a == "b"'],
    ["  a != 'b'  ", 'a != "b"'],
    ["a startswith 'b'", 'a starts with "b"'],
    ["a starts \t with'b'", 'a starts with "b"'],
    ["a endswith 'b'", 'a ends with "b"'],
    ["a contains'b'", 'a contains "b"'],
    ["a notin{'b'}", 'a not in {"b"}'],
    ["a not   in {'b'}", 'a not in {"b"}'],
    ["has( my.label/x_y-z )", "has(my.label/x_y-z)"],
    ["all( )", "all()"],
    ["global(\t)", "global()"],
    ["a == ' x\ny '", 'a == " x\ny "'],
    ["a == ''", 'a == ""'],
  ] as const;
  for (const [text, want] of same) test(`parses ${JSON.stringify(text)}`, () => expect(canonical(text)).toBe(want));

  for (const label of ["in", "not", "contains", "starts", "ends", "with", "has", "all", "global", "9", "-./_"])
    test(`a label may have the name ${label}`, () => {
      expect(canonical(`${label} == 'v'`)).toBe(`${label} == "v"`);
      expect(canonical(`${label} in {'v'}`)).toBe(`${label} in {"v"}`);
      expect(canonical(`has(${label})`)).toBe(`has(${label})`);
    });

  test("a label may have 512 characters, but not 513", () => {
    expect(canonical(`has(${"a".repeat(512)})`)).toBe(`has(${"a".repeat(512)})`);
    expect(faultOf(`has(${"a".repeat(513)})`).reason).toContain("label too long");
    expect(faultOf(`${"a".repeat(513)} == 'b'`).reason).toContain("label too long");
  });

  const faults = [
    ["b", 1, "expected operator"],
    ["a b", 2, "expected operator"],
    ["a inf {'b'}", 2, "expected operator"],
    ["a starts withs 'b'", 2, "expected operator"],
    ["a = 'b'", 2, "expected =="],
    ["a == 'b", 5, "unterminated string"],
    ["a == \"b'", 5, "unterminated string"],
    ["a == 'b' & has(c)", 9, "expected &&"],
    ["a == 'b' | has(c)", 9, "expected ||"],
    ['a == "b" &', 9, "expected &&"],
    ["has(a", 5, "no closing ')' after has("],
    ["has(a b)", 6, "no closing ')' after has("],
    ["all(a)", 4, "no closing ')' after all("],
    ["has()", 4, 'unexpected ")"'],
    ["has(", 4, "expected identifier"],
    ["has (a)", 4, "expected operator"],
    ["a == b", 5, "expected string"],
    ["'b' == b", 0, "expected identifier"],
    ["a in 'b'", 5, "expected set literal"],
    ["a in {'b' 'c'}", 10, "expected }"],
    ["a in {'b'", 9, "expected }"],
    ["a in {,}", 6, "expected string or }"],
    ["!", 1, "expected a term"],
    ["()", 1, "expected a term"],
    ["(has(a)", 7, "expected )"],
    ["has(a))", 6, "unexpected )"],
    ["has(a) has(b)", 7, "unexpected content at end of selector"],
    ["has(a) &&", 9, "expected a term"],
    ["has(a) && || has(b)", 10, "expected a term"],
    ["has(ä)", 4, 'unexpected "ä"'],
    ["has(a)\n", 6, 'unexpected "\\n"'],
  ] as const;
  for (const [text, position, reason] of faults)
    test(`rejects ${JSON.stringify(text)} with position and reason`, () => {
      const fault = faultOf(text);
      expect({ position: fault.position, reason: fault.reason }).toEqual({
        position,
        reason: expect.stringContaining(reason),
      });
      expect(fault.message).toContain(`at character ${position + 1}`);
    });

  test("the error for a long selector quotes only the text around the position", () => {
    const fault = faultOf(`${"has(a) && ".repeat(1000)}b ! ${"has(a) && ".repeat(1000)}`);
    expect(fault.message.length).toBeLessThan(250);
    expect(fault.message).toContain("b ! has(a)");
  });
});

describe("DM-048 operators and precedence", () => {
  const labels = { a: "apple", b: "", "x/y": "1" };
  const verdicts: readonly (readonly [string, boolean])[] = [
    ["", true],
    [" \t", true],
    ["all()", true],
    ["a == 'apple'", true],
    ["a == 'app'", false],
    ["c == ''", false],
    ["b == ''", true],
    ["a != 'apple'", false],
    ["c != 'apple'", true],
    ["a in {'pear', 'apple'}", true],
    ["a in {}", false],
    ["a in {'pear',}", false],
    ["a not in {'pear'}", true],
    ["a not in {}", true],
    ["c not in {'apple'}", true],
    ["c in {'apple'}", false],
    ["has(x/y)", true],
    ["has(c)", false],
    ["!has(c)", true],
    ["! ! !has(c)", true],
    ["!!has(c)", false],
    ["a contains 'ppl'", true],
    ["c contains ''", false],
    ["b contains ''", true],
    ["a starts with 'app'", true],
    ["a starts with 'ple'", false],
    ["c starts with ''", false],
    ["a ends with 'ple'", true],
    ["a ends with 'app'", false],
    ["has(a) || has(c) && has(c)", true],
    ["(has(a) || has(c)) && has(c)", false],
    ["!has(a) || has(b)", true],
    ["!(has(a) || has(b))", false],
    ["!a == 'pear'", true],
    ["has(c) && has(a) || has(b)", true],
    ["has(toString)", false],
    ["has(__proto__)", false],
  ];
  for (const [text, want] of verdicts)
    test(`${JSON.stringify(text)} is ${want}`, () => expect(matchesSelector(parseSelector(text), labels)).toBe(want));
});

test("DM-049 global() parses, is printed, and matches all labels", () => {
  const selector = parseSelector("!has(a) && global( )");
  expect(printSelector(selector)).toBe("(!has(a) && global())");
  expect(matchesSelector(parseSelector("global()"), {})).toBe(true);
});

describe("DM-050 canonical form", () => {
  const cases = [
    ["", "all()"],
    ["a in {'c', \"b\", 'b', 'a',}", 'a in {"a", "b", "c"}'],
    ["a in { }", "a in {}"],
    ["a == '\"'", "a == '\"'"],
    ['a == "it\'s"', 'a == "it\'s"'],
    ["has(a)&&has(b)", "(has(a) && has(b))"],
    ["((has(a)))", "has(a)"],
    ["(has(a) && (has(b)))", "(has(a) && has(b))"],
    ["has(a) && (has(b) && has(c))", "(has(a) && (has(b) && has(c)))"],
    ["has(a) || has(b) && has(c)", "(has(a) || (has(b) && has(c)))"],
    ["! (has( b)||! has(a ))", "!(has(b) || !has(a))"],
    ["!!has(a)", "has(a)"],
    ["!(a == 'b')", '!a == "b"'],
    ["a in {'\u{1f600}', '\ufffd'}", 'a in {"\ufffd", "\u{1f600}"}'],
  ] as const;
  for (const [text, want] of cases)
    test(`${JSON.stringify(text)} → ${want}`, () => {
      expect(canonical(text)).toBe(want);
      expect(canonical(want)).toBe(want);
    });
});

test("DM-050 a double negation with parentheses is kept, because Calico's names of IP sets depend on it", () => {
  expect(canonical("!(!has(a))")).toBe("!!has(a)");
  expect(canonical("!((!has(a)))")).toBe("!!has(a)");
  expect(ParsedSelector.parse("!(!has(a))").id).not.toBe(ParsedSelector.parse("has(a)").id);
});

test("DM-051 the unique id is the SHA-224 of the canonical text", () => {
  expect(ParsedSelector.parse("all()").id).toBe("s:5y5I3VdRZfDU01O--xXAPx2yxCQQqMf0M6IWug");
  expect(ParsedSelector.parse("! (has( b)||! has(a ))").id).toBe("s:Iss0uCleLYv1GSv_pNm7hAO58kE9jAx1NKyG3Q");
  expect(ParsedSelector.parse("a in {'b','a'}").id).toBe(ParsedSelector.parse('a in { "a", "b", "a" }').id);
  expect(uniqueId("svc", "default/nginx")).toBe("svc:RETMWMZ3VCy3Kifv2Qin5MvOA9hFePnt82nebg");
});

test("DM-052 the length-limited ID keeps short names, and hashes names that could equal a hash", () => {
  expect(lengthLimitedId("felix", "1234", 13)).toBe("felix1234");
  expect(lengthLimitedId("felix", "12345678", 13)).toBe("felix12345678");
  expect(lengthLimitedId("felix", "12345678910", 13)).toBe("felix_Y2QCZIS");
  expect(lengthLimitedId("felix", "", 13)).toBe("felix_");
  expect(lengthLimitedId("felix", "_1234567", 13)).toMatch(/^felix_[\w-]{7}$/);
  expect(lengthLimitedId("felix", "_1234567", 13)).not.toBe("felix_1234567");
  expect(lengthLimitedId("felix", "_123456", 13)).toBe("felix_123456");
});

describe("DM-053 label restrictions", () => {
  const cases = [
    ["all()", {}],
    ["a == 'b'", { a: { presence: "present", values: ["b"] } }],
    ["a in {'c','b'}", { a: { presence: "present", values: ["b", "c"] } }],
    ["has(a)", { a: { presence: "present" } }],
    ["a contains 'b'", { a: { presence: "present" } }],
    ["a starts with 'b'", { a: { presence: "present" } }],
    ["a ends with 'b'", { a: { presence: "present" } }],
    ["!has(a)", { a: { presence: "absent" } }],
    ["a != 'b'", {}],
    ["a not in {'b'}", {}],
    ["!a == 'b'", {}],
    ["!(has(a) && has(b))", {}],
    [
      "a in {'x','y'} && a in {'y','z'} && has(b)",
      { a: { presence: "present", values: ["y"] }, b: { presence: "present" } },
    ],
    ["a == 'x' && a == 'y'", { a: { presence: "present", values: [] } }],
    ["has(a) && !has(a)", { a: { presence: "present", values: [] } }],
    ["a == 'x' || a == 'y'", { a: { presence: "present", values: ["x", "y"] } }],
    ["a == 'x' || has(a)", { a: { presence: "present" } }],
    ["a == 'x' || has(b)", {}],
    ["a == 'x' || !has(a)", {}],
    ["!has(a) || !has(a) && has(b)", { a: { presence: "absent" } }],
  ] as const;
  for (const [text, want] of cases)
    test(text, () => expect(Object.fromEntries(labelRestrictions(parseSelector(text)))).toEqual(want));
});

test("prefixLabels changes all label names and nothing else", () => {
  const prefixed = prefixLabels(parseSelector("a == 'a' && (has(b) || !c in {'c'}) && all()"), "pcns.");
  expect(printSelector(prefixed)).toBe('(pcns.a == "a" && (has(pcns.b) || !pcns.c in {"c"}) && all())');
});

describe("ten thousand terms", () => {
  const wide = Array.from({ length: 10_000 }, (_, i) => `l${i} == 'v'`);
  const shapes = {
    "side by side": wide.join(" || "),
    "in parentheses": `${"(".repeat(10_000)}has(a)${")".repeat(10_000)}`,
    nested: `${wide.map((term) => `${term} || !(has(a) && `).join("")}has(b)${")".repeat(10_000)}`,
  };
  for (const [name, text] of Object.entries(shapes))
    test(`${name} can be parsed, printed, matched and restricted`, () => {
      const selector = parseSelector(text);
      const printed = printSelector(selector);
      expect(printSelector(parseSelector(printed))).toBe(printed);
      expect(compileSelector(selector)(new Map([["a", "x"]]))).toBeBoolean();
      expect(labelRestrictions(selector).size).toBeLessThan(2);
      expect(printSelector(prefixLabels(selector, "p.")).length).toBeGreaterThan(printed.length);
      expect(ParsedSelector.of(selector).id).toHaveLength(40);
    });
});

// --- properties ----------------------------------------------------------------------------------------------------
const anySelector = anyTree({ hasDoubleNegations: false }); // they cancel out in the canonical text
const anyLabels = fc.dictionary(anyLabel, anyValue, { maxKeys: 4 });

test("property: parsing inverts printing, and the canonical form is stable", () =>
  fc.assert(
    fc.property(anySelector, (selector) => {
      const text = printSelector(selector);
      expect(parseSelector(text)).toEqual(selector);
      expect(canonical(text)).toBe(text);
    }),
  ));

test("property: the compiled selector agrees with the naive interpreter", () =>
  fc.assert(
    fc.property(anySelector, anyLabels, (selector, labels) => {
      expect(compileSelector(selector)(lookupIn(labels))).toBe(
        interpretSelector(selector, new Map(Object.entries(labels))),
      );
    }),
    { numRuns: 500 },
  ));

test("property: labels that match meet the restrictions", () =>
  fc.assert(
    fc.property(anySelector, anyLabels, (selector, labels) => {
      if (!matchesSelector(selector, labels)) return;
      for (const [label, { presence, values }] of labelRestrictions(selector)) {
        const value = Object.hasOwn(labels, label) ? labels[label] : undefined;
        expect(value !== undefined).toBe(presence === "present");
        if (values !== undefined) expect(values).toContain(value!);
      }
    }),
    { numRuns: 500 },
  ));

test("any text parses, or is rejected with a position inside the text", () =>
  fc.assert(
    fc.property(
      fc.array(
        fc.oneof(
          fc.constantFrom("a", " ", "==", "'x'", "&&", "||", "!", "(", ")", "has(", "in", "{", "}", ","),
          fc.string({ maxLength: 2 }),
        ),
        { maxLength: 12 },
      ),
      (parts) => {
        const text = parts.join("");
        try {
          const printed = canonical(text);
          expect(canonical(printed)).toBe(printed);
        } catch (error) {
          if (!(error instanceof SelectorError)) throw error;
          expect(error.position).toBeWithin(0, text.length + 1);
        }
      },
    ),
    { numRuns: 500 },
  ));
