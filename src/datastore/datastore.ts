// The one interface all drivers answer: keyed values with revisions. What each operation promises is proved by the
// contract suite, which runs on every driver; a driver that cannot do something says `Unsupported`.
import type { StoredKey, StoredQuery, ValueOf } from "../model/index.ts";
import type { UnreadableEntry } from "./errors.ts";

/** Opaque to callers: compare for equality only, hand back to the driver it came from. */
export type Revision = string;

export interface Stored<K extends StoredKey = StoredKey> {
  readonly key: K;
  readonly value: ValueOf<K>;
  readonly revision: Revision;
  /** Kubernetes only: what a delete may be conditioned on. */
  readonly uid?: string;
}

/** What a delete took away. */
export interface Removed<K extends StoredKey = StoredKey> {
  readonly key: K;
  /** Absent when what stood there did not parse. */
  readonly value?: ValueOf<K>;
  readonly revision: Revision;
}

/** What a caller hands in: the revision it read, where the operation compares. */
export interface Entry<K extends StoredKey = StoredKey> {
  readonly key: K;
  readonly value: ValueOf<K>;
  readonly revision?: Revision;
  readonly uid?: string;
  /** The value vanishes after this time unless written again. */
  readonly ttlSeconds?: number;
}

export interface ListResult<K extends StoredKey = StoredKey> {
  readonly items: readonly Stored<K>[];
  /** Watch from here to miss nothing. */
  readonly revision: Revision;
}

export type WatchEvent<K extends StoredKey = StoredKey> =
  | { readonly type: "added"; readonly item: Stored<K>; readonly revision: Revision }
  | { readonly type: "modified"; readonly item: Stored<K>; readonly previous?: Stored<K>; readonly revision: Revision }
  | { readonly type: "deleted"; readonly key: K; readonly previous?: Stored<K>; readonly revision: Revision }
  /** Progress without a change: resuming from here misses nothing. */
  | { readonly type: "bookmark"; readonly revision: Revision }
  /** An entry that does not parse; the watch goes on. */
  | { readonly type: "error"; readonly error: Error; readonly revision?: Revision };

/** Ends by returning when its signal aborts; throws `Compacted` or `Unavailable` when it cannot go on. */
export interface Watch<K extends StoredKey = StoredKey>
  extends AsyncIterable<readonly WatchEvent<K>[]>,
    AsyncDisposable {}

export interface CallOptions {
  readonly signal?: AbortSignal;
}
export interface UpdateOptions extends CallOptions {
  /** Only the status, where the datastore keeps it apart from the spec; others write the whole value. */
  readonly subresource?: "status";
}
export interface ReadOptions extends CallOptions {
  /** Read as of then; absent = now. */
  readonly revision?: Revision;
}
export interface ListOptions extends ReadOptions {
  /**
   * A driver that reads in pages hands each over as it comes and returns an empty list; the others ignore this. When it
   * cannot go on after a page, it fails: what was handed over is then no whole list.
   */
  readonly onPage?: (items: readonly Stored[]) => void;
  /** Told of each entry that is left out because it does not parse, in place of the driver's own `onUnreadable`. */
  readonly onUnreadable?: (error: UnreadableEntry) => void;
}
export interface WatchOptions {
  readonly after?: Revision;
  readonly signal: AbortSignal;
  /** What an event replaced is not wanted: a driver may leave it out, which spares it half the reading. */
  readonly withoutPrevious?: boolean;
}
export interface DeleteOptions extends CallOptions {
  readonly revision?: Revision;
  readonly uid?: string;
}

/** One compare-and-swap write of a transaction: the entry is absent (`create`) or has the given revision. */
export type Write =
  | { readonly op: "create"; readonly entry: Entry }
  | { readonly op: "update"; readonly entry: Entry & { readonly revision: Revision } }
  | { readonly op: "delete"; readonly key: StoredKey; readonly revision: Revision };

export type TransactionResult =
  /** The revision of each write. */
  | { readonly done: true; readonly revisions: readonly Revision[] }
  /** Nothing was written. Positions of the writes whose entry was not as expected. */
  | { readonly done: false; readonly refused: readonly number[] };

/** The keys a query of some type yields. */
export type KeyOfQuery<Q extends StoredQuery> = Extract<StoredKey, { readonly type: Q["type"] }>;

export interface Datastore {
  readonly name: "sqlite" | "etcdv3" | "kubernetes";

  /** Fails with `AlreadyExists`, which carries what is there. */
  create<K extends StoredKey>(entry: Entry<K>, options?: CallOptions): Promise<Stored<K>>;
  /** Compare-and-swap on `entry.revision` (mandatory): `NotFound` or `Conflict`. */
  update<K extends StoredKey>(entry: Entry<K>, options?: UpdateOptions): Promise<Stored<K>>;
  /** Writes whatever is there; the revision is ignored. */
  apply<K extends StoredKey>(entry: Entry<K>, options?: CallOptions): Promise<Stored<K>>;
  /** Exactly this key; gives back what was there. `NotFound`, or `Conflict` when a revision was given. */
  delete<K extends StoredKey>(key: K, options?: DeleteOptions): Promise<Removed<K>>;
  /** `NotFound` when absent. */
  get<K extends StoredKey>(key: K, options?: ReadOptions): Promise<Stored<K>>;
  /** Unreadable entries are skipped and reported, to the caller's `onUnreadable` or else the driver's. */
  list<Q extends StoredQuery>(query: Q, options?: ListOptions): Promise<ListResult<KeyOfQuery<Q>>>;
  /** Changes after a revision; without one, first everything there is as `added`. */
  watch<Q extends StoredQuery>(query: Q, options: WatchOptions): Promise<Watch<KeyOfQuery<Q>>>;
  /**
   * Does all of the writes or none. Undefined for a datastore that cannot (Kubernetes); its callers write one entry after
   * the other, in an order that leaves a repairable state after a crash. etcd accepts at most 128 writes.
   */
  transact?(writes: readonly Write[], options?: CallOptions): Promise<TransactionResult>;
  close(): Promise<void>;
}
