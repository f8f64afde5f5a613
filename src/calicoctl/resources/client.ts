// Opens the datastore that the command line or the environment configures, and checks that the version of the cluster is
// supported.
import { existsSync } from "node:fs";
import {
  type AddressReleaser,
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
import { checkClusterVersion } from "./cluster-version.ts";
import type { CommandIo } from "../../lib/command-line/io.ts";
import type { DatastoreCall } from "../table/flags.ts";
import { Failure } from "../command-line/failure.ts";
import { commandLogger, parseLogLevel } from "../command-line/log-level.ts";
import { ignoreUnreadable, readClusterInformation } from "../../model/index.ts";

const DEFAULT_CONFIG = "/etc/calico/calicoctl.cfg";
/** A command fails if the datastore does not answer within this time. */
const TIMEOUT_MS = 10_000;

/** The client of one command, which closes the datastore when it is disposed. */
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

/** @throws Failure if the configuration is invalid; as in Calico, its message is printed on standard output */
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
    throw clientFailure(error);
  }
}

function clientFailure(error: unknown): unknown {
  if (!(error instanceof InvalidConfig)) return error;
  return new Failure(`Failed to create Calico API client: ${error.message}`, { stream: "out", cause: error });
}

export interface StoreOptions {
  /** The connection that is set up fastest for few requests is slower for many. */
  readonly requests: "few" | "many";
  /** Called for entries that exist but cannot be read, for commands that draw conclusions from missing entries. */
  readonly onSkipped?: (entry: UnreadableEntry) => void;
  /** Creates a SQLite datastore that does not exist. Only for commands that may be the first to write. */
  readonly mayCreate?: boolean;
}
const FEW: StoreOptions = { requests: "few" };

export async function openStore(call: DatastoreCall, options: StoreOptions = FEW): Promise<OpenStore> {
  const { io } = call;
  const config = await loadConfig(call);
  if (config.type === "sqlite" && config.isFallback && io.isTerminal("err"))
    io.err(`No datastore is configured; using the embedded datastore ${config.path}\n`);
  // A new datastore at a mistyped path would look like a cluster without resources.
  const { mayCreate = false } = options;
  if (config.type === "sqlite" && mayCreate && !existsSync(config.path) && io.isTerminal("err"))
    io.err(`Creating a new datastore at ${config.path}\n`);
  const datastore = await openDatastore(config, {
    timeoutMs: io.timeoutMs ?? TIMEOUT_MS,
    oneShot: options.requests === "few",
    mustExist: !mayCreate,
    onUnreadable: (error) => {
      io.err(`Skipped: ${error.message}\n`);
      options.onSkipped?.(error);
    },
  }).catch((error: unknown) => {
    throw clientFailure(error);
  });
  const log = commandLogger(parseLogLevel(call.flags["log-level"]) ?? "panic", io.err);
  const addresses = addressesOf(datastore);
  return new OpenStore(datastore, config, { log, addresses, initializesBeforeWrite: true });
}

/** Returns the IPAM operations that deleting a pool or a node requires; IPAM is loaded on first use. */
function addressesOf(datastore: Datastore): AddressReleaser {
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

/** Opens the datastore and fails if the version of the cluster is not supported. */
export async function openChecked(call: DatastoreCall, options: StoreOptions = FEW): Promise<OpenStore> {
  const store = await openStore(call, options);
  try {
    await checkVersion(call, store);
    return store;
  } catch (error) {
    await store[Symbol.asyncDispose]();
    throw error;
  }
}

/** The number of resources that counts as many requests. */
const MANY = 20;
export const optionsFor = (resources: number): StoreOptions => ({ requests: resources < MANY ? "few" : "many" });

/** @throws Failure if the programs of the cluster may use other data formats than this program */
async function checkVersion(call: DatastoreCall, store: Client): Promise<void> {
  if (call.flags["allow-version-mismatch"]) return;
  const version = await clusterVersion(store, call.io);
  if (version === undefined) return;
  const { isSupported, client, cluster, required } = checkClusterVersion(BUILD.version, version);
  if (isSupported) return;
  throw new Failure(
    `Version mismatch.\nClient Version:   ${client}\nCluster Version:  ${cluster}\nThis program requires ${required}. Use --allow-version-mismatch to override.`,
  );
}

async function clusterVersion(store: Client, io: CommandIo): Promise<string | undefined> {
  try {
    const information = await store.get({ kind: "ClusterInformation", name: "default" });
    return readClusterInformation(information, ignoreUnreadable).calicoVersion;
  } catch (error) {
    if (error instanceof NotFound) return undefined;
    if (!(error instanceof UnreadableEntry)) throw error;
    io.err(`Skipped: ${error.message}\n`); // the version is unknown, but other resources can be read and written
    return undefined;
  }
}
