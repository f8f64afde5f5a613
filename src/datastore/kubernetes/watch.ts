// A watch on one collection as the driver's callers see it. Kubernetes ends watches as it pleases; ours goes on from the
// last revision it saw until it is told to stop or the server has forgotten that revision.
import { describeError } from "../../lib/log.ts";
import { delay } from "../../lib/retry.ts";
import type { StoredKey } from "../../model/index.ts";
import type { Stored, Watch, WatchEvent } from "../datastore.ts";
import { Compacted, NotServed, UnreadableEntry } from "../errors.ts";
import { nameOfKey } from "../key-name.ts";
import { type KubeApi, type KubeObject } from "./api-client.ts";
import { KubeStatusError } from "./status-error.ts";
import type { Collection, Selection } from "./collection.ts";
import { translate } from "./failures.ts";

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
      try {
        for await (const batch of api.watch(
          selection.path,
          { ...query, resourceVersion: revision },
          signal,
          collection.lossless,
        )) {
          const events: WatchEvent<K>[] = [];
          for (const event of batch) {
            if (event.type === "ERROR") throw watchFault(event.object, revision);
            revision = event.object.metadata.resourceVersion ?? revision;
            events.push(...this.#event(event.type, event.object, revision));
          }
          if (events.length > 0) yield events;
        }
        // The server ends a watch after half an hour or more; one that ends at once is not to be asked in a tight loop.
        if (performance.now() - started < SHORT_WATCH_MS) await delay(SHORT_WATCH_MS, signal);
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof KubeStatusError && error.code === 404)
          throw new NotServed(collection.kind, { cause: error, isOptional: collection.isOptional ?? false });
        if (error instanceof KubeStatusError && error.code === 410) throw new Compacted(revision, { cause: error });
        throw translate(error, collection.kind);
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

function watchFault(
  status: { readonly code?: number; readonly reason?: string; readonly message?: string },
  revision: string,
): Error {
  if (status.code === 410 || status.reason === "Expired") return new Compacted(revision);
  const { code = 500, reason = "", message = "the server ended the watch" } = status;
  return new KubeStatusError("watch", { code, reason, message });
}
