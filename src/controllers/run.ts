// One run of the controllers, from what the environment says to the moment something else should run.
//
//   environment ─┐
//   KubeControllersConfiguration ─► RunningConfig ─► leader? ─► policy, namespace, serviceaccount, workloadendpoint  (etcd)
//                                                              node: deletion, labels (etcd); host endpoints; addresses
//                                                              load balancer addresses, compaction (etcd), policy names
//                                                              certificates (Kubernetes datastore)
import { readFileSync } from "node:fs";
import {
  type AddressKeeper,
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
import { HealthAggregator } from "../lib/health.ts";
import { describeError, type Logger, type LogLevel } from "../lib/log.ts";
import { MetricsRegistry } from "../lib/metrics.ts";
import { healthPages, metricsPages } from "../lib/pages.ts";
import { addProcessMetrics } from "../lib/process-metrics.ts";
import { delay } from "../lib/retry.ts";
import { type CertificateTimings, startCertificates } from "./certificates/start.ts";
import { compactPeriodically } from "./compaction.ts";
import type { RunningConfig } from "./configuration.ts";
import { ConfigurationKeeper } from "./configuration-keeper.ts";
import { namespaceCopies, policyCopies, serviceAccountCopies } from "./copies.ts";
import { EndpointLabels } from "./endpoint-labels.ts";
import { type EnvironmentSettings, type LogSeverity, readEnvironment } from "./environment.ts";
import { Feed } from "./feed.ts";
import { HEALTH_TIMINGS, Readings, watchHealth } from "./health.ts";
import { startLoadBalancer } from "./load-balancer/start.ts";
import { Leadership, type LeaderTimings, leaderTimings, NotLeading } from "./leader.ts";
import { startNative } from "./native/start.ts";
import { startNodeControllers } from "./node-controllers.ts";
import { offerPages } from "./pages.ts";
import { migrateWhenRolledOut } from "./policy-names.ts";

export interface RunOptions {
  readonly env: Environment;
  readonly statusFile: string;
  /** 0 = none. */
  readonly healthPort: number;
  readonly logger: (level: LogLevel | "none") => Logger;
  /** It ran before: then a datastore that does not answer is waited for as long as it takes. */
  readonly isRestart?: boolean;
  /** Shorter in tests. */
  readonly timings?: {
    readonly startupMs?: number;
    readonly batchMs?: number;
    readonly leader?: LeaderTimings;
    readonly certificates?: CertificateTimings;
  };
}

/** Nothing to wait for: the program ends with this said. */
export class StartupFailure extends Error {
  override readonly name = "StartupFailure";
}

const STARTUP_MS = 60_000;
const STARTUP_RETRY_MS = 5_000;
const NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
const LEASE = "calico-kube-controllers";

/** Ends when something else should run, or by the signal. */
export async function runControllers(options: RunOptions, signal: AbortSignal): Promise<void> {
  const { env } = options;
  const environment = readEnvironment(env);
  const startLog = options.logger(levelOf(environment.logSeverity ?? "Info"));
  const startedAt = new Date();
  // Writes are for the replica that leads, and not for one that led a moment ago and was held up since (a stopped
  // machine, a long pause): asked right before each is sent.
  let leadership: Leadership | undefined = undefined as Leadership | undefined;
  const beforeWrite = () => {
    if (leadership?.mayWork === false) throw new NotLeading();
  };
  const health = new HealthAggregator();
  const readings = new Readings(options.statusFile, health, startLog);
  readings.set("Startup", false, "initialising datastore");
  const patience = { attemptMs: options.timings?.startupMs ?? STARTUP_MS, isEndless: options.isRestart === true };
  const starting = { readings, log: startLog, patience };
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
  const keeper = new ConfigurationKeeper(client, environment, startLog);
  const effective = await keeper.first(signal);
  const { config } = effective;
  const log = options.logger(levelOf(config.logSeverity));
  const registry = new MetricsRegistry();
  addProcessMetrics(registry, startedAt);
  await using _health = await offerPages("health", options.healthPort, healthPages(health), log);
  await using _metrics = await offerPages("metrics", config.metricsPort, metricsPages(registry), log);
  readings.set("Startup", true);

  const stop = new AbortController();
  const until = AbortSignal.any([signal, stop.signal]);
  const tasks: Promise<void>[] = [];
  const timings = { ...HEALTH_TIMINGS, periodMs: environment.healthMs ?? HEALTH_TIMINGS.periodMs };
  if (config.healthChecks) tasks.push(watchHealth({ client, api, readings, log, timings }, until));
  try {
    // A replica that waits also starts again when it should wait differently.
    const waiting = new AbortController();
    const whileWaiting = AbortSignal.any([until, waiting.signal]);
    await Promise.race([leadership.acquire(until), keeper.differs(effective, whileWaiting)]);
    waiting.abort();
    if (until.aborted || !leadership.mayWork) return;
    // Elsewhere calico-node records it; on Kubernetes its account may only create a ClusterInformation.
    if (store.name === "kubernetes")
      await recordVersion(client).catch((error: unknown) =>
        log.warn("could not record the version of calico-ts", { error: describeError(error) }),
      );
    tasks.push(...startAll({ config, environment, env, store, api, client, log, registry, options }, until));
    await Promise.race([keeper.follow(effective, until), leadership.hold(until)]);
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
    { section: config.policy, make: policyCopies, workers: workers("POLICY_WORKERS") },
    { section: config.namespace, make: namespaceCopies, workers: workers("PROFILE_WORKERS") },
    { section: config.serviceAccount, make: serviceAccountCopies, workers: workers("PROFILE_WORKERS") },
  ];
  for (const { section, make, workers: count } of copies) {
    if (section === undefined) continue;
    const { source, mirror } = make({ api, client, log, workers: count, ...section });
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
    const feed = new Feed({ store, log, usePodCidr, ...(batchMs === undefined ? {} : { batchMs }) });
    const shared = { ...parts, feed, usePodCidr, batchMs };
    running.push(...startNodeControllers(shared, signal), ...startLoadBalancer(shared, signal), feed.run(signal));
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

/** `leases` is for the lease itself, by which all other writing is allowed. */
async function open(env: Environment, log: Logger, beforeWrite: () => void) {
  const said = configFromEnvironment(env);
  const chosen = chooseDatastore(said, { env });
  if (chosen.type === "sqlite") throw new StartupFailure("the controllers need etcd or Kubernetes: set DATASTORE_TYPE");
  const kubernetes = chooseDatastore({ ...said, datastoreType: "kubernetes" }, { env });
  if (kubernetes.type !== "kubernetes") throw new StartupFailure("no Kubernetes API server: set KUBECONFIG");
  const onUnreadable = (error: Error) => log.warn("an entry of the datastore cannot be read", { error: error.message });
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
  const addresses: AddressKeeper = {
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

/** A datastore that does not answer for a minute is a reason to be started anew, with whatever was repaired. */
async function retryStartup<T>(
  /** What cannot be done to the datastore, for messages. */
  done: string,
  attempt: (limit: AbortSignal) => Promise<T>,
  given: {
    readonly readings: Readings;
    readonly log: Logger;
    readonly patience: { readonly attemptMs: number; readonly isEndless: boolean };
  },
  signal: AbortSignal,
): Promise<T> {
  const { readings, log, patience } = given;
  const started = performance.now();
  for (;;)
    try {
      return await attempt(AbortSignal.any([signal, AbortSignal.timeout(patience.attemptMs)]));
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof StartupFailure || error instanceof InvalidConfig) throw error;
      const reason = `the datastore cannot be ${done}: ${describeError(error)}`;
      if (!patience.isEndless && performance.now() - started >= patience.attemptMs) throw new StartupFailure(reason);
      readings.set("CalicoDatastore", false, reason);
      log.error(`the datastore cannot be ${done}; trying again`, { error: describeError(error) });
      await delay(Math.min(STARTUP_RETRY_MS, patience.attemptMs), signal);
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
