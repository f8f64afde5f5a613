// The kernel's tables of neighbours, one per family for all namespaces of the machine. When one is full and nothing in
// it may go, the kernel drops packets to neighbours it does not know, whoever sends them: loss that is not ours. Looked
// at while probes fly, so that each lost one can be laid beside the moments when a table was full.
import { readFileSync } from "node:fs";

const TABLES = ["arp_cache", "ndisc_cache"] as const;
/** Those that tell of packets dropped for want of a neighbour. */
const COUNTERS = ["table_fulls", "forced_gc_runs", "unresolved_discards", "res_failed"] as const;
type Counter = (typeof COUNTERS)[number];
type Counts = Readonly<Record<Counter, number>>;

/** Sums over the processors; the file has a row for each, in hexadecimal. */
export function readCounts(text: string): Counts {
  const [names = [], ...rows] = text.trim().split("\n").map(words);
  const column = (name: string) => {
    const i = names.indexOf(name);
    return rows.reduce((sum, row) => sum + Number.parseInt(row[i] ?? "0", 16), 0);
  };
  return Object.fromEntries(COUNTERS.map((name) => [name, column(name)])) as Counts;
}

export interface Overflow {
  /** The last look that saw none of it, and the one that did. */
  readonly afterMs: number;
  readonly atMs: number;
  readonly count: number;
}

export class NeighbourWatch {
  readonly overflows: Overflow[] = [];
  readonly #read: () => readonly Counts[];
  readonly #first: readonly Counts[];
  #last: readonly Counts[];
  #lastMs = 0;

  constructor(read: () => readonly Counts[] = readTables) {
    this.#read = read;
    this.#first = this.#last = read();
  }

  look(atMs: number): void {
    const now = this.#read();
    const count = fulls(now) - fulls(this.#last);
    if (count > 0) this.overflows.push({ afterMs: this.#lastMs, atMs, count });
    [this.#last, this.#lastMs] = [now, atMs];
  }

  /** Whether a table was full while a packet sent then was on its way. */
  wasFull(sentMs: number, forMs: number): boolean {
    return this.overflows.some(({ afterMs, atMs }) => afterMs <= sentMs + forMs && atMs >= sentMs);
  }

  /** What the kernel counted since the beginning. */
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
const readTables = (): Counts[] => TABLES.map((table) => readCounts(readFileSync(`/proc/net/stat/${table}`, "utf8")));
