// Simulates delayed watches in tests: a copy of the datastore that is updated only at some reads.
import type { KeyOfQuery, Stored, WatchedEntries } from "../../datastore/index.ts";
import { keyMatches, keyPath, type StoredKey, type StoredQuery } from "../../model/index.ts";
import type { MemoryDatastore } from "./memory-datastore.ts";

export class StaleEntries implements Pick<WatchedEntries, "isInSync" | "get" | "list"> {
  readonly isInSync = true;
  #entries = new Map<string, Stored>();

  /** @param isUpdated called before each read; returns true if the copy is to be updated */
  constructor(
    readonly store: MemoryDatastore,
    readonly isUpdated: () => boolean,
  ) {}

  get<K extends StoredKey>(key: K): Stored<K> | undefined {
    return this.#now().get(keyPath(key)) as Stored<K> | undefined;
  }

  list<Q extends StoredQuery>(query: Q): readonly Stored<KeyOfQuery<Q>>[] {
    const found = [...this.#now()].filter(([, { key }]) => keyMatches(query, key));
    return found.sort(([a], [b]) => (a < b ? -1 : 1)).map(([, stored]) => stored as Stored<KeyOfQuery<Q>>);
  }

  #now(): Map<string, Stored> {
    if (this.isUpdated()) this.#entries = new Map(this.store.snapshot().map((stored) => [keyPath(stored.key), stored]));
    return this.#entries;
  }
}
