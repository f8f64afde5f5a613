// Runs the controllers once: reads the configuration, waits for the leader lease, starts the controllers, and returns when the
// configuration changes or the lease is lost.
//
//   environment ─┐
//   KubeControllersConfiguration ─► RunningConfig ─► leader? ─► policy, namespace, serviceaccount, workloadendpoint  (etcd)
//                                                              node: deletion, labels (etcd); host endpoints; addresses
//                                                              load balancer addresses, compaction (etcd), policy names
//                                                              certificates (Kubernetes datastore)
import { readFileSync } from "node:fs";
import {
  type AddressReleaser,
  chooseDatastore,
  Client,
  configFromEnvironment,
  type Datastore,
  type Environment,
  InvalidConfig,
  type KubeApi,
  openDatastore,
  openKubeApi,
  recordVersion,
} from "../datastore/index.ts";
import { Ipam } from "../ipam/index.ts";
import { HealthAggregator } from "../lib/http/health.ts";
import { describeError, type Logger, type LogLevel } from "../lib/log/log.ts";
import { MetricsRegistry } from "../lib/metrics.ts";
import { healthPages, metricsPages } from "../lib/http/pages.ts";
import { addProcessMetrics } from "../lib/process/process-metrics.ts";
import { delay } from "../lib/retry.ts";
import { type CertificateTimings, startCertificates } from "./certificates/start.ts";
import { compactPeriodically } from "./compaction.ts";
import type { RunningConfig } from "./configuration.ts";
import { ConfigurationWatcher } from "./configuration-watcher.ts";
import { namespaceCopies, policyCopies, serviceAccountCopies } from "./copies.ts";
import { EndpointLabels } from "./endpoint-labels.ts";
import { type EnvironmentSettings, type LogSeverity, readEnvironment } from "./environment.ts";
import { DatastoreCache } from "./datastore-cache.ts";
import { HEALTH_TIMINGS, HealthStatus, watchHealth } from "./health-status.ts";
import { startLoadBalancer } from "./load-balancer/start.ts";
import { Leadership, type LeaderTimings, leaderTimings, NotLeader } from "./leader-election.ts";
import { startNative } from "./native/start.ts";
import { startNodeControllers } from "./node-controllers.ts";
import { servePagesOn } from "./pages.ts";
import { migrateWhenRolledOut } from "./policy-names.ts";

export interface RunOptions {
  readonly env: Environment;
  readonly statusFile: string;
  /** 0 = none. */
  readonly healthPort: number;
  readonly logger: (level: LogLevel | "none") => Logger;
  /** If true, waits without a time limit for a datastore that does not answer. */
  readonly isRestart?: boolean;
  /** Shorter in tests. */
  readonly timings?: {
    readonly startupMs?: number;
    readonly batchMs?: number;
    readonly leader?: LeaderTimings;
    readonly certificates?: CertificateTimings;
  };
}

/** Ends the program with its message, because a retry is useless or the time for retries is over. */
export class StartupFailure extends Error {
  override readonly name = "StartupFailure";
}

const STARTUP_MS = 60_000;
const STARTUP_RETRY_MS = 5_000;
const NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
const LEASE = "calico-kube-controllers";

