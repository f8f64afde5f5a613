// The node agent from start to end.
//
//   1  early log, health, signals
//   2  settings and datastore, however long it takes          load-config.ts
//   3  log, health port and watchdog times as the settings say
//   4  the dataplane; it hears the settings before anything else
//   5  datastore or Typha ─► graph runner ─► dataplane ─► reports ─► status
//   6  metrics; then it waits for a reason to end             shutdown.ts
import { CalculationGraph, type ConfigLayers, type DataplaneMessage, type GraphUpdate } from "../calc/index.ts";
import { DEFAULT_ALLOW, DEFAULT_ALLOW_PROFILE } from "../datastore/index.ts";
import { DEFAULT_NODENAME_FILE, openRouteKernel, openWireguard } from "../kernel/index.ts";
import { BUILD } from "../lib/build.ts";
import { HealthAggregator } from "../lib/health.ts";
import { describeError, type Logger } from "../lib/log.ts";
import { MetricsRegistry } from "../lib/metrics.ts";
import { keyPath, profileProcessor, type ResourceKey } from "../model/index.ts";
import {
  ConfigError,
  type ConfigEngine,
  type Environment,
  type FelixConfig,
  isLeader,
  type ParameterName,
  PARAMETERS,
} from "./config/index.ts";
import { armDebugSwitches } from "./debug-switches.ts";
import type { RunningDriver } from "./drivers/driver.ts";
import { openDriver } from "./drivers/open.ts";
import { GraphRunner } from "./graph-runner.ts";
import { planGraph } from "./graph-settings.ts";
import { HealthServer } from "./health-server.ts";
import { type Loaded, loadConfig, TooManyConnections } from "./load-config.ts";
import { createFelixLog, earlySeverity, type FelixLog, thresholdOf } from "./logging/felix-log.ts";
import { openFelixLog } from "./logging/open.ts";
import { screenWriter } from "./logging/writers.ts";
import { dataplaneMetrics } from "./metrics/dataplane-metrics.ts";
import { linuxMetrics, wireguardMetrics } from "./metrics/linux-metrics.ts";
import { graphMetrics } from "./metrics/graph-metrics.ts";
import { MetricsServer } from "./metrics/metrics-server.ts";
import { processMetrics } from "./metrics/process-metrics.ts";
import { EXIT_STUCK, failure, restart, Shutdown } from "./shutdown.ts";
import { handleSignals } from "./signals.ts";
import { ownerMover } from "./status/moved-owners.ts";
import { OwnNodeReporter } from "./status/own-node.ts";
import { ProgrammedRevisions } from "./status/programmed.ts";
import { RefusedReporter } from "./status/refused.ts";
import { createStatusReporters } from "./status/reporters.ts";
import { openSource, type Source } from "./syncer-source.ts";
import { ValidationFilter } from "./validation-filter.ts";
import { WireguardStart } from "./wireguard-start.ts";

const GRAPH_TIMEOUT_MS = 30_000;

export interface FelixOptions {
  readonly env: Environment;
  readonly configFile: string;
  /** Print what the dataplane would be told, one line of JSON each, and touch nothing. */
  readonly dump?: boolean;
}

/** @returns the exit code */
export async function runFelix(options: FelixOptions): Promise<number> {
  const registry = new MetricsRegistry();
  const counts = logCounts(registry);
  const screen = options.dump === true ? 2 : 1;
  const early = createFelixLog([{ threshold: thresholdOf(earlySeverity(options.env)), writer: screenWriter(screen) }], {
    mayDrop: false,
    counts,
  });
  const health = new HealthAggregator();
  const startup = health.register("FelixStartup", { live: true, ready: true });
  const server = new HealthServer(health, early.log.with({ part: "health" }));
  const shutdown = new Shutdown();
  const signals = handleSignals(shutdown, early.log);
  let running: Running | undefined;
  let log: FelixLog = early;
  try {
    const loaded = await loadConfig({
      ...options,
      log: early.log.with({ part: "start" }),
      signal: shutdown.signal,
      health: startup,
      onSettings: (config) => server.serve(healthAddress(config)),
    });
    log = openFelixLog(loaded.engine.config, counts, { screen });
    for (const problem of loaded.problems) log.log.with({ part: "start" }).warn("a setting is not used", { problem });
    signals.configure(loaded.engine.config, log.log);
    running = await start({ options, loaded, log: log.log, health, registry, shutdown });
    startup({ live: true, ready: true });
  } catch (error) {
    if (!shutdown.signal.aborted) {
      log.log.error("could not start", { error: describeError(error) });
      const reason = error instanceof TooManyConnections ? restart : failure;
      shutdown.request(reason(describeError(error)));
    }
  }
  const code = await shutdown.finish(
    async () => {
      await running?.stopped;
    },
    ({ text, code: exitCode }) => log.log.warn("ending", { reason: text, exitCode }),
  );
  signals.remove();
  server.close();
  running?.close();
  log.flush();
  return code;
}

