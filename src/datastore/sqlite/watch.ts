// Watches the SQLite datastore: keeps a position in the change log, which advances when the consumer requests the next
// batch. Nothing is buffered for a slow consumer; if compaction passes its position, the watch throws `Compacted`.
import type { StoredKey } from "../../model/index.ts";
import type { PathRange } from "../codec.ts";
import type { Stored, Watch, WatchEvent } from "../datastore.ts";
import { changeEvent, type RowChange, snapshotEvents } from "../rows.ts";
import type { CommitSignal } from "./commit-signal.ts";
import type { Change, ChangeLog } from "./version-store.ts";

const BATCH = 1000;
/** A bookmark is emitted after this many revisions without a matching change. */
const BOOKMARK_EVERY = 1000;

/** Reads at most `limit` changes after a revision. */
export type ReadLog = (after: number, limit: number) => Promise<ChangeLog>;

export class SqliteWatch<K extends StoredKey> implements Watch<K> {
  readonly #readLog: ReadLog;
  readonly #range: PathRange;
  readonly #unsubscribe: () => void;
  #cursor: number;
  #emittedRevision: number;
  #initial: readonly Stored<K>[] | undefined;
  #hasUnreadChanges = true;
  #ended = false;
  #resume: (() => void) | undefined;

  constructor(options: {
    readonly read: ReadLog;
    readonly commits: CommitSignal;
    readonly range: PathRange;
    readonly after: number;
    readonly initial: readonly Stored<K>[] | undefined;
    readonly signal: AbortSignal;
  }) {
    this.#readLog = options.read;
    this.#range = options.range;
    this.#cursor = options.after;
    this.#emittedRevision = options.after;
    this.#initial = options.initial;
    const unsubscribe = options.commits.subscribe(() => this.#wake());
    const onAbort = () => this.#end();
    options.signal.addEventListener("abort", onAbort, { once: true });
    this.#unsubscribe = () => {
      unsubscribe();
      options.signal.removeEventListener("abort", onAbort);
    };
    if (options.signal.aborted) this.#end();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<readonly WatchEvent<K>[]> {
    try {
      if (this.#initial !== undefined && !this.#ended) yield snapshotEvents(this.#initial, this.#cursor);
      this.#initial = undefined;
      while (!this.#ended) {
        const batch = await this.#read();
        if (batch.length > 0) yield batch;
        else await this.#wait();
      }
    } catch (error) {
      if (!this.#ended) throw error; // the watch was ended, which aborted the read
    } finally {
      this.#end();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#end();
  }

  async #read(): Promise<WatchEvent<K>[]> {
    this.#hasUnreadChanges = false; // set again by a commit during the read
    const { changes, scanned } = await this.#readLog(this.#cursor, BATCH);
    this.#cursor = scanned;
    if (changes.length === BATCH) this.#hasUnreadChanges = true;
    const events = changes.flatMap((change) => changeEvent<K>(this.#range, changeOf(change)) ?? []);
    if (events.length === 0 && scanned - this.#emittedRevision >= BOOKMARK_EVERY)
      events.push({ type: "bookmark", revision: String(scanned) });
    if (events.length > 0) this.#emittedRevision = scanned;
    return events;
  }

  #wait(): Promise<void> {
    if (this.#hasUnreadChanges || this.#ended) return Promise.resolve();
    return new Promise((resolve) => {
      this.#resume = resolve;
    });
  }

  #wake(): void {
    this.#hasUnreadChanges = true;
    this.#resume?.();
    this.#resume = undefined;
  }

  #end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#unsubscribe();
    this.#wake();
  }
}

const changeOf = ({ path, revision, value, previous, previousRevision }: Change): RowChange => ({
  path,
  revision,
  value,
  isNew: previousRevision === 0,
  previous: previous === null ? undefined : { value: previous, revision: previousRevision },
});
