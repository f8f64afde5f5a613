// Buffers updates between a fast source and a slow consumer: at most one per key, the newest. A key that is created and
// deleted before its first update was delivered is not delivered at all. After a restart of the source, keys that it does
// not send again are deleted.
import { type Key, keyPath, parseKeyPath } from "../model/index.ts";
import { yieldToEventLoop } from "../lib/retry.ts";
import type { SyncerSink, SyncerUpdate, SyncStatus } from "./syncer.ts";

type Queued = SyncerUpdate | SyncStatus;
const MAX_BATCH = 100;
/** Time per turn of the event loop in which updates are delivered. */
const SLICE_MS = 5;

export class DedupeBuffer implements SyncerSink {
  /** By path; a status has a key that is not a path. A replaced update keeps its position, so it stays before a status. */
  readonly #queue = new Map<string, Queued>();
  /** Paths of the keys that the consumer has. */
  readonly #delivered = new Set<string>();
  /** Keys that the source sent before its restart and has not sent again; undefined if there was no restart. */
  #unconfirmed: Set<string> | undefined;
  #statusCount = 0;
  /** Continues after the last batch: an iterator from the start would walk over all deleted entries of the map again. */
  #next = this.#queue.entries();
  #wake: (() => void) | undefined;
  readonly #onUnreadable: ((path: string, reason: string) => void) | undefined;

  constructor(options: { readonly onUnreadable?: (path: string, reason: string) => void } = {}) {
    this.#onUnreadable = options.onUnreadable;
  }

  /** The source lost its connection and will send all keys again. */
  onRestart(): void {
    this.#unconfirmed = new Set(this.#delivered);
    for (const [path, queued] of this.#queue) if (typeof queued !== "string") this.#unconfirmed.add(path);
  }

  onStatus(status: SyncStatus): void {
    if (status === "in-sync" && this.#unconfirmed !== undefined) {
      const gone = this.#unconfirmed;
      this.#unconfirmed = undefined;
      for (const path of gone) this.#queueDeletion(path);
    }
    this.#queue.set(`status ${this.#statusCount++}`, status);
    this.#resume();
  }

  onUpdates(updates: readonly SyncerUpdate[], paths?: readonly string[]): void {
    for (const [i, update] of updates.entries()) {
      const path = paths?.[i] ?? keyPath(update.key);
      this.#unconfirmed?.delete(path);
      if (update.value === undefined) this.#queueDeletion(path, update.key);
      else this.#queue.set(path, update);
    }
    this.#resume();
  }

  onUnreadable(path: string, reason: string): void {
    this.#onUnreadable?.(path, reason);
  }

  /** Number of queued updates and statuses. */
  get size(): number {
    return this.#queue.size;
  }

  /** Delivers to the consumer until the signal aborts, for `SLICE_MS` per turn of the event loop. */
  async run(sink: SyncerSink, signal: AbortSignal): Promise<void> {
    const onAbort = () => this.#resume();
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      while (!signal.aborted) {
        if (this.#queue.size === 0) await new Promise<void>((resolve) => (this.#wake = resolve));
        else {
          const until = performance.now() + SLICE_MS;
          do this.#deliver(sink);
          while (this.#queue.size > 0 && !signal.aborted && performance.now() < until);
          await yieldToEventLoop();
        }
      }
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  }

  /** Delivers the updates before the next status, at most `MAX_BATCH`, then the status. */
  #deliver(sink: SyncerSink): void {
    const batch: SyncerUpdate[] = [];
    let status: SyncStatus | undefined;
    while (batch.length < MAX_BATCH && status === undefined) {
      const { value: entry, done } = this.#next.next();
      if (done === true) {
        this.#next = this.#queue.entries();
        break;
      }
      const [path, queued] = entry;
      this.#queue.delete(path);
      if (typeof queued === "string") status = queued;
      else batch.push(this.#toDelivered(path, queued));
    }
    if (batch.length > 0) sink.onUpdates(batch);
    if (status !== undefined) sink.onStatus(status);
  }

  /** Corrects `change`: a key that is new for the source may not be new for the consumer. Records the delivery. */
  #toDelivered(path: string, update: SyncerUpdate): SyncerUpdate {
    const isKnown = this.#delivered.has(path);
    if (update.value === undefined) this.#delivered.delete(path);
    else this.#delivered.add(path);
    const change = update.value === undefined ? "deleted" : isKnown ? "updated" : "new";
    return update.change === change ? update : ({ ...update, change } as SyncerUpdate);
  }

  #queueDeletion(path: string, key: Key | undefined = parseKeyPath(path)): void {
    if (!this.#delivered.has(path)) this.#queue.delete(path);
    else if (key !== undefined) this.#queue.set(path, { key, value: undefined, change: "deleted" } as SyncerUpdate);
  }

  #resume(): void {
    this.#wake?.();
    this.#wake = undefined;
  }
}
