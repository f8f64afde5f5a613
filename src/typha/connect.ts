// Creates the syncer of a program that uses Typha: finds the servers and connects to them.
import {
  chooseDatastore,
  configFromEnvironment,
  endpointSliceLister,
  type Syncer,
  type SyncerName,
} from "../datastore/index.ts";
import type { Logger } from "../lib/log/log.ts";
import type { Key } from "../model/index.ts";
import { orderInstances, parseAddresses, type TyphaAddress } from "./discovery.ts";
import type { TyphaSettings } from "./settings.ts";

const PORT_NAME = "calico-typha";

export interface TyphaConnectOptions {
  readonly settings: TyphaSettings;
  readonly syncer: SyncerName;
  readonly hostname: string;
  readonly info?: string;
  readonly version?: string;
  readonly log: Logger;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Removes servers that cannot be reached. Never called with an empty list. */
  readonly choose?: (found: readonly TyphaAddress[]) => Promise<readonly TyphaAddress[]>;
  /** Timeout of the first connection, after which `TyphaUnreachable` is thrown; by default none. */
  readonly firstConnectionTimeoutMs?: number;
  /** As in `createSyncer`: `bgp` receives only this host's block affinities, `tunnel-ip-allocation` only its Node. */
  readonly onlyOwnHost?: boolean;
}

export async function createTyphaSyncer(options: TyphaConnectOptions): Promise<Syncer> {
  const { settings, hostname, syncer, choose } = options;
  const { TyphaSyncer } = await import("./client.ts");
  const find = await finder(options);
  return new TyphaSyncer({
    ...options,
    ...settings,
    find: async () => {
      const found = await find();
      return choose === undefined || found.length === 0 ? found : choose(found);
    },
    ...(options.onlyOwnHost === true && { accepts: (key: Key) => isOwn(syncer, hostname, key) }),
  });
}

async function finder({
  settings,
  env,
  hostname,
}: TyphaConnectOptions): Promise<() => Promise<readonly TyphaAddress[]>> {
  const { address, serviceName, namespace } = settings;
  if (address !== undefined) {
    const addresses = parseAddresses(address);
    return async () => addresses;
  }
  const kubernetes = chooseDatastore({ ...configFromEnvironment(env), datastoreType: "kubernetes" }, { env });
  if (kubernetes.type !== "kubernetes" || serviceName === undefined) return async () => [];
  const list = await endpointSliceLister(kubernetes, env);
  const nodeName = env["NODENAME"] ?? hostname;
  return async () => orderInstances(await list(namespace, serviceName), { portName: PORT_NAME, nodeName });
}

function isOwn(syncer: SyncerName, hostname: string, key: Key): boolean {
  if (syncer === "bgp" && key.type === "blockAffinity") return key.host === hostname;
  if (syncer === "tunnel-ip-allocation" && key.type === "resource" && key.kind === "Node") return key.name === hostname;
  return true;
}