interface Running {
  /** Resolves when everything that hears the end's signal has ended. */
  readonly stopped: Promise<void>;
  close(): void;
}

async function start(given: {
  readonly options: FelixOptions;
  readonly loaded: Loaded;
  readonly log: Logger;
  readonly health: HealthAggregator;
  readonly registry: MetricsRegistry;
  readonly shutdown: Shutdown;
}): Promise<Running> {
  const { options, loaded, log, health, registry, shutdown } = given;
  const { engine, store } = loaded;
  const { config } = engine;
  const { signal } = shutdown;
  log.info("starting", { version: BUILD.version, host: config.FelixHostname, datastore: store.name });
  health.overrideTimeouts(config.HealthTimeoutOverrides);
  const plan = planGraph(config, loaded.pools);
  const status = createStatusReporters({
    config,
    store,
    log,
    onNoNode: (reason) => shutdown.request(failure(reason)),
  });
  const rounds = dataplaneMetrics(registry);
  if (config.PrometheusProcessMetricsEnabled) processMetrics(registry);
  const wireguard = options.dump === true ? undefined : await prepareWireguard({ config, store, log, signal });
  const source = await openSource({ loaded, env: options.env, log, ...(wireguard !== undefined && { wireguard }) });
  source.begin(signal); // it prepares its answer while we prepare for it
  const programmed = new ProgrammedRevisions({
    host: config.FelixHostname,
    prefix: options.dump === true ? "" : config.EndpointStatusPathPrefix,
    log: log.with({ part: "status" }),
  });
  programmed.measure(registry);
  const refused = new RefusedReporter({
    prefix: options.dump === true ? "" : config.EndpointStatusPathPrefix,
    log: log.with({ part: "status" }),
  });
  refused.measure(registry);
  const driver = await openDriver({
    config,
    onApplied: (round) => {
      rounds.onApplied(round);
      if (round.isFirst) programmed.start();
      programmed.onApplied(round);
      refused.onApplied();
    },
    onDataplane: (dataplane) => {
      linuxMetrics(registry, dataplane);
      refused.listen(dataplane.refused);
      if (config.PrometheusWireGuardMetricsEnabled)
        wireguardMetrics(registry, config.FelixHostname, dataplane.wireguardDevices);
    },
    onHostChange: (reason) => shutdown.request(restart(reason)),
    onArrival: ownerMover({ store, log: log.with({ part: "status" }), signal }),
    encapsulation: plan.encapsulation,
    log,
    health,
    report: (report) => status.onReport(report),
    dump: options.dump ?? false,
    nodenameFile: options.env["CALICO_NODENAME_FILE"] || DEFAULT_NODENAME_FILE,
  });
  // Every message is counted: what a round has taken is told by their number.
  const send = (message: DataplaneMessage) => {
    programmed.onMessage(message);
    driver.send(message);
  };
  send(engine.toMessage());
  const metrics = graphMetrics(registry, config.FelixHostname);
  const graph = new CalculationGraph(plan.settings, {
    onMessage: (message) => {
      metrics.onMessage();
      rounds.onMessage(message);
      if (message.type === "encapsulation" && !Bun.deepEquals(message, plan.encapsulation, true))
        shutdown.request(restart("the pools ask for other tunnels"));
      send(message);
    },
    onConfig: (layers) => applyConfig({ engine, layers, driver: { send }, health, log, shutdown }),
    onNotReady: () => shutdown.request(failure("the datastore is no longer ready")),
    onStats: (stats) => metrics.onStats(stats),
    onPolicyTooLarge: (key) =>
      log.error("the policy needs too many IP sets; it denies everything", { part: "calc", policy: keyPath(key) }),
    onProfileMissing: (name) =>
      log.warn("an endpoint lists a profile that is not there; its traffic is denied", { part: "calc", profile: name }),
  });
  for (const update of builtInUpdates()) graph.update(update);
  const runner = new GraphRunner({
    graph,
    driver,
    filter: new ValidationFilter({
      log: log.with({ part: "validation" }),
      allowSpoofing: config.WorkloadSourceSpoofing === "Any",
      onRefused: () => metrics.onRefused(),
    }),
    log: log.with({ part: "calc" }),
    health: health.register("CalculationGraph", { live: true, ready: true }, GRAPH_TIMEOUT_MS),
    metrics,
    programmed,
    // An agent of a cluster that is not in charge follows settings only, not Nodes.
    ...(isLeader(config) && {
      ownNode: new OwnNodeReporter({
        host: config.FelixHostname,
        log: log.with({ part: "status" }),
        health: () => health.register("Node", {}),
      }),
    }),
    onFailure: (error) => shutdown.request(failure(`the calculation failed: ${describeError(error)}`)),
  });
  reportViewAge(source, { health, registry });
  armDebugSwitches({ config, runner, driver, log, signal, panic: () => process.exit(EXIT_STUCK) });
  const tasks: Readonly<Record<string, Promise<void>>> = {
    dataplane: driver.run(signal),
    calculation: runner.run(signal),
    status: status.run(signal),
    syncer: source.run(runner, signal),
  };
  for (const [name, task] of Object.entries(tasks))
    task.catch((error: unknown) => {
      if (!signal.aborted) shutdown.request(failure(`${name}: ${describeError(error)}`));
    });
  const metricsServer = new MetricsServer(registry, config, log.with({ part: "metrics" }));
  if (config.PrometheusMetricsEnabled) metricsServer.start();
  return {
    stopped: Promise.allSettled(Object.values(tasks)).then(async () => {
      await store.close();
    }),
    close: () => metricsServer.close(),
  };
}

