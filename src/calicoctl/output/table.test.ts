import { expect, test } from "bun:test";
import { toJson } from "./json.ts";
import { formatTable } from "./table.ts";

test("formatTable: three blanks follow every cell, also the last", () =>
  expect(formatTable(["NAME", "CIDR"], [["a", "10.1.0.0/16"]])).toBe("NAME   CIDR          \na      10.1.0.0/16   \n"));

test("formatTable: a column has at least five characters", () => expect(formatTable(["A"], [])).toBe("A    \n"));

test("formatTable: characters are counted, not bytes", () =>
  expect(formatTable(["NAME", "X"], [["éé", "1"]])).toBe("NAME   X    \néé     1    \n"));

test("formatTable: a cell cannot break the table or speak to the terminal", () =>
  expect(formatTable(["N"], [["a\nb\x1b[31m"]])).toBe("N                \na\\nb\\u001b[31m   \n"));

test("toJson: indentation, escapes of HTML signs, 64-bit numbers", () =>
  expect(toJson({ a: ["<&>"], b: {}, c: [], d: 18446744073709551615n, e: undefined })).toBe(
    '{\n  "a": [\n    "\\u003c\\u0026\\u003e"\n  ],\n  "b": {},\n  "c": [],\n  "d": 18446744073709551615\n}\n',
  ));
