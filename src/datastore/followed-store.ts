// A datastore with part of it in memory: what some queries find is followed, and read from there. For a service that would
// ask the same for every request. What is not found in memory is asked for: absence may only mean that the news has not
// arrived. Writes go through, and what they leave is known at once.
//
// Some keys are too many to follow: of those the last reading and our own writes are remembered. That serves whoever
// writes with the revision it read, and is told and reads again when it was not the last; nobody else.
import type { Logger } from "../lib/log.ts";
import { keyMatches, keyPath, passThrough, type StoredKey, type StoredQuery } from "../model/index.ts";
import type { Datastore, DeleteOptions, Entry, KeyOfQuery, ListOptions, ListResult, ReadOptions } from "./datastore.ts";
import type { CallOptions, Removed, Revision, Stored, UpdateOptions, Watch, WatchOptions } from "./datastore.ts";
import type { SyncerUpdate } from "./syncer.ts";
import { WatcherSyncer } from "./watcher-syncer.ts";

export interface FollowedStoreOptions {
  readonly follow: readonly StoredQuery[];
  readonly remember?: (key: StoredKey) => boolean;
  readonly log?: Logger;
}

export class FollowedStore implements Datastore {
  readonly name: Datastore["name"];
  readonly #store: Datastore;
  readonly #options: FollowedStoreOptions;
  readonly #followed = new Map<string, Stored>();
  readonly #remembered = new Map<string, Stored>();
  #isInSync = false;

  constructor(store: Datastore, options: FollowedStoreOptions) {
    this.name = store.name;
    this.#store = store;
    this.#options = options;
  }

  /** Follows until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    const { follow, log } = this.#options;
    const kinds = () => follow.map((query) => ({ query, processor: passThrough }));
    const syncer = new WatcherSyncer(this.#store, kinds, log === undefined ? {} : { log });
    await syncer.run(
      {
        onStatus: (status) => void (this.#isInSync = status === "in-sync"),
        onUpdates: (updates) => updates.forEach((update) => this.#take(update)),
      },
      signal,
    );
    this.#isInSync = false;
  }

  /** Everything followed is known, and was not lost for long. */
  get isInSync(): boolean {
    return this.#isInSync;
  }

  /** What is known of a followed key. */
  known<K extends StoredKey>(key: K): Stored<K> | undefined {
    return this.#isInSync ? (this.#followed.get(keyPath(key)) as Stored<K> | undefined) : undefined;
  }

  /** The same datastore for who must see what is there now; its writes are known here at once. */
  get readingThrough(): Datastore {
    return {
      name: this.name,
      get: (key, options) => this.#store.get(key, options),
      list: (query, options) => this.#store.list(query, options),
      watch: (query, options) => this.#store.watch(query, options),
      create: (entry, options) => this.create(entry, options),
      update: (entry, options) => this.update(entry, options),
      apply: (entry, options) => this.apply(entry, options),
      delete: (key, options) => this.delete(key, options),
      close: () => this.close(),
    };
  }

  async get<K extends StoredKey>(key: K, options: ReadOptions = {}): Promise<Stored<K>> {
    const path = keyPath(key);
    const known = options.revision === undefined ? (this.known(key) ?? this.#remembered.get(path)) : undefined;
    if (known !== undefined) return known as Stored<K>;
    const found = await this.#store.get(key, options);
    this.#learn(found);
    return found;
  }

  async list<Q extends StoredQuery>(query: Q, options: ListOptions = {}): Promise<ListResult<KeyOfQuery<Q>>> {
    if (this.#isInSync && options.revision === undefined && options.onPage === undefined && this.#covers(query)) {
      const items = [...this.#followed.values()].filter(({ key }) => keyMatches(query, key));
      // Whoever asks for one in particular knows that it is there.
      const isForOne = query.type === "resource" && (query.name ?? query.namePrefix) !== undefined;
      if (items.length > 0 || !isForOne) return { items: items as Stored<KeyOfQuery<Q>>[], revision: "" };
    }
    return this.#store.list(query, options);
  }

  watch<Q extends StoredQuery>(query: Q, options: WatchOptions): Promise<Watch<KeyOfQuery<Q>>> {
    return this.#store.watch(query, options);
  }

  create<K extends StoredKey>(entry: Entry<K>, options?: CallOptions): Promise<Stored<K>> {
    return this.#write(entry.key, () => this.#store.create(entry, options));
  }
  update<K extends StoredKey>(entry: Entry<K>, options?: UpdateOptions): Promise<Stored<K>> {
    return this.#write(entry.key, () => this.#store.update(entry, options));
  }
  apply<K extends StoredKey>(entry: Entry<K>, options?: CallOptions): Promise<Stored<K>> {
    return this.#write(entry.key, () => this.#store.apply(entry, options));
  }
  async delete<K extends StoredKey>(key: K, options?: DeleteOptions): Promise<Removed<K>> {
    this.#forget(key);
    return this.#store.delete(key, options);
  }
  close(): Promise<void> {
    return this.#store.close();
  }

  async #write<K extends StoredKey>(key: K, write: () => Promise<Stored<K>>): Promise<Stored<K>> {
    try {
      const stored = await write();
      this.#learn(stored);
      return stored;
    } catch (error) {
      this.#forget(key); // whatever stands there now is to be read
      throw error;
    }
  }

  /** A followed query that finds at least as much. */
  #covers(query: StoredQuery): boolean {
    return this.#options.follow.some((followed) => isPart(query, followed));
  }

  #learn(stored: Stored): void {
    const path = keyPath(stored.key);
    if (this.#options.remember?.(stored.key) === true) this.#remembered.set(path, stored);
    else if (
      this.#options.follow.some((query) => keyMatches(query, stored.key)) &&
      !this.#isOlder(path, stored.revision)
    )
      this.#followed.set(path, stored);
  }

  #forget(key: StoredKey): void {
    const path = keyPath(key);
    this.#followed.delete(path);
    this.#remembered.delete(path);
  }

  #take(update: SyncerUpdate): void {
    const { key, value, revision = "" } = update as SyncerUpdate<StoredKey>;
    const path = keyPath(key);
    if (value === undefined) this.#followed.delete(path);
    else if (!this.#isOlder(path, revision)) this.#followed.set(path, { key, value, revision } as Stored);
  }

  /** News of before our own write, on its way since then. Revisions count upwards in every datastore. */
  #isOlder(path: string, revision: Revision): boolean {
    const known = this.#followed.get(path)?.revision ?? "";
    if (!/^\d+$/.test(known) || !/^\d+$/.test(revision)) return false;
    return BigInt(revision) < BigInt(known);
  }
}

/** Every key the first finds, the second finds too. */
function isPart(query: StoredQuery, whole: StoredQuery): boolean {
  const asked = query as Readonly<Record<string, unknown>>;
  return Object.entries(whole).every(([field, value]) => {
    if (field !== "namePrefix") return asked[field] === value;
    const name = asked["name"] ?? asked["namePrefix"];
    return typeof name === "string" && name.startsWith(String(value));
  });
}
