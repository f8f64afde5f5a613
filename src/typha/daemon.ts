// Wires the parts of Typha:
//
//   datastore ──► syncer ──► validation filter ──► snapshot cache ──► server ──► clients
//                  (once for each syncer)                                ▲
//                                       limit of connections ────────────┘     health and metrics pages
import {
  Client,
  chooseDatastore,
  configFromEnvironment,
  createSyncer,
  type Datastore,
  endpointSliceLister,
  openDatastore,
  type SyncerName,
  type SyncerSink,
  ValidationFilter,
} from "../datastore/index.ts";
import { HealthAggregator } from "../lib/http/health.ts";
import type { Logger } from "../lib/log/log.ts";
import { MetricsRegistry } from "../lib/metrics.ts";
import { healthPages, metricsPages, type PageServer, servePages } from "../lib/http/pages.ts";
import { addProcessMetrics } from "../lib/process/process-metrics.ts";
import { delay } from "../lib/retry.ts";
import { loadSchemas, type ResourceSchema, type SchemaKind } from "../model/index.ts";
import type { TyphaConfig } from "./config.ts";
import { SYNCER_NAMES } from "./protocol.ts";
import { rebalance } from "./rebalance.ts";
import { TyphaServer } from "./server.ts";
import { SnapshotCache } from "./snapshot-cache.ts";
import { checkTlsSettings, loadContext } from "./tls.ts";

export interface DaemonOptions {
  readonly config: TyphaConfig;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly log: Logger;
  readonly version: string;
}

const DEFAULT_PORT = 5473;
const RETRY_MS = 1_000;
const INITIALIZE_MS = 30_000;
const HEALTH_REPORT_MS = 10_000;
const HEALTH_LATE_MS = 20_000;
/** Changes are batched for this time per client, because every crumb costs work for each client. */
const PACE_PER_CLIENT_MS = 0.01;
const MAX_PACE_MS = 50;

export class TyphaDaemon {
  readonly #options: DaemonOptions;
  readonly #aborter = new AbortController();
  readonly #running: Promise<unknown>[] = [];
  readonly #pages: PageServer[] = [];
  readonly caches: ReadonlyMap<SyncerName, SnapshotCache>;
  readonly health = new HealthAggregator();
  readonly metrics = new MetricsRegistry();
  readonly server: TyphaServer;
  readonly #nodes = new Set<string>();
  #datastore: Datastore | undefined;

  constructor(options: DaemonOptions) {
    this.#options = options;
    const { config, log, env, version } = options;
    const paceMs = () => Math.min(MAX_PACE_MS, this.server.connectionCount * PACE_PER_CLIENT_MS);
    const memoryMs = 2 * Math.max(config.ServerMaxFallBehindSecs, config.ServerNewClientFallBehindGracePeriod);
    const maxBatch = config.SnapshotCacheMaxBatchSize;
    this.caches = new Map(SYNCER_NAMES.map((name) => [name, new SnapshotCache({ maxBatch, paceMs, memoryMs })]));
    const tls = checkTlsSettings(
      {
        keyFile: config.ServerKeyFile,
        certFile: config.ServerCertFile,
        caFile: config.CAFile,
        commonName: config.ClientCN,
        uriSan: config.ClientURISAN,
      },
      "client",
    );
    this.server = new TyphaServer({
      caches: this.caches,
      host: config.ServerHost,
      port: config.ServerPort === 0 ? DEFAULT_PORT : config.ServerPort,
      tls,
      maxRecords: config.ServerMaxMessageSize,
      maxConnections: config.MaxConnectionsUpperLimit,
      timings: {
        handshakeMs: config.ServerHandshakeTimeoutSecs,
        writeMs: config.ServerWriteTimeoutSecs,
        pingMs: config.ServerPingIntervalSecs,
        pongMs: config.ServerPongTimeoutSecs,
        maxFallBehindMs: config.ServerMaxFallBehindSecs,
        newClientGraceMs: config.ServerNewClientFallBehindGracePeriod,
        dropIntervalMs: config.ConnectionDropIntervalSecs,
        shutdownMs: config.ShutdownTimeoutSecs,
        shutdownDropIntervalMs: config.ShutdownConnectionDropIntervalMaxSecs,
      },
      log,
      metrics: this.metrics,
      version,
      env,
    });
    if (config.PrometheusProcessMetricsEnabled) addProcessMetrics(this.metrics, new Date());
  }

