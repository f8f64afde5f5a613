// What Calico's datastore holds that several controllers look at: nodes, blocks, pools, reservations, host endpoints, and
// whether it may be written. One copy for all of them; who listens is told in batches what changed.
import {
  type Datastore,
  type SyncerUpdate,
  type SyncStatus,
  type WatchedKind,
  WatcherSyncer,
} from "../datastore/index.ts";
import type { Logger } from "../lib/log.ts";
import {
  type Block,
  type KindName,
  keyPath,
  passThrough,
  type Resource,
  type ResourceKey,
  type SpecOf,
} from "../model/index.ts";

export interface FeedBatch {
  /** Names of nodes that came, changed or went. */
  readonly nodes: ReadonlySet<string>;
  /** CIDRs. */
  readonly blocks: ReadonlySet<string>;
  readonly hostEndpoints: ReadonlySet<string>;
  readonly hasOtherChanges: boolean;
}

export interface FeedOptions {
  readonly store: Datastore;
  readonly log: Logger;
  /** Changes of this long are told together. */
  readonly batchMs?: number;
  readonly usePodCidr?: boolean;
}

const BATCH_MS = 1000;
const MAX_BATCH = 1000;
const KINDS: readonly KindName[] = ["Node", "ClusterInformation", "IPPool", "IPReservation", "HostEndpoint"];

export class Feed {
  readonly nodes = new Map<string, Resource>();
  readonly blocks = new Map<string, Block>();
  readonly pools = new Map<string, Resource>();
  readonly reservations = new Map<string, Resource>();
  readonly hostEndpoints = new Map<string, Resource>();
  readonly #options: FeedOptions;
  readonly #listeners: ((batch: FeedBatch) => void)[] = [];
  readonly #inSync = Promise.withResolvers<void>();
  #isInSync = false;
  #isReady = false;
  #dirty = emptyBatch();
  #count = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(options: FeedOptions) {
    this.#options = options;
  }

  get isInSync(): boolean {
    return this.#isInSync;
  }
  get inSync(): Promise<void> {
    return this.#inSync.promise;
  }
  /** The datastore is in sync with us and nobody has locked it. */
  get isWritable(): boolean {
    return this.#isInSync && this.#isReady;
  }

  /** Told of nothing before the first complete picture. */
  listen(listener: (batch: FeedBatch) => void): void {
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
          for (const update of updates) this.#take(update);
          this.#flushSoon();
        },
        onUnreadable: (path, reason) => log.warn("an entry of the datastore cannot be read", { path, reason }),
      },
      signal,
    );
    clearTimeout(this.#timer);
  }

  #onStatus(status: SyncStatus): void {
    if (status !== "in-sync" || this.#isInSync) return;
    this.#isInSync = true;
    // The first complete picture is told at once: nobody who sees that we are in sync may judge by less.
    if (this.#count > 0) this.#flush();
    this.#inSync.resolve();
  }

  #take({ key, value }: SyncerUpdate): void {
    this.#count++;
    if (key.type === "block") {
      put(this.blocks, key.cidr, value as Block | undefined);
      this.#dirty.blocks.add(key.cidr);
    } else if (key.type === "resource") this.#takeResource(key, value as Resource | undefined);
    else throw new Error(`the feed does not know what to do with ${keyPath(key)}`);
  }

  #takeResource({ kind, name }: ResourceKey, value: Resource | undefined): void {
    switch (kind) {
      case "Node":
        put(this.nodes, name, value);
        this.#dirty.nodes.add(name);
        return;
      case "HostEndpoint":
        put(this.hostEndpoints, name, value);
        this.#dirty.hostEndpoints.add(name);
        return;
      case "IPPool":
        put(this.pools, name, value);
        break;
      case "IPReservation":
        put(this.reservations, name, value);
        break;
      case "ClusterInformation":
        if (name === "default")
          this.#isReady = (value?.spec as SpecOf<"ClusterInformation"> | undefined)?.datastoreReady ?? false;
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

function put<V>(map: Map<string, V>, key: string, value: V | undefined): void {
  if (value === undefined) map.delete(key);
  else map.set(key, value);
}
