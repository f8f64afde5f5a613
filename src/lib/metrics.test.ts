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

test("a summary forgets what is older than its window but not its count", () => {
  const registry = new MetricsRegistry();
  let now = 0;
  const summary = registry.summary("seconds", "how long", { now: () => now });
  for (let i = 1; i <= 100; i++) summary.observe(i);
  expect(registry.render()).toContain('seconds{quantile="0.5"} 51\n');
  now = 3_600_000;
  expect(registry.render()).toContain('seconds{quantile="0.5"} NaN\n');
  expect(registry.render()).toContain("seconds_count 100\n");
});

test("histogram buckets are cumulative", () => {
  const registry = new MetricsRegistry();
  const histogram = registry.histogram("size", "bytes", [1, 10]);
  for (const value of [0.5, 5, 50]) histogram.observe(value);
  expect(registry.render()).toContain('size_bucket{le="1"} 1\nsize_bucket{le="10"} 2\nsize_bucket{le="+Inf"} 3\n');
});

test("two metrics of one name are a mistake", () => {
  const registry = new MetricsRegistry();
  registry.gauge("x", "");
  expect(() => registry.counter("x", "")).toThrow("registered twice");
});

test("a summary keeps its last thousand observations, and no object for each", async () => {
  const registry = new MetricsRegistry();
  const summary = registry.summary("seconds", "how long", { now: () => 0 });
  let last = 0;
  const left = await objectsLeftPerRound((number) => summary.observe((last = number)));
  expect(left).toBeLessThan(0.1);
  expect(registry.render()).toContain(`seconds{quantile="0.5"} ${last - 499}`);
  expect(registry.render()).toContain(`seconds_count ${last + 1}`);
});
