// Keeps a receiver up to date with one collection: lists it, watches for later changes, and lists it again only when the
// watch cannot be resumed. This is the only list-and-watch loop of the program.
//
//   list ──items──► receiver ──revision──► watch ──events──► receiver
//     ▲                                      │ ▲
//     │                                      └─┘ the watch ended or its connection was lost: resume after the last revision
//     └── revision compacted (410 Gone), kind not served, watch not supported, or outage
//
// A list is not proof that everything is gone, because a proxy or a server that is starting may answer for the API
// server. Two answers are therefore repeated before the receiver loses entries by them:
//   a list without most of the known entries   deletions wait for a second list, 5 s later; the watch runs meanwhile
//   404 for a kind that had entries            the kind is gone when the server's discovery confirms it for a minute
// Deletions that the watch reports are applied at once.
//
// Delays between attempts grow up to `maxReconnectMs` while the server does not answer and up to `maxRetryMs` while it
// refuses.
import { backoffDelay, yieldToEventLoop, pause } from "../lib/retry.ts";
import type { Revision } from "./datastore.ts";
import { Compacted, DatastoreFailure, NotFound, NotServed, Unauthorized, Unavailable, Unsupported } from "./errors.ts";

export interface SyncTimings {
  /** Delay after a watch ended or failed for the first time. */
  readonly watchRetryMs: number;
  /** Delay after a list failed for the first time. */
  readonly listRetryMs: number;
  /** Longest delay while there is no connection. It is short, because a change made meanwhile should arrive soon. */
  readonly maxReconnectMs: number;
  /** Longest delay while the server answers with an error. */
  readonly maxRetryMs: number;
  /** Interval between lists of a kind that cannot be watched, or of a Calico kind whose CRD is not installed yet. */
  readonly pollMs: number;
  /** Failures that last at least this long are an outage: the status returns to `wait-for-ready`. */
  readonly outageAfterMs: number;
  /** Delay before the second list that must confirm the deletion of most entries. */
  readonly confirmListMs: number;
  /** A kind with entries is gone when the server has reported for this long that it does not serve the kind. */
  readonly goneAfterMs: number;
}

const DEFAULT_SYNC_TIMINGS: SyncTimings = {
  watchRetryMs: 500,
  listRetryMs: 1000,
  maxReconnectMs: 1000,
  maxRetryMs: 30_000,
  pollMs: 5000,
  outageAfterMs: 600_000,
  confirmListMs: 5000,
  goneAfterMs: 60_000,
};

/** After this many errors of a watch at one revision, without an event in between, the kind is listed again. */
const MAX_WATCH_ERRORS = 5;
/** A watch that ends sooner, without an event, counts as failed when the next delay is chosen. */
const SHORT_WATCH_MS = 1000;
/** Number of list items applied before other tasks on the event loop may run. */
const ITEMS_PER_TURN = 1000;
/** Share of each delay that is random, so that many nodes do not send requests at the same moment. */
const JITTER = 0.3;

/** What is listed and watched. Errors have the types of `errors.ts`. */
export interface ListAndWatchSource<Item, Event> {
  /**
   * Returns the newest state (a quorum read), never an older one from a cache.
   * @param onPage receives large lists in pages; the result then contains only the items after the last page
   */
  list(options: {
    readonly signal: AbortSignal;
    readonly onPage: (items: readonly Item[]) => void;
  }): Promise<{ readonly items: readonly Item[]; readonly revision: Revision }>;
  /** Yields batches of events, and an empty batch when the server has accepted the watch. */
  watch(after: Revision, signal: AbortSignal): AsyncIterable<readonly Event[]>;
}

/** Holds the state that lists and events are applied to. */
export interface ListAndWatchReceiver<Item, Event> {
  /** Entries of the receiver. */
  readonly entryCount: number;
  /** Entries that the present list has not contained so far. */
  readonly missingCount: number;
  /** The server has answered a list; `applyItems` follows for each part of it. */
  startList(): void;
  applyItems(items: readonly Item[]): void;
  /** The list is complete: entries that it did not contain are deleted. */
  finishList(): void;
  /** Returns the revision that the watch resumes after, if the events contain one. */
  applyEvents(events: readonly Event[]): Revision | undefined;
  onSuccess(): void;
  /** @param isOutage true once failures have lasted for `outageAfterMs` */
  onFailure(error: unknown, isOutage: boolean): void;
  /** The first failure with `isOutage`. The kind is listed again when the server answers. */
  onOutage(): void;
}

