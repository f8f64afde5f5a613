// Objects of Kubernetes that stand under one path of its API, kept up to date: listed, watched, listed again when the
// watch is lost.
import { backoffDelay, pause } from "../../lib/retry.ts";
import type { KubeApi, KubeObject } from "./api-client.ts";

const BACKOFF = { firstMs: 250, maxMs: 30_000 };

export class KubernetesObjects {
  readonly #api: KubeApi;
  readonly #path: string;
  readonly #query: Readonly<Record<string, string>>;
  readonly #objects = new Map<string, KubeObject>();
  readonly #onChange: () => void;
  #ready = Promise.withResolvers<void>();

  /** @param options follow only the object of that name, or those on that node */
  constructor(
    api: KubeApi,
    path: string,
    onChange: () => void,
    options: { readonly name?: string; readonly node?: string } = {},
  ) {
    this.#api = api;
    this.#path = path;
    const { name, node } = options;
    this.#query = {
      ...(name === undefined ? {} : { fieldSelector: `metadata.name=${escaped(name)}` }),
      ...(node === undefined ? {} : { fieldSelector: `spec.nodeName=${escaped(node)}` }),
    };
    this.#onChange = onChange;
  }

  /** Once the first list is there. */
  get ready(): Promise<void> {
    return this.#ready.promise;
  }

  values(): Iterable<KubeObject> {
    return this.#objects.values();
  }
  get(namespace: string, name: string): KubeObject | undefined {
    return this.#objects.get(`${namespace}/${name}`);
  }

  /** Until the signal aborts. What cannot be read is tried again, and what was known stands meanwhile. */
  async run(signal: AbortSignal, onFailure: (error: unknown) => void): Promise<void> {
    for (let failures = 0; !signal.aborted; failures++) {
      try {
        const revision = await this.#list(signal);
        failures = 0;
        await this.#watch(revision, signal);
      } catch (error) {
        if (signal.aborted) return;
        onFailure(error);
      }
      await pause(backoffDelay(BACKOFF, failures), signal);
    }
  }

  async #list(signal: AbortSignal): Promise<string> {
    const { items, metadata } = await this.#api.list(this.#path, { query: this.#query, signal });
    this.#objects.clear();
    for (const item of items) this.#objects.set(nameOf(item), item);
    this.#ready.resolve();
    this.#onChange();
    return metadata.resourceVersion ?? "";
  }

  async #watch(resourceVersion: string, signal: AbortSignal): Promise<void> {
    for await (const events of this.#api.watch(this.#path, { ...this.#query, resourceVersion }, signal)) {
      let isChanged = false;
      for (const event of events) {
        if (event.type === "ERROR") return; // too old, most likely: list again
        if (event.type === "BOOKMARK") continue;
        if (event.type === "DELETED") this.#objects.delete(nameOf(event.object));
        else this.#objects.set(nameOf(event.object), event.object);
        isChanged = true;
      }
      if (isChanged) this.#onChange();
    }
  }
}

const nameOf = ({ metadata }: KubeObject): string => `${metadata.namespace ?? ""}/${metadata.name}`;

/** A name in a field selector is a name, whatever it holds. */
const escaped = (name: string): string => name.replaceAll(/[\\,=]/g, "\\$&");
