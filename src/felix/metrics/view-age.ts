// Reports the age of the view of the datastore, on the health page and as a metric.
import type { HealthAggregator } from "../../lib/http/health.ts";
import type { MetricsRegistry } from "../../lib/metrics.ts";

/**
 * Reports how old the view of the datastore is. Felix stays ready when it loses the datastore, because it continues to
 * enforce its last view.
 */
export function reportViewAge(
  source: { readonly viewAgeMs: number },
  { health, registry }: { readonly health: HealthAggregator; readonly registry: MetricsRegistry },
): void {
  const seconds = () => Math.round(source.viewAgeMs / 1000);
  health.annotate("CalculationGraph", () => (seconds() === 0 ? "" : `view of the datastore is ${seconds()} s old`));
  registry.collect(
    "felix_datastore_view_age_seconds",
    "Seconds since the connection to the datastore or Typha was lost; 0 while connected.",
    "gauge",
    () => [[{}, seconds()]],
  );
}
