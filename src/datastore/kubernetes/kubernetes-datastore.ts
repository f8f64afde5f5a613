// Implements the Kubernetes driver: Calico's kinds are custom resources; nodes, endpoints and profiles are derived from
// objects of Kubernetes.
import { describeError, silentLogger } from "../../lib/log/log.ts";
import { backoffDelay, delay } from "../../lib/retry.ts";
import { keyMatches, type KindName, type ResourceKey, type StoredKey, type StoredQuery } from "../../model/index.ts";
import { pathOf } from "../codec.ts";
import type { KubernetesConfig, OpenOptions } from "../config.ts";
import type {
  CallOptions,
  Datastore,
  DeleteOptions,
  Entry,
  KeyOfQuery,
  ListOptions,
  ListResult,
  ReadOptions,
  Removed,
  Revision,
  Stored,
  UpdateOptions,
  Watch,
} from "../datastore.ts";
import { AlreadyExists, Conflict, NotFound, UnreadableEntry, Unsupported, ValidationFailed } from "../errors.ts";
import { nameOfKey } from "../key-name.ts";
import { resolveAccess } from "./access.ts";
import { KubeApi, type KubeList, type KubeObject } from "./api-client.ts";
import { isObjectMissing, KubeStatusError } from "./status-error.ts";
import type { Collection } from "./collection.ts";
import { Collections } from "./collections.ts";
import { type ApiGroup, CRD_V1, CRD_V3 } from "./custom-resources.ts";
import { toDatastoreError } from "./failures.ts";
import { notServed } from "./not-served.ts";
import { Profiles } from "./profiles.ts";
import { KubeWatch } from "./watch.ts";

const DISCOVERY_RETRY = { firstMs: 200, maxMs: 5000, jitter: 0.3 };
const STRATEGIC_MERGE = "application/strategic-merge-patch+json";

export async function openKubernetes(
  config: KubernetesConfig,
  options: OpenOptions = {},
): Promise<KubernetesDatastore> {
  const access = await resolveAccess(config, process.env);
  const api = new KubeApi(access, {
    timeoutMs: options.timeoutMs,
    beforeWrite: options.beforeWrite,
    qps: config.clientQps,
    burst: config.clientBurst,
  });
  try {
    return new KubernetesDatastore(api, await chooseApiGroup(api, config.apiGroup, options), config, options);
  } catch (error) {
    api.close();
    throw toDatastoreError(error, "API groups");
  }
}

/**
 * Returns the API group of Calico's kinds: the configured one, or else the native group if the server serves only that. A
 * failed request is retried or fails, because a wrong default would be used until the program ends.
 */
async function chooseApiGroup(
  api: KubeApi,
  configured: string | undefined,
  { log = silentLogger, retryUntil }: OpenOptions,
): Promise<ApiGroup> {
  if (configured !== undefined) return configured === CRD_V3 ? CRD_V3 : CRD_V1;
  let logged = "";
  for (let failures = 0; ; failures++)
    try {
      const { groups } = await api.get<ApiGroupList>("/apis");
      const names = new Set(groups.map(({ name }) => name));
      const chosen = names.has("projectcalico.org") && !names.has("crd.projectcalico.org") ? CRD_V3 : CRD_V1;
      log.info("chose the API group of Calico's resources", { group: chosen });
      return chosen;
    } catch (error) {
      if (retryUntil === undefined) throw error;
      const reason = describeError(error).replace(/ \(after .*? s\)/, "");
      if (reason !== logged) log.warn("cannot discover the API groups; retrying", { error: reason });
      logged = reason;
      await delay(backoffDelay(DISCOVERY_RETRY, failures), retryUntil);
    }
}

interface ApiGroupList extends KubeObject {
  readonly groups: readonly { readonly name: string }[];
}

export class KubernetesDatastore implements Datastore {
  readonly name = "kubernetes";
  readonly #collections: Collections;
  readonly #profiles: Profiles;
  readonly #onUnreadable: (error: UnreadableEntry) => void;

  constructor(
    readonly api: KubeApi,
    /** The API group of Calico's kinds. */
    readonly apiGroup: ApiGroup,
    config: Pick<KubernetesConfig, "usePodCidr" | "interfacePrefix">,
    options: Pick<OpenOptions, "onUnreadable"> = {},
  ) {
    this.#onUnreadable = options.onUnreadable ?? (() => {});
    this.#profiles = new Profiles(api);
    this.#collections = new Collections(apiGroup, config);
  }

