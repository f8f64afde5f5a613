// Deciding by what was last seen, and letting the write find out whether it still holds. Who asks a datastore the same
// for every request and writes little (a pod's address) remembers the answers. Its next request decides by them without
// asking, and the one write it ends with is bound to every answer it relied on: it happens when all of them still hold,
// and otherwise the request starts again with nothing remembered. So what is remembered may be as old as it likes: it
// costs a second try, never a wrong decision, and nobody needs to be told of changes.
//
// Only for datastores that write `together`; with others every request asks.
import { keyMatches, keyPath, type StoredKey, type StoredQuery } from "../model/index.ts";
import type { CallOptions, Condition, Datastore, Entry, KeyOfQuery, ListOptions, ListResult } from "./datastore.ts";
import type { DeleteOptions, ReadOptions, Removed, Stored, Together, TogetherOptions, Write } from "./datastore.ts";
import type { UpdateOptions, Watch, WatchOptions } from "./datastore.ts";
import { NotFound } from "./errors.ts";
import { nameOfKey } from "./key-name.ts";

/** What a request takes for granted without ever having seen it. */
export interface Presumption {
  readonly isAbsent?: (key: StoredKey) => boolean;
  readonly isEmpty?: (query: StoredQuery) => boolean;
}

/** So much is kept; blocks of addresses are large. */
const MOST_ENTRIES = 1024;
const MOST_BLOCKS = 64;
const MOST_LISTS = 32;
/** Each entry of a list is a condition, and etcd takes 128 of them. */
const LONGEST_LIST = 40;
const MOST_CONDITIONS = 100;

/** What one process remembers of a datastore. */
export class Recall {
  /** By path; undefined: there was none. */
  readonly #entries = new Recent<Stored | undefined>(MOST_ENTRIES);
  readonly #blocks = new Recent<Stored | undefined>(MOST_BLOCKS);
  readonly #lists = new Recent<ListResult & { readonly query: StoredQuery }>(MOST_LISTS);

