// The Kubernetes API as datastore: Calico's kinds as custom resources, the rest derived from what Kubernetes keeps.
import { describeError } from "../../lib/log.ts";
import {
  KINDS,
  keyMatches,
  type KindName,
  kindOf,
  type ResourceKey,
  type StoredKey,
  type StoredQuery,
} from "../../model/index.ts";
import type { KubernetesConfig, OpenOptions } from "../config.ts";
import type {
  CallOptions,
  Datastore,
  DeleteOptions,
  Entry,
  KeyOfQuery,
  ListResult,
  ReadOptions,
  Removed,
  Revision,
  Stored,
  UpdateOptions,
  Watch,
} from "../datastore.ts";
import {
  AlreadyExists,
  Conflict,
  NotFound,
  NotServed,
  UnreadableEntry,
  Unsupported,
  ValidationFailed,
} from "../errors.ts";
import { nameOfKey } from "../key-name.ts";
import { resolveAccess } from "./access.ts";
import { KubeApi, type KubeObject, KubeStatusError } from "./api-client.ts";
import type { Collection } from "./collection.ts";
import { type ApiGroup, CRD_V1, CRD_V3, CustomResources } from "./custom-resources.ts";
import { Endpoints, Nodes, RawObjects } from "./derived-resources.ts";
import { translate } from "./failures.ts";
import { Affinities, Blocks, Handles, IpamConfigs } from "./ipam-resources.ts";
import { Profiles } from "./profiles.ts";
import { KubeWatch } from "./watch.ts";

type IpamKeyType = "block" | "blockAffinity" | "ipamHandle" | "ipamConfig";
const STRATEGIC_MERGE = "application/strategic-merge-patch+json";
const RAW: Readonly<Partial<Record<KindName, RawObjects>>> = {
  KubernetesNetworkPolicy: new RawObjects("KubernetesNetworkPolicy", "networking.k8s.io/v1", "networkpolicies", true),
  KubernetesClusterNetworkPolicy: new RawObjects(
    "KubernetesClusterNetworkPolicy",
    "policy.networking.k8s.io/v1alpha2",
    "clusternetworkpolicies",
    false,
  ),
  KubernetesEndpointSlice: new RawObjects("KubernetesEndpointSlice", "discovery.k8s.io/v1", "endpointslices", true),
  KubernetesService: new RawObjects("KubernetesService", "v1", "services", true),
};

export async function openKubernetes(
  config: KubernetesConfig,
  options: OpenOptions = {},
): Promise<KubernetesDatastore> {
  const access = await resolveAccess(config, process.env);
  const api = new KubeApi(access, {
    ...(options.timeoutMs === undefined ? {} : { timeoutMs: options.timeoutMs }),
    ...(config.clientQps === undefined ? {} : { qps: config.clientQps }),
    ...(config.clientBurst === undefined ? {} : { burst: config.clientBurst }),
  });
  return new KubernetesDatastore(api, await apiGroup(api, config.apiGroup), config, options);
}

/** The native group only where it alone is served; whatever cannot be found out means the old one. */
async function apiGroup(api: KubeApi, wanted: string | undefined): Promise<ApiGroup> {
  if (wanted !== undefined) return wanted === CRD_V3 ? CRD_V3 : CRD_V1;
  try {
    const served = await api.get<KubeObject & { readonly groups: readonly { readonly name: string }[] }>("/apis");
    const names = new Set(served.groups.map(({ name }) => name));
    return names.has("projectcalico.org") && !names.has("crd.projectcalico.org") ? CRD_V3 : CRD_V1;
  } catch {
    return CRD_V1;
  }
}

export class KubernetesDatastore implements Datastore {
  readonly name = "kubernetes";
  readonly #resources = new Map<KindName, Collection<ResourceKey>>();
  readonly #ipam: Readonly<Record<IpamKeyType, Collection>>;
  readonly #nodes: Nodes;
  readonly #endpoints: Endpoints;
  readonly #profiles: Profiles;
  readonly #onUnreadable: (error: UnreadableEntry) => void;

