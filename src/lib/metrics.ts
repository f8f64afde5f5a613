// Prometheus metrics: counters, gauges, summaries and histograms in a registry, printed in the text exposition format.
// https://prometheus.io/docs/instrumenting/exposition_formats/

export type MetricLabels = Readonly<Record<string, string>>;
/** Most have none, and some are counted for every update: finding that out must cost nothing. */
const NO_LABELS: MetricLabels = {};
type MetricType = "counter" | "gauge" | "summary" | "histogram";

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
  histogram(name: string, help: string, bounds: readonly number[]): Histogram {
    return this.#add(new Histogram(name, help, bounds));
  }
  /** Values computed when somebody asks. */
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

  /** The page a scraper reads; families in order of name. */
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
  add(amount: number, labels: MetricLabels = NO_LABELS): void {
    this.cell(labels).value += amount;
  }
  remove(labels: MetricLabels): void {
    this.values.delete(renderLabels(labels));
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

/** Quantiles over the last ten minutes, of at most the last thousand observations; apart for each set of labels. */
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
  /** Shows the labels before anything was observed with them; without labels there is then nothing of its own. */
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

class Histogram implements Family {
  readonly type = "histogram";
  readonly #counts: number[];
  #sum = 0;
  #count = 0;
  constructor(
    readonly name: string,
    readonly help: string,
    readonly bounds: readonly number[],
  ) {
    this.#counts = bounds.map(() => 0);
  }
  observe(value: number): void {
    this.#sum += value;
    this.#count++;
    for (const [i, bound] of this.bounds.entries()) if (value <= bound) this.#counts[i] = (this.#counts[i] ?? 0) + 1;
  }
  *samples(): Iterable<{ suffix?: string; labels: MetricLabels; value: number }> {
    for (const [i, bound] of this.bounds.entries())
      yield { suffix: "_bucket", labels: { le: String(bound) }, value: this.#counts[i] ?? 0 };
    yield { suffix: "_bucket", labels: { le: "+Inf" }, value: this.#count };
    yield { suffix: "_sum", labels: {}, value: this.#sum };
    yield { suffix: "_count", labels: {}, value: this.#count };
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
