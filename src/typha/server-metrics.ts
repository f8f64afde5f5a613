// Registers Typha's metrics: numbers of connections, and for each syncer the progress of its clients.
import type { SyncerName } from "../datastore/index.ts";
import type { MetricsRegistry } from "../lib/metrics.ts";
import type { Connection, ConnectionObserver } from "./connection.ts";
import { SYNCER_NAMES } from "./protocol.ts";
import type { SnapshotCache } from "./snapshot-cache.ts";

export class ServerMetrics implements Omit<ConnectionObserver, "onClosed"> {
  accepted = 0;
  dropped = 0;
  active = 0;
  readonly #streaming = new Map<SyncerName, number>();
  readonly #graceUsed = new Map<SyncerName, number>();
  readonly #snapshotSend;
  readonly #latency;
  readonly #writeLatency;
  readonly #pingLatency;
  readonly #recordsPerMessage;

  constructor(registry: MetricsRegistry, caches: ReadonlyMap<SyncerName, SnapshotCache>) {
    const summaries = [
      (this.#snapshotSend = registry.summary("typha_client_snapshot_send_secs", "Time to send the first snapshot.")),
      (this.#latency = registry.summary("typha_client_latency_secs", "Age of a change when it was sent.")),
      (this.#writeLatency = registry.summary("typha_client_write_latency_secs", "Duration of a write to a client.")),
      (this.#pingLatency = registry.summary("typha_ping_latency", "Round trip of a ping.")),
      (this.#recordsPerMessage = registry.summary("typha_kvs_per_msg", "Changes per message.")),
      registry.summary("typha_next_breadcrumb_latency_secs", "Time until the next change was available."),
    ];
    for (const syncer of caches.keys()) for (const summary of summaries) summary.prepare({ syncer });
    const total = (name: string, help: string, read: () => number) =>
      registry.collect(name, help, "counter", () => [[{}, read()]]);
    total("typha_connections_accepted", "Connections accepted.", () => this.accepted);
    total("typha_connections_dropped", "Connections dropped to rebalance clients.", () => this.dropped);
    total("typha_logs_dropped", "Log lines dropped.", () => 0);
    total("typha_log_errors", "Log lines that could not be written.", () => 0);
    registry.collect("typha_connections_active", "Open connections.", "gauge", () => [[{}, this.active]]);
    const each = (
      name: string,
      help: string,
      type: "counter" | "gauge",
      read: (cache: SnapshotCache, syncer: SyncerName) => number,
    ) =>
      registry.collect(name, help, type, () =>
        [...caches].map(([syncer, cache]): [{ syncer: string }, number] => [{ syncer }, read(cache, syncer)]),
      );
    each(
      "typha_connections_streaming",
      "Clients past their handshake.",
      "gauge",
      (_, s) => this.#streaming.get(s) ?? 0,
    );
    each(
      "typha_connections_grace_used",
      "Slow new clients that were spared.",
      "counter",
      (_, s) => this.#graceUsed.get(s) ?? 0,
    );
    each("typha_breadcrumb_seq_number", "Number of the last change.", "gauge", (cache) => cache.head.sequence);
    each(
      "typha_breadcrumb_non_block",
      "Times a client had the next change waiting.",
      "counter",
      (cache) => cache.counts.ready,
    );
    each(
      "typha_breadcrumb_block",
      "Times a client had to wait for the next change.",
      "counter",
      (cache) => cache.counts.waited,
    );
    each("typha_breadcrumb_size", "Changes in the last breadcrumb.", "gauge", (cache) => cache.counts.lastCrumb);
    each("typha_updates_total", "Updates received.", "counter", (cache) => cache.counts.updates);
    each("typha_updates_skipped", "Updates without a change.", "counter", (cache) => cache.counts.skipped);
    each("typha_cache_size", "Entries in the cache.", "gauge", (cache) => cache.size);
    each("typha_snapshots_generated", "Snapshot parts encoded.", "counter", (cache) => cache.counts.framesMade);
    each("typha_snapshots_reused", "Snapshot parts sent again.", "counter", (cache) => cache.counts.framesReused);
    each(
      "typha_snapshot_raw_bytes",
      "Bytes of snapshot parts before compression.",
      "counter",
      (cache) => cache.counts.rawBytes,
    );
    each(
      "typha_snapshot_compressed_bytes",
      "Bytes of snapshot parts as sent.",
      "counter",
      (cache) => cache.counts.packedBytes,
    );
  }

  onHandshake(connection: Connection): void {
    this.#count(this.#streaming, connection, 1);
  }
  onStreamEnd(connection: Connection): void {
    this.#count(this.#streaming, connection, -1);
  }
  onSnapshotSent(connection: Connection, seconds: number): void {
    this.#snapshotSend.observe(seconds, labelsOf(connection));
  }
  onWrite(connection: Connection, seconds: number, records: number): void {
    this.#writeLatency.observe(seconds, labelsOf(connection));
    this.#recordsPerMessage.observe(records, labelsOf(connection));
  }
  onLatency(connection: Connection, seconds: number): void {
    this.#latency.observe(seconds, labelsOf(connection));
  }
  onPong(connection: Connection, seconds: number): void {
    this.#pingLatency.observe(seconds, labelsOf(connection));
  }
  onGraceUsed(connection: Connection): void {
    this.#count(this.#graceUsed, connection, 1);
  }

  #count(counts: Map<SyncerName, number>, { hello }: Connection, amount: number): void {
    if (hello !== undefined) counts.set(hello.syncer, (counts.get(hello.syncer) ?? 0) + amount);
  }
}

const LABELS = new Map(SYNCER_NAMES.map((syncer) => [syncer, { syncer }]));
const labelsOf = ({ hello }: Connection): { readonly syncer: string } =>
  LABELS.get(hello?.syncer ?? "felix") ?? { syncer: "" };
