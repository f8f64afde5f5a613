import { expect, test } from "bun:test";
import * as yaml from "js-yaml";
import fc from "fast-check";
import { naturalOrder, numberText, toYaml } from "./yaml.ts";

const cases: { name: string; value: unknown; want: string }[] = [
  { name: "keys are sorted", value: { b: 1, a: 2 }, want: "a: 2\nb: 1\n" },
  { name: "a list has the indentation of its key", value: { a: ["x", "y"] }, want: 'a:\n- x\n- "y"\n' },
  { name: "a map in a list", value: [{ b: 1, a: { c: 2 } }], want: "- a:\n    c: 2\n  b: 1\n" },
  { name: "a list in a list", value: [["a", "b"], []], want: "- - a\n  - b\n- []\n" },
  { name: "empty collections", value: { a: {}, b: [], c: null }, want: "a: {}\nb: []\nc: null\n" },
  { name: "undefined values are omitted", value: { a: undefined, b: 1 }, want: "b: 1\n" },
  { name: "null", value: null, want: "null\n" },
  {
    name: "text that looks like a number or boolean is quoted",
    value: { a: "1", b: "true", c: "n", d: "" },
    want: 'a: "1"\nb: "true"\nc: "n"\nd: ""\n',
  },
  { name: "text that looks like a time is quoted", value: "2026-01-02T03:04:05Z", want: '"2026-01-02T03:04:05Z"\n' },
  { name: "a MAC address that looks like a base 60 number", value: "01:02:03:04:05:06", want: '"01:02:03:04:05:06"\n' },
  { name: "a MAC address that does not look like a number", value: "66:a1:b2:c3:d4:e5", want: "66:a1:b2:c3:d4:e5\n" },
  { name: "a community with one colon", value: "65010:100", want: "65010:100\n" },
  { name: "a community that looks like a base 60 number", value: "65010:1:2", want: '"65010:1:2"\n' },
  { name: "a leading YAML indicator", value: "!has(foo)", want: "'!has(foo)'\n" },
  { name: "JSON in an annotation", value: { k: '{"rack":"r1"}' }, want: 'k: \'{"rack":"r1"}\'\n' },
  { name: "inner quotes are kept", value: "app == 'web'", want: "app == 'web'\n" },
  { name: "a colon before a space", value: "a: b", want: "'a: b'\n" },
  {
    name: "several lines as a literal block",
    value: { k: "a\nb\n", l: "c\nd" },
    want: "k: |\n  a\n  b\nl: |-\n  c\n  d\n",
  },
  {
    name: "a long line is folded at the first space after 80 characters",
    value: { spec: { selector: `${"a == 'b' || ".repeat(12)}c` } },
    want: `spec:\n  selector: ${"a == 'b' || ".repeat(6).trimEnd()}\n    ${"a == 'b' || ".repeat(6)}c\n`,
  },
  { name: "a key is never folded", value: { [`${"a ".repeat(60)}b`]: 1 }, want: `${"a ".repeat(60)}b: 1\n` },
  { name: "a tab is written in double quotes", value: "a\tb", want: '"a\\tb"\n' },
  { name: "64-bit numbers in full", value: { big: 18446744073709551615n }, want: "big: 18446744073709551615\n" },
];
for (const { name, value, want } of cases) test(`toYaml: ${name}`, () => expect(toYaml(value)).toBe(want));

test("naturalOrder: digits are compared as numbers, letters are last", () =>
  expect(["p10", "p2", "pa", "p1", "p", "0", "-", "10a", "1"].sort(naturalOrder)).toEqual([
    "-",
    "0",
    "1",
    "10a",
    "p",
    "p1",
    "p2",
    "p10",
    "pa",
  ]));

test("a number with an underscore after its point is quoted, because YAML 1.1 reads it as a number", () =>
  expect(toYaml(["._1", ".1_", "._"])).toBe('- "._1"\n- ".1_"\n- ._\n'));

test("parsing inverts printing, in YAML 1.1 and 1.2", () =>
  fc.assert(
    fc.property(arbValue(), (value) => {
      const printed = toYaml(value);
      expect(yaml.load(printed)).toEqual(value);
      expect(yaml.load(printed, { schema: yaml.YAML11_SCHEMA })).toEqual(value);
    }),
    { numRuns: 500 },
  ));

function arbValue(): fc.Arbitrary<unknown> {
  const word = fc.oneof(
    fc.string({ unit: fc.constantFrom(..."ab01:.-_#?'\"!{}[]&*\n\t ~nyNoO+e/é\u2028"), maxLength: 8 }),
    fc.constantFrom(
      "yes",
      "null",
      "1e3",
      "0x1f",
      "017",
      "0b1",
      "1_000",
      "2026-01-01",
      "12:30:45",
      ".5",
      "1.",
      "-",
      "---",
      "...",
    ),
  );
  return fc.letrec((tie) => ({
    value: fc.oneof({ maxDepth: 4 }, word, fc.integer(), fc.boolean(), fc.constant(null), tie("list"), tie("map")),
    list: fc.array(tie("value"), { maxLength: 4 }),
    map: fc.dictionary(
      word.filter((w) => w !== "<<" && w !== "__proto__" && !w.includes("\n")),
      tie("value"),
      { maxKeys: 4 },
    ),
  })).value;
}

test("numbers are printed like in Go's YAML library", () => {
  const cases: [number, string][] = [
    [0, "0"],
    [10_000_000, "10000000"],
    [-1.5, "-1.5"],
    [0.0001, "0.0001"],
    [0.00001, "1e-05"],
    [-1.5e-7, "-1.5e-07"],
    [1234567.5, "1.2345675e+06"],
    [123456.5, "123456.5"],
    [1e21, "1e+21"],
    [1.5e100, "1.5e+100"],
  ];
  for (const [value, want] of cases) expect(numberText(value)).toBe(want);
});
