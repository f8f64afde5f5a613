// Reads and writes v3 resources: validates them, fills in defaults, and runs the hooks of their kinds. Returned resources
// have their revision in `metadata.resourceVersion`. The caller's objects are never modified.
import { type Logger, silentLogger } from "../../lib/log/log.ts";
import { delay } from "../../lib/retry.ts";
import {
  API_VERSION,
  type KindName,
  loadSchemas,
  type Metadata,
  type Resource,
  type ResourceKey,
  type ResourceOf,
} from "../../model/index.ts";
import type { CallOptions, Datastore, Entry, ReadOptions, Revision, Stored, WatchEvent } from "../datastore.ts";
import {
  AlreadyExists,
  Conflict,
  NotFound,
  Unavailable,
  UnreadableEntry,
  Unsupported,
  ValidationFailed,
} from "../errors.ts";
import { nameOfKey } from "../key-name.ts";
import { bgpPeerHooks } from "./bgp-peer-hooks.ts";
import { type ClusterFacts, ensureInitialized } from "./ensure-initialized.ts";
import type { AddressReleaser, KindHooks, HookContext } from "./kind-hooks.ts";
import { ipPoolHooks } from "./ip-pool-hooks.ts";
import { kubeControllersHooks } from "./kube-controllers-hooks.ts";
import { nodeHooks } from "./node-hooks.ts";
import { policyHooks } from "./policy-hooks.ts";
import { checkCreate, checkUpdate, stamp } from "./preconditions.ts";
import {
  checkScope,
  keysOf,
  nameOf,
  queryOf,
  type ResourceEvent,
  type ResourceList,
  type ResourceName,
  type ResourceQuery,
  resourceEvent,
  toUserView,
} from "./resources.ts";
import { DEFAULT_ALLOW_PROFILE, isStatic } from "./static-profile.ts";
import { tierHooks } from "./tier-hooks.ts";
import { workloadEndpointHooks } from "./workload-endpoint-hooks.ts";

export interface WriteOptions extends CallOptions {
  /** Skips the schema, and the time to load it: for resources that calico-ts has constructed itself. */
  readonly trusted?: boolean;
  /** Skips the checks against other resources: needed to split a pool. */
  readonly unsafe?: boolean;
  readonly ttlSeconds?: number;
}
export interface ClientOptions {
  /** Releases the addresses of deleted pools and nodes. */
  readonly addresses?: AddressReleaser;
  readonly log?: Logger;
  readonly now?: () => Date;
  readonly facts?: ClusterFacts;
  /** Sets `ipipEnabled` and `vxlanEnabled` for agents older than 3.22 that share this datastore. */
  readonly encapsulationInFelixConfiguration?: boolean;
  /** Initializes a new cluster's datastore before the first create or update (not before a delete). */
  readonly initializesBeforeWrite?: boolean;
}

const KIND_HOOKS: Partial<Record<KindName, KindHooks>> = {
  IPPool: ipPoolHooks,
  Node: nodeHooks,
  WorkloadEndpoint: workloadEndpointHooks,
  NetworkPolicy: policyHooks,
  GlobalNetworkPolicy: policyHooks,
  StagedNetworkPolicy: policyHooks,
  StagedGlobalNetworkPolicy: policyHooks,
  Tier: tierHooks,
  BGPPeer: bgpPeerHooks,
  KubeControllersConfiguration: kubeControllersHooks,
};

const MAX_REPLACE_ATTEMPTS = 5;
const REPLACE_RETRY_MS = 100;

export class Client {
  readonly datastore: Datastore;
  readonly #options: ClientOptions;
  #initialized: Promise<void> | undefined;

  constructor(datastore: Datastore, options: ClientOptions = {}) {
    this.datastore = datastore;
    this.#options = options;
  }

