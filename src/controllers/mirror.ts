// Keeps copies of Kubernetes' objects in Calico's datastore: what an informer sees is converted, queued and written;
// from time to time all copies are compared with what they should be, and those that are surplus removed. Labels and
// annotations somebody put on a copy are his.
import { type Client, type Informer, NotFound, type ResourceName } from "../datastore/index.ts";
import type { Logger } from "../lib/log.ts";
import { describeError } from "../lib/log.ts";
import { aborted } from "../lib/retry.ts";
import type { KindName, Resource } from "../model/index.ts";
import { sameJson } from "./same-json.ts";
import { every, WorkQueue } from "./work-queue.ts";
import { createLeniently, updateLeniently } from "./write.ts";

export interface MirrorOptions<T> {
  readonly name: string;
  readonly kind: KindName;
  readonly source: Informer<T>;
  /** The copy of an object; undefined while it is none's business, which leaves the copy as it is. */
  readonly convert: (object: T) => Resource | undefined;
  /** Whether a resource of the kind is a copy of ours to keep. */
  readonly owns: (resource: Resource) => boolean;
  readonly client: Client;
  readonly log: Logger;
  readonly reconcilerPeriodMs?: number;
  readonly workers?: number;
}

export class Mirror<T> {
  readonly #options: MirrorOptions<T>;
  /** By the copy's key. */
  readonly #wanted = new Map<string, Resource>();
  /** From an object's key to its copy's. */
  readonly #copies = new Map<string, string>();
  readonly #queue: WorkQueue;

  constructor(options: MirrorOptions<T>) {
    this.#options = options;
    this.#queue = new WorkQueue({
      name: options.name,
      work: (key, signal) => this.#write(key, signal),
      log: options.log,
      ...(options.workers === undefined ? {} : { workers: options.workers }),
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
    const known = this.#copies.get(sourceKey);
    if (object === undefined) {
      this.#copies.delete(sourceKey);
      if (known === undefined) return;
      this.#wanted.delete(known);
      this.#queue.add(known);
      return;
    }
    const copy = this.#options.convert(object);
    if (copy === undefined) return;
    const key = textOf(copy);
    this.#copies.set(sourceKey, key);
    if (sameJson(this.#wanted.get(key)?.spec, copy.spec)) return;
    this.#wanted.set(key, copy);
    this.#queue.add(key);
  }

  /** Queues what is missing, changed or surplus. */
  async #reconcile(signal: AbortSignal): Promise<void> {
    const { client, kind, owns, log, name } = this.#options;
    try {
      const { items } = await client.list({ kind }, { signal });
      const missing = new Set(this.#wanted.keys());
      for (const resource of items.filter(owns)) {
        const key = textOf(resource);
        missing.delete(key);
        if (!sameJson(this.#wanted.get(key)?.spec, resource.spec)) this.#queue.add(key);
      }
      for (const key of missing) this.#queue.add(key);
    } catch (error) {
      if (!signal.aborted)
        log.warn("cannot compare copies with their originals", { name, error: describeError(error) });
    }
  }

  async #write(key: string, signal: AbortSignal): Promise<void> {
    const { client, kind, log } = this.#options;
    const name = nameOf(kind, key);
    const wanted = this.#wanted.get(key);
    const current = await found(client.get(name, { signal }));
    if (wanted === undefined) {
      if (current === undefined) return;
      await found(client.delete(name, { signal }));
      log.info("removed a copy whose original is gone", { kind, key });
      return;
    }
    if (current === undefined) {
      await createLeniently(client, wanted, signal);
      return;
    }
    if (sameJson(current.spec, wanted.spec)) return;
    await updateLeniently(client, { ...current, spec: wanted.spec } as Resource, signal);
  }
}

const textOf = ({ metadata }: Resource): string =>
  metadata.namespace === undefined ? metadata.name : `${metadata.namespace}/${metadata.name}`;

function nameOf(kind: KindName, key: string): ResourceName {
  const slash = key.indexOf("/");
  return slash < 0 ? { kind, name: key } : { kind, namespace: key.slice(0, slash), name: key.slice(slash + 1) };
}

/** What is gone is gone. */
async function found<R>(request: Promise<R>): Promise<R | undefined> {
  try {
    return await request;
  } catch (error) {
    if (error instanceof NotFound) return undefined;
    throw error;
  }
}
