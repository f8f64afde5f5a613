// Registers the standard process metrics of Prometheus clients.
// https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics
import { readdirSync } from "node:fs";
import type { MetricsRegistry } from "../metrics.ts";

export function addProcessMetrics(registry: MetricsRegistry, startedAt: Date): void {
  const gauge = (name: string, help: string, read: () => number) =>
    registry.collect(name, help, "gauge", () => [[{}, read()]]);
  registry.collect("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", "counter", () => {
    const { user, system } = process.cpuUsage();
    return [[{}, (user + system) / 1e6]];
  });
  gauge("process_resident_memory_bytes", "Resident memory size in bytes.", () => process.memoryUsage.rss());
  gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", () =>
    Math.round(startedAt.getTime() / 1000),
  );
  gauge("process_open_fds", "Number of open file descriptors.", () => {
    try {
      return readdirSync("/proc/self/fd").length;
    } catch {
      return Number.NaN;
    }
  });
}
