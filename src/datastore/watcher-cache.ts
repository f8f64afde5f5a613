// Follows one kind: lists it, watches from there, and lists again when the watch is lost for good. Remembers which keys
// it told of, so that every list ends in the difference to what was told before: nothing is told twice, nothing missed.
import { nextTurn, pause } from "../lib/retry.ts";
import {
  type Key,
  keyPath,
  parseKeyPath,
  type StoredKey,
  type StoredQuery,
  type UpdateProcessor,
} from "../model/index.ts";
import type { Datastore, Revision, Stored, WatchEvent } from "./datastore.ts";
import { Compacted, NotFound, NotServed, Unavailable, UnreadableEntry, Unsupported } from "./errors.ts";
import type { SyncerUpdate, SyncStatus } from "./syncer.ts";

export interface WatchedKind {
  readonly query: StoredQuery;
  readonly processor: UpdateProcessor;
}

export interface SyncTimings {
  /** Between two attempts of any sort, at least. */
  readonly betweenResyncsMs: number;
  readonly afterListErrorMs: number;
  /** Between lists of what cannot be watched. */
  readonly pollMs: number;
  /** Before asking again for a kind of others that the server does not have. */
  readonly notServedMs: number;
  /** Failing this long, we no longer claim to know. */
  readonly giveUpMs: number;
}
export const SYNC_TIMINGS: SyncTimings = {
  betweenResyncsMs: 500,
  afterListErrorMs: 1000,
  pollMs: 5000,
  notServedMs: 30 * 60_000,
  giveUpMs: 600_000,
};

/** Watch errors at one revision, without progress between, before that revision is no longer trusted. */
const MAX_WATCH_ERRORS = 5;
/** Items converted before others get a turn. */
const SLICE = 1000;

/** What a cache tells; statuses and updates in order. */
export interface CacheListener {
  onStatus(status: SyncStatus): void;
  /** @param paths of their keys, in the same order */
  onUpdates(updates: readonly SyncerUpdate[], paths: readonly string[]): void;
  onUnreadable(path: string, reason: string): void;
  /** What went wrong and will be tried again; `lasting` once it went on for too long. */
  onFailure(error: unknown, lasting: boolean): void;
}

export class WatcherCache {
  readonly #datastore: Datastore;
  readonly #kind: WatchedKind;
  readonly #listener: CacheListener;
  readonly #timings: SyncTimings;
  readonly #now: () => number;
  readonly #dropWhenLost: boolean;
  /** Path of each key told of → the revision it was told at. */
  readonly #told = new Map<string, Revision>();
  /** Where to watch from; undefined = list first. */
  #revision: Revision | undefined;
  #failingSince: number | undefined;
  #gaveUp = false;
  #watchErrors = 0;

  constructor(options: {
    readonly datastore: Datastore;
    readonly kind: WatchedKind;
    readonly listener: CacheListener;
    readonly timings?: SyncTimings;
    readonly now?: () => number;
    /** Tell that everything is gone once the datastore is away for too long. */
    readonly dropWhenLost?: boolean;
  }) {
    this.#datastore = options.datastore;
    this.#kind = options.kind;
    this.#listener = options.listener;
    this.#timings = options.timings ?? SYNC_TIMINGS;
    this.#now = options.now ?? (() => performance.now());
    this.#dropWhenLost = options.dropWhenLost ?? false;
  }

  /** Until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const waitMs =
        this.#revision === undefined ? await this.#list(signal) : await this.#watch(this.#revision, signal);
      if (waitMs > 0 && !signal.aborted) await pause(waitMs, signal);
    }
  }

  /** Tells that everything is gone. */
  dropAll(): void {
    this.#emitGone([...this.#told.keys()]);
  }

  /** Returns how long to wait before going on. */
  async #list(signal: AbortSignal): Promise<number> {
    let items: readonly Stored[];
    let revision: Revision;
    const adoption = new Adoption();
    const onPage = (page: readonly Stored[]) => this.#adoptSome(page, adoption);
    const onUnreadable = ({ path, message }: UnreadableEntry) => this.#listener.onUnreadable(path, message);
    try {
      ({ items, revision } = await this.#datastore.list(this.#kind.query, { signal, onPage, onUnreadable }));
    } catch (error) {
      if (signal.aborted) return 0;
      if (error instanceof NotServed) {
        await this.#adopt([], new Adoption(), signal);
        return error.isOptional ? this.#timings.notServedMs : this.#timings.pollMs;
      }
      this.#failed(error);
      return this.#timings.afterListErrorMs;
    }
    await this.#adopt(items, adoption, signal);
    // A server that gives no revision has nothing to watch from.
    if (revision === "" || revision === "0") return this.#timings.pollMs;
    this.#revision = revision;
    return 0;
  }

