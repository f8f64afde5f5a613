import { expect, test } from "bun:test";
import { idsOf, parseDifferences, parseNotes, parseRows, render } from "./parity.ts";

test("parity: IDs in the names of tests count, those in comments and skipped tests do not", () => {
  const source = [
    // the text of a test file; these are not tests of this file
    '// test("DM-001 in a comment")',
    'test("DM-002 in a name", () => {});',
    "test(`TC-C03 in a template ${name}`, () => {});",
    'test.skip("DM-004 skipped", () => {});', // part of the searched text: skipped tests do not count
    'test.todo("DM-005 planned");', // planned tests do not count
    'const cases = [{ name: "FC-P-IptablesBackend and FC-M-felix_int" }];',
  ].join("\n");
  expect([...idsOf(source)].sort()).toEqual(["DM-002", "FC-037", "FC-099", "TC-C03"]);
});

test("parity: the state of a row is that of its note; otherwise done if it has a test, or not yet", () => {
  const rows = parseRows("# head\nDM-001 | core | a | b\nDM-002 | modern | c\nTC-C01 | core | d\n");
  const notes = parseNotes("# head\nTC-C01: won't # because\n");
  const text = render(rows, notes, new Map([["DM-001", new Set(["src/x.test.ts"])]]));
  expect(text).toContain("| DM-001 | core | a\\|b | done | [x.test.ts](../src/x.test.ts) |");
  expect(text).toContain("| DM-002 | modern | c | not yet |  |");
  expect(text).toContain("| TC-C01 | core | d | won't | because |");
  expect(text).toContain("| **all** | 1 | 0 | 1 | 0 | 1 |");
});

test("parity: a note must contain a state and a reason", () => {
  expect(() => parseNotes("DM-001: soon # why")).toThrow("want");
  expect(() => parseNotes("DM-001: later")).toThrow("want");
});

test("parity: intended differences are listed with their reasons, which are required", () => {
  const differences = parseDifferences("# head\nbgp: mesh/a|b # one session per node\n");
  expect(render([], new Map(), new Map(), differences)).toContain("| bgp | mesh/a\\|b | one session per node |");
  expect(() => parseDifferences("bgp: mesh/a")).toThrow("want");
});
