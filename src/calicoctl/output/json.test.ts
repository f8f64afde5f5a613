import { expect, test } from "bun:test";
import { toJson } from "./json.ts";

test("toJson: indentation, escaped HTML characters, 64-bit numbers", () =>
  expect(toJson({ a: ["<&>"], b: {}, c: [], d: 18446744073709551615n, e: undefined })).toBe(
    '{\n  "a": [\n    "\\u003c\\u0026\\u003e"\n  ],\n  "b": {},\n  "c": [],\n  "d": 18446744073709551615\n}\n',
  ));