export class ListAndWatch<Item, Event> {
  readonly #source: ListAndWatchSource<Item, Event>;
  readonly #receiver: ListAndWatchReceiver<Item, Event>;
  readonly #timings: SyncTimings;
  readonly #nowMs: () => number;
  /** The watch resumes after this revision; undefined = list first. */
  #watchAfter: Revision | undefined;
  #failingSinceMs: number | undefined;
  #isOutageReported = false;
  #listFailures = 0;
  #watchFailures = 0;
  /** The receiver's entries when the present list started. */
  #entriesBeforeList = 0;
  /** Set while deletions wait for a second list: not before this time. */
  #confirmListAtMs: number | undefined;
  /** Since when every list was answered with 404 and discovery confirmed that the kind is not served. */
  #absentSinceMs: number | undefined;

  constructor(options: {
    readonly source: ListAndWatchSource<Item, Event>;
    readonly receiver: ListAndWatchReceiver<Item, Event>;
    readonly timings?: Partial<SyncTimings>;
    readonly nowMs?: () => number;
  }) {
    this.#source = options.source;
    this.#receiver = options.receiver;
    this.#timings = { ...DEFAULT_SYNC_TIMINGS, ...options.timings };
    this.#nowMs = options.nowMs ?? (() => performance.now());
  }

  /** Runs until `signal` aborts. Errors of the source are reported to the receiver and retried. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const delayMs =
        this.#watchAfter === undefined ? await this.#list(signal) : await this.#watch(this.#watchAfter, signal);
      if (delayMs > 0 && !signal.aborted) await pause(delayMs, signal);
    }
  }

  /** Returns the delay before the next list or watch. */
  async #list(signal: AbortSignal): Promise<number> {
    const progress = new ListProgress(() => this.#startList());
    const onPage = (items: readonly Item[]) => {
      progress.start();
      this.#receiver.applyItems(items);
    };
    try {
      const { items, revision } = await this.#source.list({ signal, onPage });
      progress.start();
      for (let i = 0; i < items.length && !signal.aborted; i += ITEMS_PER_TURN) {
        if (i > 0) await yieldToEventLoop();
        this.#receiver.applyItems(items.slice(i, i + ITEMS_PER_TURN));
      }
      if (signal.aborted) return 0; // perhaps not all items were applied, so none may count as missing
      const isWatchable = revision !== "" && revision !== "0"; // a server without revisions is polled
      if (isWatchable) this.#watchAfter = revision;
      if (this.#mustConfirmDeletions()) return isWatchable ? 0 : this.#timings.confirmListMs;
      this.#receiver.finishList();
      return isWatchable ? 0 : this.#timings.pollMs;
    } catch (error) {
      if (signal.aborted) return 0;
      if (error instanceof NotServed) return this.#handleNotServed(error, progress, signal);
      this.#absentSinceMs = undefined;
      this.#recordFailure(error);
      return this.#retryDelay(error, this.#timings.listRetryMs, this.#listFailures++);
    }
  }

  /**
   * Returns whether the entries that the list lacks must be missing from a later list too before they are deleted: if it
   * lacks more than half of the known entries. A cluster often has only a few policies, and they must not be lost by one
   * wrong list either; so the number does not matter.
   */
  #mustConfirmDeletions(): boolean {
    const missing = this.#receiver.missingCount;
    const known = this.#entriesBeforeList;
    const nowMs = this.#nowMs();
    const isConfirmed = this.#confirmListAtMs !== undefined && nowMs >= this.#confirmListAtMs;
    if (isConfirmed || missing * 2 <= known) {
      this.#confirmListAtMs = undefined;
      return false;
    }
    this.#confirmListAtMs ??= nowMs + this.#timings.confirmListMs;
    const summary = `the list lacks ${missing} of ${known} known entries`;
    this.#recordFailure(new DatastoreFailure(`${summary}; they are deleted if a second list lacks them too`));
    return true;
  }

