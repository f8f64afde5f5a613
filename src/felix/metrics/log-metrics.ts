// Counts log lines that were lost.
import type { MetricsRegistry } from "../../lib/metrics.ts";

export function logCounts(registry: MetricsRegistry): { dropped(): void; failed(): void } {
  const dropped = registry.counter("felix_logs_dropped", "Log lines dropped because a destination was too slow.");
  const failed = registry.counter("felix_log_errors", "Log lines that could not be written.");
  dropped.add(0);
  failed.add(0);
  return { dropped: () => dropped.add(), failed: () => failed.add() };
}
