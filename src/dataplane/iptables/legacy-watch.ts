// Notices within a second that somebody else wrote to a legacy table: of such a write the kernel tells nobody, and until
// our rules are back nothing is denied. A table knows its outline (`kernel/legacy-tables.ts`) as it was when it was last
// read or written by us; another one is somebody's doing. What was changed is found by reading the table, as ever; a
// change that leaves the outline as it is waits for the next planned look.

export interface WatchedTable {
  /** Somebody else wrote since we last read or wrote. */
  readonly isOverwritten: boolean;
  /** How long it takes to read. */
  readonly readMs: number;
  queueResync(): void;
}

export interface LegacyWatchOptions {
  readonly tables: readonly WatchedTable[];
  /** Tables were changed: look and write again. */
  readonly onChange: () => void;
  readonly now?: () => number;
}

/** Others write often (services come and go): reading shall take no more than this part of the time. */
const READING_SHARE = 1 / 20;

export class LegacyWatch {
  readonly #options: LegacyWatchOptions;
  readonly #mayLookAt = new Map<WatchedTable, number>();

  constructor(options: LegacyWatchOptions) {
    this.#options = options;
  }

  check(): void {
    const { tables, onChange, now = () => performance.now() } = this.#options;
    const changed = tables.filter((table) => table.isOverwritten && now() >= (this.#mayLookAt.get(table) ?? 0));
    for (const table of changed) {
      this.#mayLookAt.set(table, now() + table.readMs / READING_SHARE);
      table.queueResync();
    }
    if (changed.length > 0) onChange();
  }
}
