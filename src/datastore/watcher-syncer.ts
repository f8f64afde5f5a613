// Joins all kinds that a consumer needs into one stream. Each kind has its own list-and-watch loop; their updates are
// joined into batches. The status is in-sync if every kind is, wait-for-ready if every kind is, and otherwise resync.
//
//   Datastore ──list, watch──► ListAndWatch ──► KindUpdates (one per kind) ──► batch ──► SyncerSink
import type { Logger } from "../lib/log/log.ts";
import type { Datastore } from "./datastore.ts";
import { type KindListener, KindUpdates, type WatchedKind } from "./kind-updates.ts";
import { ListAndWatch, type SyncTimings } from "./list-and-watch.ts";
import { OutageLog } from "./outage-log.ts";
import type { Syncer, SyncerSink, SyncerUpdate, SyncStatus } from "./syncer.ts";

export interface WatcherSyncerOptions {
  readonly timings?: Partial<SyncTimings>;
  readonly now?: () => number;
  /** Receives one line per change of state. */
  readonly log?: Logger;
  /** Called for every failure; `isOutage` once a kind could not be listed or watched for ten minutes. */
  readonly onFailure?: (error: unknown, isOutage: boolean) => void;
  /** In an outage of a kind, emit the deletion of its keys. By default they stay as they were last known. */
  readonly deleteOnOutage?: boolean;
  /** At the end, emit the deletion of all keys: for a syncer that another one will replace. */
  readonly deleteAtEnd?: boolean;
}

/** Every node of a cluster reconnects to the same API servers, so the delay may grow more than with etcd. */
const KUBERNETES_MAX_RECONNECT_MS = 5000;

const MAX_BATCH = 1000;

export class WatcherSyncer implements Syncer {
  readonly #datastore: Datastore;
  /** Created anew for each run, because processors have state. */
  readonly #kinds: () => readonly WatchedKind[];
  readonly #options: WatcherSyncerOptions;
  readonly #outages: OutageLog;

  constructor(datastore: Datastore, kinds: () => readonly WatchedKind[], options: WatcherSyncerOptions = {}) {
    this.#datastore = datastore;
    this.#kinds = kinds;
    this.#options = options;
    this.#outages = new OutageLog({ server: "the datastore", log: options.log });
  }

  get viewAgeMs(): number {
    return this.#outages.viewAgeMs;
  }

  async run(sink: SyncerSink, signal: AbortSignal): Promise<void> {
    using outages = this.#outages;
    const { now: nowMs, deleteOnOutage = false, onFailure } = this.#options;
    const batch = new Batch(sink);
    const statuses: SyncStatus[] = [];
    let emittedStatus: SyncStatus | undefined;
    const emitStatus = () => {
      const status = aggregate(statuses);
      if (status === emittedStatus) return;
      batch.flush();
      emittedStatus = status;
      sink.onStatus(status);
    };
    const datastore = this.#datastore;
    const reconnect = datastore.name === "kubernetes" ? { maxReconnectMs: KUBERNETES_MAX_RECONNECT_MS } : {};
    const timings = { ...reconnect, ...this.#options.timings };
    const loops = this.#kinds().map((kind, i) => {
      statuses[i] = "wait-for-ready";
      const name = nameOf(kind);
      const listener: KindListener = {
        onStatus: (status) => {
          // During a repeated list the kind's updates are as complete as before.
          if (status === "resync" && statuses[i] === "in-sync") return;
          statuses[i] = status;
          emitStatus();
        },
        onUpdates: (updates, paths) => batch.add(updates, paths),
        onUnreadable: (path, reason) => sink.onUnreadable?.(path, reason),
        onSuccess: () => outages.recordSuccess(name),
        onFailure: (error, isOutage) => {
          outages.recordFailure(name, error, isOutage);
          onFailure?.(error, isOutage);
        },
      };
      const receiver = new KindUpdates({ datastore, kind, listener, deleteOnOutage });
      return { receiver, loop: new ListAndWatch({ source: receiver.source, receiver, timings, nowMs }) };
    });
    emitStatus();
    await Promise.all(loops.map(({ loop }) => loop.run(signal)));
    if (this.#options.deleteAtEnd === true) for (const { receiver } of loops) receiver.emitAllDeletions();
    batch.flush();
  }
}

const nameOf = ({ query }: WatchedKind): string => (query.type === "resource" ? query.kind : query.type);

function aggregate(statuses: readonly SyncStatus[]): SyncStatus {
  if (statuses.every((status) => status === "in-sync")) return "in-sync";
  return statuses.every((status) => status === "wait-for-ready") ? "wait-for-ready" : "resync";
}

/** Joins the updates that arrive within one turn of the event loop. */
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
