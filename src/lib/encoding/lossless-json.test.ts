import { expect, test } from "bun:test";
import fc from "fast-check";
import { parseLosslessJson, stringifyLosslessJson } from "./lossless-json.ts";

test("64-bit integers are exact, and small integers are numbers", () => {
  const text = '{"a":18446744073709551615,"b":[9007199254740993,-9223372036854775808],"c":9007199254740991,"d":1.5}';
  expect(parseLosslessJson(text)).toEqual({
    a: 18446744073709551615n,
    b: [9007199254740993n, -9223372036854775808n],
    c: 9007199254740991,
    d: 1.5,
  });
  expect(stringifyLosslessJson(parseLosslessJson(text))).toBe(text);
});

test("digits in strings and fractions are not changed", () => {
  const text = '{"id":"12345678901234567890","x":0.12345678901234568,"e":1e+300}';
  expect(stringifyLosslessJson(parseLosslessJson(text))).toBe(text);
});

test("printing, parsing and printing again gives the same text", () =>
  fc.assert(
    fc.property(
      fc.dictionary(fc.string(), fc.oneof(fc.jsonValue(), fc.bigInt({ min: 1n << 53n, max: (1n << 64n) - 1n }))),
      (value) => {
        expect(stringifyLosslessJson(parseLosslessJson(stringifyLosslessJson(value)))).toBe(
          stringifyLosslessJson(value),
        );
      },
    ),
  ));
