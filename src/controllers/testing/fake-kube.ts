// An in-memory Kubernetes API for unit tests: objects by path, lists, watches, resource versions and conflicts. The suites on a
// real API server verify that it behaves like one.
import { type KubeApi, type KubeObject, KubeStatusError } from "../../datastore/index.ts";

type Stored = KubeObject & Record<string, unknown>;
interface Event {
  readonly type: "ADDED" | "MODIFIED" | "DELETED";
  readonly object: Stored;
}

export class FakeKube {
  readonly objects = new Map<string, Stored>();
  /** `METHOD path` of every write, in order. */
  readonly writes: string[] = [];
  /** Path of every read, in order. */
  readonly reads: string[] = [];
  /** Thrown by every request while set. */
  failure: Error | undefined;
  readonly #log: { readonly path: string; readonly event: Event; readonly revision: number }[] = [];
  #revision = 1;
  #wake: (() => void)[] = [];

  /** This object as the type that controllers expect. */
  get api(): KubeApi {
    return this as unknown as KubeApi;
  }

  /** @param path of the object itself */
  put(path: string, object: object = {}): void {
    const name = path.split("/").at(-1) ?? "";
    const namespace = /\/namespaces\/([^/]+)\/[^/]+\/[^/]+$/.exec(path)?.[1];
    const body = object as Stored;
    const before = this.objects.get(path);
    const stored = {
      ...body,
      metadata: {
        uid: before?.metadata.uid ?? `uid-${name}-${this.#revision}`,
        ...body.metadata,
        name,
        ...(namespace === undefined ? {} : { namespace }),
        resourceVersion: String(++this.#revision),
      },
    };
    this.objects.set(path, stored);
    this.#notify(path, { type: before === undefined ? "ADDED" : "MODIFIED", object: stored });
  }

  delete(path: string): void {
    const before = this.objects.get(path);
    if (before === undefined) return;
    this.objects.delete(path);
    const metadata = { ...before.metadata, resourceVersion: String(++this.#revision) };
    this.#notify(path, { type: "DELETED", object: { ...before, metadata } });
  }

  async get(path: string): Promise<Stored> {
    await this.#checkFailure();
    this.reads.push(path);
    const found = this.objects.get(path);
    if (found === undefined) throw status(404, `GET ${path}: not found`);
    return structuredClone(found);
  }

  async list(path: string) {
    await this.#checkFailure();
    this.reads.push(path);
    const items = [...this.objects].filter(([key]) => isIn(path, key)).map(([, object]) => structuredClone(object));
    return { items, metadata: { resourceVersion: String(this.#revision) } };
  }

  async json(request: { method: string; path: string; body?: object }): Promise<unknown> {
    await this.#checkFailure();
    const { method, path } = request;
    const body = request.body as Stored;
    this.writes.push(`${method} ${path}`);
    if (method === "POST") {
      const item = `${path}/${body.metadata.name}`;
      if (this.objects.has(item)) throw status(409, `${item} exists`);
      this.put(item, body);
      return this.objects.get(item);
    }
    const item = path.replace(/\/status$/, "");
    const before = this.objects.get(item);
    if (before === undefined) throw status(404, `${path}: not found`);
    if (method === "DELETE") return this.delete(item);
    const { resourceVersion } = body.metadata;
    if (resourceVersion !== undefined && resourceVersion !== before.metadata.resourceVersion)
      throw status(409, `${path} has changed`);
    this.put(item, body);
    return this.objects.get(item);
  }

  async probe(path: string): Promise<void> {
    await this.#checkFailure();
    this.reads.push(path);
  }

  async *watch(path: string, query: { resourceVersion?: string }, signal: AbortSignal): AsyncGenerator<Event[]> {
    let after = Number(query.resourceVersion ?? 0);
    for (;;) {
      signal.throwIfAborted();
      const newEvents = this.#log.filter((entry) => entry.revision > after && isIn(path, entry.path));
      after = this.#log.at(-1)?.revision ?? after;
      if (newEvents.length > 0) yield newEvents.map(({ event }) => event);
      else
        await new Promise<void>((resolve) => {
          this.#wake.push(resolve);
          signal.addEventListener("abort", () => resolve(), { once: true });
        });
    }
  }

  #notify(path: string, event: Event): void {
    this.#log.push({ path, event, revision: this.#revision });
    for (const wake of this.#wake.splice(0)) wake();
  }

  async #checkFailure(): Promise<void> {
    await Promise.resolve();
    if (this.failure !== undefined) throw this.failure;
  }
}

/** `/api/v1/pods` contains the pods of all namespaces. */
function isIn(collection: string, path: string): boolean {
  const parent = path.slice(0, path.lastIndexOf("/"));
  return parent === collection || parent.replace(/\/namespaces\/[^/]+(?=\/[^/]+$)/, "") === collection;
}

const REASONS: Readonly<Record<number, string>> = { 403: "Forbidden", 404: "NotFound", 409: "Conflict" };

/** The error of a request that the API server rejects. */
export const status = (code: number, message: string): Error =>
  new KubeStatusError("request", { code, reason: REASONS[code] ?? "", message });

/** The error from a proxy that cannot reach the API server: a 404 without a Status object. */
export const proxyNotFound = (): Error =>
  new KubeStatusError("request", { code: 404, reason: "", message: "status 404" });
