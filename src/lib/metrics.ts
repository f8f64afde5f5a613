// Prometheus metrics: counters, gauges and summaries in a registry, printed in the text exposition format.
// https://prometheus.io/docs/instrumenting/exposition_formats/

export type MetricLabels = Readonly<Record<string, string>>;
/**
 * The default if a metric has no labels. Comparing this one object by identity is faster than reading its fields, which
 * matters for metrics that are updated very often.
 */
const NO_LABELS: MetricLabels = {};
type MetricType = "counter" | "gauge" | "summary";

export interface MetricDescription {
  readonly name: string;
  readonly help: string;
  readonly type: MetricType;
  readonly labels: readonly string[];
}

interface Family {
  readonly name: string;
  readonly help: string;
  readonly type: MetricType;
  samples(): Iterable<{ readonly suffix?: string; readonly labels: MetricLabels; readonly value: number }>;
}

export class MetricsRegistry {
  readonly #families = new Map<string, Family>();

  counter(name: string, help: string): Counter {
    return this.#add(new Counter(name, help));
  }
  gauge(name: string, help: string): Gauge {
    return this.#add(new Gauge(name, help));
  }
  summary(name: string, help: string, options?: { readonly now?: () => number }): Summary {
    return this.#add(new Summary(name, help, options?.now ?? Date.now));
  }
  /** Registers a metric whose values are computed for each scrape. */
  collect(name: string, help: string, type: "counter" | "gauge", read: () => Iterable<[MetricLabels, number]>): void {
    this.#add({
      name,
      help,
      type,
      *samples() {
        for (const [labels, value] of read()) yield { labels, value };
      },
    });
  }

  /** Returns all metrics, with the names of the labels that their current samples have. */
  describe(): readonly MetricDescription[] {
    return [...this.#families.values()].map((family) => {
      const labels = new Set([...family.samples()].flatMap((sample) => Object.keys(sample.labels)));
      labels.delete("quantile");
      const { name, help, type } = family;
      return { name, help, type, labels: [...labels] };
    });
  }

  /** Returns the page for a scraper, sorted by metric name. */
  render(): string {
    const lines: string[] = [];
    for (const family of [...this.#families.values()].sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const samples = [...family.samples()];
      if (samples.length === 0) continue;
      lines.push(`# HELP ${family.name} ${escapeHelp(family.help)}`, `# TYPE ${family.name} ${family.type}`);
      for (const { suffix = "", labels, value } of samples)
        lines.push(`${family.name}${suffix}${renderLabels(labels)} ${renderNumber(value)}`);
    }
    return `${lines.join("\n")}\n`;
  }

  #add<F extends Family>(family: F): F {
    if (this.#families.has(family.name)) throw new Error(`metric ${family.name} is registered twice`);
    this.#families.set(family.name, family);
    return family;
  }
}

class Scalar {
  protected readonly values = new Map<string, { readonly labels: MetricLabels; value: number }>();
  constructor(
    readonly name: string,
    readonly help: string,
  ) {}
  protected cell(labels: MetricLabels): { value: number } {
    const key = renderLabels(labels);
    let cell = this.values.get(key);
    if (cell === undefined) this.values.set(key, (cell = { labels, value: 0 }));
    return cell;
  }
  *samples(): Iterable<{ labels: MetricLabels; value: number }> {
    yield* this.values.values();
  }
}

class Counter extends Scalar implements Family {
  readonly type = "counter";
  add(amount = 1, labels: MetricLabels = NO_LABELS): void {
    this.cell(labels).value += amount;
  }
}

class Gauge extends Scalar implements Family {
  readonly type = "gauge";
  set(value: number, labels: MetricLabels = NO_LABELS): void {
    this.cell(labels).value = value;
  }
}

const QUANTILES = [0.5, 0.9, 0.99];
const SUMMARY_WINDOW_MS = 600_000;
const SUMMARY_SAMPLES = 1000;

interface Observations {
  readonly labels: MetricLabels;
  sum: number;
  count: number;
  /** The last observations and their times; once full, the oldest is overwritten. */
  readonly values: number[];
  readonly times: number[];
}

/** Quantiles of the last ten minutes, at most of the last thousand observations, for each combination of labels. */
class Summary implements Family {
  readonly type = "summary";
  readonly #series = new Map<string, Observations>();
  constructor(
    readonly name: string,
    readonly help: string,
    readonly now: () => number,
  ) {
    this.#of({});
  }
  /** Adds a series before its first observation. The series without labels is then omitted, unless it is used. */
  prepare(labels: MetricLabels): void {
    if (this.#of({}).count === 0) this.#series.delete("");
    this.#of(labels);
  }
  observe(value: number, labels: MetricLabels = NO_LABELS): void {
    const series = this.#of(labels);
    const index = series.count % SUMMARY_SAMPLES;
    series.sum += value;
    series.count++;
    series.values[index] = value;
    series.times[index] = this.now();
  }
  *samples(): Iterable<{ suffix?: string; labels: MetricLabels; value: number }> {
    const oldest = this.now() - SUMMARY_WINDOW_MS;
    for (const { labels, sum, count, values, times } of this.#series.values()) {
      const sorted = values.filter((_, i) => (times[i] ?? 0) >= oldest).sort((a, b) => a - b);
      for (const quantile of QUANTILES) {
        const index = Math.min(sorted.length - 1, Math.floor(quantile * sorted.length));
        yield { labels: { ...labels, quantile: String(quantile) }, value: sorted[index] ?? Number.NaN };
      }
      yield { suffix: "_sum", labels, value: sum };
      yield { suffix: "_count", labels, value: count };
    }
  }
  #of(labels: MetricLabels): Observations {
    const key = renderLabels(labels);
    let series = this.#series.get(key);
    if (series === undefined) this.#series.set(key, (series = { labels, sum: 0, count: 0, values: [], times: [] }));
    return series;
  }
}

function renderLabels(labels: MetricLabels): string {
  if (labels === NO_LABELS) return "";
  const entries = Object.entries(labels);
  if (entries.length === 0) return "";
  return `{${entries.map(([name, value]) => `${name}="${escapeLabel(value)}"`).join(",")}}`;
}
const escapeLabel = (text: string) => text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
const escapeHelp = (text: string) => text.replaceAll("\\", "\\\\").replaceAll("\n", "\\n");
const renderNumber = (value: number) =>
  Number.isFinite(value) ? String(value) : Number.isNaN(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf";
