import { expect, test } from "bun:test";
import { fiveDigits, withPercentage } from "./amounts.ts";

for (const [value, want] of [
  [0n, "0"],
  [16n, "16"],
  [65536n, "65536"],
  [1n << 24n, "1.6777e+07"],
  [1n << 80n, "1.2089e+24"],
  [100_000n, "1e+05"],
] as const)
  test(`${value} is ${want}`, () => expect(fiveDigits(value)).toBe(want));

for (const [part, whole, want] of [
  [3n, 16n, "3 (19%)"],
  [1n, 8n, "1 (12%)"],
  [7n, 8n, "7 (88%)"],
  [0n, 0n, "0 (0%)"],
] as const)
  test(`${part} of ${whole} is ${want}`, () => expect(withPercentage(part, whole)).toBe(want));
