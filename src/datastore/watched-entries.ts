// Caches the entries of some queries by list-and-watch. They are out of date by the delay of the watch: an entry that is
// missing here may already exist in the datastore.
import type { Logger } from "../lib/log/log.ts";
import { keyMatches, keyPath, passThrough, type StoredKey, type StoredQuery } from "../model/index.ts";
import type { Datastore, KeyOfQuery, Stored } from "./datastore.ts";
import type { SyncerUpdate } from "./syncer.ts";
import { WatcherSyncer } from "./watcher-syncer.ts";

export class WatchedEntries {
  readonly #entries = new Map<string, Stored>();
  readonly #syncer: WatcherSyncer;
  #isInSync = false;

  constructor(store: Datastore, queries: readonly StoredQuery[], log: Logger) {
    this.#syncer = new WatcherSyncer(store, () => queries.map((query) => ({ query, processor: passThrough })), { log });
  }

  /** Lists and watches until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    await this.#syncer.run(
      {
        onStatus: (status) => void (this.#isInSync = status === "in-sync"),
        onUpdates: (updates) => updates.forEach((update) => this.#apply(update)),
      },
      signal,
    );
    this.#isInSync = false;
  }

  /** False before the first list is complete, and during an outage of the datastore. The entries are not used then. */
  get isInSync(): boolean {
    return this.#isInSync;
  }

  get<K extends StoredKey>(key: K): Stored<K> | undefined {
    return this.#entries.get(keyPath(key)) as Stored<K> | undefined;
  }

  /** In the order in which a datastore lists them. */
  list<Q extends StoredQuery>(query: Q): readonly Stored<KeyOfQuery<Q>>[] {
    const found = [...this.#entries].filter(([, { key }]) => keyMatches(query, key));
    return found.sort(([a], [b]) => (a < b ? -1 : 1)).map(([, stored]) => stored as Stored<KeyOfQuery<Q>>);
  }

  #apply(update: SyncerUpdate): void {
    const { key, value, revision = "" } = update as SyncerUpdate<StoredKey>;
    if (value === undefined) this.#entries.delete(keyPath(key));
    else this.#entries.set(keyPath(key), { key, value, revision } as Stored);
  }
}