  /** Makes what was told equal to a full list, of which some may have been adopted already. */
  async #adopt(items: readonly Stored[], adoption: Adoption, signal: AbortSignal): Promise<void> {
    this.#begin(adoption);
    for (let i = 0; i < items.length && !signal.aborted; i += SLICE) {
      if (i > 0) await nextTurn();
      this.#adoptSome(items.slice(i, i + SLICE), adoption);
    }
    if (signal.aborted) return;
    this.#emitGone([...(adoption.stale ?? [])]);
    this.#listener.onStatus("in-sync");
  }

  #adoptSome(items: readonly Stored[], adoption: Adoption): void {
    const stale = this.#begin(adoption);
    const told = new Told();
    for (const item of items) this.#process(item.key, item.value, item.revision, told, stale);
    told.tell(this.#listener);
  }

  #begin(adoption: Adoption): Set<string> {
    if (adoption.stale !== undefined) return adoption.stale;
    this.#succeeded();
    if (this.#told.size === 0 || this.#gaveUp) this.#listener.onStatus("resync");
    this.#gaveUp = false;
    this.#kind.processor.restart();
    return (adoption.stale = new Set(this.#told.keys()));
  }

  async #watch(after: Revision, signal: AbortSignal): Promise<number> {
    try {
      await using watch = await this.#datastore.watch(this.#kind.query, { after, signal, withoutPrevious: true });
      for await (const events of watch) {
        this.#succeeded();
        this.#watchErrors = 0;
        this.#apply(events);
      }
      return signal.aborted ? 0 : this.#timings.betweenResyncsMs;
    } catch (error) {
      return signal.aborted ? 0 : this.#watchFailed(error);
    }
  }

  #watchFailed(error: unknown): number {
    if (error instanceof Unsupported || error instanceof NotFound) {
      this.#revision = undefined; // cannot be watched: list from time to time
      return this.#timings.pollMs;
    }
    this.#failed(error);
    if (error instanceof Compacted) this.#revision = undefined;
    else if (!(error instanceof Unavailable) && ++this.#watchErrors >= MAX_WATCH_ERRORS) {
      this.#watchErrors = 0;
      this.#revision = undefined;
    }
    return this.#timings.betweenResyncsMs;
  }

  #apply(events: readonly WatchEvent[]): void {
    const told = new Told();
    for (const event of events) {
      if (event.type === "added" || event.type === "modified")
        this.#process(event.item.key, event.item.value, event.item.revision, told);
      else if (event.type === "deleted") this.#process(event.key, undefined, event.revision, told);
      else if (event.type === "error") this.#unreadable(event.error, event.revision, told);
      if (event.revision !== undefined) this.#revision = event.revision;
    }
    told.tell(this.#listener);
  }

  /** What cannot be read counts as gone. */
  #unreadable(error: Error, revision: Revision | undefined, told: Told): void {
    const entry = error instanceof UnreadableEntry ? error : undefined;
    this.#listener.onUnreadable(entry?.path ?? "", error.message);
    if (entry?.key !== undefined) this.#process(entry.key, undefined, revision ?? "", told);
  }

  #process(
    key: StoredKey,
    value: Stored["value"] | undefined,
    revision: Revision,
    told: Told,
    stale?: Set<string>,
  ): void {
    const report = (problem: string) => this.#listener.onUnreadable(keyPath(key), problem);
    const stored = { key, value } as Parameters<UpdateProcessor["process"]>[0];
    for (const derived of this.#kind.processor.process(stored, report)) {
      const path = keyPath(derived.key);
      const before = this.#told.get(path);
      stale?.delete(path);
      if (derived.value === undefined) {
        if (before === undefined) continue;
        this.#told.delete(path);
        told.add(path, update(derived.key, undefined, revision, "deleted"));
      } else if (before !== revision) {
        this.#told.set(path, revision);
        told.add(path, update(derived.key, derived.value, revision, before === undefined ? "new" : "updated"));
      }
    }
  }

  #emitGone(paths: readonly string[]): void {
    const told = new Told();
    for (const path of paths) {
      if (!this.#told.delete(path)) continue;
      const key = parseKeyPath(path);
      if (key !== undefined) told.add(path, update(key, undefined, undefined, "deleted"));
    }
    told.tell(this.#listener);
  }

  #succeeded(): void {
    this.#failingSince = undefined;
  }

  #failed(error: unknown): void {
    this.#failingSince ??= this.#now();
    const lasting = this.#now() - this.#failingSince >= this.#timings.giveUpMs;
    this.#listener.onFailure(error, lasting);
    if (!lasting || this.#gaveUp) return;
    this.#gaveUp = true;
    this.#revision = undefined;
    if (this.#dropWhenLost) this.dropAll();
    this.#listener.onStatus("wait-for-ready");
  }
}

/** Updates to tell together, with their keys' paths, which were worked out for them anyway. */
class Told {
  readonly #updates: SyncerUpdate[] = [];
  readonly #paths: string[] = [];

  add(path: string, told: SyncerUpdate): void {
    this.#updates.push(told);
    this.#paths.push(path);
  }
  tell(listener: CacheListener): void {
    if (this.#updates.length > 0) listener.onUpdates(this.#updates, this.#paths);
  }
}

/** One full list on its way in. */
class Adoption {
  /** Keys told of that it has not named yet; nothing before it began. */
  stale: Set<string> | undefined;
}

function update(
  key: Key,
  value: unknown,
  revision: Revision | undefined,
  change: SyncerUpdate["change"],
): SyncerUpdate {
  return { key, value, change, ...(revision === undefined ? {} : { revision }) } as SyncerUpdate;
}