  async create<R extends Resource>(resource: R, options: WriteOptions = {}): Promise<ResourceOf<R["kind"]>> {
    await this.#beforeWrite();
    const hooks = KIND_HOOKS[resource.kind] ?? {};
    const prepared = hooks.prepare?.(resource) ?? resource;
    checkCreate(prepared);
    const { kind, metadata } = prepared;
    if (isStatic({ kind, name: metadata.name })) throw new AlreadyExists(`${kind}(${metadata.name})`);
    const checked = await validate(prepared, "create", options);
    const context = this.#context(options);
    const [key, ...older] = keysOf(nameOf(checked));
    for (const other of older) await this.#rejectExisting(other, metadata.name, options);
    await hooks.beforeCreate?.(checked, context);
    const value = { ...checked, metadata: stamp(checked.metadata, this.#options.now ?? (() => new Date())) };
    const stored = await this.datastore.create(entry(key, value, options), options);
    await hooks.afterWrite?.(value, context);
    return toUserView(stored) as ResourceOf<R["kind"]>;
  }

  /** Compare-and-swap on `metadata.resourceVersion`. Without a status, the stored status is kept. */
  update<R extends Resource>(resource: R, options: WriteOptions = {}): Promise<ResourceOf<R["kind"]>> {
    return this.#update(resource, options);
  }

  /** Writes only the status if the datastore separates it from the spec; otherwise the whole resource. */
  updateStatus<R extends Resource>(resource: R, options: WriteOptions = {}): Promise<ResourceOf<R["kind"]>> {
    return this.#update(resource, options, "status");
  }

  /** Creates or replaces the resource. A `metadata.resourceVersion` must be the stored one. */
  async apply<R extends Resource>(resource: R, options: WriteOptions = {}): Promise<ResourceOf<R["kind"]>> {
    const { resourceVersion: _, ...metadata } = resource.metadata;
    try {
      return await this.create({ ...resource, metadata }, options);
    } catch (error) {
      if (!(error instanceof AlreadyExists || error instanceof Unsupported)) throw error;
      return this.replace(resource, options);
    }
  }

  /**
   * Updates a resource that was not read before: keeps the stored UID and creation time, and sets the given spec, labels
   * and annotations. A `metadata.resourceVersion` must be the stored one; without it, a concurrent write causes a retry.
   */
  async replace<R extends Resource>(resource: R, options: WriteOptions = {}): Promise<ResourceOf<R["kind"]>> {
    const { metadata } = resource;
    const name = nameOf(resource);
    const wanted = metadata.resourceVersion;
    for (let attempt = 1; ; attempt++) {
      const { metadata: current } = await this.get(name, options);
      if (wanted !== undefined && wanted !== current.resourceVersion)
        throw new Conflict(nameOfKey({ ...keysOf(name)[0], name: metadata.name }));
      try {
        return await this.update({ ...resource, metadata: replacedMetadata(current, metadata) }, options);
      } catch (error) {
        if (!(error instanceof Conflict) || wanted !== undefined || attempt >= MAX_REPLACE_ATTEMPTS) throw error;
        await delay(REPLACE_RETRY_MS * attempt, options.signal);
      }
    }
  }

  /** @returns the deleted resource */
  async delete<K extends KindName>(
    name: ResourceName<K>,
    options: CallOptions & { readonly revision?: Revision; readonly uid?: string } = {},
  ): Promise<ResourceOf<K>> {
    if (isStatic(name))
      throw new Unsupported("delete", `${name.kind}(${name.name})`, "it is built in and cannot be deleted");
    checkScope(name);
    const { signal, revision } = options;
    const hooks = KIND_HOOKS[name.kind];
    const found =
      hooks?.beforeDelete === undefined
        ? undefined
        : await this.#findToDelete(name, signal === undefined ? {} : { signal });
    if (found !== undefined && revision !== undefined && revision !== "" && ![revision, ""].includes(found.revision))
      throw new Conflict(nameOfKey(found.key), found);
    const rewritten = found === undefined ? undefined : await hooks?.beforeDelete?.(found, this.#context(options));
    const at = rewritten ?? revision;
    const removal = {
      signal,
      ...(at !== undefined && at !== "" && { revision: at }),
      uid: options.uid,
    };
    return this.#atKey(name, async (key) => {
      const removed = await this.datastore.delete(found?.key ?? key, removal);
      const value = removed.value ?? placeholder(name);
      return toUserView({ key: removed.key, value, revision: removed.revision }) as ResourceOf<K>;
    });
  }

  async get<K extends KindName>(name: ResourceName<K>, options: ReadOptions = {}): Promise<ResourceOf<K>> {
    if (isStatic(name)) return DEFAULT_ALLOW_PROFILE as ResourceOf<K>;
    checkScope(name);
    return toUserView(await this.#find(name, options)) as ResourceOf<K>;
  }

  async list<K extends KindName>(query: ResourceQuery<K>, options: ReadOptions = {}): Promise<ResourceList<K>> {
    const { items, revision } = await this.datastore.list(queryOf(query), options);
    const { name, namePrefix } = query;
    const resources = items
      .map((item) => toUserView(item as Stored<ResourceKey>))
      // A policy may be stored under an older name than the requested one, so its name is compared here.
      .filter((r) => (name ?? r.metadata.name) === r.metadata.name && r.metadata.name.startsWith(namePrefix ?? ""));
    const includesStatic =
      query.kind === "Profile" && (name ?? DEFAULT_ALLOW_PROFILE.metadata.name) === DEFAULT_ALLOW_PROFILE.metadata.name;
    const all = includesStatic && namePrefix === undefined ? [...resources, DEFAULT_ALLOW_PROFILE] : resources;
    return { items: all as unknown as ResourceOf<K>[], revision };
  }

  /** Yields the changes after a revision; without one, all existing resources first. Ends when the signal aborts. */
  async *watch<K extends KindName>(
    query: ResourceQuery<K>,
    options: { readonly after?: Revision; readonly signal: AbortSignal },
  ): AsyncGenerator<readonly ResourceEvent<K>[]> {
    await using watch = await this.datastore.watch(queryOf(query), options);
    for await (const batch of watch) yield batch.map((event) => resourceEvent<K>(event as WatchEvent<ResourceKey>));
  }

  /** Creates the entries that every cluster's datastore has: ClusterInformation and the built-in tiers. */
  ensureInitialized(facts: ClusterFacts = this.#options.facts ?? {}, signal?: AbortSignal): Promise<void> {
    return ensureInitialized(this.datastore, facts, signal);
  }

  /** Ignores errors: a client without permission to create ClusterInformation and tiers may still write other kinds. */
  #beforeWrite(): Promise<void> | undefined {
    if (this.#options.initializesBeforeWrite !== true) return undefined;
    this.#initialized ??= this.ensureInitialized().catch((error: unknown) => {
      if (error instanceof Unavailable) throw error; // the write would fail too
    });
    return this.#initialized;
  }

