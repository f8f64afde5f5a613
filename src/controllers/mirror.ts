// Keeps copies of Kubernetes objects in Calico's datastore: converts each object of an informer, queues it and writes it.
// Periodically, all copies are compared with the desired ones, and copies without an object are deleted. Labels and annotations
// that users add to a copy are kept.
import { type Client, type Informer, NotFound, type ResourceName } from "../datastore/index.ts";
import type { Logger } from "../lib/log/log.ts";
import { describeError } from "../lib/log/log.ts";
import { aborted } from "../lib/retry.ts";
import type { KindName, Resource } from "../model/index.ts";
import { sameJson } from "./same-json.ts";
import { every, WorkQueue } from "./work-queue.ts";
import { createLeniently, updateLeniently } from "./lenient-writes.ts";

export interface MirrorOptions<T> {
  readonly name: string;
  readonly kind: KindName;
  readonly source: Informer<T>;
  /** Returns the copy of an object; undefined leaves the existing copy unchanged. */
  readonly convert: (object: T) => Resource | undefined;
  /** Whether this mirror manages the resource, which it recognizes by its name. Resources of users have other names. */
  readonly owns: (resource: Resource) => boolean;
  readonly client: Client;
  readonly log: Logger;
  readonly reconcilerPeriodMs?: number;
  readonly workers?: number;
}

export class Mirror<T> {
  readonly #options: MirrorOptions<T>;
  /** Desired copies, by the key of the copy. */
  readonly #desired = new Map<string, Resource>();
  /** Keys of copies, by the key of the Kubernetes object. */
  readonly #copyKeys = new Map<string, string>();
  readonly #queue: WorkQueue;

  constructor(options: MirrorOptions<T>) {
    this.#options = options;
    this.#queue = new WorkQueue({
      name: options.name,
      work: (key, signal) => this.#write(key, signal),
      log: options.log,
      workers: options.workers,
    });
  }

  async run(signal: AbortSignal): Promise<void> {
    const { source, reconcilerPeriodMs } = this.#options;
    source.listen(({ key, after }) => this.#onObject(key, after));
    await Promise.race([source.synced, aborted(signal)]);
    if (signal.aborted) return;
    await this.#reconcile(signal);
    await Promise.all([
      this.#queue.run(signal),
      ...(reconcilerPeriodMs === undefined ? [] : [every(reconcilerPeriodMs, signal, () => this.#reconcile(signal))]),
    ]);
  }

  #onObject(sourceKey: string, object: T | undefined): void {
    const copyKey = this.#copyKeys.get(sourceKey);
    if (object === undefined) {
      this.#copyKeys.delete(sourceKey);
      if (copyKey === undefined) return;
      this.#desired.delete(copyKey);
      this.#queue.add(copyKey);
      return;
    }
    const copy = this.#options.convert(object);
    if (copy === undefined) return;
    const key = keyOf(copy);
    this.#copyKeys.set(sourceKey, key);
    if (sameJson(this.#desired.get(key)?.spec, copy.spec)) return;
    this.#desired.set(key, copy);
    this.#queue.add(key);
  }

  /** Queues the copies that are missing, different or without an object. */
  async #reconcile(signal: AbortSignal): Promise<void> {
    const { client, kind, owns, log, name } = this.#options;
    try {
      const { items } = await client.list({ kind }, { signal });
      const missing = new Set(this.#desired.keys());
      for (const resource of items.filter(owns)) {
        const key = keyOf(resource);
        missing.delete(key);
        if (!sameJson(this.#desired.get(key)?.spec, resource.spec)) this.#queue.add(key);
      }
      for (const key of missing) this.#queue.add(key);
    } catch (error) {
      if (!signal.aborted)
        log.warn("cannot compare copies with Kubernetes objects, retrying in the next period", {
          controller: name,
          error: describeError(error),
        });
    }
  }

  async #write(key: string, signal: AbortSignal): Promise<void> {
    const { client, kind, log } = this.#options;
    const name = nameOf(kind, key);
    const desired = this.#desired.get(key);
    const current = await ignoreNotFound(client.get(name, { signal }));
    if (desired === undefined) {
      if (current === undefined) return;
      await ignoreNotFound(client.delete(name, { signal }));
      log.info("deleted the copy of a deleted Kubernetes object", { kind, key });
      return;
    }
    if (current === undefined) {
      await createLeniently(client, desired, signal);
      return;
    }
    if (sameJson(current.spec, desired.spec)) return;
    await updateLeniently(client, { ...current, spec: desired.spec } as Resource, signal);
  }
}

const keyOf = ({ metadata }: Resource): string =>
  metadata.namespace === undefined ? metadata.name : `${metadata.namespace}/${metadata.name}`;

function nameOf(kind: KindName, key: string): ResourceName {
  const slash = key.indexOf("/");
  return slash < 0 ? { kind, name: key } : { kind, namespace: key.slice(0, slash), name: key.slice(slash + 1) };
}

async function ignoreNotFound<R>(request: Promise<R>): Promise<R | undefined> {
  try {
    return await request;
  } catch (error) {
    if (error instanceof NotFound) return undefined;
    throw error;
  }
}
