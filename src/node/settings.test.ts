import { expect, test } from "bun:test";
import { flagOf, positiveMs, readSettings } from "./settings.ts";

test("durations and flags are parsed", () => {
  for (const [text, want] of [
    ["90s", 90_000],
    ["1m30s", 90_000],
    ["250ms", 250],
    ["1.5h", 5_400_000],
    ["soon", undefined],
    ["", undefined],
    ["0s", undefined],
    ["-1s", undefined],
  ] as const)
    expect(positiveMs(text)).toBe(want);
  expect(readSettings({ AUTODETECT_POLL_INTERVAL: "nonsense" }).pollIntervalMs).toBe(60_000);
  expect(flagOf({ X: "No" }, "X", true)).toBe(false);
  expect(flagOf({ X: "" }, "X", false)).toBe(true);
  expect(flagOf({}, "X", false)).toBe(false);
});
