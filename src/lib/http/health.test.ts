import { expect, test } from "bun:test";
import { HealthAggregator } from "./health.ts";

test("the program is ready only if every part that reports readiness is ready", () => {
  const health = new HealthAggregator(() => 0);
  const graph = health.register("graph", { live: true, ready: true });
  health.register("loop", { live: true })({ live: true });
  expect(health.readiness().status).toBe(503);
  graph({ live: true, ready: true });
  expect(health.readiness().status).toBe(200);
  expect(health.liveness().body).toContain("graph");
});

test("a part that stops reporting is not live after its timeout, which can be overridden", () => {
  let now = 0;
  const health = new HealthAggregator(() => now);
  health.register("loop", { live: true }, 30_000)({ live: true });
  now = 30_001;
  expect(health.liveness().ok).toBe(false);
  expect(health.liveness().body).toContain("timed out");
  health.overrideTimeouts(new Map([["loop", 60_000]]));
  expect(health.liveness().ok).toBe(true);
});

test("without parts the status is 204", () =>
  expect(new HealthAggregator().readiness()).toEqual({ ok: true, status: 204, body: "" }));