  /**
   * A kind that the server does not serve has no objects: its list is empty, which is not a failure. A 404 alone does not
   * prove this: the server's discovery must confirm it, and for `goneAfterMs` if the kind had entries.
   */
  async #handleNotServed(error: NotServed, progress: ListProgress, signal: AbortSignal): Promise<number> {
    const isAbsent = await error.isConfirmed(signal).catch(() => false);
    if (signal.aborted) return 0;
    const nowMs = this.#nowMs();
    this.#absentSinceMs = isAbsent ? (this.#absentSinceMs ?? nowMs) : undefined;
    const requiredMs = this.#receiver.entryCount === 0 ? 0 : this.#timings.goneAfterMs;
    if (this.#absentSinceMs === undefined || nowMs - this.#absentSinceMs < requiredMs) {
      this.#recordFailure(error);
      return this.#timings.pollMs;
    }
    progress.start();
    this.#receiver.finishList();
    if (error.untilServed === undefined) return this.#timings.pollMs;
    await error.untilServed(signal);
    return 0;
  }

  #startList(): void {
    this.#listFailures = 0;
    this.#absentSinceMs = undefined;
    this.#entriesBeforeList = this.#receiver.entryCount;
    this.#recordSuccess();
    this.#receiver.startList();
    this.#isOutageReported = false;
  }

  /** Returns the delay before the next list or watch. */
  async #watch(after: Revision, signal: AbortSignal): Promise<number> {
    const startedMs = this.#nowMs();
    const remainingMs = this.#confirmListAtMs === undefined ? Infinity : this.#confirmListAtMs - startedMs;
    if (remainingMs <= 0) {
      this.#watchAfter = undefined;
      return 0;
    }
    const confirmList = new AbortController();
    const timer = remainingMs === Infinity ? undefined : setTimeout(() => confirmList.abort(), Math.ceil(remainingMs));
    const watchSignal = timer === undefined ? signal : AbortSignal.any([signal, confirmList.signal]);
    let failure: unknown;
    try {
      for await (const events of this.#source.watch(after, watchSignal)) {
        if (watchSignal.aborted) break;
        this.#recordSuccess();
        if (events.length === 0) continue;
        this.#watchFailures = 0;
        this.#watchAfter = this.#receiver.applyEvents(events) ?? this.#watchAfter;
      }
    } catch (error) {
      failure = error;
    } finally {
      clearTimeout(timer);
    }
    if (signal.aborted) return 0;
    if (confirmList.signal.aborted) {
      this.#watchAfter = undefined;
      return 0;
    }
    if (this.#nowMs() - startedMs >= SHORT_WATCH_MS) this.#watchFailures = 0;
    if (failure !== undefined) return this.#handleWatchError(failure);
    return this.#retryDelay(undefined, this.#timings.watchRetryMs, this.#watchFailures++);
  }

  #handleWatchError(error: unknown): number {
    if (error instanceof Unsupported || error instanceof NotFound) {
      this.#watchAfter = undefined; // the kind cannot be watched: poll it with lists
      return this.#timings.pollMs;
    }
    const delayMs = this.#retryDelay(error, this.#timings.watchRetryMs, this.#watchFailures++);
    if (error instanceof Compacted || error instanceof NotServed) {
      this.#watchAfter = undefined;
      return delayMs;
    }
    this.#recordFailure(error);
    // Neither a lost connection nor a missing permission makes the revision invalid. Another error might, if repeated.
    const mayBeRevision = !(error instanceof Unavailable || error instanceof Unauthorized);
    if (mayBeRevision && this.#watchFailures % MAX_WATCH_ERRORS === 0) this.#watchAfter = undefined;
    return delayMs;
  }

  #retryDelay(error: unknown, firstMs: number, failuresBefore: number): number {
    const { maxReconnectMs, maxRetryMs } = this.#timings;
    const isLost = error instanceof Unavailable && !error.wasAnswered;
    return backoffDelay({ firstMs, maxMs: isLost ? maxReconnectMs : maxRetryMs, jitter: JITTER }, failuresBefore);
  }

  #recordSuccess(): void {
    this.#failingSinceMs = undefined;
    this.#receiver.onSuccess();
  }

  #recordFailure(error: unknown): void {
    const nowMs = this.#nowMs();
    this.#failingSinceMs ??= nowMs;
    const isOutage = nowMs - this.#failingSinceMs >= this.#timings.outageAfterMs;
    this.#receiver.onFailure(error, isOutage);
    if (!isOutage || this.#isOutageReported) return;
    this.#isOutageReported = true;
    this.#watchAfter = undefined;
    this.#receiver.onOutage();
  }
}

/** Calls `onStart` when the first part of a list has arrived. */
class ListProgress {
  #isStarted = false;
  constructor(readonly onStart: () => void) {}

  start(): void {
    if (this.#isStarted) return;
    this.#isStarted = true;
    this.onStart();
  }
}
