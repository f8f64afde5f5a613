import { expect, test } from "bun:test";
import { RepeatedError } from "./repeated-error.ts";

test("an error is logged at once, then at growing intervals; another one at once; and its end once", () => {
  let now = 0;
  const error = new RepeatedError(() => now);
  const loggedAt: number[] = [];
  for (; now <= 200_000; now += 1000) if (error.shouldLog("not ready")) loggedAt.push(now / 1000);
  expect(loggedAt).toEqual([0, 10, 30, 70, 150]);
  expect(error.durationSeconds).toBe(201);
  expect([error.shouldLog("refused"), error.shouldLog("refused")]).toEqual([true, false]);
  expect([error.clear(), error.clear()]).toEqual([true, false]);
  expect(error.shouldLog("refused")).toBe(true);
});

test("the interval is at most ten minutes", () => {
  let now = 0;
  const error = new RepeatedError(() => now);
  let last = 0;
  let longest = 0;
  for (; now <= 86_400_000; now += 1000)
    if (error.shouldLog("x")) {
      longest = Math.max(longest, now - last);
      last = now;
    }
  expect(longest).toBe(600_000);
});
