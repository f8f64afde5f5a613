// Converts lists and watch events of one kind in the datastore to updates for a syncer.
//
// Invariant: #emittedRevisions holds the revision last emitted for every key that the listener has. A repeated list
// therefore emits only the differences: no update is repeated, and none is missed.
import {
  type Key,
  keyPath,
  parseKeyPath,
  type StoredKey,
  type StoredQuery,
  type UpdateProcessor,
} from "../model/index.ts";
import type { Datastore, Revision, Stored, WatchEvent } from "./datastore.ts";
import { UnreadableEntry } from "./errors.ts";
import type { ListAndWatchReceiver, ListAndWatchSource } from "./list-and-watch.ts";
import type { SyncerUpdate, SyncStatus } from "./syncer.ts";

/** Limit per object, which may have a problem in each of its 100,000 rules. */
const MAX_REPORTED_PROBLEMS = 10;

export interface WatchedKind {
  readonly query: StoredQuery;
  /** Converts each stored entry to the updates that the listener receives. */
  readonly processor: UpdateProcessor;
}

/** Receives statuses and updates in the order in which they happened. */
export interface KindListener {
  onStatus(status: SyncStatus): void;
  /** @param paths the key path of each update, in the same order */
  onUpdates(updates: readonly SyncerUpdate[], paths: readonly string[]): void;
  /** Called for an entry that cannot be parsed or converted. */
  onUnreadable(path: string, reason: string): void;
  onSuccess(): void;
  /** Called for each failed list or watch, before it is retried. */
  onFailure(error: unknown, isOutage: boolean): void;
}

export class KindUpdates implements ListAndWatchReceiver<Stored, WatchEvent> {
  readonly source: ListAndWatchSource<Stored, WatchEvent>;
  readonly #kind: WatchedKind;
  readonly #listener: KindListener;
  readonly #deleteOnOutage: boolean;
  /** By key path. */
  readonly #emittedRevisions = new Map<string, Revision>();
  /** Emitted keys that the present list has not contained so far. */
  #missingPaths = new Set<string>();
  #isOutage = false;

  constructor(options: {
    readonly datastore: Datastore;
    readonly kind: WatchedKind;
    readonly listener: KindListener;
    /** In an outage, emit the deletion of every key. By default the listener keeps the last known state. */
    readonly deleteOnOutage: boolean;
  }) {
    this.#kind = options.kind;
    this.#listener = options.listener;
    this.#deleteOnOutage = options.deleteOnOutage;
    this.source = datastoreSource(options.datastore, options.kind.query, ({ path, message }) =>
      options.listener.onUnreadable(path, message),
    );
  }

  get entryCount(): number {
    return this.#emittedRevisions.size;
  }
  get missingCount(): number {
    return this.#missingPaths.size;
  }

