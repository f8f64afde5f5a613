// Watches one collection and converts its objects. The API server may end a watch at any time; this one then resumes after
// the last revision that it received, until its signal aborts or a request fails.
import { describeError } from "../../lib/log/log.ts";
import { delay } from "../../lib/retry.ts";
import type { StoredKey } from "../../model/index.ts";
import type { Stored, Watch, WatchEvent } from "../datastore.ts";
import { NotServed, UnreadableEntry } from "../errors.ts";
import { nameOfKey } from "../key-name.ts";
import { type KubeApi, type KubeObject } from "./api-client.ts";
import type { Collection, Selection } from "./collection.ts";
import { notServed } from "./not-served.ts";
import { watchObjects } from "./watch-objects.ts";

const SHORT_WATCH_MS = 500;

export interface KubeWatchOptions<K extends StoredKey> {
  readonly api: KubeApi;
  readonly collection: Collection<K>;
  readonly selection: Selection;
  readonly accepts: (key: K) => boolean;
  readonly after: string;
  readonly initial?: readonly Stored<K>[];
  readonly signal: AbortSignal;
}

export class KubeWatch<K extends StoredKey> implements Watch<K> {
  readonly #options: KubeWatchOptions<K>;
  readonly #stop = new AbortController();

  constructor(options: KubeWatchOptions<K>) {
    this.#options = options;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<readonly WatchEvent<K>[]> {
    const { api, selection, initial, collection } = this.#options;
    const signal = AbortSignal.any([this.#options.signal, this.#stop.signal]);
    let revision = this.#options.after;
    if (initial !== undefined) {
      const events = initial.map((item): WatchEvent<K> => ({ type: "added", item, revision: item.revision }));
      yield [...events, { type: "bookmark", revision }];
    }
    const query = { fieldSelector: selection.fieldSelector, labelSelector: selection.labelSelector };
    while (!signal.aborted) {
      const started = performance.now();
      const request = { api, path: selection.path, query, after: revision, signal, kind: collection.kind };
      try {
        for await (const batch of watchObjects({ ...request, lossless: collection.lossless })) {
          const events: WatchEvent<K>[] = [];
          for (const { type, object } of batch) {
            revision = object.metadata.resourceVersion ?? revision;
            events.push(...this.#event(type, object, revision));
          }
          // A consumer that resumes a watch receives empty batches too: the first shows that the server has accepted it.
          if (events.length > 0 || initial === undefined) yield events;
        }
        // The server normally ends a watch after half an hour or more. The delay avoids a tight loop if it ends at once.
        if (performance.now() - started < SHORT_WATCH_MS) await delay(SHORT_WATCH_MS, signal);
      } catch (error) {
        if (signal.aborted) return;
        throw error instanceof NotServed ? notServed(api, collection, selection.path, error.cause) : error;
      }
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
  }

  #event(type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK", object: KubeObject, revision: string): WatchEvent<K>[] {
    if (type === "BOOKMARK") return [{ type: "bookmark", revision }];
    const { collection, accepts } = this.#options;
    const key = collection.keyOf(object);
    if (key === undefined || !accepts(key)) return [{ type: "bookmark", revision }];
    const isGone = type === "DELETED" || collection.isMarked?.(object) === true;
    let item: Stored<K> | undefined;
    try {
      item = collection.decode(object);
    } catch (error) {
      if (isGone) return [{ type: "deleted", key, revision }];
      const unreadable = new UnreadableEntry(nameOfKey(key), describeError(error), key, { cause: error });
      return [{ type: "error", error: unreadable, revision }];
    }
    if (item === undefined) return [{ type: "deleted", key, revision }];
    if (isGone) return [{ type: "deleted", key, previous: item, revision }];
    return [{ type: type === "ADDED" ? "added" : "modified", item, revision }];
  }
}
