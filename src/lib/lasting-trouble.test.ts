import { expect, test } from "bun:test";
import { LastingTrouble } from "./lasting-trouble.ts";

test("a trouble is told at once, then ever more rarely, another one at once, and its end once", () => {
  let now = 0;
  const trouble = new LastingTrouble(() => now);
  const toldAt: number[] = [];
  for (; now <= 200_000; now += 1000) if (trouble.isDue("not ready")) toldAt.push(now / 1000);
  expect(toldAt).toEqual([0, 10, 30, 70, 150]);
  expect(trouble.seconds).toBe(201);
  expect([trouble.isDue("refused"), trouble.isDue("refused")]).toEqual([true, false]);
  expect([trouble.isOver(), trouble.isOver()]).toEqual([true, false]);
  expect(trouble.isDue("refused")).toBe(true);
});

test("it is never rarer than every ten minutes", () => {
  let now = 0;
  const trouble = new LastingTrouble(() => now);
  let last = 0;
  let longest = 0;
  for (; now <= 86_400_000; now += 1000)
    if (trouble.isDue("x")) {
      longest = Math.max(longest, now - last);
      last = now;
    }
  expect(longest).toBe(600_000);
});