  /** Returns when clients are served. Retries while the datastore does not answer. */
  async start(): Promise<void> {
    const { log } = this.#options;
    const { signal } = this.#aborter;
    const datastore = await this.#retry("cannot open the datastore; retrying", () => this.#open());
    this.#datastore = datastore;
    await this.#retry("cannot initialize the datastore; retrying", () =>
      new Client(datastore).ensureInitialized(
        // In Kubernetes, only calico-kube-controllers updates an existing ClusterInformation.
        { clusterType: "typha", createOnly: datastore.name === "kubernetes" },
        AbortSignal.timeout(INITIALIZE_MS),
      ),
    );
    const usePodCidr = configFromEnvironment(this.#options.env).usePodCIDR ?? false;
    const schemas = await loadAllSchemas();
    for (const [name, cache] of this.caches) {
      // WorkloadSourceSpoofing is a setting of each Felix.
      const filter = new ValidationFilter({ log, schemas, allowSpoofing: true });
      const syncer = createSyncer(name, datastore, { usePodCidr, log: log.with({ syncer: name }) });
      this.#running.push(syncer.run(filter.before(name === "felix" ? this.#countNodes(cache) : cache), signal));
    }
    this.#reportHealth();
    this.#collectGarbageOnceInSync();
    await this.server.start();
    log.info("serving", { port: this.server.port });
    await this.#servePages();
    this.#rebalance();
  }

  /** Disconnects the clients gradually, then stops. */
  async shutDown(): Promise<void> {
    await this.server.shutDown();
    await this.stop();
  }

  async stop(): Promise<void> {
    this.#aborter.abort();
    await this.server.stop();
    for (const cache of this.caches.values()) cache.close();
    await Promise.allSettled(this.#running);
    for (const pages of this.#pages) await pages[Symbol.asyncDispose]();
    await this.#datastore?.close();
  }

  /** etcd's address comes from Typha's settings, or else from those of all programs, or else is on this host. */
  #open(): Promise<Datastore> {
    const { config, env } = this.#options;
    const shared = configFromEnvironment(env);
    const { DatastoreType: datastoreType, EtcdKeyFile, EtcdCertFile, EtcdCaFile } = config;
    const own = config.EtcdEndpoints.length > 0 ? config.EtcdEndpoints.join() : undefined;
    const etcdEndpoints = own ?? shared.etcdEndpoints ?? `${config.EtcdScheme}://${config.EtcdAddr}`;
    const api = {
      ...shared,
      datastoreType,
      ...(datastoreType === "etcdv3" && shared.etcdDiscoverySrv === undefined && { etcdEndpoints }),
      ...(EtcdKeyFile !== "" && { etcdKeyFile: EtcdKeyFile }),
      ...(EtcdCertFile !== "" && { etcdCertFile: EtcdCertFile }),
      ...(EtcdCaFile !== "" && { etcdCACertFile: EtcdCaFile }),
    };
    return openDatastore(chooseDatastore(api, { env }), { mustExist: true, log: this.#options.log });
  }

  async #retry<T>(message: string, attempt: () => Promise<T>): Promise<T> {
    for (;;)
      try {
        return await attempt();
      } catch (error) {
        this.#aborter.signal.throwIfAborted();
        this.#options.log.warn(message, { error });
        await delay(RETRY_MS, this.#aborter.signal);
      }
  }

  /** Counts the nodes in the updates for the cache. */
  #countNodes(next: SyncerSink): SyncerSink {
    return {
      onStatus: (status) => next.onStatus(status),
      onUpdates: (updates) => {
        for (const { key, value } of updates)
          if (key.type === "resource" && key.kind === "Node")
            if (value === undefined) this.#nodes.delete(key.name);
            else this.#nodes.add(key.name);
        next.onUpdates(updates);
      },
    };
  }

  #reportHealth(): void {
    const serverReport = this.health.register("SyncServer", { live: true }, HEALTH_LATE_MS);
    const reports = [() => serverReport({ live: true })];
    for (const [name, cache] of this.caches) {
      const report = this.health.register(`${name}-cache`, { live: true, ready: true }, HEALTH_LATE_MS);
      const reportCache = () => report({ live: true, ready: cache.isInSync, detail: cache.head.status });
      let reportedStatus = "";
      cache.subscribe(() => {
        if (reportedStatus !== cache.head.status) reportCache();
        reportedStatus = cache.head.status;
      });
      reports.push(reportCache);
    }
    const reportAll = () => {
      for (const report of reports) report();
    };
    reportAll();
    const timer = setInterval(reportAll, HEALTH_REPORT_MS);
    this.#aborter.signal.addEventListener("abort", () => clearInterval(timer), { once: true });
  }

  /** The first lists leave several times more garbage than live data, which the runtime would not collect for a long time. */
  #collectGarbageOnceInSync(): void {
    const subscriptions = [...this.caches.values()].map((cache) =>
      cache.subscribe(() => {
        if (![...this.caches.values()].every(({ isInSync }) => isInSync)) return;
        for (const unsubscribe of subscriptions) unsubscribe();
        setImmediate(() => Bun.gc(true));
      }),
    );
  }