  constructor(
    readonly api: KubeApi,
    group: ApiGroup,
    readonly config: Pick<KubernetesConfig, "usePodCidr">,
    options: Pick<OpenOptions, "onUnreadable"> = {},
  ) {
    this.#onUnreadable = options.onUnreadable ?? (() => {});
    const prefix = process.env["FELIX_INTERFACEPREFIX"]?.split(",")[0];
    this.#nodes = new Nodes({ usePodCidr: config.usePodCidr });
    this.#endpoints = new Endpoints(() => {}, prefix === undefined || prefix === "" ? {} : { interfacePrefix: prefix });
    this.#profiles = new Profiles(api);
    for (const { name, served } of KINDS) if (served) this.#resources.set(name, new CustomResources(name, group));
    for (const [name, collection] of Object.entries(RAW)) this.#resources.set(name as KindName, collection);
    this.#resources.set("Node", this.#nodes);
    this.#resources.set("WorkloadEndpoint", this.#endpoints);
    this.#ipam = {
      block: new Blocks(group) as unknown as Collection,
      blockAffinity: new Affinities(group) as unknown as Collection,
      ipamHandle: new Handles(group) as unknown as Collection,
      ipamConfig: new IpamConfigs(group) as unknown as Collection,
    };
  }

  async create<K extends StoredKey>(entry: Entry<K>, options: CallOptions = {}): Promise<Stored<K>> {
    const collection = this.#collectionOf<K>("Create", entry.key);
    if (isKey(entry.key, "WorkloadEndpoint")) return this.#patchEndpoint(entry, options);
    const { revision: _, ...fresh } = entry;
    const body = collection.encode(fresh as Entry<K>);
    try {
      const path = collection.createPath(entry.key);
      return this.#decoded(
        collection,
        await this.#json(collection, { method: "POST", path, body, signal: options.signal }),
      );
    } catch (error) {
      const fault = translate(error, entry.key);
      if (!(fault instanceof AlreadyExists)) throw fault;
      throw new AlreadyExists(nameOfKey(entry.key), await this.#getIfThere(entry.key, options), { cause: error });
    }
  }

  async update<K extends StoredKey>(entry: Entry<K>, options: UpdateOptions = {}): Promise<Stored<K>> {
    const collection = this.#collectionOf<K>("Update", entry.key);
    if (entry.revision === undefined || !/^\d+$/.test(entry.revision))
      throw new ValidationFailed([
        { field: "ResourceVersion", value: entry.revision ?? "", reason: "field must be a revision read before" },
      ]);
    if (isKey(entry.key, "WorkloadEndpoint")) return this.#patchEndpoint(entry, options);
    try {
      const item = collection.itemPath(entry.key);
      const isNode = isKey(entry.key, "Node");
      const body = isNode
        ? this.#nodes.merge(entry as unknown as Entry<ResourceKey>, await this.api.get(item, options))
        : collection.encode(entry);
      const path = isNode || options.subresource === "status" ? `${item}/status` : item;
      return this.#decoded(
        collection,
        await this.#json(collection, { method: "PUT", path, body, signal: options.signal }),
      );
    } catch (error) {
      const fault = translate(error, entry.key);
      if (!(fault instanceof Conflict)) throw fault;
      const current = await this.#getIfThere(entry.key, options);
      throw current === undefined
        ? new NotFound(nameOfKey(entry.key))
        : new Conflict(nameOfKey(entry.key), current, { cause: error });
    }
  }

  async apply<K extends StoredKey>(entry: Entry<K>, options: CallOptions = {}): Promise<Stored<K>> {
    if (isKey(entry.key, "WorkloadEndpoint")) return this.#patchEndpoint(entry, options);
    for (let attempt = 0; ; attempt++) {
      const current = await this.#getIfThere(entry.key, options);
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
    const collection = this.#collectionOf<K>("Delete", key);
    if (isKey(key, "Node")) throw new Unsupported("Delete", nameOfKey(key), "nodes are removed by Kubernetes");
    const item = collection.itemPath(key);
    try {
      const before = await this.#get(collection, item, options.signal);
      const current = this.#decoded(collection, before);
      if (isKey(key, "WorkloadEndpoint")) {
        const body = this.#endpoints.erasure();
        await this.api.json({
          method: "PATCH",
          path: `${item}/status`,
          body,
          contentType: STRATEGIC_MERGE,
          signal: options.signal,
        });
        return current;
      }
      if (options.revision !== undefined && options.revision !== "0" && options.revision !== current.revision)
        throw new Conflict(nameOfKey(key), current);
      const uid = options.uid ?? before.metadata.uid;
      let resourceVersion = options.revision === undefined ? undefined : before.metadata.resourceVersion;
      if (collection.mark !== undefined && collection.marked === true) {
        const marked = await this.#json(collection, {
          method: "PUT",
          path: item,
          body: collection.mark(before),
          signal: options.signal,
        });
        resourceVersion = marked.metadata.resourceVersion;
      }
      const preconditions = { uid, ...(resourceVersion === undefined ? {} : { resourceVersion }) };
      await this.api.json({
        method: "DELETE",
        path: item,
        body: { kind: "DeleteOptions", apiVersion: "v1", preconditions },
        signal: options.signal,
      });
      return current;
    } catch (error) {
      throw translate(error, key);
    }
  }

  async get<K extends StoredKey>(key: K, options: ReadOptions = {}): Promise<Stored<K>> {
    if (isKey(key, "Profile"))
      return (await this.#profiles.get(key as unknown as ResourceKey, options)) as unknown as Stored<K>;
    const collection = this.#collectionOf<K>("Get", key);
    try {
      const item = collection.itemPath(key);
      const object = await this.#get(collection, item, options.signal);
      if (collection.marked === true && collection.isMarked?.(object) === true) {
        await this.#finishDelete(item, object, options.signal);
        throw new NotFound(nameOfKey(key));
      }
      const found = this.#decoded(collection, object);
      if (nameOfKey(found.key) !== nameOfKey(key)) throw new NotFound(nameOfKey(key));
      return found;
    } catch (error) {
      throw translate(error, key);
    }
  }

  async list<Q extends StoredQuery>(query: Q, options: ReadOptions = {}): Promise<ListResult<KeyOfQuery<Q>>> {
    type K = KeyOfQuery<Q>;
    if (query.type === "resource" && query.kind === "Profile")
      return (await this.#profiles.list(query.name, options)) as unknown as ListResult<K>;
    const collection = this.#collectionOf<K>("List", query);
    const { path, fieldSelector, labelSelector } = collection.select(query);
    const at =
      options.revision === undefined || options.revision === "0" || options.revision === ""
        ? undefined
        : options.revision;
    const past = at === undefined ? {} : { resourceVersion: at, resourceVersionMatch: "NotOlderThan" };
    try {
      const request = {
        query: { fieldSelector, labelSelector, ...past },
        signal: options.signal,
        lossless: collection.lossless,
      };
      const { items, metadata } = await this.api.list(path, request);
      const found = items
        .flatMap((object) => this.#decodeListed(collection, object))
        .filter(({ key }) => keyMatches(query, key));
      return { items: found, revision: metadata.resourceVersion ?? "" };
    } catch (error) {
      if (error instanceof KubeStatusError && error.code === 404)
        throw new NotServed(collection.kind, { cause: error });
      throw translate(error, collection.kind);
    }
  }

  async watch<Q extends StoredQuery>(
    query: Q,
    options: { readonly after?: Revision; readonly signal: AbortSignal },
  ): Promise<Watch<KeyOfQuery<Q>>> {
    type K = KeyOfQuery<Q>;
    if (query.type === "resource" && query.kind === "Profile")
      return (await this.#profiles.watch(query.name, options.after, options.signal)) as unknown as Watch<K>;
    const collection = this.#collectionOf<K>("Watch", query);
    const isFresh = options.after === undefined || options.after === "0" || options.after === "";
    const start = isFresh ? await this.list(query, options) : undefined;
    return new KubeWatch<K>({
      api: this.api,
      collection,
      selection: collection.select(query),
      accepts: (key) => keyMatches(query, key),
      after: start?.revision ?? options.after ?? "",
      ...(start === undefined ? {} : { initial: start.items }),
      signal: options.signal,
    });
  }

  async close(): Promise<void> {
    this.api.close();
  }

  #collectionOf<K extends StoredKey>(operation: string, key: StoredKey | StoredQuery): Collection<K> {
    if (key.type === "resource") {
      const collection = this.#resources.get(key.kind);
      if (collection !== undefined && key.kind !== "Profile") return collection as unknown as Collection<K>;
      const id = "name" in key && key.name !== undefined ? `${key.kind}(${key.name})` : kindOf(key.kind).name;
      throw new Unsupported(operation, id, "it is derived from Kubernetes");
    }
    if (key.type in this.#ipam && !this.config.usePodCidr)
      return this.#ipam[key.type as IpamKeyType] as unknown as Collection<K>;
    throw new Unsupported(operation, key.type, "the Kubernetes datastore keeps none");
  }

  async #patchEndpoint<K extends StoredKey>(entry: Entry<K>, options: CallOptions): Promise<Stored<K>> {
    const endpoint = entry as unknown as Entry<ResourceKey>;
    try {
      const item = this.#endpoints.itemPath(endpoint.key);
      const body = this.#endpoints.patch(endpoint);
      const pod =
        body === undefined
          ? await this.api.get<KubeObject>(item, options)
          : await this.api.json<KubeObject>({
              method: "PATCH",
              path: `${item}/status`,
              body,
              contentType: STRATEGIC_MERGE,
              signal: options.signal,
            });
      return this.#decoded(this.#endpoints, pod) as unknown as Stored<K>;
    } catch (error) {
      throw translate(error, entry.key);
    }
  }

  #get(collection: Pick<Collection, "lossless">, path: string, signal: AbortSignal | undefined): Promise<KubeObject> {
    return this.#json(collection, { method: "GET", path, signal });
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
      const { namespace, name } = object.metadata;
      throw new UnreadableEntry(
        `${collection.kind}(${namespace === undefined ? "" : `${namespace}/`}${name})`,
        describeError(error),
      );
    }
  }

  #decodeListed<K extends StoredKey>(collection: Collection<K>, object: KubeObject): Stored<K>[] {
    try {
      if (collection.marked === true && collection.isMarked?.(object) === true) return [];
      const found = this.#decode(collection, object);
      return found === undefined ? [] : [found];
    } catch (error) {
      if (!(error instanceof UnreadableEntry)) throw error;
      this.#onUnreadable(error);
      return [];
    }
  }

  async #getIfThere<K extends StoredKey>(key: K, options: CallOptions): Promise<Stored<K> | undefined> {
    try {
      return await this.get(key, options);
    } catch (error) {
      if (error instanceof NotFound || error instanceof UnreadableEntry) return undefined;
      throw error;
    }
  }

  /** Somebody marked it and died before removing it. */
  async #finishDelete(path: string, object: KubeObject, signal: AbortSignal | undefined): Promise<void> {
    const preconditions = { uid: object.metadata.uid };
    try {
      await this.api.json({
        method: "DELETE",
        path,
        body: { kind: "DeleteOptions", apiVersion: "v1", preconditions },
        signal,
      });
    } catch (error) {
      if (!(error instanceof KubeStatusError && [404, 409].includes(error.code))) throw error;
    }
  }
}

const isKey = (key: StoredKey, kind: KindName): boolean => key.type === "resource" && key.kind === kind;
