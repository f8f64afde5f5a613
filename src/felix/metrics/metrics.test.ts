import { expect, test } from "bun:test";
import { MetricsRegistry } from "../../lib/metrics.ts";
import { dataplaneMetrics } from "./dataplane-metrics.ts";
import { processMetrics } from "./process-metrics.ts";

const value = (page: string, name: string) => Number(new RegExp(`^${name} (.*)$`, "m").exec(page)?.[1]);

test("FC-099 the process is measured as everywhere", () => {
  const registry = new MetricsRegistry();
  processMetrics(registry);
  const page = registry.render();
  expect(value(page, "process_resident_memory_bytes")).toBeGreaterThan(1e6);
  expect(value(page, "process_cpu_seconds_total")).toBeGreaterThan(0);
  expect(Math.abs(value(page, "process_start_time_seconds") - Date.now() / 1000)).toBeLessThan(3600);
  for (const name of [
    "process_open_fds",
    "process_max_fds",
    "process_virtual_memory_bytes",
    "process_network_receive_bytes_total",
  ])
    expect(page).toContain(`\n${name} `);
});

test("FC-099 the dataplane's rounds are counted and timed", () => {
  const registry = new MetricsRegistry();
  let now = 0;
  const metrics = dataplaneMetrics(registry, () => now);
  metrics.onMessage({ type: "inSync" });
  metrics.onMessage({ type: "vtepRemove", node: "n" });
  now = 2500;
  metrics.onApplied({ seconds: 0.5, ok: false, isFirst: true });
  const page = registry.render();
  expect(page).toContain('felix_int_dataplane_messages{type="VXLANTunnelEndpointRemove"} 1');
  expect(value(page, "felix_int_dataplane_initial_resync_time_seconds")).toBe(2.5);
  expect(value(page, "felix_int_dataplane_failures")).toBe(1);
  expect(value(page, "felix_int_dataplane_apply_time_seconds_sum")).toBe(0.5);
  expect(value(page, "felix_int_dataplane_msg_batch_size_sum")).toBe(2);
});
