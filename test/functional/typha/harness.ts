// Provides a server whose cache is filled by the test, and clients that store the updates that they receive.
import type { Syncer, SyncerName, SyncerSink, SyncerUpdate, SyncStatus } from "../../../src/datastore/index.ts";
import { silentLogger } from "../../../src/lib/log/log.ts";
import { MetricsRegistry } from "../../../src/lib/metrics.ts";
import { keyPath, type NetworkSet } from "../../../src/model/index.ts";
import { TyphaSyncer, type TyphaClientOptions } from "../../../src/typha/client.ts";
import { TyphaServer, type TyphaServerOptions } from "../../../src/typha/server.ts";
import { SnapshotCache, type SnapshotCacheOptions } from "../../../src/typha/snapshot-cache.ts";

export const set = (name: string, label: string | undefined, change: SyncerUpdate["change"] = "new"): SyncerUpdate => {
  const value: NetworkSet | undefined =
    label === undefined ? undefined : { nets: [], labels: { label }, profileIds: [] };
  return { key: { type: "networkSet", name }, value, change: value === undefined ? "deleted" : change };
};

export class TestServer implements AsyncDisposable {
  readonly caches: ReadonlyMap<SyncerName, SnapshotCache>;
  readonly metrics = new MetricsRegistry();
  readonly server: TyphaServer;

  static async start(
    options: Partial<TyphaServerOptions> = {},
    cacheOptions: SnapshotCacheOptions = {},
    syncers: readonly SyncerName[] = ["felix", "bgp"],
  ): Promise<TestServer> {
    const started = new TestServer(options, cacheOptions, syncers);
    await started.server.start();
    return started;
  }

  private constructor(
    options: Partial<TyphaServerOptions>,
    cacheOptions: SnapshotCacheOptions,
    syncers: readonly SyncerName[],
  ) {
    this.caches = new Map(syncers.map((name) => [name, new SnapshotCache(cacheOptions)]));
    this.server = new TyphaServer({
      caches: this.caches,
      host: "127.0.0.1",
      port: 0,
      log: silentLogger,
      metrics: this.metrics,
      ...options,
    });
  }

  get felix(): SnapshotCache {
    return this.caches.get("felix")!;
  }
  get address(): { host: string; port: number } {
    return { host: "127.0.0.1", port: this.server.port };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const cache of this.caches.values()) cache.close();
    await this.server.stop();
  }
}

/** Stores the state that results from all received updates. */
export class TestConsumer implements SyncerSink, AsyncDisposable {
  readonly state = new Map<string, unknown>();
  readonly statuses: SyncStatus[] = [];
  readonly log: string[] = [];
  readonly unreadable: string[] = [];
  readonly #aborter = new AbortController();
  #running: Promise<void> = Promise.resolve();

  static run(syncer: Syncer): TestConsumer {
    const consumer = new TestConsumer();
    consumer.#running = syncer.run(consumer, consumer.#aborter.signal);
    return consumer;
  }

  static connect(
    address: { host: string; port: number } | readonly { host: string; port: number }[],
    options: Partial<TyphaClientOptions> = {},
  ): TestConsumer {
    const addresses = Array.isArray(address) ? address : [address];
    const syncer = new TyphaSyncer({
      syncer: "felix",
      hostname: "test",
      find: async () => addresses as readonly { host: string; port: number }[],
      retryMs: 10,
      ...options,
    });
    return TestConsumer.run(syncer);
  }

  get status(): SyncStatus | undefined {
    return this.statuses.at(-1);
  }

  onStatus(status: SyncStatus): void {
    this.statuses.push(status);
  }

  onUpdates(updates: readonly SyncerUpdate[]): void {
    for (const { key, value, change } of updates) {
      const path = keyPath(key);
      this.log.push(`${change} ${path}`);
      if (value === undefined) this.state.delete(path);
      else this.state.set(path, value);
    }
  }

  onUnreadable(path: string): void {
    this.unreadable.push(path);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#aborter.abort();
    await this.#running;
  }
}

export const stateOf = (consumer: TestConsumer): Record<string, unknown> =>
  Object.fromEntries([...consumer.state].sort(([a], [b]) => (a < b ? -1 : 1)));
