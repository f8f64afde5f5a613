// All kinds a consumer wants, as one stream: each followed by its own cache, updates joined into batches, and one status
// over all: in sync when every kind is, waiting while every kind is, resyncing in between.
//
//   Datastore ──list, watch──► WatcherCache (one per kind) ──► batch ──► SyncerSink
import type { Datastore } from "./datastore.ts";
import type { Syncer, SyncerSink, SyncerUpdate, SyncStatus } from "./syncer.ts";
import { type CacheListener, SYNC_TIMINGS, type SyncTimings, type WatchedKind, WatcherCache } from "./watcher-cache.ts";

export interface WatcherSyncerOptions {
  readonly timings?: Partial<SyncTimings>;
  readonly now?: () => number;
  /** Told of every failure; `lasting` once a kind could not be followed for ten minutes. */
  readonly onFailure?: (error: unknown, lasting: boolean) => void;
  /** When a kind was lost for too long, tell that its keys are gone. Else they stand as they were last known. */
  readonly dropWhenLost?: boolean;
  /** At the end, tell that everything is gone: for a syncer that another will replace. */
  readonly dropAtEnd?: boolean;
}

const MAX_BATCH = 1000;

export class WatcherSyncer implements Syncer {
  readonly #datastore: Datastore;
  /** Made anew for each run: processors remember. */
  readonly #kinds: () => readonly WatchedKind[];
  readonly #options: WatcherSyncerOptions;

  constructor(datastore: Datastore, kinds: () => readonly WatchedKind[], options: WatcherSyncerOptions = {}) {
    this.#datastore = datastore;
    this.#kinds = kinds;
    this.#options = options;
  }

  async run(sink: SyncerSink, signal: AbortSignal): Promise<void> {
    const batch = new Batch(sink);
    const statuses: SyncStatus[] = [];
    let told: SyncStatus | undefined;
    const tellStatus = () => {
      const status = aggregate(statuses);
      if (status === told) return;
      batch.flush();
      told = status;
      sink.onStatus(status);
    };
    const timings = { ...SYNC_TIMINGS, ...this.#options.timings };
    const caches = this.#kinds().map((kind, i) => {
      statuses[i] = "wait-for-ready";
      const listener: CacheListener = {
        onStatus: (status) => {
          // Within a relist a cache is as good as before: only news is told.
          if (status === "resync" && statuses[i] === "in-sync") return;
          statuses[i] = status;
          tellStatus();
        },
        onUpdates: (updates, paths) => batch.add(updates, paths),
        onUnreadable: (path, reason) => sink.onUnreadable?.(path, reason),
        onFailure: (error, lasting) => this.#options.onFailure?.(error, lasting),
      };
      return new WatcherCache({
        datastore: this.#datastore,
        kind,
        listener,
        timings,
        ...(this.#options.now === undefined ? {} : { now: this.#options.now }),
        dropWhenLost: this.#options.dropWhenLost ?? false,
      });
    });
    tellStatus();
    await Promise.all(caches.map((cache) => cache.run(signal)));
    if (this.#options.dropAtEnd === true) for (const cache of caches) cache.dropAll();
    batch.flush();
  }
}

function aggregate(statuses: readonly SyncStatus[]): SyncStatus {
  if (statuses.every((status) => status === "in-sync")) return "in-sync";
  return statuses.every((status) => status === "wait-for-ready") ? "wait-for-ready" : "resync";
}

/** Joins what arrives within one turn of the event loop. */
class Batch {
  readonly #sink: SyncerSink;
  #updates: SyncerUpdate[] = [];
  #paths: string[] = [];
  #scheduled = false;

  constructor(sink: SyncerSink) {
    this.#sink = sink;
  }

  add(updates: readonly SyncerUpdate[], paths: readonly string[]): void {
    for (const update of updates) this.#updates.push(update);
    for (const path of paths) this.#paths.push(path);
    if (this.#updates.length >= MAX_BATCH) this.flush();
    else if (!this.#scheduled) {
      this.#scheduled = true;
      setImmediate(() => {
        this.#scheduled = false;
        this.flush();
      });
    }
  }

  flush(): void {
    const updates = this.#updates;
    const paths = this.#paths;
    if (updates.length === 0) return;
    this.#updates = [];
    this.#paths = [];
    if (updates.length <= MAX_BATCH) return this.#sink.onUpdates(updates, paths);
    for (let i = 0; i < updates.length; i += MAX_BATCH)
      this.#sink.onUpdates(updates.slice(i, i + MAX_BATCH), paths.slice(i, i + MAX_BATCH));
  }
}
