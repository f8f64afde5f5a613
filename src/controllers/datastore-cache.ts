// Caches the objects of Calico's datastore that several controllers read (nodes, blocks, pools, reservations, host endpoints,
// readiness), and notifies listeners of changes in batches. All controllers share one cache and one set of watches.
import {
  type Datastore,
  type SyncerUpdate,
  type SyncStatus,
  type WatchedKind,
  WatcherSyncer,
} from "../datastore/index.ts";
import type { Logger } from "../lib/log/log.ts";
import {
  type Block,
  isDatastoreReady,
  keyPath,
  type KindName,
  passThrough,
  type Resource,
  type ResourceKey,
} from "../model/index.ts";

export interface ChangeBatch {
  /** Names of nodes that were created, changed or deleted. */
  readonly nodes: ReadonlySet<string>;
  /** CIDRs of blocks that were created, changed or deleted. */
  readonly blocks: ReadonlySet<string>;
  readonly hostEndpoints: ReadonlySet<string>;
  readonly hasOtherChanges: boolean;
}

export interface DatastoreCacheOptions {
  readonly store: Datastore;
  readonly log: Logger;
  /** Listeners are notified this long after the first change of a batch. */
  readonly batchMs?: number;
  readonly usePodCidr?: boolean;
}

const BATCH_MS = 1000;
const MAX_BATCH = 1000;
const KINDS: readonly KindName[] = ["Node", "ClusterInformation", "IPPool", "IPReservation", "HostEndpoint"];

export class DatastoreCache {
  readonly nodes = new Map<string, Resource>();
  readonly blocks = new Map<string, Block>();
  readonly pools = new Map<string, Resource>();
  readonly reservations = new Map<string, Resource>();
  readonly hostEndpoints = new Map<string, Resource>();
  readonly #options: DatastoreCacheOptions;
  readonly #listeners: ((batch: ChangeBatch) => void)[] = [];
  readonly #inSync = Promise.withResolvers<void>();
  #isInSync = false;
  #isReady = false;
  #dirty = emptyBatch();
  #count = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(options: DatastoreCacheOptions) {
    this.#options = options;
  }

  get isInSync(): boolean {
    return this.#isInSync;
  }
  get inSync(): Promise<void> {
    return this.#inSync.promise;
  }
  /** The cache is complete, and ClusterInformation does not lock the datastore. */
  get isWritable(): boolean {
    return this.#isInSync && this.#isReady;
  }

  /** The listener is first called when the cache is complete. */
  listen(listener: (batch: ChangeBatch) => void): void {
    this.#listeners.push(listener);
  }

  async run(signal: AbortSignal): Promise<void> {
    const { store, log, usePodCidr } = this.#options;
    const kinds = (): WatchedKind[] => [
      ...KINDS.map((kind): WatchedKind => ({ query: { type: "resource", kind }, processor: passThrough })),
      ...(usePodCidr === true ? [] : [{ query: { type: "block" } as const, processor: passThrough }]),
    ];
    const syncer = new WatcherSyncer(store, kinds, { log });
    await syncer.run(
      {
        onStatus: (status) => this.#onStatus(status),
        onUpdates: (updates) => {
          for (const update of updates) this.#store(update);
          this.#flushSoon();
        },
        onUnreadable: (path, reason) => log.warn("datastore entry cannot be read, ignoring it", { path, reason }),
      },
      signal,
    );
    clearTimeout(this.#timer);
  }

  #onStatus(status: SyncStatus): void {
    if (status !== "in-sync" || this.#isInSync) return;
    this.#isInSync = true;
    // Listeners get the first complete state before `inSync` resolves, so that no controller decides on an incomplete one.
    if (this.#count > 0) this.#flush();
    this.#inSync.resolve();
  }

  #store({ key, value }: SyncerUpdate): void {
    this.#count++;
    if (key.type === "block") {
      setOrDelete(this.blocks, key.cidr, value as Block | undefined);
      this.#dirty.blocks.add(key.cidr);
    } else if (key.type === "resource") this.#storeResource(key, value as Resource | undefined);
    else throw new Error(`unexpected key in the datastore cache: ${keyPath(key)}`);
  }

  #storeResource({ kind, name }: ResourceKey, value: Resource | undefined): void {
    switch (kind) {
      case "Node":
        setOrDelete(this.nodes, name, value);
        this.#dirty.nodes.add(name);
        return;
      case "HostEndpoint":
        setOrDelete(this.hostEndpoints, name, value);
        this.#dirty.hostEndpoints.add(name);
        return;
      case "IPPool":
        setOrDelete(this.pools, name, value);
        break;
      case "IPReservation":
        setOrDelete(this.reservations, name, value);
        break;
      case "ClusterInformation":
        if (name === "default") this.#isReady = value !== undefined && isDatastoreReady(value);
    }
    this.#dirty.hasOtherChanges = true;
  }

  #flushSoon(): void {
    if (!this.#isInSync || this.#count === 0) return;
    if (this.#count >= MAX_BATCH) this.#flush();
    else this.#timer ??= setTimeout(() => this.#flush(), this.#options.batchMs ?? BATCH_MS);
  }

  #flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const batch = this.#dirty;
    this.#dirty = emptyBatch();
    this.#count = 0;
    for (const listener of this.#listeners) listener(batch);
  }
}

const emptyBatch = () => ({
  nodes: new Set<string>(),
  blocks: new Set<string>(),
  hostEndpoints: new Set<string>(),
  hasOtherChanges: false,
});

function setOrDelete<V>(map: Map<string, V>, key: string, value: V | undefined): void {
  if (value === undefined) map.delete(key);
  else map.set(key, value);
}