  async #update<R extends Resource>(
    resource: R,
    options: WriteOptions,
    subresource?: "status",
  ): Promise<ResourceOf<R["kind"]>> {
    await this.#beforeWrite();
    const hooks = KIND_HOOKS[resource.kind] ?? {};
    const prepared = hooks.prepare?.(resource) ?? resource;
    const name = nameOf(prepared);
    // Comes first: the built-in resource has no UID and creation time, so `checkUpdate` would report these.
    if (isStatic(name))
      throw new Unsupported("update", `${name.kind}(${name.name})`, "it is built in and cannot be changed");
    checkUpdate(prepared);
    const checked = await validate(prepared, "update", options, () => this.#find(name, options));
    const context = this.#context(options);
    const stored = await this.#atKey(name, async (key) => {
      const keepsStatus = prepared.status === undefined;
      const current =
        keepsStatus || hooks.beforeUpdate !== undefined ? (await this.datastore.get(key, options)).value : undefined;
      if (current !== undefined) await hooks.beforeUpdate?.(checked, current, context);
      const status = keepsStatus ? (current?.status ?? checked.status) : checked.status;
      const value = status === undefined ? checked : { ...checked, status };
      const revision = resource.metadata.resourceVersion ?? "";
      return this.datastore.update(
        { ...entry(key, value, options), revision },
        { ...options, ...(subresource && { subresource }) },
      );
    });
    await hooks.afterWrite?.(stored.value, context);
    return toUserView(stored) as ResourceOf<R["kind"]>;
  }

  #find(name: ResourceName, options: ReadOptions): Promise<Stored<ResourceKey>> {
    return this.#atKey(name, (key) => this.datastore.get(key, options));
  }

  /** An entry that cannot be parsed can be deleted too: the hooks receive a resource with only its name and no revision. */
  async #findToDelete(name: ResourceName, options: ReadOptions): Promise<Stored<ResourceKey>> {
    try {
      return await this.#find(name, options);
    } catch (error) {
      if (error instanceof NotFound && KIND_HOOKS[name.kind]?.runsBeforeDeleteIfMissing === true)
        return { key: keysOf(name)[0], value: placeholder(name), revision: "" };
      if (!(error instanceof UnreadableEntry) || error.key?.type !== "resource") throw error;
      return { key: error.key, value: placeholder(name), revision: "" };
    }
  }

  /** Calls `run` with the key under which the resource is stored: older releases stored policies under other names. */
  async #atKey<T>(name: ResourceName, run: (key: ResourceKey) => Promise<T>): Promise<T> {
    const [first, ...older] = keysOf(name);
    try {
      return await run(first);
    } catch (error) {
      if (!(error instanceof NotFound)) throw error;
      for (const key of older)
        try {
          await this.#confirm(key, name);
          return await run(key);
        } catch (again) {
          if (!(again instanceof NotFound)) throw again;
        }
      throw error;
    }
  }

  /** Checks that the policy stored under an older name is the requested one, and not another that has this name. */
  async #confirm(key: ResourceKey, { name }: ResourceName): Promise<void> {
    try {
      if ((await this.datastore.get(key)).value.metadata.name !== name) throw new NotFound(nameOfKey({ ...key, name }));
    } catch (error) {
      if (!(error instanceof UnreadableEntry)) throw error; // it may be the requested one, and it must be possible to delete it
    }
  }

  async #rejectExisting(key: ResourceKey, name: string, options: CallOptions): Promise<void> {
    try {
      const existing = await this.datastore.get(key, options);
      if (existing.value.metadata.name !== name) return;
      throw new AlreadyExists(nameOfKey({ ...key, name: existing.value.metadata.name }), existing);
    } catch (error) {
      if (!(error instanceof NotFound)) throw error;
    }
  }

  #context(options: WriteOptions): HookContext {
    return {
      store: this.datastore,
      addresses: this.#options.addresses,
      log: this.#options.log ?? silentLogger,
      signal: options.signal,
      unsafe: options.unsafe ?? false,
      encapsulationInFelixConfiguration: this.#options.encapsulationInFelixConfiguration ?? false,
      ensureInitialized: () => this.ensureInitialized(undefined, options.signal),
    };
  }
}