/** Returns when the configuration changes, when the leader lease is lost, or when `signal` aborts. */
export async function runControllers(options: RunOptions, signal: AbortSignal): Promise<void> {
  const { env } = options;
  const environment = readEnvironment(env);
  const startLog = options.logger(levelOf(environment.logSeverity ?? "Info"));
  const startedAt = new Date();
  // Only the leader may write. Its lease may have expired since the last check if the process was paused (a stopped virtual
  // machine, a long garbage collection), so the lease is checked right before each write is sent.
  let leadership: Leadership | undefined = undefined as Leadership | undefined;
  const beforeWrite = () => {
    if (leadership?.isLeader === false) throw new NotLeader();
  };
  const health = new HealthAggregator();
  const healthStatus = new HealthStatus(options.statusFile, health, startLog);
  healthStatus.set("Startup", false, "initialising datastore");
  const limits = { attemptMs: options.timings?.startupMs ?? STARTUP_MS, isEndless: options.isRestart === true };
  const starting = { healthStatus, log: startLog, limits };
  await using opened = await retryStartup("opened", () => open(env, startLog, beforeWrite), starting, signal);
  const { store, api } = opened;
  const client = clientOf(store, env, startLog);
  await retryStartup("initialised", (limit) => client.ensureInitialized(undefined, limit), starting, signal);
  leadership = new Leadership({
    api: opened.leases,
    namespace: namespaceOf(env, "kube-system"),
    name: LEASE,
    log: startLog,
    timings: options.timings?.leader ?? leaderTimings(environment.leaseMs),
  });
  const watcher = new ConfigurationWatcher(client, environment, startLog);
  const effective = await watcher.readFirst(signal);
  const { config } = effective;
  const log = options.logger(levelOf(config.logSeverity));
  const registry = new MetricsRegistry();
  addProcessMetrics(registry, startedAt);
  await using _health = await servePagesOn("health", options.healthPort, healthPages(health), log);
  await using _metrics = await servePagesOn("metrics", config.metricsPort, metricsPages(registry), log);
  healthStatus.set("Startup", true);

  const stop = new AbortController();
  const until = AbortSignal.any([signal, stop.signal]);
  const tasks: Promise<void>[] = [];
  const timings = { ...HEALTH_TIMINGS, periodMs: environment.healthMs ?? HEALTH_TIMINGS.periodMs };
  if (config.healthChecks) tasks.push(watchHealth({ client, api, healthStatus, log, timings }, until));
  try {
    // A replica that waits for the lease also restarts when the configuration changes.
    const waiting = new AbortController();
    const whileWaiting = AbortSignal.any([until, waiting.signal]);
    await Promise.race([leadership.acquire(until), watcher.waitForChange(effective, whileWaiting)]);
    waiting.abort();
    if (until.aborted || !leadership.isLeader) return;
    // With the Kubernetes datastore, calico-node may create the ClusterInformation but not update it, so kube-controllers
    // records the version. With other datastores, calico-node does.
    if (store.name === "kubernetes")
      await recordVersion(client).catch((error: unknown) =>
        log.warn("cannot record the version of calico-ts in ClusterInformation", { error: describeError(error) }),
      );
    tasks.push(...startAll({ config, environment, env, store, api, client, log, registry, options }, until));
    await Promise.race([watcher.keepStatus(effective, until), leadership.hold(until)]);
  } finally {
    stop.abort();
    await Promise.allSettled(tasks);
    await leadership.release();
  }
}

interface Parts {
  readonly config: RunningConfig;
  readonly environment: EnvironmentSettings;
  readonly env: Environment;
  readonly store: Datastore;
  readonly api: KubeApi;
  readonly client: Client;
  readonly log: Logger;
  readonly registry: MetricsRegistry;
  readonly options: RunOptions;
}

function startAll(parts: Parts, signal: AbortSignal): Promise<void>[] {
  const { config, env, store, api, client, log } = parts;
  const workers = (variable: string) => Math.max(1, Number.parseInt(env[variable] ?? "1", 10) || 1);
  const running: Promise<void>[] = [];
  const copies = [
    { section: config.policy, create: policyCopies, workers: workers("POLICY_WORKERS") },
    { section: config.namespace, create: namespaceCopies, workers: workers("PROFILE_WORKERS") },
    { section: config.serviceAccount, create: serviceAccountCopies, workers: workers("PROFILE_WORKERS") },
  ];
  for (const { section, create, workers: count } of copies) {
    if (section === undefined) continue;
    const { source, mirror } = create({ api, client, log, workers: count, ...section });
    running.push(source.run(signal), mirror.run(signal));
  }
  if (config.workloadEndpoint !== undefined)
    running.push(
      new EndpointLabels({
        api,
        client,
        log,
        workers: workers("WORKLOAD_ENDPOINT_WORKERS"),
        ...config.workloadEndpoint,
      }).run(signal),
    );
  if (config.node !== undefined || config.loadBalancer !== undefined) {
    const usePodCidr = env["USE_POD_CIDR"] === "true";
    const batchMs = parts.options.timings?.batchMs;
    const cache = new DatastoreCache({ store, log, usePodCidr, batchMs });
    const shared = { ...parts, cache, usePodCidr, batchMs };
    running.push(...startNodeControllers(shared, signal), ...startLoadBalancer(shared, signal), cache.run(signal));
  }
  running.push(...startNative({ store, api, log }, signal));
  if (store.name === "kubernetes")
    running.push(
      ...startCertificates(
        {
          api,
          namespace: namespaceOf(env, "kube-system"),
          users: parts.environment.certificateUsers ?? [],
          log,
          timings: parts.options.timings?.certificates,
        },
        signal,
      ),
    );
  running.push(compactPeriodically({ store, periodMs: config.compactionPeriodMs, log }, signal));
  if (config.policyNameMigrator)
    running.push(migrateWhenRolledOut({ api, store, log, namespace: namespaceOf(env, "calico-system") }, signal));
  return running;
}