async function prepareWireguard(given: {
  readonly config: FelixConfig;
  readonly store: Loaded["store"];
  readonly log: Logger;
  readonly signal: AbortSignal;
}): Promise<WireguardStart | undefined> {
  if (!given.config.UseInternalDataplaneDriver) return undefined;
  const { links } = openRouteKernel();
  const start = new WireguardStart({ ...given, links, openWireguard, log: given.log.with({ part: "start" }) });
  await start.prepare();
  return start;
}

/** Settings as the datastore has them now: applied where that is possible, else a reason to start again. */
function applyConfig(given: {
  readonly engine: ConfigEngine;
  readonly layers: ConfigLayers;
  readonly driver: Pick<RunningDriver, "send">;
  readonly health: HealthAggregator;
  readonly log: Logger;
  readonly shutdown: Shutdown;
}): void {
  const { engine, layers, driver, health, log, shutdown } = given;
  let changed: ReadonlySet<ParameterName>;
  try {
    changed = engine.update({
      "datastore (global)": layers.global,
      "datastore (per-node-selector)": layers.selector,
      "datastore (per-host)": layers.host,
    });
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    log.error("new settings cannot be used; the old ones stay in force", { error: error.message });
    return;
  }
  if (changed.size === 0) return;
  const needRestart = [...changed].filter((name) => !PARAMETERS[name].isLive);
  if (needRestart.length > 0) return shutdown.request(restart(`settings changed: ${needRestart.join(", ")}`));
  log.info("settings changed; applied without a restart", { settings: [...changed].join(", ") });
  health.overrideTimeouts(engine.config.HealthTimeoutOverrides);
  const message: DataplaneMessage = engine.toMessage();
  driver.send(message);
}

/** What every cluster has without anybody having written it: the profile that allows everything. */
function builtInUpdates(): readonly GraphUpdate[] {
  const key: ResourceKey = { type: "resource", kind: "Profile", name: DEFAULT_ALLOW };
  return profileProcessor.process({ key, value: DEFAULT_ALLOW_PROFILE }, () => {}) as readonly GraphUpdate[];
}

/** An agent that has lost the datastore stays ready, because it enforces what it knows; this shows how old that is. */
function reportViewAge(
  source: Pick<Source, "viewAgeMs">,
  { health, registry }: { readonly health: HealthAggregator; readonly registry: MetricsRegistry },
): void {
  const seconds = () => Math.round(source.viewAgeMs / 1000);
  health.annotate("CalculationGraph", () => (seconds() === 0 ? "" : `view of the datastore is ${seconds()} s old`));
  registry.collect(
    "felix_datastore_view_age_seconds",
    "Seconds since the datastore or Typha was last connected; 0 while it is.",
    "gauge",
    () => [[{}, seconds()]],
  );
}

const healthAddress = (config: FelixConfig) =>
  config.HealthEnabled ? { host: config.HealthHost, port: config.HealthPort } : undefined;

function logCounts(registry: MetricsRegistry): { dropped(): void; failed(): void } {
  const dropped = registry.counter("felix_logs_dropped", "Log lines dropped because a destination was too slow.");
  const failed = registry.counter("felix_log_errors", "Log lines that could not be written.");
  dropped.add(0);
  failed.add(0);
  return { dropped: () => dropped.add(), failed: () => failed.add() };
}
