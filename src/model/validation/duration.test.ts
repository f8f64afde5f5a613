import { expect, test } from "bun:test";
import fc from "fast-check";
import { formatDuration, parseDuration } from "./duration.ts";

test("formatDuration prints any accepted spelling in the canonical form", () => {
  const cases = [
    ["90s", "1m30s"],
    ["1500ms", "1.5s"],
    ["0s", "0s"],
    ["0", "0s"],
    ["1h", "1h0m0s"],
    ["100ms", "100ms"],
    ["15m", "15m0s"],
    ["1h2m3.5s", "1h2m3.5s"],
    ["-5s", "-5s"],
    ["1us", "1µs"],
    ["24h", "24h0m0s"],
    [".5s", "500ms"],
    ["1.s", "1s"],
  ] as const;
  for (const [text, want] of cases) expect(formatDuration(parseDuration(text) ?? Number.NaN)).toBe(want);
  for (const bad of ["", "abc", "5", "1d", "s", "1s ", "1 s", "5sx", "x5s"]) expect(parseDuration(bad)).toBeUndefined();
});

test("printing inverts parsing", () => {
  fc.assert(
    fc.property(fc.integer({ min: -(2 ** 40), max: 2 ** 40 }), (ms) => {
      expect(parseDuration(formatDuration(ms * 1e6))).toBe(ms * 1e6 + 0);
    }),
  );
});
