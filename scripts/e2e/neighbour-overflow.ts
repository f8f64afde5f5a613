// Detects overflows of the kernel's neighbour tables, of which there is one per IP version for all namespaces of the machine.
// If a table is full and no entry can be evicted, the kernel drops packets to unknown neighbours. Such losses are not caused by
// Calico, so the tables are sampled while probes are sent, to find the lost probes that coincide with an overflow.
import { readFileSync } from "node:fs";

const TABLES = ["arp_cache", "ndisc_cache"] as const;
/** Counters that show a full table, or packets that were dropped because of one. */
const COUNTERS = ["table_fulls", "forced_gc_runs", "unresolved_discards", "res_failed"] as const;
type Counter = (typeof COUNTERS)[number];
type Counts = Readonly<Record<Counter, number>>;

/** Sums the counters of all CPUs; the file has a row for each, in hexadecimal. */
export function parseNeighbourCounters(text: string): Counts {
  const [names = [], ...rows] = text.trim().split("\n").map(words);
  const column = (name: string) => {
    const i = names.indexOf(name);
    return rows.reduce((sum, row) => sum + Number.parseInt(row[i] ?? "0", 16), 0);
  };
  return Object.fromEntries(COUNTERS.map((name) => [name, column(name)])) as Counts;
}

export interface Overflow {
  /** Time of the last sample before the overflow. */
  readonly afterMs: number;
  /** Time of the first sample after it. */
  readonly atMs: number;
  readonly count: number;
}

export class NeighbourOverflowMonitor {
  readonly overflows: Overflow[] = [];
  readonly #read: () => readonly Counts[];
  readonly #first: readonly Counts[];
  #last: readonly Counts[];
  #lastMs = 0;

  constructor(read: () => readonly Counts[] = readTables) {
    this.#read = read;
    this.#first = this.#last = read();
  }

  sample(atMs: number): void {
    const now = this.#read();
    const count = fulls(now) - fulls(this.#last);
    if (count > 0) this.overflows.push({ afterMs: this.#lastMs, atMs, count });
    [this.#last, this.#lastMs] = [now, atMs];
  }

  /** Whether a table overflowed within `forMs` milliseconds after `sentMs`. */
  wasFull(sentMs: number, forMs: number): boolean {
    return this.overflows.some(({ afterMs, atMs }) => afterMs <= sentMs + forMs && atMs >= sentMs);
  }

  /** Describes the changes of the counters since the first sample. */
  describe(): string {
    return TABLES.map((table, i) => {
      const changes = COUNTERS.map(
        (name) => `${name} +${(this.#last[i]?.[name] ?? 0) - (this.#first[i]?.[name] ?? 0)}`,
      );
      return `${table}: ${changes.join(", ")}`;
    }).join("; ");
  }
}

const words = (line: string): string[] => line.trim().split(/\s+/);
const fulls = (counts: readonly Counts[]): number => counts.reduce((sum, { table_fulls }) => sum + table_fulls, 0);
const readTables = (): Counts[] =>
  TABLES.map((table) => parseNeighbourCounters(readFileSync(`/proc/net/stat/${table}`, "utf8")));
