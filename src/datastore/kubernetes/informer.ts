// Caches the objects under one path of the Kubernetes API by list-and-watch. Listeners are called for every object that
// was added, changed or deleted, and never twice for the same state.
import type { Logger } from "../../lib/log/log.ts";
import type { Revision } from "../datastore.ts";
import { ListAndWatch, type ListAndWatchReceiver, type ListAndWatchSource } from "../list-and-watch.ts";
import { OutageLog } from "../outage-log.ts";
import type { KubeApi, KubeObject } from "./api-client.ts";
import { toDatastoreError } from "./failures.ts";
import { type KubeObjectEvent, objectKey, watchObjects } from "./watch-objects.ts";

export interface InformerOptions<T> {
  readonly api: KubeApi;
  readonly path: string;
  /** Returns the part of an object that is cached. */
  readonly keep: (object: KubeObject) => T;
  /** Only the object of this name, or the pods of this node. */
  readonly only?: { readonly name: string } | { readonly node: string };
  /** Receives one line per change of state. */
  readonly log?: Logger;
}

/** `after` undefined = the object was deleted. */
export type InformerListener<T> = (change: {
  readonly key: string;
  readonly before: T | undefined;
  readonly after: T | undefined;
}) => void;

interface Kept<T> {
  readonly revision: string;
  readonly value: T;
}

const TIMINGS = { watchRetryMs: 200, listRetryMs: 200, maxReconnectMs: 5000 };

export class Informer<T> {
  readonly #options: InformerOptions<T>;
  /** By `namespace/name`, or by name. */
  readonly #kept = new Map<string, Kept<T>>();
  readonly #listeners: InformerListener<T>[] = [];
  readonly #synced = Promise.withResolvers<void>();
  #hasSynced = false;

  constructor(options: InformerOptions<T>) {
    this.#options = options;
  }

  /** Resolves after the first list. */
  get synced(): Promise<void> {
    return this.#synced.promise;
  }
  get hasSynced(): boolean {
    return this.#hasSynced;
  }
  get size(): number {
    return this.#kept.size;
  }

  get(key: string): T | undefined {
    return this.#kept.get(key)?.value;
  }
  has(key: string): boolean {
    return this.#kept.has(key);
  }
  *entries(): Iterable<[string, T]> {
    for (const [key, { value }] of this.#kept) yield [key, value];
  }
  *values(): Iterable<T> {
    for (const { value } of this.#kept.values()) yield value;
  }

  /** Calls the listener for each existing object, then for every change. */
  listen(listener: InformerListener<T>): void {
    this.#listeners.push(listener);
    for (const [key, value] of this.entries()) listener({ key, before: undefined, after: value });
  }

  /** Runs until `signal` aborts. While the API server cannot be reached, the last known objects are kept. */
  async run(signal: AbortSignal): Promise<void> {
    const { path, log } = this.#options;
    using outages = new OutageLog({ server: "the API server", log });
    const loop = new ListAndWatch({
      source: this.#source(),
      receiver: this.#receiver(path, outages),
      timings: TIMINGS,
    });
    await loop.run(signal);
  }

  #source(): ListAndWatchSource<KubeObject, KubeObjectEvent> {
    const { api, path, only } = this.#options;
    const query = only === undefined ? {} : { fieldSelector: fieldSelector(only) };
    return {
      async list({ signal }) {
        try {
          const { items, metadata } = await api.list(path, { query, signal });
          return { items, revision: metadata.resourceVersion ?? "" };
        } catch (error) {
          throw toDatastoreError(error, path);
        }
      },
      watch: (after, signal) => watchObjects({ api, path, query, after, signal, kind: path }),
    };
  }

  #receiver(path: string, outages: OutageLog): ListAndWatchReceiver<KubeObject, KubeObjectEvent> {
    let missingKeys = new Set<string>();
    const kept = this.#kept;
    return {
      get entryCount() {
        return kept.size;
      },
      get missingCount() {
        return missingKeys.size;
      },
      startList: () => void (missingKeys = new Set(this.#kept.keys())),
      applyItems: (items) => {
        for (const object of items) {
          missingKeys.delete(objectKey(object));
          this.#set(object);
        }
      },
      finishList: () => {
        for (const key of missingKeys) this.#remove(key);
        this.#hasSynced = true;
        this.#synced.resolve();
      },
      applyEvents: (events) => this.#applyEvents(events),
      onSuccess: () => outages.recordSuccess(path),
      onFailure: (error, isOutage) => outages.recordFailure(path, error, isOutage),
      onOutage: () => {},
    };
  }

  #applyEvents(events: readonly KubeObjectEvent[]): Revision | undefined {
    let last: Revision | undefined;
    for (const { type, object } of events) {
      last = object.metadata.resourceVersion ?? last;
      if (type === "DELETED") this.#remove(objectKey(object));
      else if (type !== "BOOKMARK") this.#set(object);
    }
    return last;
  }

  #set(object: KubeObject): void {
    const key = objectKey(object);
    const before = this.#kept.get(key);
    const revision = object.metadata.resourceVersion ?? "";
    if (before?.revision === revision && revision !== "") return;
    const value = this.#options.keep(object);
    this.#kept.set(key, { revision, value });
    for (const listener of this.#listeners) listener({ key, before: before?.value, after: value });
  }

  #remove(key: string): void {
    const before = this.#kept.get(key);
    if (before === undefined) return;
    this.#kept.delete(key);
    for (const listener of this.#listeners) listener({ key, before: before.value, after: undefined });
  }
}

const fieldSelector = (only: { readonly name: string } | { readonly node: string }): string =>
  "name" in only ? `metadata.name=${escaped(only.name)}` : `spec.nodeName=${escaped(only.node)}`;

/** Escapes the characters that have a meaning in a field selector. */
const escaped = (name: string): string => name.replaceAll(/[\\,=]/g, "\\$&");