  /**
   * Runs `work` by what is remembered and, when that was outdated or not enough, again by what the datastore says. Until
   * its first write `work` must not do anything that may not be done twice.
   */
  async attempt<T>(store: Datastore, work: (store: Datastore) => Promise<T>, presume: Presumption = {}): Promise<T> {
    if (store.together === undefined) return work(store);
    // With nothing remembered all is asked anyway: then nothing is gained by presuming.
    const guess = new Guess(this, store, this.#entries.isEmpty ? {} : presume);
    try {
      const result = await work(guess);
      if (guess.isSettled) return result;
    } catch (error) {
      if (guess.isSettled || guess.hasFailed) throw error;
    }
    return work(new Learning(this, store));
  }

  /**
   * Before much is asked or single things are written: whether all that was relied on still holds. When it does not, the
   * attempt ends here; when it does, the datastore is as current as if it had been asked.
   */
  async settle(store: Datastore): Promise<void> {
    if (store instanceof Guess) await store.settle();
  }

  entry(key: StoredKey): { readonly stored: Stored | undefined } | undefined {
    const path = keyPath(key);
    const kept = this.#keeper(key);
    return kept.has(path) ? { stored: kept.get(path) } : undefined;
  }

  list(query: StoredQuery): ListResult | undefined {
    return this.#lists.get(JSON.stringify(query));
  }

  learn(key: StoredKey, stored: Stored | undefined): void {
    this.#keeper(key).set(keyPath(key), stored);
  }

  /** Only lists that stay much the same; those for one object in particular are new every time. */
  learnList(query: StoredQuery, { items, revision }: ListResult): void {
    const isLasting =
      query.type === "resource"
        ? query.name === undefined && query.namePrefix === undefined && query.namespace === undefined
        : query.type === "blockAffinity" && query.host !== undefined;
    if (isLasting && items.length <= LONGEST_LIST) this.#lists.set(JSON.stringify(query), { query, items, revision });
  }

  /** After a write of ours; undefined: it is gone, or nobody knows. */
  wrote(key: StoredKey, stored: Stored | undefined): void {
    if (stored === undefined) this.#keeper(key).delete(keyPath(key));
    else this.learn(key, stored);
    this.#lists.deleteWhere(({ query }) => keyMatches(query, key));
  }

  forget(): void {
    for (const kept of [this.#entries, this.#blocks, this.#lists]) kept.clear();
  }

  #keeper(key: StoredKey): Recent<Stored | undefined> {
    return key.type === "block" ? this.#blocks : this.#entries;
  }
}

/** The datastore itself, with what passes by remembered. */
class Learning implements Datastore {
  readonly name: Datastore["name"];
  constructor(
    readonly recall: Recall,
    readonly store: Datastore,
  ) {
    this.name = store.name;
  }

  async get<K extends StoredKey>(key: K, options: ReadOptions = {}): Promise<Stored<K>> {
    if (options.revision !== undefined) return this.store.get(key, options);
    try {
      const stored = await this.store.get(key, options);
      this.recall.learn(key, stored);
      return stored;
    } catch (error) {
      if (error instanceof NotFound) this.recall.learn(key, undefined);
      throw error;
    }
  }

  async list<Q extends StoredQuery>(query: Q, options: ListOptions = {}): Promise<ListResult<KeyOfQuery<Q>>> {
    const result = await this.store.list(query, options);
    if (options.revision === undefined && options.onPage === undefined) this.recall.learnList(query, result);
    return result;
  }

  watch<Q extends StoredQuery>(query: Q, options: WatchOptions): Promise<Watch<KeyOfQuery<Q>>> {
    return this.store.watch(query, options);
  }

  create<K extends StoredKey>(entry: Entry<K>, options?: CallOptions): Promise<Stored<K>> {
    return this.#wrote(entry.key, () => this.store.create(entry, options));
  }
  update<K extends StoredKey>(entry: Entry<K>, options?: UpdateOptions): Promise<Stored<K>> {
    return this.#wrote(entry.key, () => this.store.update(entry, options));
  }
  apply<K extends StoredKey>(entry: Entry<K>, options?: CallOptions): Promise<Stored<K>> {
    return this.#wrote(entry.key, () => this.store.apply(entry, options));
  }
  delete<K extends StoredKey>(key: K, options?: DeleteOptions): Promise<Removed<K>> {
    this.recall.wrote(key, undefined);
    return this.store.delete(key, options);
  }

  async together(writes: readonly Write[], options: TogetherOptions = {}): Promise<Together> {
    // Whatever becomes of it, what was there before is not known to be there after.
    for (const write of writes) this.recall.wrote(keyOf(write), undefined);
    const outcome = await (this.store.together?.(writes, options) ?? refuseAll(writes));
    if (outcome.done)
      for (const [i, write] of writes.entries()) {
        const revision = outcome.revisions[i];
        if (write.op === "delete" || revision === undefined || revision === "") continue;
        const { key, value } = write.entry;
        this.recall.wrote(key, { key, value, revision });
      }
    return outcome;
  }

  close(): Promise<void> {
    return this.store.close();
  }

  async #wrote<K extends StoredKey>(key: K, write: () => Promise<Stored<K>>): Promise<Stored<K>> {
    this.recall.wrote(key, undefined);
    const stored = await write();
    this.recall.wrote(key, stored);
    return stored;
  }
}

/** Thrown where going on would act on a guess. */
class Outdated extends Error {
  override readonly name = "Outdated";
}

/** The datastore as it was last seen, until the first write settles whether it still is so. */
class Guess extends Learning {
  /** What was relied on, by path or query. */
  readonly #conditions = new Map<string, Condition>();
  #state: "guessing" | "settled" | "outdated" | "failed" = "guessing";
  #settling: Promise<unknown> | undefined;
  #failure: unknown;

  constructor(
    recall: Recall,
    store: Datastore,
    readonly presume: Presumption,
  ) {
    super(recall, store);
  }

  /** Nothing unproved was relied on: what came out is so. */
  get isSettled(): boolean {
    return this.#state === "settled" || (this.#state === "guessing" && this.#conditions.size === 0);
  }

  /** The datastore could not be asked: trying again, for who knows how long, is its caller's decision. */
  get hasFailed(): boolean {
    return this.#state === "failed";
  }