  startList(): void {
    // During a repeated list the listener's state is still valid, so the status does not change.
    if (this.#emittedRevisions.size === 0 || this.#isOutage) this.#listener.onStatus("resync");
    this.#isOutage = false;
    this.#kind.processor.reset();
    this.#missingPaths = new Set(this.#emittedRevisions.keys());
  }

  applyItems(items: readonly Stored[]): void {
    const batch = new UpdateBatch();
    for (const item of items) this.#processEntry(item, batch, this.#missingPaths);
    batch.emitTo(this.#listener);
  }

  finishList(): void {
    this.#emitDeletions([...this.#missingPaths]);
    this.#listener.onStatus("in-sync");
  }

  applyEvents(events: readonly WatchEvent[]): Revision | undefined {
    const batch = new UpdateBatch();
    let last: Revision | undefined;
    for (const event of events) {
      if (event.type === "added" || event.type === "modified") this.#processEntry(event.item, batch);
      else if (event.type === "deleted")
        this.#processEntry({ key: event.key, value: undefined, revision: event.revision }, batch);
      else if (event.type === "error") this.#processUnreadable(event.error, event.revision, batch);
      last = event.revision ?? last;
    }
    batch.emitTo(this.#listener);
    return last;
  }

  onSuccess(): void {
    this.#listener.onSuccess();
  }

  onFailure(error: unknown, isOutage: boolean): void {
    this.#listener.onFailure(error, isOutage);
  }

  onOutage(): void {
    this.#isOutage = true;
    if (this.#deleteOnOutage) this.emitAllDeletions();
    this.#listener.onStatus("wait-for-ready");
  }

  /** Emits the deletion of every key that the listener has. Nothing is deleted in the datastore. */
  emitAllDeletions(): void {
    this.#emitDeletions([...this.#emittedRevisions.keys()]);
  }

  /** An entry that cannot be parsed is reported and treated as deleted, as `SyncerUpdate` promises. */
  #processUnreadable(error: Error, revision: Revision | undefined, batch: UpdateBatch): void {
    const unreadable = error instanceof UnreadableEntry ? error : undefined;
    this.#listener.onUnreadable(unreadable?.path ?? "", error.message);
    if (unreadable?.key !== undefined)
      this.#processEntry({ key: unreadable.key, value: undefined, revision: revision ?? "" }, batch);
  }

  /**
   * Converts one entry and adds the resulting updates to `batch`.
   * @param missingPaths for a list: loses each key that the entry produces
   */
  #processEntry({ key, value, revision }: EntryState, batch: UpdateBatch, missingPaths?: Set<string>): void {
    let problems = 0;
    const reportProblem = (problem: string) => {
      problems++;
      if (problems <= MAX_REPORTED_PROBLEMS) this.#listener.onUnreadable(keyPath(key), problem);
      else if (problems === MAX_REPORTED_PROBLEMS + 1)
        this.#listener.onUnreadable(keyPath(key), "it has more problems, which are not reported");
    };
    const stored = { key, value } as Parameters<UpdateProcessor["process"]>[0];
    for (const derived of this.#kind.processor.process(stored, reportProblem)) {
      const path = keyPath(derived.key);
      const emittedRevision = this.#emittedRevisions.get(path);
      missingPaths?.delete(path);
      if (derived.value === undefined) {
        if (emittedRevision === undefined) continue; // processors may delete keys that they never produced
        this.#emittedRevisions.delete(path);
        batch.add(path, makeUpdate({ key: derived.key, value: undefined, revision, change: "deleted" }));
      } else if (emittedRevision !== revision) {
        this.#emittedRevisions.set(path, revision);
        const change = emittedRevision === undefined ? "new" : "updated";
        batch.add(path, makeUpdate({ key: derived.key, value: derived.value, revision, change }));
      }
    }
  }

  #emitDeletions(paths: readonly string[]): void {
    const batch = new UpdateBatch();
    for (const path of paths) {
      if (!this.#emittedRevisions.delete(path)) continue;
      const key = parseKeyPath(path);
      if (key !== undefined)
        batch.add(path, makeUpdate({ key, value: undefined, revision: undefined, change: "deleted" }));
    }
    batch.emitTo(this.#listener);
  }
}

function datastoreSource(
  datastore: Datastore,
  query: StoredQuery,
  onUnreadable: (error: UnreadableEntry) => void,
): ListAndWatchSource<Stored, WatchEvent> {
  return {
    list: (options) => datastore.list(query, { ...options, onUnreadable }),
    async *watch(after, signal) {
      await using watch = await datastore.watch(query, { after, signal, withoutPrevious: true });
      // A watch of etcd or SQLite has been accepted when it is returned. A watch of Kubernetes yields the empty batch itself.
      if (datastore.name !== "kubernetes") yield [];
      yield* watch;
    },
  };
}

/** An entry of a list or an event; `value` undefined = deleted. */
interface EntryState {
  readonly key: StoredKey;
  readonly value: Stored["value"] | undefined;
  readonly revision: Revision;
}

/** Updates that are emitted in one call, with their key paths, so that the listener does not compute them again. */
class UpdateBatch {
  readonly #updates: SyncerUpdate[] = [];
  readonly #paths: string[] = [];

  add(path: string, update: SyncerUpdate): void {
    this.#updates.push(update);
    this.#paths.push(path);
  }
  emitTo(listener: KindListener): void {
    if (this.#updates.length > 0) listener.onUpdates(this.#updates, this.#paths);
  }
}

function makeUpdate({
  key,
  value,
  revision,
  change,
}: {
  readonly key: Key;
  readonly value: unknown;
  readonly revision: Revision | undefined;
  readonly change: SyncerUpdate["change"];
}): SyncerUpdate {
  return { key, value, change, revision } as SyncerUpdate;
}
