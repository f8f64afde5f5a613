// Detects within a second that another program wrote to a legacy iptables table. The kernel sends no event about such a
// write, and until the rules are restored no packet is dropped by policy.
//
// A table remembers its fingerprint (kernel/netfilter/legacy-tables.ts) after each read or write of calico-ts. If the
// fingerprint differs, the table is read again. A change that does not affect the fingerprint is found by the next regular
// read.

export interface WatchedTable {
  /** True if another program wrote since calico-ts last read or wrote the table. */
  readonly isOverwritten: boolean;
  /** The duration of a read. */
  readonly readMs: number;
  queueResync(): void;
}

export interface LegacyWatchOptions {
  readonly tables: readonly WatchedTable[];
  /** Called if tables were overwritten. */
  readonly onChange: () => void;
  readonly nowMs?: () => number;
}

/** Other programs write often, for example kube-proxy. Reading takes at most this share of the time. */
const MAX_READ_SHARE = 1 / 20;

export class LegacyWatch {
  readonly #options: LegacyWatchOptions;
  readonly #nextReadMs = new Map<WatchedTable, number>();

  constructor(options: LegacyWatchOptions) {
    this.#options = options;
  }

  check(): void {
    const { tables, onChange, nowMs = () => performance.now() } = this.#options;
    const changed = tables.filter((table) => table.isOverwritten && nowMs() >= (this.#nextReadMs.get(table) ?? 0));
    for (const table of changed) {
      this.#nextReadMs.set(table, nowMs() + table.readMs / MAX_READ_SHARE);
      table.queueResync();
    }
    if (changed.length > 0) onChange();
  }
}