  async #servePages(): Promise<void> {
    const { config, env } = this.#options;
    if (config.HealthEnabled) {
      const { HealthHost: host, HealthPort: port } = config;
      this.#pages.push(await servePages({ host, port, pages: healthPages(this.health) }));
    }
    if (!config.PrometheusMetricsEnabled) return;
    const { PrometheusMetricsHost: host, PrometheusMetricsPort: port } = config;
    const tls = metricsTls(config, env);
    this.#pages.push(await servePages({ host, port, pages: metricsPages(this.metrics), ...(tls && { tls }) }));
  }

  #rebalance(): void {
    const { config, env, log } = this.#options;
    if (config.ConnectionRebalancingMode !== "kubernetes") return;
    const felix = this.caches.get("felix");
    const kubernetes = chooseDatastore({ ...configFromEnvironment(env), datastoreType: "kubernetes" }, { env });
    if (kubernetes.type !== "kubernetes") return;
    const lister = endpointSliceLister(kubernetes, env);
    const work = rebalance(
      {
        limits: { lower: config.MaxConnectionsLowerLimit, upper: config.MaxConnectionsUpperLimit },
        pipelines: this.caches.size,
        pollMs: config.K8sServicePollIntervalSecs,
        countTyphas: async () => {
          const slices = await (await lister)(config.K8sNamespace, config.K8sServiceName);
          const withPort = slices.filter(({ ports }) => ports?.some(({ name }) => name === config.K8sPortName));
          return new Set(withPort.flatMap((slice) => (slice.endpoints ?? []).flatMap((e) => e.addresses))).size;
        },
        countNodes: () => {
          if (felix?.isInSync !== true) throw new Error("the nodes have not been listed yet");
          return this.#nodes.size;
        },
        apply: (limit) => {
          log.info("changed the limit of connections", { limit });
          this.server.limitConnections(limit);
        },
        log,
      },
      this.#aborter.signal,
    );
    this.#running.push(work);
  }
}

/** Loaded at the start, because the filter cannot wait for a schema. */
async function loadAllSchemas(): Promise<ReadonlyMap<string, ResourceSchema>> {
  const { SCHEMA_KINDS, loadSchema } = await loadSchemas();
  const load = async (kind: SchemaKind) => [kind, (await loadSchema(kind)) as ResourceSchema] as const;
  return new Map(await Promise.all(SCHEMA_KINDS.map(load)));
}

/** HTTPS when a certificate or key is set. */
function metricsTls(config: TyphaConfig, env: Readonly<Record<string, string | undefined>>) {
  const { PrometheusMetricsCertFile: certFile, PrometheusMetricsKeyFile: keyFile } = config;
  if (certFile === "" && keyFile === "") return undefined;
  const context = loadContext({ certFile, keyFile, caFile: config.PrometheusMetricsCAFile || certFile }, env);
  return { context, clientAuth: config.PrometheusMetricsClientAuth };
}
