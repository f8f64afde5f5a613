// Runs the node agent (Felix) from start to exit.
//
//   1  open the early log, the health server and signal handlers
//   2  wait for settings and the datastore                          load-config.ts
//   3  configure log, health port and watchdog timeouts
//   4  start the dataplane; the settings are its first message      drivers/open.ts
//   5  datastore or Typha ─► graph runner ─► dataplane ─► reports ─► status
//   6  serve metrics, then wait for a reason to exit                shutdown.ts
import { CalculationGraph, type ConfigLayers, type DataplaneMessage, type GraphUpdate } from "../calc/index.ts";
import { DEFAULT_ALLOW, DEFAULT_ALLOW_PROFILE, ValidationFilter } from "../datastore/index.ts";
import { DEFAULT_NODENAME_FILE, openRtnetlink, openWireguard } from "../kernel/index.ts";
import { BUILD } from "../lib/process/build.ts";
import { HealthAggregator } from "../lib/http/health.ts";
import { describeError, type Logger } from "../lib/log/log.ts";
import { MetricsRegistry } from "../lib/metrics.ts";
import {
  type FelixConfig,
  type FelixSettingName,
  keyPath,
  profileProcessor,
  type ResourceKey,
} from "../model/index.ts";
import { ConfigError, type ConfigEngine, type Environment, isLeader, settingsThatRestart } from "./config/index.ts";
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
import { logCounts } from "./metrics/log-metrics.ts";
import { MetricsServer } from "./metrics/metrics-server.ts";
import { processMetrics } from "./metrics/process-metrics.ts";
import { reportViewAge } from "./metrics/view-age.ts";
import { EXIT_ABNORMAL, failure, restart, Shutdown } from "./shutdown.ts";
import { handleSignals } from "./signals.ts";
import { ownerSwapper } from "./status/ipam-owners.ts";
import { OwnNodeReporter } from "./status/own-node.ts";
import { ProgrammedRevisions } from "./status/programmed.ts";
import { RejectedRulesReporter } from "./status/rejected-rules.ts";
import { createStatusReporters } from "./status/reporters.ts";
import { openSource } from "./syncer-source.ts";
import { WireguardStart } from "./wireguard-start.ts";

const GRAPH_TIMEOUT_MS = 30_000;
/** An EndpointSlice of 1.5 MB can have so many addresses and ports that its IP set would have 10⁹ members. */
const MAX_SLICE_MEMBERS = 100_000;

export interface FelixOptions {
  readonly env: Environment;
  readonly configFile: string;
  /** Print the messages for the dataplane, one line of JSON each, and program nothing. */
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
    for (const problem of loaded.problems) log.log.with({ part: "start" }).warn("setting ignored", { problem });
    signals.configure(loaded.engine.config, log.log);
    running = await start({ options, loaded, log: log.log, health, registry, shutdown });
    startup({ live: true, ready: true });
  } catch (error) {
    if (!shutdown.signal.aborted) {
      log.log.error("startup failed", { error: describeError(error) });
      const reason = error instanceof TooManyConnections ? restart : failure;
      shutdown.request(reason(describeError(error)));
    }
  }
  const code = await shutdown.finish(
    async () => {
      await running?.stopped;
    },
    ({ message, code: exitCode }) => log.log.warn("shutting down", { reason: message, exitCode }),
  );
  signals.remove();
  server.close();
  running?.close();
  log.flush();
  return code;
}

interface Running {
  /** Resolves when all tasks that use the shutdown signal have ended. */
  readonly stopped: Promise<void>;
  close(): void;
}

