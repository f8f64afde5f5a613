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
} from "../../datastore/index.ts";
import { BUILD } from "../../lib/process/build.ts";
import { judgeClusterVersion } from "./cluster-version.ts";
import type { CommandIo } from "../../lib/command-line/io.ts";
import type { DatastoreCall } from "../table/flags.ts";
import { Failure } from "../command-line/failure.ts";
import { commandLogger, parseLogLevel } from "../command-line/log-level.ts";
import { ignoreUnreadable, readClusterInformation } from "../../model/index.ts";

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
export async function loadConfig(call: DatastoreCall): Promise<DatastoreConfig> {
  const { env } = call.io;
  const named = call.flags.config;
  const file = named ?? (existsSync(DEFAULT_CONFIG) ? DEFAULT_CONFIG : undefined);
  if (file !== undefined && !existsSync(file))
    throw new Failure(`Error reading config file: ${file}`, { stream: "out" });
  try {
    const api = file === undefined ? configFromEnvironment(env) : await configFromFile(file);
    const context = call.flags.context;
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

export async function openStore(call: DatastoreCall, demand: Demand = FEW): Promise<OpenStore> {
  const { io } = call;
  const config = await loadConfig(call);
  if (config.type === "sqlite" && config.isFallback && io.isTerminal("err"))
    io.err(`No datastore is configured: using the embedded one, ${config.path}\n`);
  // A new datastore at a mistyped path would look like a cluster without resources.
  const { mayCreate = false } = demand;
  if (config.type === "sqlite" && mayCreate && !existsSync(config.path) && io.isTerminal("err"))
    io.err(`Creating a new datastore at ${config.path}\n`);
  const datastore = await openDatastore(config, {
    timeoutMs: io.timeoutMs ?? TIMEOUT_MS,
    oneShot: demand.requests === "few",
    mustExist: !mayCreate,
    onUnreadable: (error) => {
      io.err(`Skipped: ${error.message}\n`);
      demand.onSkipped?.(error);
    },
  }).catch((error: unknown) => {
    throw noClient(error);
  });
  const log = commandLogger(parseLogLevel(call.flags["log-level"]) ?? "panic", io.err);
  const addresses = addressesOf(datastore);
  return new OpenStore(datastore, config, { log, addresses, initializesBeforeWrite: true });
}

/** The address manager, loaded when a pool or a node goes. */
function addressesOf(datastore: Datastore): AddressKeeper {
  const ipam = async () => new (await import("../../ipam/index.ts")).Ipam({ datastore });
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
export async function openChecked(call: DatastoreCall, demand: Demand = FEW): Promise<OpenStore> {
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
async function checkVersion(call: DatastoreCall, store: Client): Promise<void> {
  if (call.flags["allow-version-mismatch"]) return;
  const version = await clusterVersion(store, call.io);
  if (version === undefined) return;
  const { fits, client, cluster, wanted } = judgeClusterVersion(BUILD.version, version);
  if (fits) return;
  throw new Failure(
    `Version mismatch.\nClient Version:   ${client}\nCluster Version:  ${cluster}\nThis program wants ${wanted}. Use --allow-version-mismatch to override.`,
  );
}

async function clusterVersion(store: Client, io: CommandIo): Promise<string | undefined> {
  try {
    const information = await store.get({ kind: "ClusterInformation", name: "default" });
    return readClusterInformation(information, ignoreUnreadable).calicoVersion;
  } catch (error) {
    if (error instanceof NotFound) return undefined;
    if (!(error instanceof UnreadableEntry)) throw error;
    io.err(`Skipped: ${error.message}\n`); // whose cluster it is cannot be known; all else can be read and written
    return undefined;
  }
}