  async create<K extends StoredKey>(entry: Entry<K>, options: CallOptions = {}): Promise<Stored<K>> {
    const collection = this.#collections.of<K>("Create", checked(entry.key));
    if (isKey(entry.key, "WorkloadEndpoint")) return this.#patchEndpoint(entry, options);
    const { revision: _, ...fresh } = entry;
    const path = collection.createPath(entry.key);
    const body = collection.encode(fresh as Entry<K>);
    for (let attempt = 0; ; attempt++)
      try {
        return this.#decoded(collection, await this.#json(collection, { method: "POST", path, body, ...options }));
      } catch (error) {
        const fault = toDatastoreError(error, entry.key);
        if (!(fault instanceof AlreadyExists)) throw fault;
        // If the object is marked as deleted, the read deletes it, and the name can be used again.
        const existing = await this.#getIfExists(entry.key, options);
        if (existing === undefined && collection.marked === true && attempt === 0) continue;
        throw new AlreadyExists(nameOfKey(entry.key), existing, { cause: error });
      }
  }

  async update<K extends StoredKey>(entry: Entry<K>, options: UpdateOptions = {}): Promise<Stored<K>> {
    const collection = this.#collections.of<K>("Update", checked(entry.key));
    if (entry.revision === undefined || !/^\d+$/.test(entry.revision))
      throw new ValidationFailed([
        { field: "ResourceVersion", value: entry.revision ?? "", reason: "field must be a revision read before" },
      ]);
    if (isKey(entry.key, "WorkloadEndpoint")) return this.#patchEndpoint(entry, options);
    try {
      return this.#decoded(collection, await this.#put(collection, entry, options));
    } catch (error) {
      const fault = toDatastoreError(error, entry.key);
      if (!(fault instanceof Conflict)) throw fault;
      const current = await this.#getIfExists(entry.key, options);
      throw current === undefined
        ? new NotFound(nameOfKey(entry.key))
        : new Conflict(nameOfKey(entry.key), current, { cause: error });
    }
  }

  async apply<K extends StoredKey>(entry: Entry<K>, options: CallOptions = {}): Promise<Stored<K>> {
    if (isKey(entry.key, "WorkloadEndpoint")) return this.#patchEndpoint(entry, options);
    for (let attempt = 0; ; attempt++) {
      const current = await this.#getIfExists(entry.key, options);
      try {
        if (current === undefined) return await this.create(entry, options);
        return await this.update({ ...entry, revision: current.revision }, options);
      } catch (error) {
        const isRace = error instanceof Conflict || error instanceof AlreadyExists || error instanceof NotFound;
        if (!isRace || attempt >= 5) throw error;
      }
    }
  }

  async delete<K extends StoredKey>(key: K, options: DeleteOptions = {}): Promise<Removed<K>> {
    const collection = this.#collections.of<K>("Delete", checked(key));
    if (isKey(key, "Node")) throw new Unsupported("Delete", nameOfKey(key), "delete the Kubernetes node instead");
    const isPinned = options.revision !== undefined && options.revision !== "0" && options.revision !== "";
    for (let attempt = 0; ; attempt++)
      try {
        return await this.#delete(collection, key, options, isPinned);
      } catch (error) {
        const fault = toDatastoreError(error, key);
        // Without a requested revision, the object is deleted whatever its state is.
        if (!(fault instanceof Conflict) || isPinned || attempt >= 5) throw fault;
      }
  }

