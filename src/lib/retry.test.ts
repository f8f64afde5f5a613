import { expect, test } from "bun:test";
import { aborted, backoffDelay, delay, pause, untilAborted } from "./retry.ts";

test("a backoff doubles up to its maximum", () => {
  const backoff = { firstMs: 10, maxMs: 50 };
  expect([0, 1, 2, 3, 9].map((n) => backoffDelay(backoff, n))).toEqual([10, 20, 40, 50, 50]);
});

test("jitter shortens a delay at most by its share", () => {
  const at = (random: number) => backoffDelay({ firstMs: 100, maxMs: 100, jitter: 0.5, random: () => random }, 0);
  expect([at(0), at(1)]).toEqual([50, 100]);
});

test("an aborted delay rejects at once with the reason", async () => {
  const controller = new AbortController();
  const waiting = delay(60_000, controller.signal);
  controller.abort(new Error("stop"));
  await expect(waiting).rejects.toThrow("stop");
});

test("pause and aborted resolve as soon as the signal aborts, or at once if it has aborted", async () => {
  const controller = new AbortController();
  const waiting = Promise.all([pause(60_000, controller.signal), aborted(controller.signal)]);
  controller.abort();
  await waiting;
  await Promise.all([pause(60_000, controller.signal), aborted(controller.signal)]);
});

test("a rejection after the abort is not unhandled", async () => {
  for (const isEarly of [true, false]) {
    const controller = new AbortController();
    const { promise, reject } = Promise.withResolvers<never>();
    if (isEarly) controller.abort(new Error("stop"));
    const waiting = untilAborted(promise, controller.signal);
    controller.abort(new Error("stop"));
    await expect(waiting).rejects.toThrow("stop");
    reject(new Error("too late"));
    await new Promise((resolve) => setImmediate(resolve)); // an unhandled rejection would fail the test
  }
});
