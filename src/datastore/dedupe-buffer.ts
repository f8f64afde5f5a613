// Between a fast source and a slow consumer: holds at most one update per key, the newest. A key that comes and goes
// before the consumer hears of it is never told. When the source starts over, what it does not tell again is deleted.
import { type Key, keyPath, parseKeyPath } from "../model/index.ts";
import { yieldToEventLoop } from "../lib/retry.ts";
import type { SyncerSink, SyncerUpdate, SyncStatus } from "./syncer.ts";

/** What waits is an update or a status. */
type Queued = SyncerUpdate | SyncStatus;
const MAX_BATCH = 100;
const SLICE_MS = 5;

export class DedupeBuffer implements SyncerSink {
  /** By path; statuses under names no path has. A replaced update keeps its place, so it never falls behind a status. */
  readonly #queue = new Map<string, Queued>();
  /** What the consumer was told of and knows. */
  readonly #known = new Set<string>();
  /** Known keys the source has not told again since it started over. */
  #unconfirmed: Set<string> | undefined;
  #statusCount = 0;
  /** Goes on where the last batch ended: a walk from the start would pass over everything deleted again. */
  #next = this.#queue.entries();
  #wake: (() => void) | undefined;
  readonly #onUnreadable: ((path: string, reason: string) => void) | undefined;

  constructor(options: { readonly onUnreadable?: (path: string, reason: string) => void } = {}) {
    this.#onUnreadable = options.onUnreadable;
  }

  /** The source lost its connection and will tell everything again. */
  onRestart(): void {
    this.#unconfirmed = new Set(this.#known);
    for (const [path, queued] of this.#queue) if (typeof queued !== "string") this.#unconfirmed.add(path);
  }

  onStatus(status: SyncStatus): void {
    if (status === "in-sync" && this.#unconfirmed !== undefined) {
      const gone = this.#unconfirmed;
      this.#unconfirmed = undefined;
      for (const path of gone) this.#drop(path);
    }
    this.#queue.set(`status ${this.#statusCount++}`, status);
    this.#resume();
  }

  /** A source that has the keys' paths at hand gives them, in the same order. */
  onUpdates(updates: readonly SyncerUpdate[], paths?: readonly string[]): void {
    for (const [i, update] of updates.entries()) {
      const path = paths?.[i] ?? keyPath(update.key);
      this.#unconfirmed?.delete(path);
      if (update.value === undefined) this.#drop(path, update.key);
      else this.#queue.set(path, update);
    }
    this.#resume();
  }

  onUnreadable(path: string, reason: string): void {
    this.#onUnreadable?.(path, reason);
  }

  /** How much waits for the consumer. */
  get size(): number {
    return this.#queue.size;
  }

  /** Feeds the consumer until the signal aborts, a slice of time per turn of the event loop. */
  async run(sink: SyncerSink, signal: AbortSignal): Promise<void> {
    const onAbort = () => this.#resume();
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      while (!signal.aborted) {
        if (this.#queue.size === 0) await new Promise<void>((resolve) => (this.#wake = resolve));
        else {
          const until = performance.now() + SLICE_MS;
          do this.#feed(sink);
          while (this.#queue.size > 0 && !signal.aborted && performance.now() < until);
          await yieldToEventLoop();
        }
      }
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  }

  /** As many updates as stand before the next status, then that. */
  #feed(sink: SyncerSink): void {
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
      else batch.push(this.#told(path, queued));
    }
    if (batch.length > 0) sink.onUpdates(batch);
    if (status !== undefined) sink.onStatus(status);
  }

  /** The update as the consumer must see it: what is new to the source may not be new to it. */
  #told(path: string, update: SyncerUpdate): SyncerUpdate {
    const isKnown = this.#known.has(path);
    if (update.value === undefined) this.#known.delete(path);
    else this.#known.add(path);
    const change = update.value === undefined ? "deleted" : isKnown ? "updated" : "new";
    return update.change === change ? update : ({ ...update, change } as SyncerUpdate);
  }

  #drop(path: string, key: Key | undefined = parseKeyPath(path)): void {
    if (!this.#known.has(path)) this.#queue.delete(path);
    else if (key !== undefined) this.#queue.set(path, { key, value: undefined, change: "deleted" } as SyncerUpdate);
  }

  #resume(): void {
    this.#wake?.();
    this.#wake = undefined;
  }
}
