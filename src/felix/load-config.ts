// Gets hold of settings and datastore, however long that takes: every pass begins with fresh defaults, every failure is
// tried again after a second, and told now and then. While the datastore itself says that it is not ready, the agent waits as live and
// ready, so that whoever migrates the datastore can finish rolling it out.
import { existsSync, readFileSync } from "node:fs";
import { hostname as osHostname } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { chooseDatastore, type Datastore, openDatastore } from "../datastore/index.ts";
import type { HealthReport } from "../lib/health.ts";
import { LastingTrouble } from "../lib/lasting-trouble.ts";
import { describeError, type Logger } from "../lib/log.ts";
import { delay } from "../lib/retry.ts";
import type { Pool } from "../model/index.ts";
import {
  bpfOverrides,
  checkConfig,
  ConfigEngine,
  type Environment,
  environmentLayer,
  type FelixConfig,
  type ParameterName,
  parseConfigFile,
  redact,
  settingsWithoutEffect,
  type Surroundings,
} from "./config/index.ts";
import { datastoreSettings, readDatastoreConfig } from "./datastore-config.ts";

const RETRY_MS = 1000;
/** Who went through more datastores than this begins again, free of whatever their connections left behind. */
const MOST_OPENED = 60;
const MOST_OPENED_AT_START = 2;

/** The settings changed datastores so often that a fresh process is the better start. */
export class TooManyConnections extends Error {
  override readonly name = "TooManyConnections";
  constructor(opened: number) {
    super(`settings led to ${opened} datastore connections before the start; starting again with one`);
  }
}

export interface LoadOptions {
  readonly env: Environment;
  readonly configFile: string;
  readonly log: Logger;
  readonly signal: AbortSignal;
  /** Tells how the start goes. */
  readonly health: (report: HealthReport) => void;
  /** Called with settings as soon as they can be read, and again with those of the datastore. */
  readonly onSettings: (config: FelixConfig) => void;
  readonly retryMs?: number;
}

export interface Loaded {
  readonly engine: ConfigEngine;
  readonly store: Datastore;
  readonly pools: readonly Pool[];
  /** Addresses come from the nodes' pod CIDRs. */
  readonly usePodCidr: boolean;
  /** Settings that are not used, and why: for the log, which is open only once its own settings are known. */
  readonly problems: readonly string[];
}

/** Ends only with everything in hand, or when the signal aborts. */
export async function loadConfig(options: LoadOptions): Promise<Loaded> {
  const { log, signal, health } = options;
  const problems = new Set<string>();
  const held = new HeldDatastore();
  const trouble = new LastingTrouble();
  for (;;) {
    signal.throwIfAborted();
    await held.refuseMoreThan(MOST_OPENED);
    health({ live: true, ready: false });
    try {
      const loaded = await loadOnce(options, held, (problem) => problems.add(problem));
      if (loaded !== undefined) {
        await held.refuseMoreThan(MOST_OPENED_AT_START);
        const afterSeconds = trouble.seconds;
        if (trouble.isOver()) log.info("the datastore is ready; starting", { afterSeconds });
        return { ...loaded, problems: [...problems] };
      }
      if (trouble.isDue("not ready"))
        log.warn("the datastore is not ready: ClusterInformation default does not say datastoreReady; waiting", {
          forSeconds: trouble.seconds,
        });
      health({ live: true, ready: true, detail: "waiting for the datastore to be ready" });
    } catch (error) {
      if (signal.aborted || error instanceof TooManyConnections) throw error;
      const reason = describeError(error);
      if (trouble.isDue(reason.replace(/ \(tried for .*?\)/, "")))
        log.error("cannot start yet; trying again", { error: reason, forSeconds: trouble.seconds });
    }
    await delay(options.retryMs ?? RETRY_MS, signal);
  }
}

/** One connection through all passes, unless other settings ask for another. */
class HeldDatastore {
  #choice: unknown;
  #store: Datastore | undefined;
  #opened = 0;

  async get(choice: Parameters<typeof openDatastore>[0], log: Logger): Promise<Datastore> {
    if (this.#store !== undefined && Bun.deepEquals(choice, this.#choice, true)) return this.#store;
    const old = this.#store;
    this.#store = undefined; // a closed one must not come back if the next cannot be opened
    await old?.close();
    this.#store = await openDatastore(choice, { mustExist: true, log });
    this.#choice = choice;
    this.#opened++;
    return this.#store;
  }

  async refuseMoreThan(most: number): Promise<void> {
    if (this.#opened <= most) return;
    await this.#store?.close();
    throw new TooManyConnections(this.#opened);
  }
}

/** Nothing while the datastore says that it is not ready. */
async function loadOnce(
  options: LoadOptions,
  held: HeldDatastore,
  tell: (problem: string) => void,
): Promise<Omit<Loaded, "problems"> | undefined> {
  const { env, configFile, log, signal } = options;
  const engine = new ConfigEngine(localSurroundings(env), {
    hostname: (osHostname() || (env["HOSTNAME"] ?? "")).toLowerCase(),
  });
  engine.update({ "environment variable": environmentLayer(env), "config file": readConfigFile(configFile, tell) });
  options.onSettings(engine.config);
  const api = datastoreSettings(env, engine.resolved);
  const store = await held.get(chooseDatastore(api, { env }), log);
  const { layers, isReady, pools } = await readDatastoreConfig(store, engine.config.FelixHostname, {
    signal,
    report: tell,
  });
  if (!isReady) return undefined;
  engine.update({
    "datastore (global)": layers.global,
    "datastore (per-node-selector)": layers.selector,
    "datastore (per-host)": layers.host,
  });
  const overrides = bpfOverrides(engine.config, false);
  if (Object.keys(overrides).length > 0) {
    tell("BPFEnabled: there is no eBPF dataplane here; rules are written with nftables or iptables");
    engine.update({ "internal override": overrides });
  }
  if (engine.config.DebugPort > 0)
    tell("DebugPort: no port serves profiles here; SIGUSR1 and SIGUSR2 write them to files");
  for (const problem of [...engine.resolved.problems, ...settingsWithoutEffect(engine.config)]) tell(problem);
  checkConfig(engine.resolved);
  const { raw, sources } = engine.resolved;
  for (const [name, value] of Object.entries(raw))
    log.debug("a setting", {
      name,
      value: redact(name, value),
      source: sources.get(name as ParameterName) ?? "unknown",
    });
  options.onSettings(engine.config);
  return { engine, store, pools, usePodCidr: api.usePodCIDR ?? false };
}

function readConfigFile(path: string, tell: (problem: string) => void): Record<string, string> {
  if (!existsSync(path)) return {};
  const problems: string[] = [];
  const layer = parseConfigFile(readFileSync(path, "utf8"), problems);
  for (const problem of problems) tell(`${path}: ${problem}`);
  return layer;
}

export function localSurroundings(env: Environment): Surroundings {
  return {
    exists: existsSync,
    findExecutable: (name) => {
      if (name.includes("/")) return existsSync(name) ? name : undefined;
      const folders = [dirname(process.execPath), ...(env["PATH"] ?? "").split(delimiter)];
      return folders.map((folder) => join(folder, name)).find((path) => existsSync(path));
    },
  };
}
