// Aggregates the liveness and readiness of a program's parts for probes. A part with a timeout that has not reported in time
// is not live and not ready. The page is a table of all parts, so that it shows which part is the cause.
import { formatBoxTable } from "../terminal/table.ts";

const COLUMNS = ["COMPONENT", "TIMEOUT", "LIVENESS", "READINESS", "DETAIL"].map((title) => ({ title }));

export interface HealthReport {
  readonly live?: boolean;
  readonly ready?: boolean;
  readonly detail?: string;
}

interface Reporter {
  readonly kinds: { readonly live: boolean; readonly ready: boolean };
  readonly timeoutMs: number | undefined;
  report: Required<HealthReport>;
  reportedAt: number;
}

export interface HealthAnswer {
  readonly ok: boolean;
  readonly status: 200 | 204 | 503;
  readonly body: string;
}

export class HealthAggregator {
  readonly #reporters = new Map<string, Reporter>();
  readonly #overrides = new Map<string, number>();
  readonly #notes = new Map<string, () => string>();
  readonly #now: () => number;

  constructor(now: () => number = Date.now) {
    this.#now = now;
  }

  /** @param timeoutMs after this time without a report, the part is not live and not ready; by default reports do not expire */
  register(
    name: string,
    kinds: { readonly live?: boolean; readonly ready?: boolean },
    timeoutMs?: number,
  ): (report: HealthReport) => void {
    const reporter: Reporter = {
      kinds: { live: kinds.live ?? false, ready: kinds.ready ?? false },
      timeoutMs: timeoutMs === 0 ? undefined : timeoutMs,
      report: { live: true, ready: false, detail: "" },
      reportedAt: this.#now(),
    };
    this.#reporters.set(name, reporter);
    return (report) => {
      reporter.report = { live: report.live ?? true, ready: report.ready ?? false, detail: report.detail ?? "" };
      reporter.reportedAt = this.#now();
    };
  }

  /** Timeouts by name, which replace the registered ones; 0 = reports do not expire. */
  overrideTimeouts(overrides: ReadonlyMap<string, number>): void {
    this.#overrides.clear();
    for (const [name, timeoutMs] of overrides) this.#overrides.set(name, timeoutMs);
  }

  /** Adds a text to the detail of a part, computed for each probe. It does not change the status. */
  annotate(name: string, note: () => string): void {
    this.#notes.set(name, note);
  }

  liveness(): HealthAnswer {
    return this.#answer("live");
  }
  readiness(): HealthAnswer {
    return this.#answer("ready");
  }

  #answer(kind: "live" | "ready"): HealthAnswer {
    let ok = true;
    const rows: string[][] = [];
    for (const [name, reporter] of [...this.#reporters].sort(([a], [b]) => (a < b ? -1 : 1))) {
      const timeoutMs = this.#overrides.get(name) ?? reporter.timeoutMs;
      const late = timeoutMs !== undefined && timeoutMs > 0 && this.#now() - reporter.reportedAt > timeoutMs;
      if (reporter.kinds[kind] && (late || !reporter.report[kind])) ok = false;
      const cell = (of: "live" | "ready") => {
        if (!reporter.kinds[of]) return "-";
        return `reporting ${of === "live" ? (reporter.report.live ? "live" : "non-live") : reporter.report.ready ? "ready" : "non-ready"}${late ? " (timed out)" : ""}`;
      };
      rows.push([
        name,
        timeoutMs === undefined || timeoutMs === 0 ? "-" : formatSeconds(timeoutMs),
        cell("live"),
        cell("ready"),
        [reporter.report.detail, this.#notes.get(name)?.() ?? ""].filter((text) => text !== "").join("; "),
      ]);
    }
    if (rows.length === 0) return { ok, status: 204, body: "" };
    return { ok, status: ok ? 200 : 503, body: formatBoxTable(COLUMNS, rows) };
  }
}

function formatSeconds(ms: number): string {
  const minutes = Math.floor(ms / 60_000);
  const seconds = (ms % 60_000) / 1000;
  return minutes > 0 ? `${minutes}m${seconds}s` : `${seconds}s`;
}
