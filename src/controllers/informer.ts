// A collection of Kubernetes kept in memory: listed once, watched from there, listed again when the server has forgotten
// the past. Who listens is told of every object that came, changed or went, and never of the same state twice.
import type { KubeApi, KubeObject } from "../datastore/index.ts";
import { type Backoff, backoffDelay, pause } from "../lib/retry.ts";

export interface InformerOptions<T> {
  readonly api: KubeApi;
  readonly path: string;
  /** What is kept of an object: memory is for what somebody reads. */
  readonly keep: (object: KubeObject) => T;
  readonly onFailure?: (error: unknown) => void;
}

/** `after` undefined = it is gone. */
export type InformerListener<T> = (change: {
  readonly key: string;
  readonly before: T | undefined;
  readonly after: T | undefined;
}) => void;

interface Kept<T> {
  readonly revision: string;
  readonly value: T;
}

const BACKOFF: Backoff = { firstMs: 200, maxMs: 10_000, jitter: 0.3 };

export class Informer<T> {
  readonly #options: InformerOptions<T>;
  readonly #kept = new Map<string, Kept<T>>();
  readonly #listeners: InformerListener<T>[] = [];
  readonly #synced = Promise.withResolvers<void>();
  #revision: string | undefined;
  #hasSynced = false;

  constructor(options: InformerOptions<T>) {
    this.#options = options;
  }

  /** Resolves once the first list is in. */
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

  /** Told of what is there, then of every change. */
  listen(listener: InformerListener<T>): void {
    this.#listeners.push(listener);
    for (const [key, value] of this.entries()) listener({ key, before: undefined, after: value });
  }

  async run(signal: AbortSignal): Promise<void> {
    for (let failures = 0; !signal.aborted; )
      try {
        if (this.#revision === undefined) await this.#list(signal);
        failures = 0;
        await this.#watch(signal);
      } catch (error) {
        if (signal.aborted) return;
        if (codeOf(error) === 410) this.#revision = undefined;
        else {
          this.#options.onFailure?.(error);
          // A watch that broke off goes on from where it was; one that cannot begin may have lost its place.
          if (failures++ >= 3) this.#revision = undefined;
          await pause(backoffDelay(BACKOFF, failures - 1), signal);
        }
      }
  }

  async #list(signal: AbortSignal): Promise<void> {
    const { api, path } = this.#options;
    const { items, metadata } = await api.list(path, { signal });
    const gone = new Set(this.#kept.keys());
    for (const object of items) {
      gone.delete(keyOf(object));
      this.#set(object);
    }
    for (const key of gone) this.#remove(key);
    this.#revision = metadata.resourceVersion;
    this.#hasSynced = true;
    this.#synced.resolve();
  }

  async #watch(signal: AbortSignal): Promise<void> {
    const { api, path } = this.#options;
    for await (const events of api.watch(path, { resourceVersion: this.#revision }, signal))
      for (const event of events) {
        if (event.type === "ERROR")
          throw Object.assign(new Error(event.object.message ?? "the server ended the watch"), {
            code: event.object.code,
          });
        this.#revision = event.object.metadata.resourceVersion ?? this.#revision;
        if (event.type === "DELETED") this.#remove(keyOf(event.object));
        else if (event.type !== "BOOKMARK") this.#set(event.object);
      }
  }

  #set(object: KubeObject): void {
    const key = keyOf(object);
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

/** `namespace/name`, or the name alone. */
const keyOf = ({ metadata }: KubeObject): string =>
  metadata.namespace === undefined ? metadata.name : `${metadata.namespace}/${metadata.name}`;

/** The HTTP status the API server refused with. */
export const codeOf = (error: unknown): number | undefined =>
  error instanceof Error ? (error as { readonly code?: number }).code : undefined;
