import { expect, test } from "bun:test";
import { readSummary, renderSummary } from "./summary.ts";

const OUTPUT = `
\x1b[38;5;9m[FAIL]\x1b[0m \x1b[0m[sig-network] Netpol \x1b[38;5;9m[It] should deny egress\x1b[0m
Ran 45 of 7214 Specs in 546.204 seconds
\x1b[38;5;9mFAIL!\x1b[0m -- \x1b[38;5;10m44 Passed\x1b[0m | \x1b[38;5;9m1 Failed\x1b[0m | 0 Pending | 7169 Skipped
`;

test("the last lines of the suite are summarised in one line", () => {
  const summary = readSummary(OUTPUT);
  expect(summary).toEqual({
    passed: 44,
    failed: 1,
    seconds: 546.204,
    failures: ["[sig-network] Netpol [It] should deny egress"],
  });
  expect(renderSummary("nftables, BGP", summary!)).toBe("nftables, BGP: 44 passed, 1 failed, 9 min 06 s");
});

test("seconds are rounded before minutes are computed", () => {
  const summary = { passed: 45, failed: 0, seconds: 539.7, failures: [] };
  expect(renderSummary("nftables, VXLAN", summary)).toBe("nftables, VXLAN: 45 passed, 0 failed, 9 min 00 s");
});

test("a suite that crashed has no summary", () => {
  expect(readSummary("panic: no API server")).toBeUndefined();
});
