// The datastore as commands use it: opened from what the command line and the environment say, and asked first
// whether it belongs to a cluster of our version.
import { existsSync } from "node:fs";
import {
  type AddressKeeper,
  chooseDatastore,
  Client,
  type ClientOptions,
  configFromEnvironment,
  configFromFile,
  type Datastore,
  type DatastoreConfig,
  InvalidConfig,
  NotFound,
  openDatastore,
  UnreadableEntry,
} from "../datastore/index.ts";
import { BUILD } from "../lib/build.ts";
import { judgeClusterVersion } from "./cluster-version.ts";
import type { Call, World } from "./command.ts";
import { Failure } from "./failure.ts";
import { commandLogger, parseLogLevel } from "./log-level.ts";

const DEFAULT_CONFIG = "/etc/calico/calicoctl.cfg";
/** How long a command waits for a datastore that does not answer. */
const TIMEOUT_MS = 10_000;

/** The client of one command. */
export class OpenStore extends Client implements AsyncDisposable {
  constructor(
    datastore: Datastore,
    readonly config: DatastoreConfig,
    options: ClientOptions,
  ) {
    super(datastore, options);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.datastore.close();
  }
}

/** @throws Failure on standard output, where scripts look for it, when the configuration is wrong */
export async function loadConfig(call: Call): Promise<DatastoreConfig> {
  const { env } = call.world;
  const named = call.flags.value("config");
  const file = named ?? (existsSync(DEFAULT_CONFIG) ? DEFAULT_CONFIG : undefined);
  if (file !== undefined && !existsSync(file))
    throw new Failure(`Error reading config file: ${file}`, { stream: "out" });
  try {
    const api = file === undefined ? configFromEnvironment(env) : await configFromFile(file);
    const context = call.flags.value("context");
    return chooseDatastore(context === undefined ? api : { ...api, k8sCurrentContext: context }, { env });
  } catch (error) {
    throw noClient(error);
  }
}

function noClient(error: unknown): unknown {
  if (!(error instanceof InvalidConfig)) return error;
  return new Failure(`Failed to create Calico API client: ${error.message}`, { stream: "out", cause: error });
}

/** How much a command is going to ask: the lightest way to a datastore is not the fastest for much. */
export interface Demand {
  readonly requests: "few" | "many";
  /** Who draws conclusions from what is not there hears of what is there but cannot be read. */
  readonly onSkipped?: (entry: UnreadableEntry) => void;
  /** Creates a SQLite datastore that does not exist. Only for commands that may be the first to write. */
  readonly mayCreate?: boolean;
}
const FEW: Demand = { requests: "few" };

export async function openStore(call: Call, demand: Demand = FEW): Promise<OpenStore> {
  const { world } = call;
  const config = await loadConfig(call);
  if (config.type === "sqlite" && config.isFallback && world.isTerminal("err"))
    world.err(`No datastore is configured: using the embedded one, ${config.path}\n`);
  // A new datastore at a mistyped path would look like a cluster without resources.
  const { mayCreate = false } = demand;
  if (config.type === "sqlite" && mayCreate && !existsSync(config.path) && world.isTerminal("err"))
    world.err(`Creating a new datastore at ${config.path}\n`);
  const datastore = await openDatastore(config, {
    timeoutMs: world.timeoutMs ?? TIMEOUT_MS,
    oneShot: demand.requests === "few",
    mustExist: !mayCreate,
    onUnreadable: (error) => {
      world.err(`Skipped: ${error.message}\n`);
      demand.onSkipped?.(error);
    },
  }).catch((error: unknown) => {
    throw noClient(error);
  });
  const log = commandLogger(parseLogLevel(call.flags.value("log-level") ?? "") ?? "panic", world.err);
  const addresses = addressesOf(datastore);
  return new OpenStore(datastore, config, { log, addresses, initializesBeforeWrite: true });
}

/** The address manager, loaded when a pool or a node goes. */
function addressesOf(datastore: Datastore): AddressKeeper {
  const ipam = async () => new (await import("../ipam/index.ts")).Ipam({ datastore });
  return {
    releasePool: async (cidr, signal) => (await ipam()).releasePoolAffinities(cidr, signal),
    releaseAddresses: async (addresses, signal) =>
      (await ipam()).release(
        addresses.map((address) => ({ address })),
        signal,
      ),
    removeHost: async (host, signal) => (await ipam()).removeHost(host, signal),
  };
}

/** For every command that neither asks only for versions nor works offline. */
export async function openChecked(call: Call, demand: Demand = FEW): Promise<OpenStore> {
  const store = await openStore(call, demand);
  try {
    await checkVersion(call, store);
    return store;
  } catch (error) {
    await store[Symbol.asyncDispose]();
    throw error;
  }
}

/** From so many resources on it is many. */
const MANY = 20;
export const demandOf = (resources: number): Demand => ({ requests: resources < MANY ? "few" : "many" });

/** @throws Failure for a cluster whose programs may read and write things differently */
async function checkVersion(call: Call, store: Client): Promise<void> {
  if (call.flags.has("allow-version-mismatch")) return;
  const version = await clusterVersion(store, call.world);
  if (version === undefined) return;
  const { fits, client, cluster, wanted } = judgeClusterVersion(BUILD.version, version);
  if (fits) return;
  throw new Failure(
    `Version mismatch.\nClient Version:   ${client}\nCluster Version:  ${cluster}\nThis program wants ${wanted}. Use --allow-version-mismatch to override.`,
  );
}

async function clusterVersion(store: Client, world: World): Promise<string | undefined> {
  try {
    const { spec } = await store.get({ kind: "ClusterInformation", name: "default" });
    const { calicoVersion } = spec as { readonly calicoVersion?: unknown };
    return typeof calicoVersion === "string" && calicoVersion !== "" ? calicoVersion : undefined;
  } catch (error) {
    if (error instanceof NotFound) return undefined;
    if (!(error instanceof UnreadableEntry)) throw error;
    world.err(`Skipped: ${error.message}\n`); // whose cluster it is cannot be known; all else can be read and written
    return undefined;
  }
}