  async #delete<K extends StoredKey>(
    collection: Collection<K>,
    key: K,
    options: DeleteOptions,
    isPinned: boolean,
  ): Promise<Removed<K>> {
    const path = collection.itemPath(key);
    const { signal } = options;
    const before = await this.#json(collection, { method: "GET", path, signal });
    const current = this.#decoded(collection, before);
    if (isKey(key, "WorkloadEndpoint")) {
      await this.#patchPod(path, this.#collections.endpoints.deletionPatch(options.uid), signal);
      return current;
    }
    if (isPinned && options.revision !== current.revision) throw new Conflict(nameOfKey(key), current);
    // Checked before the object is marked, because a marked object counts as deleted.
    if (options.uid !== undefined && before.metadata.uid !== options.uid)
      throw new NotFound(nameOfKey(key), "another object has the same name");
    const isMarking = collection.marked === true && collection.mark !== undefined;
    const last =
      isMarking && collection.isMarked?.(before) !== true
        ? await this.#json(collection, { method: "PUT", path, body: collection.mark?.(before), signal })
        : before;
    const revision = isPinned || isMarking ? last.metadata.resourceVersion : undefined;
    await this.#remove(path, options.uid ?? last.metadata.uid, revision, signal);
    return current;
  }

  async get<K extends StoredKey>(key: K, options: ReadOptions = {}): Promise<Stored<K>> {
    if (isKey(key, "Profile"))
      return (await this.#profiles.get(key as unknown as ResourceKey, options)) as unknown as Stored<K>;
    const collection = this.#collections.of<K>("Get", checked(key));
    try {
      const path = collection.itemPath(key);
      const object = await this.#json(collection, { method: "GET", path, signal: options.signal });
      if (collection.isMarked?.(object) === true) {
        await this.#finishDelete(path, object, options.signal);
        throw new NotFound(nameOfKey(key));
      }
      const found = this.#decoded(collection, object);
      // The pod may be on another node, and the same affinity name may result from another host name.
      if (nameOfKey(found.key) !== nameOfKey(key)) throw new NotFound(nameOfKey(key));
      return found;
    } catch (error) {
      throw toDatastoreError(error, key);
    }
  }

  async list<Q extends StoredQuery>(query: Q, options: ListOptions = {}): Promise<ListResult<KeyOfQuery<Q>>> {
    type K = KeyOfQuery<Q>;
    if (query.type === "resource" && query.kind === "Profile")
      return (await this.#profiles.list(query.name, options)) as unknown as ListResult<K>;
    const collection = this.#collections.of<K>("List", query);
    const isFresh = options.revision === undefined || options.revision === "0" || options.revision === "";
    const since = isFresh ? {} : { resourceVersion: options.revision, resourceVersionMatch: "NotOlderThan" };
    try {
      const found: Stored<K>[] = [];
      let revision: string | undefined;
      for (const selection of collection.selectForList?.(query) ?? [collection.select(query)]) {
        const { fieldSelector, labelSelector } = selection;
        const request = { query: { fieldSelector, labelSelector, ...since }, signal: options.signal };
        const { items, metadata }: KubeList =
          isFresh && selection.item !== undefined
            ? await this.#listOne(selection.item, options.signal)
            : await this.api.list(selection.path, { ...request, lossless: collection.lossless });
        revision ??= metadata.resourceVersion; // of several lists the oldest, so that a watch misses no change
        for (const object of items)
          for (const item of this.#decodeListed(collection, object, options.onUnreadable))
            if (keyMatches(query, item.key)) found.push(item);
      }
      return { items: found, revision: revision ?? "" };
    } catch (error) {
      if (error instanceof KubeStatusError && error.code === 404)
        throw notServed(this.api, collection, collection.select(query).path, error);
      throw toDatastoreError(error, collection.kind);
    }
  }

  async watch<Q extends StoredQuery>(
    query: Q,
    options: { readonly after?: Revision; readonly signal: AbortSignal },
  ): Promise<Watch<KeyOfQuery<Q>>> {
    type K = KeyOfQuery<Q>;
    if (query.type === "resource" && query.kind === "Profile")
      return (await this.#profiles.watch(query.name, options.after, options.signal)) as unknown as Watch<K>;
    const collection = this.#collections.of<K>("Watch", query);
    const isFresh = options.after === undefined || options.after === "0" || options.after === "";
    const start = isFresh ? await this.list(query, { signal: options.signal }) : undefined;
    return new KubeWatch<K>({
      api: this.api,
      collection,
      selection: collection.select(query),
      accepts: (key) => keyMatches(query, key),
      after: start?.revision ?? options.after ?? "",
      initial: start?.items,
      signal: options.signal,
    });
  }

  async close(): Promise<void> {
    this.api.close();
  }

  async #listOne(path: string, signal: AbortSignal | undefined): Promise<KubeList> {
    try {
      const found = await this.api.get<KubeObject>(path, { signal });
      const { resourceVersion } = found.metadata;
      return { items: [found], metadata: resourceVersion === undefined ? {} : { resourceVersion } };
    } catch (error) {
      if (!isObjectMissing(error)) throw error;
      return { items: [], metadata: {} };
    }
  }

  async #put<K extends StoredKey>(
    collection: Collection<K>,
    entry: Entry<K>,
    { subresource, signal }: UpdateOptions,
  ): Promise<KubeObject> {
    const path = collection.itemPath(entry.key);
    if (isKey(entry.key, "Node")) {
      const kubernetes = await this.api.get<KubeObject>(path, { signal });
      const body = this.#collections.nodes.merge(entry as unknown as Entry<ResourceKey>, kubernetes);
      return this.api.json({ method: "PUT", path: `${path}/status`, body, signal });
    }
    const body = collection.encode(entry);
    if (subresource === "status")
      try {
        return await this.#json(collection, { method: "PUT", path: `${path}/status`, body, signal });
      } catch (error) {
        // A CRD that another program installed may lack the status subresource.
        if (!(error instanceof KubeStatusError && error.code === 404)) throw error;
      }
    return this.#json(collection, { method: "PUT", path, body, signal });
  }

  /** An endpoint is derived from its pod: a write only changes annotations of the pod. */
  async #patchEndpoint<K extends StoredKey>(entry: Entry<K>, { signal }: CallOptions): Promise<Stored<K>> {
    const { endpoints } = this.#collections;
    const endpoint = entry as unknown as Entry<ResourceKey>;
    try {
      const path = endpoints.itemPath(endpoint.key);
      const body = endpoints.patch(endpoint);
      const pod = await (body === undefined
        ? this.api.get<KubeObject>(path, { signal })
        : this.#patchPod(path, body, signal));
      return this.#decoded(endpoints, pod) as unknown as Stored<K>;
    } catch (error) {
      throw toDatastoreError(error, entry.key);
    }
  }

  #patchPod(path: string, body: object, signal: AbortSignal | undefined): Promise<KubeObject> {
    const contentType = STRATEGIC_MERGE;
    return this.api.json<KubeObject>({ method: "PATCH", path: `${path}/status`, body, contentType, signal });
  }

  #json(collection: Pick<Collection, "lossless">, request: Parameters<KubeApi["json"]>[0]): Promise<KubeObject> {
    return this.api.json<KubeObject>({ ...request, lossless: collection.lossless });
  }

  #decoded<K extends StoredKey>(collection: Collection<K>, object: KubeObject): Stored<K> {
    const found = this.#decode(collection, object);
    if (found === undefined) throw new NotFound(`${collection.kind}(${object.metadata.name})`);
    return found;
  }

  #decode<K extends StoredKey>(collection: Collection<K>, object: KubeObject): Stored<K> | undefined {
    try {
      return collection.decode(object);
    } catch (error) {
      if (error instanceof UnreadableEntry) throw error;
      const key = collection.keyOf(object);
      const name = key === undefined ? `${collection.kind}(${object.metadata.name})` : nameOfKey(key);
      throw new UnreadableEntry(name, describeError(error), key, { cause: error });
    }
  }

  #decodeListed<K extends StoredKey>(
    collection: Collection<K>,
    object: KubeObject,
    onUnreadable = this.#onUnreadable,
  ): Stored<K>[] {
    try {
      if (collection.isMarked?.(object) === true) return [];
      const found = this.#decode(collection, object);
      return found === undefined ? [] : [found];
    } catch (error) {
      if (!(error instanceof UnreadableEntry)) throw error;
      onUnreadable(error);
      return [];
    }
  }

  async #getIfExists<K extends StoredKey>(key: K, options: CallOptions): Promise<Stored<K> | undefined> {
    try {
      return await this.get(key, options);
    } catch (error) {
      if (error instanceof NotFound || error instanceof UnreadableEntry) return undefined;
      throw error;
    }
  }

  /** Deletes the object only if it has this UID and resource version. */
  async #remove(
    path: string,
    uid: string | undefined,
    resourceVersion: string | undefined,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const body = { kind: "DeleteOptions", apiVersion: "v1", preconditions: { uid, resourceVersion } };
    await this.api.json({ method: "DELETE", path, body, signal });
  }

  /** Deletes an object whose writer marked it and then ended. */
  async #finishDelete(path: string, object: KubeObject, signal: AbortSignal | undefined): Promise<void> {
    try {
      await this.#remove(path, object.metadata.uid, undefined, signal);
    } catch (error) {
      if (!(error instanceof KubeStatusError && [404, 409].includes(error.code))) throw error;
    }
  }
}

const isKey = (key: StoredKey, kind: KindName): boolean => key.type === "resource" && key.kind === kind;

/** @throws ValidationFailed for a name that a path cannot contain: in a URL, it would refer to another object */
function checked<K extends StoredKey>(key: K): K {
  pathOf(key);
  return key;
}