/** The client `leases` writes the leader lease; it does not call `beforeWrite`, because it must write before this replica leads. */
async function open(env: Environment, log: Logger, beforeWrite: () => void) {
  const settings = configFromEnvironment(env);
  const chosen = chooseDatastore(settings, { env });
  if (chosen.type === "sqlite") throw new StartupFailure("the controllers need etcd or Kubernetes: set DATASTORE_TYPE");
  const kubernetes = chooseDatastore({ ...settings, datastoreType: "kubernetes" }, { env });
  if (kubernetes.type !== "kubernetes") throw new StartupFailure("no Kubernetes API server: set KUBECONFIG");
  const onUnreadable = (error: Error) =>
    log.warn("datastore entry cannot be read, ignoring it", { error: error.message });
  const store = await openDatastore(
    chosen.type === "kubernetes" ? { ...chosen, clientQps: chosen.clientQps ?? 500, clientBurst: 1000 } : chosen,
    { onUnreadable, beforeWrite, log },
  );
  const api = await openKubeApi({ ...kubernetes, clientQps: 100, clientBurst: 200 }, env, { beforeWrite });
  const leases = await openKubeApi({ ...kubernetes, clientQps: 20, clientBurst: 20 }, env);
  return {
    store,
    api,
    leases,
    async [Symbol.asyncDispose]() {
      api.close();
      leases.close();
      await store.close();
    },
  };
}

function clientOf(store: Datastore, env: Environment, log: Logger): Client {
  const ipam = new Ipam({ datastore: store, log });
  const addresses: AddressReleaser = {
    releasePool: (cidr, signal) => ipam.releasePoolAffinities(cidr, signal),
    releaseAddresses: (list, signal) =>
      ipam.release(
        list.map((address) => ({ address })),
        signal,
      ),
    removeHost: (host, signal) => ipam.removeHost(host, signal),
  };
  return new Client(store, { log, addresses, facts: { clusterType: env["CLUSTER_TYPE"] || "k8s" } });
}

/**
 * Retries for one minute, then fails, so that the program is restarted with new files and settings, such as a corrected
 * certificate. After a restart within the process there is no limit.
 */
async function retryStartup<T>(
  /** For messages: "the datastore cannot be OPERATION". */
  operation: string,
  attempt: (limit: AbortSignal) => Promise<T>,
  startup: {
    readonly healthStatus: HealthStatus;
    readonly log: Logger;
    readonly limits: { readonly attemptMs: number; readonly isEndless: boolean };
  },
  signal: AbortSignal,
): Promise<T> {
  const { healthStatus, log, limits } = startup;
  const started = performance.now();
  for (;;)
    try {
      return await attempt(AbortSignal.any([signal, AbortSignal.timeout(limits.attemptMs)]));
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof StartupFailure || error instanceof InvalidConfig) throw error;
      const reason = `the datastore cannot be ${operation}: ${describeError(error)}`;
      if (!limits.isEndless && performance.now() - started >= limits.attemptMs) throw new StartupFailure(reason);
      healthStatus.set("CalicoDatastore", false, reason);
      log.error(`the datastore cannot be ${operation}, retrying`, { error: describeError(error) });
      await delay(Math.min(STARTUP_RETRY_MS, limits.attemptMs), signal);
    }
}

function namespaceOf(env: Environment, fallback: string): string {
  if ((env["POD_NAMESPACE"] ?? "") !== "") return env["POD_NAMESPACE"] ?? fallback;
  try {
    return readFileSync(NAMESPACE_FILE, "utf8").trim();
  } catch {
    return fallback;
  }
}

function levelOf(severity: LogSeverity): LogLevel | "none" {
  if (severity === "None") return "none";
  return severity === "Debug" ? "debug" : severity === "Info" ? "info" : severity === "Warning" ? "warn" : "error";
}