  override async get<K extends StoredKey>(key: K, options: ReadOptions = {}): Promise<Stored<K>> {
    if (this.#settling !== undefined) await this.#settled();
    if (this.#state !== "guessing" || options.revision !== undefined) return this.#ask(() => super.get(key, options));
    const known = this.recall.entry(key) ?? (this.presume.isAbsent?.(key) === true ? { stored: undefined } : undefined);
    if (known === undefined) return this.#ask(() => super.get(key, options));
    this.#relyOn(keyPath(key), { is: "unchanged", key, revision: known.stored?.revision });
    if (known.stored === undefined) throw new NotFound(nameOfKey(key));
    return known.stored as Stored<K>;
  }

  override async list<Q extends StoredQuery>(query: Q, options: ListOptions = {}): Promise<ListResult<KeyOfQuery<Q>>> {
    if (this.#settling !== undefined) await this.#settled();
    const isPlain = options.revision === undefined && options.onPage === undefined;
    if (this.#state !== "guessing" || !isPlain) return this.#ask(() => super.list(query, options));
    const isEmpty = this.presume.isEmpty?.(query) === true;
    const known = this.recall.list(query) ?? (isEmpty ? { items: [], revision: "" } : undefined);
    if (known === undefined) return this.#ask(() => super.list(query, options));
    // Whatever is new or changed shows as newer than the list, whatever is gone as missing.
    const since = known.revision === "" ? undefined : known.revision;
    this.#relyOn(JSON.stringify(query), { is: "quiet", query, since });
    for (const { key, revision } of known.items) this.#relyOn(keyPath(key), { is: "unchanged", key, revision });
    return known as ListResult<KeyOfQuery<Q>>;
  }

  override async create<K extends StoredKey>(entry: Entry<K>, options?: CallOptions): Promise<Stored<K>> {
    await this.#mayWrite();
    return this.#ask(() => super.create(entry, options));
  }
  override async update<K extends StoredKey>(entry: Entry<K>, options?: UpdateOptions): Promise<Stored<K>> {
    await this.#mayWrite();
    return this.#ask(() => super.update(entry, options));
  }
  override async apply<K extends StoredKey>(entry: Entry<K>, options?: CallOptions): Promise<Stored<K>> {
    await this.#mayWrite();
    return this.#ask(() => super.apply(entry, options));
  }
  override async delete<K extends StoredKey>(key: K, options?: DeleteOptions): Promise<Removed<K>> {
    await this.#mayWrite();
    return this.#ask(() => super.delete(key, options));
  }

  override async together(writes: readonly Write[], options: TogetherOptions = {}): Promise<Together> {
    await this.#settled();
    if (this.#state === "guessing" && this.#conditions.size > 0) {
      const settling = this.#settle(writes, options);
      this.#settling = settling;
      return settling;
    }
    await this.#mayWrite();
    return super.together(writes, options);
  }

  async settle(): Promise<void> {
    await this.#settled();
    if (this.#state === "guessing" && this.#conditions.size > 0) await this.together([]);
  }

  async #settle(writes: readonly Write[], options: TogetherOptions): Promise<Together> {
    const written = new Set(writes.map((write) => keyPath(keyOf(write))));
    const relied = [...this.#conditions].filter(([name]) => !written.has(name)).map(([, condition]) => condition);
    const conditions = [...(options.conditions ?? []), ...relied];
    if (conditions.length + writes.length > MOST_CONDITIONS) return this.#giveUp();
    const outcome = await this.#ask(() => super.together(writes, { ...options, conditions }));
    if (!outcome.done) return this.#giveUp();
    this.#state = "settled";
    return outcome;
  }

  /** Single writes are not bound to anything: they must wait for what is, and come second. */
  async #mayWrite(): Promise<void> {
    await this.#settled();
    if (this.#state === "guessing" && this.#conditions.size > 0) this.#giveUp();
    if (this.#state === "failed") throw this.#failure;
    if (this.#state === "outdated") throw new Outdated();
    this.#state = "settled";
  }

  /** Who comes while it is being settled waits: what is only relied on now would not be part of it. */
  async #settled(): Promise<void> {
    await this.#settling?.catch(() => {});
  }

  #giveUp(): never {
    this.#state = "outdated";
    this.recall.forget();
    throw new Outdated();
  }

  async #ask<T>(question: () => Promise<T>): Promise<T> {
    try {
      return await question();
    } catch (error) {
      if (!(error instanceof NotFound) && this.#state === "guessing") {
        this.#state = "failed";
        this.#failure = error;
      }
      throw error;
    }
  }

  #relyOn(name: string, condition: Condition): void {
    this.#conditions.set(name, condition);
  }
}

const keyOf = (write: Write): StoredKey => (write.op === "delete" ? write.key : write.entry.key);

const refuseAll = (writes: readonly Write[]): Together => ({ done: false, refused: [...writes.keys()] });

/** A map that forgets what was not asked for longest. */
class Recent<V> {
  readonly #map = new Map<string, V>();
  constructor(readonly most: number) {}

  get isEmpty(): boolean {
    return this.#map.size === 0;
  }
  has(name: string): boolean {
    return this.#map.has(name);
  }
  get(name: string): V | undefined {
    const value = this.#map.get(name);
    if (this.#map.delete(name)) this.#map.set(name, value as V);
    return value;
  }
  set(name: string, value: V): void {
    this.#map.delete(name);
    this.#map.set(name, value);
    const oldest = this.#map.keys().next();
    if (this.#map.size > this.most && oldest.done !== true) this.#map.delete(oldest.value);
  }
  delete(name: string): void {
    this.#map.delete(name);
  }
  deleteWhere(isDropped: (value: V) => boolean): void {
    for (const [name, value] of this.#map) if (isDropped(value)) this.#map.delete(name);
  }
  clear(): void {
    this.#map.clear();
  }
}