async function start(inputs: {
  readonly options: FelixOptions;
  readonly loaded: Loaded;
  readonly log: Logger;
  readonly health: HealthAggregator;
  readonly registry: MetricsRegistry;
  readonly shutdown: Shutdown;
}): Promise<Running> {
  const { options, loaded, log, health, registry, shutdown } = inputs;
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
  const dataplaneStats = dataplaneMetrics(registry);
  if (config.PrometheusProcessMetricsEnabled) processMetrics(registry);
  const wireguard = options.dump === true ? undefined : await prepareWireguard({ config, store, log, signal });
  const source = await openSource({ loaded, env: options.env, log, wireguard });
  source.begin(signal); // connects while the dataplane is being opened
  const programmed = new ProgrammedRevisions({
    host: config.FelixHostname,
    prefix: options.dump === true ? "" : config.EndpointStatusPathPrefix,
    log: log.with({ part: "status" }),
  });
  programmed.measure(registry);
  const rejected = new RejectedRulesReporter({
    prefix: options.dump === true ? "" : config.EndpointStatusPathPrefix,
    log: log.with({ part: "status" }),
  });
  rejected.measure(registry);
  const driver = await openDriver({
    config,
    onApplied: (round) => {
      dataplaneStats.onApplied(round);
      if (round.isFirst) programmed.start();
      programmed.onApplied(round);
      rejected.onApplied();
    },
    onDataplane: (dataplane) => {
      linuxMetrics(registry, dataplane);
      rejected.connect(() => dataplane.rejected());
      if (config.PrometheusWireGuardMetricsEnabled)
        wireguardMetrics(registry, config.FelixHostname, () => dataplane.wireguardDevices());
    },
    onHostChange: (reason) => shutdown.request(restart(reason)),
    onArrival: ownerSwapper({ store, log: log.with({ part: "status" }), signal }),
    encapsulation: plan.encapsulation,
    log,
    health,
    report: (report) => status.onReport(report),
    dump: options.dump ?? false,
    nodenameFile: options.env["CALICO_NODENAME_FILE"] || DEFAULT_NODENAME_FILE,
  });
  // Every message is counted, because a round of the dataplane reports the number of messages that it has applied.
  const send = (message: DataplaneMessage) => {
    programmed.onMessage(message);
    driver.send(message);
  };
  send(engine.toMessage());
  const metrics = graphMetrics(registry, config.FelixHostname);
  const graph = new CalculationGraph(plan.settings, {
    onMessage: (message) => {
      metrics.onMessage();
      dataplaneStats.onMessage(message);
      if (message.type === "encapsulation" && !Bun.deepEquals(message, plan.encapsulation, true))
        shutdown.request(restart("the IP pools require other tunnels"));
      send(message);
    },
    onConfig: (layers) => applyConfig({ engine, layers, driver: { send }, health, log, shutdown }),
    onNotReady: () => shutdown.request(failure("the datastore is no longer ready")),
    onStats: (stats) => metrics.onStats(stats),
    onPolicyTooLarge: (key) =>
      log.error("the policy needs too many IP sets; it denies everything", { part: "calc", policy: keyPath(key) }),
    onNamespaceLimit: (namespace, state) =>
      state === "too-many-foreign-members"
        ? log.error(
            "policies of the namespace ignore network sets and services of other namespaces, which are too large",
            {
              part: "calc",
              namespace,
            },
          )
        : state === "within-limits"
          ? log.info("policies of the namespace are within the limits again", { part: "calc", namespace })
          : log.error("policies of the namespace exceed a limit; they deny everything", {
              part: "calc",
              namespace,
              state,
            }),
    onProfileMissing: (name) =>
      log.warn("an endpoint lists a profile that does not exist; its traffic is denied", {
        part: "calc",
        profile: name,
      }),
  });
  for (const update of builtInUpdates()) graph.update(update);
  const runner = new GraphRunner({
    graph,
    driver,
    filter: new ValidationFilter({
      log: log.with({ part: "validation" }),
      allowSpoofing: config.WorkloadSourceSpoofing === "Any",
      maxSliceMembers: MAX_SLICE_MEMBERS,
      onRejected: () => metrics.onRejected(),
    }),
    log: log.with({ part: "calc" }),
    health: health.register("CalculationGraph", { live: true, ready: true }, GRAPH_TIMEOUT_MS),
    metrics,
    programmed,
    // In a cluster of another variant, the syncer sends no Nodes.
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
  armDebugSwitches({ config, runner, driver, log, signal, panic: () => process.exit(EXIT_ABNORMAL) });
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

async function prepareWireguard(inputs: {
  readonly config: FelixConfig;
  readonly store: Loaded["store"];
  readonly log: Logger;
  readonly signal: AbortSignal;
}): Promise<WireguardStart | undefined> {
  if (!inputs.config.UseInternalDataplaneDriver) return undefined;
  const { links } = openRtnetlink();
  const start = new WireguardStart({ ...inputs, links, openWireguard, log: inputs.log.with({ part: "start" }) });
  await start.prepare();
  return start;
}

/** Applies changed settings from the datastore. If one cannot be applied live, requests a restart. */
function applyConfig(inputs: {
  readonly engine: ConfigEngine;
  readonly layers: ConfigLayers;
  readonly driver: Pick<RunningDriver, "send">;
  readonly health: HealthAggregator;
  readonly log: Logger;
  readonly shutdown: Shutdown;
}): void {
  const { engine, layers, driver, health, log, shutdown } = inputs;
  const before = engine.config;
  let changed: ReadonlySet<FelixSettingName>;
  try {
    changed = engine.update({
      "datastore (global)": layers.global,
      "datastore (per-node-selector)": layers.selector,
      "datastore (per-host)": layers.host,
    });
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    log.error("new settings are invalid; the previous settings stay in effect", { error: error.message });
    return;
  }
  if (changed.size === 0) return;
  const needRestart = settingsThatRestart(changed, before, engine.config);
  if (needRestart.length > 0) return shutdown.request(restart(`settings changed: ${needRestart.join(", ")}`));
  log.info("settings changed; applied without a restart", { settings: [...changed].join(", ") });
  health.overrideTimeouts(engine.config.HealthTimeoutOverrides);
  const message: DataplaneMessage = engine.toMessage();
  driver.send(message);
}

/** Returns the objects that exist in every cluster without being stored: the profile that allows everything. */
function builtInUpdates(): readonly GraphUpdate[] {
  const key: ResourceKey = { type: "resource", kind: "Profile", name: DEFAULT_ALLOW };
  return profileProcessor.process({ key, value: DEFAULT_ALLOW_PROFILE }, () => {}) as readonly GraphUpdate[];
}

const healthAddress = (config: FelixConfig) =>
  config.HealthEnabled ? { host: config.HealthHost, port: config.HealthPort } : undefined;
