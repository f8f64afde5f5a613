// A watch on etcd as the driver's callers see it: typed events in batches, in the order of their revisions.
import type { StoredKey } from "../../model/index.ts";
import { decodeValue, type PathRange, parsePath } from "../codec.ts";
import type { Stored, Watch, WatchEvent } from "../datastore.ts";
import { UnreadableEntry } from "../errors.ts";
import type { EtcdWatchStream } from "./api.ts";
import type { EtcdEvent, EtcdRow } from "./messages.ts";

interface Options<K extends StoredKey> {
  readonly stream: EtcdWatchStream;
  readonly range: PathRange;
  readonly after: number;
  readonly initial: readonly Stored<K>[] | undefined;
}

export class EtcdWatch<K extends StoredKey> implements Watch<K> {
  readonly #options: Options<K>;

  constructor(options: Options<K>) {
    this.#options = options;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<readonly WatchEvent<K>[]> {
    const { stream, after, initial } = this.#options;
    try {
      if (initial !== undefined) {
        const events = initial.map((item): WatchEvent<K> => ({ type: "added", item, revision: item.revision }));
        events.push({ type: "bookmark", revision: String(after) });
        yield events;
      }
      for (let response = await stream.next(); response !== undefined; response = await stream.next()) {
        const events = response.events.flatMap((event) => this.#event(event) ?? []);
        if (events.length > 0) yield events;
      }
    } finally {
      stream.close();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#options.stream.close();
  }

  #event(event: EtcdEvent): WatchEvent<K> | undefined {
    const { row } = event;
    const key = parsePath(row.path) as K | undefined;
    if (key === undefined || !this.#options.range.accepts(key)) return undefined;
    const revision = String(row.modRevision);
    const previous = event.previous === undefined ? {} : this.#previous(key, event.previous);
    if (event.type === "delete") return { type: "deleted", key, revision, ...previous };
    try {
      const item = { key, value: decodeValue(key, row.path, row.value), revision };
      if (row.createRevision === row.modRevision) return { type: "added", item, revision };
      return { type: "modified", item, revision, ...previous };
    } catch (error) {
      if (error instanceof UnreadableEntry) return { type: "error", error, revision };
      throw error;
    }
  }

  /** What a change replaced; nothing when that was unreadable. */
  #previous(key: K, row: EtcdRow): { previous?: Stored<K> } {
    try {
      const value = decodeValue(key, row.path, row.value);
      return { previous: { key, value, revision: String(row.modRevision) } };
    } catch {
      return {};
    }
  }
}
