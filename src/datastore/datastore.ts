// Defines the interface of all datastore drivers: keyed values with revisions. The contract suite (test/contract) runs on
// every driver and tests what each operation promises; an operation that a driver lacks throws `Unsupported`.
import type { StoredKey, StoredQuery, ValueOf } from "../model/index.ts";
import type { UnreadableEntry } from "./errors.ts";

/** Opaque to callers: compare it only for equality, and pass it only to the driver that returned it. */
export type Revision = string;

export interface Stored<K extends StoredKey = StoredKey> {
  readonly key: K;
  readonly value: ValueOf<K>;
  readonly revision: Revision;
  /** Kubernetes only: a delete can require this UID. */
  readonly uid?: string;
}

/** A deleted entry. */
export interface Removed<K extends StoredKey = StoredKey> {
  readonly key: K;
  /** Undefined if the deleted value could not be parsed. */
  readonly value?: ValueOf<K>;
  readonly revision: Revision;
}

/** An entry to write. `revision` is the one that the caller read; only compare-and-swap operations use it. */
export interface Entry<K extends StoredKey = StoredKey> {
  readonly key: K;
  readonly value: ValueOf<K>;
  readonly revision?: Revision;
  readonly uid?: string;
  /** The entry expires after this time unless it is written again. */
  readonly ttlSeconds?: number;
}

export interface ListResult<K extends StoredKey = StoredKey> {
  readonly items: readonly Stored<K>[];
  /** A watch after this revision misses no change. */
  readonly revision: Revision;
}

export type WatchEvent<K extends StoredKey = StoredKey> =
  | { readonly type: "added"; readonly item: Stored<K>; readonly revision: Revision }
  | { readonly type: "modified"; readonly item: Stored<K>; readonly previous?: Stored<K>; readonly revision: Revision }
  | { readonly type: "deleted"; readonly key: K; readonly previous?: Stored<K>; readonly revision: Revision }
  /** Progress without a change: a watch that resumes after this revision misses no change. */
  | { readonly type: "bookmark"; readonly revision: Revision }
  /** An entry that cannot be parsed; the watch continues. */
  | { readonly type: "error"; readonly error: Error; readonly revision?: Revision };

/** Returns when its signal aborts; throws `Compacted` or `Unavailable` when it cannot continue. */
export interface Watch<K extends StoredKey = StoredKey>
  extends AsyncIterable<readonly WatchEvent<K>[]>,
    AsyncDisposable {}

export interface CallOptions {
  readonly signal?: AbortSignal;
}
export interface UpdateOptions extends CallOptions {
  /** Writes only the status if the datastore separates it from the spec (Kubernetes); other drivers write the whole value. */
  readonly subresource?: "status";
}
export interface ReadOptions extends CallOptions {
  /** Reads the state at this revision; undefined = the newest state. */
  readonly revision?: Revision;
}
export interface ListOptions extends ReadOptions {
  /**
   * A driver that reads in pages calls this for each page and returns an empty list; other drivers ignore it. If a later
   * page cannot be read, the list fails, and the pages passed so far are not a complete list.
   */
  readonly onPage?: (items: readonly Stored[]) => void;
  /** Called, instead of the driver's `onUnreadable`, for each entry that is left out because it cannot be parsed. */
  readonly onUnreadable?: (error: UnreadableEntry) => void;
}
export interface WatchOptions {
  readonly after?: Revision;
  readonly signal: AbortSignal;
  /** The caller does not use `previous`: a driver may leave it out, which halves what it reads. */
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

/** The type of the keys that a query returns. */
export type KeyOfQuery<Q extends StoredQuery> = Extract<StoredKey, { readonly type: Q["type"] }>;

export interface Datastore {
  readonly name: "sqlite" | "etcdv3" | "kubernetes";

  /** @throws AlreadyExists with the existing entry */
  create<K extends StoredKey>(entry: Entry<K>, options?: CallOptions): Promise<Stored<K>>;
  /**
   * Compare-and-swap on `entry.revision`, which is mandatory.
   * @throws NotFound, Conflict
   */
  update<K extends StoredKey>(entry: Entry<K>, options?: UpdateOptions): Promise<Stored<K>>;
  /** Creates or overwrites the entry; the revision is ignored. */
  apply<K extends StoredKey>(entry: Entry<K>, options?: CallOptions): Promise<Stored<K>>;
  /**
   * Deletes exactly this key and returns the deleted entry.
   * @throws NotFound, or Conflict if a revision was given
   */
  delete<K extends StoredKey>(key: K, options?: DeleteOptions): Promise<Removed<K>>;
  /** @throws NotFound */
  get<K extends StoredKey>(key: K, options?: ReadOptions): Promise<Stored<K>>;
  /** Unreadable entries are skipped and reported to the caller's `onUnreadable`, or else to the driver's. */
  list<Q extends StoredQuery>(query: Q, options?: ListOptions): Promise<ListResult<KeyOfQuery<Q>>>;
  /** Yields the changes after a revision. Without a revision, all existing entries come first, as `added`. */
  watch<Q extends StoredQuery>(query: Q, options: WatchOptions): Promise<Watch<KeyOfQuery<Q>>>;
  /**
   * Applies all of the writes or none. Undefined for a datastore without transactions (Kubernetes): callers then write the
   * entries in sequence, in an order that leaves a repairable state after a crash. etcd accepts at most 128 writes.
   */
  transact?(writes: readonly Write[], options?: CallOptions): Promise<TransactionResult>;
  close(): Promise<void>;
}
