import { expect, test } from "bun:test";
import { MetricsRegistry } from "./metrics.ts";
import { objectsLeftPerRound } from "./testing/heap-growth.ts";

test("a scrape shows counters, gauges and their labels", () => {
  const registry = new MetricsRegistry();
  const calls = registry.counter("calls_total", "how often");
  calls.add();
  calls.add(2, { path: 'a"b\\c' });
  registry.gauge("depth", "now").set(7);
  expect(registry.render()).toBe(
    '# HELP calls_total how often\n# TYPE calls_total counter\ncalls_total 1\ncalls_total{path="a\\"b\\\\c"} 2\n' +
      "# HELP depth now\n# TYPE depth gauge\ndepth 7\n",
  );
});

test("quantiles of a summary cover only its time window, but the count covers all observations", () => {
  const registry = new MetricsRegistry();
  let now = 0;
  const summary = registry.summary("seconds", "how long", { now: () => now });
  for (let i = 1; i <= 100; i++) summary.observe(i);
  expect(registry.render()).toContain('seconds{quantile="0.5"} 51\n');
  now = 3_600_000;
  expect(registry.render()).toContain('seconds{quantile="0.5"} NaN\n');
  expect(registry.render()).toContain("seconds_count 100\n");
});

test("registering two metrics with one name is an error", () => {
  const registry = new MetricsRegistry();
  registry.gauge("x", "");
  expect(() => registry.counter("x", "")).toThrow("registered twice");
});

test("a summary stores its last thousand observations, without an object for each", async () => {
  const registry = new MetricsRegistry();
  const summary = registry.summary("seconds", "how long", { now: () => 0 });
  let last = 0;
  const left = await objectsLeftPerRound((number) => summary.observe((last = number)));
  expect(left).toBeLessThan(0.1);
  expect(registry.render()).toContain(`seconds{quantile="0.5"} ${last - 499}`);
  expect(registry.render()).toContain(`seconds_count ${last + 1}`);
});
