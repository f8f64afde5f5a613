// Loads the settings and opens the datastore. Waits as long as necessary: a failed attempt is repeated after a second,
// starting from the defaults, and logged from time to time. While the datastore is marked as not ready, Felix waits but
// reports that it is live and ready, so that a migration of the datastore can complete its rollout.
import { existsSync, readFileSync } from "node:fs";
import { hostname as osHostname } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { chooseDatastore, type Datastore, openDatastore } from "../datastore/index.ts";
import type { HealthReport } from "../lib/http/health.ts";
import { RepeatedError } from "../lib/log/repeated-error.ts";
import { describeError, type Logger } from "../lib/log/log.ts";
import { delay } from "../lib/retry.ts";
import { FELIX_SETTINGS, type FelixConfig, type FelixSettingName, type HostFiles, type Pool } from "../model/index.ts";
import {
  bpfOverrides,
  checkConfig,
  ConfigEngine,
  type Environment,
  environmentLayer,
  parseConfigFile,
  redact,
  settingsWithoutEffect,
} from "./config/index.ts";
import { datastoreSettings, readDatastoreConfig } from "./datastore-config.ts";

const RETRY_MS = 1000;
/** After more connections than this, Felix restarts, because closed connections may have left resources behind. */
const MAX_CONNECTIONS = 60;
const MAX_CONNECTIONS_AT_START = 2;

/** The settings selected so many different datastores that Felix must start with a new process. */
export class TooManyConnections extends Error {
  override readonly name = "TooManyConnections";
  constructor(opened: number) {
    super(`settings led to ${opened} datastore connections during startup; restarting with one`);
  }
}

export interface LoadOptions {
  readonly env: Environment;
  readonly configFile: string;
  readonly log: Logger;
  readonly signal: AbortSignal;
  /** Receives the health of the startup. */
  readonly health: (report: HealthReport) => void;
  /** Called with settings as soon as they can be read, and again with those of the datastore. */
  readonly onSettings: (config: FelixConfig) => void;
  readonly retryMs?: number;
}

export interface Loaded {
  readonly engine: ConfigEngine;
  readonly store: Datastore;
  readonly pools: readonly Pool[];
  /** Pod addresses come from the pod CIDRs of the nodes. */
  readonly usePodCidr: boolean;
  /** Ignored settings with the reason. The caller logs them, because the log opens only after the settings are loaded. */
  readonly problems: readonly string[];
}

/** Returns only when settings and datastore are available; throws when the signal aborts. */
export async function loadConfig(options: LoadOptions): Promise<Loaded> {
  const { log, signal, health } = options;
  const problems = new Set<string>();
  const datastore = new ReusedDatastore();
  const repeatedError = new RepeatedError();
  for (;;) {
    signal.throwIfAborted();
    await datastore.throwIfOpenedMoreThan(MAX_CONNECTIONS);
    health({ live: true, ready: false });
    try {
      const loaded = await loadOnce(options, datastore, (problem) => problems.add(problem));
      if (loaded !== undefined) {
        await datastore.throwIfOpenedMoreThan(MAX_CONNECTIONS_AT_START);
        const afterSeconds = repeatedError.durationSeconds;
        if (repeatedError.clear()) log.info("the datastore is ready; continuing startup", { afterSeconds });
        return { ...loaded, problems: [...problems] };
      }
      if (repeatedError.shouldLog("not ready"))
        log.warn("the datastore is not ready: datastoreReady is not true in ClusterInformation default; waiting", {
          forSeconds: repeatedError.durationSeconds,
        });
      health({ live: true, ready: true, detail: "waiting for the datastore to be ready" });
    } catch (error) {
      if (signal.aborted || error instanceof TooManyConnections) throw error;
      const reason = describeError(error);
      if (repeatedError.shouldLog(reason.replace(/ \(tried for .*?\)/, "")))
        log.error("startup failed; retrying", { error: reason, forSeconds: repeatedError.durationSeconds });
    }
    await delay(options.retryMs ?? RETRY_MS, signal);
  }
}

/** Keeps one connection over all attempts, unless the settings select another datastore. */
class ReusedDatastore {
  #choice: unknown;
  #store: Datastore | undefined;
  #opened = 0;

  async get(choice: Parameters<typeof openDatastore>[0], log: Logger): Promise<Datastore> {
    if (this.#store !== undefined && Bun.deepEquals(choice, this.#choice, true)) return this.#store;
    const old = this.#store;
    this.#store = undefined; // so that the closed one is not returned if the next one cannot be opened
    await old?.close();
    this.#store = await openDatastore(choice, { mustExist: true, log });
    this.#choice = choice;
    this.#opened++;
    return this.#store;
  }

  async throwIfOpenedMoreThan(limit: number): Promise<void> {
    if (this.#opened <= limit) return;
    await this.#store?.close();
    throw new TooManyConnections(this.#opened);
  }
}

/** Returns undefined while the datastore is marked as not ready. */
async function loadOnce(
  options: LoadOptions,
  datastore: ReusedDatastore,
  report: (problem: string) => void,
): Promise<Omit<Loaded, "problems"> | undefined> {
  const { env, configFile, log, signal } = options;
  const engine = new ConfigEngine(localHostFiles(env), {
    hostname: (osHostname() || (env["HOSTNAME"] ?? "")).toLowerCase(),
  });
  engine.update({ "environment variable": environmentLayer(env), "config file": readConfigFile(configFile, report) });
  options.onSettings(engine.config);
  const api = datastoreSettings(env, engine.resolved);
  const store = await datastore.get(chooseDatastore(api, { env }), log);
  const { layers, isReady, pools } = await readDatastoreConfig(store, engine.config.FelixHostname, {
    signal,
    report,
  });
  if (!isReady) return undefined;
  engine.update({
    "datastore (global)": layers.global,
    "datastore (per-node-selector)": layers.selector,
    "datastore (per-host)": layers.host,
  });
  const overrides = bpfOverrides(engine.config, false);
  if (Object.keys(overrides).length > 0) {
    report(`BPFEnabled: no effect: ${FELIX_SETTINGS.BPFEnabled.noEffect}`);
    engine.update({ "internal override": overrides });
  }
  for (const problem of [...engine.resolved.problems, ...settingsWithoutEffect(engine.config)]) report(problem);
  checkConfig(engine.resolved);
  const { raw, sources } = engine.resolved;
  for (const [name, value] of Object.entries(raw))
    log.debug("setting", {
      name,
      value: redact(name, value),
      source: sources.get(name as FelixSettingName) ?? "unknown",
    });
  options.onSettings(engine.config);
  return { engine, store, pools, usePodCidr: api.usePodCIDR ?? false };
}

function readConfigFile(path: string, report: (problem: string) => void): Record<string, string> {
  if (!existsSync(path)) return {};
  const problems: string[] = [];
  const layer = parseConfigFile(readFileSync(path, "utf8"), problems);
  for (const problem of problems) report(`${path}: ${problem}`);
  return layer;
}

export function localHostFiles(env: Environment): HostFiles {
  return {
    exists: existsSync,
    findExecutable: (name) => {
      if (name.includes("/")) return existsSync(name) ? name : undefined;
      const folders = [dirname(process.execPath), ...(env["PATH"] ?? "").split(delimiter)];
      return folders.map((folder) => join(folder, name)).find((path) => existsSync(path));
    },
  };
}