function replacedMetadata(stored: Metadata, given: Metadata): Metadata {
  const { labels: _labels, annotations: _annotations, ...identity } = stored;
  const { labels, annotations } = given;
  return {
    ...identity,
    ...(labels === undefined ? {} : { labels }),
    ...(annotations === undefined ? {} : { annotations }),
  };
}

/** Stands for a resource whose value cannot be parsed. */
const placeholder = ({ kind, name }: ResourceName): Resource => ({
  apiVersion: API_VERSION,
  kind,
  metadata: { name },
  spec: {},
});

/** @param find returns the stored resource; its fields that the schema does not contain are kept */
async function validate(
  resource: Resource,
  mode: "create" | "update",
  options: WriteOptions,
  find?: () => Promise<Stored<ResourceKey>>,
): Promise<Resource> {
  if (options.trusted === true) return resource;
  const { validateResource } = await loadSchemas();
  const first = await validateResource(resource, { mode });
  if (first.ok) return first.resource;
  const stored = await find?.().catch(() => undefined); // report the validation error instead
  const second = stored === undefined ? first : await validateResource(resource, { mode, stored: stored.value });
  if (!second.ok) throw new ValidationFailed(second.faults);
  return second.resource;
}

const entry = (key: ResourceKey, value: Resource, { ttlSeconds }: WriteOptions): Entry<ResourceKey> => ({
  key,
  value,
  ttlSeconds,
});
