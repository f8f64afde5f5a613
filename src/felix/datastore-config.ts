// How to reach the datastore, and the settings that stand in it: read once before the agent starts for good.
import { type ConfigLayers, ConfigBatcher, type RawConfig } from "../calc/index.ts";
import { type ApiConfig, configFromEnvironment, type Datastore, NotFound } from "../datastore/index.ts";
import {
  clusterInformationProcessor,
  convertPool,
  felixConfigProcessor,
  felixNodeProcessor,
  felixSettings,
  type Pool,
  type Resource,
  type ResourceKey,
  type UpdateProcessor,
} from "../model/index.ts";
import type { Environment, FelixConfig, ResolvedConfig } from "./config/index.ts";

/** What every program reads from the environment, with the agent's own settings over it. */
export function datastoreSettings(env: Environment, { config, sources }: ResolvedConfig): ApiConfig {
  const isSet = (name: keyof FelixConfig) => sources.has(name);
  const endpoints =
    config.EtcdEndpoints.length > 0
      ? config.EtcdEndpoints.join(",")
      : isSet("EtcdAddr")
        ? `${config.EtcdScheme}://${config.EtcdAddr}`
        : undefined;
  const given = configFromEnvironment(env);
  return {
    ...given,
    // A named address of etcd means etcd.
    ...(endpoints !== undefined && { etcdEndpoints: endpoints, datastoreType: "etcdv3" }),
    ...(isSet("DatastoreType") && { datastoreType: config.DatastoreType }),
    ...(isSet("EtcdKeyFile") && { etcdKeyFile: config.EtcdKeyFile }),
    ...(isSet("EtcdCertFile") && { etcdCertFile: config.EtcdCertFile }),
    ...(isSet("EtcdCaFile") && { etcdCACertFile: config.EtcdCaFile }),
  };
}

export const toRawConfig = (configuration: Resource): RawConfig =>
  Object.fromEntries(felixSettings(configuration, () => {}));

export interface DatastoreConfig {
  readonly layers: ConfigLayers;
  /** ClusterInformation says that the datastore may be used. */
  readonly isReady: boolean;
  readonly pools: readonly Pool[];
}

export async function readDatastoreConfig(
  store: Datastore,
  host: string,
  options: { readonly signal: AbortSignal; readonly report: (problem: string) => void },
): Promise<DatastoreConfig> {
  const { signal, report } = options;
  let layers: ConfigLayers = { global: {}, selector: {}, host: {} };
  let isReady = true;
  const batcher = new ConfigBatcher({
    host,
    toRaw: toRawConfig,
    listener: { onConfig: (given) => (layers = given), onNotReady: () => (isReady = false) },
  });
  const give = (processor: UpdateProcessor, key: ResourceKey, value: Resource | undefined) => {
    for (const update of processor.process({ key, value }, report)) {
      const { key: derived } = update;
      const text = update.value as string | undefined;
      if (derived.type === "globalConfig") batcher.setGlobal(derived.name, text);
      else if (derived.type === "hostConfig") batcher.setHost(derived.host, derived.name, text);
      else if (derived.type === "ready") batcher.setReady(update.value === true);
      else if (derived.type === "resource" && derived.kind === "FelixConfiguration")
        batcher.setConfiguration(derived.name, update.value as Resource | undefined);
      else if (derived.type === "resource" && derived.kind === "Node")
        batcher.setNode(derived.name, update.value as Resource | undefined);
    }
  };
  const cluster: ResourceKey = { type: "resource", kind: "ClusterInformation", name: "default" };
  const node: ResourceKey = { type: "resource", kind: "Node", name: host };
  // Together: datastores that can answer them in one round.
  const [configurations, clusterInformation, ownNode, pools] = await Promise.all([
    store.list({ type: "resource", kind: "FelixConfiguration" }, { signal }),
    getIfThere(store, cluster, signal),
    getIfThere(store, node, signal),
    store.list({ type: "resource", kind: "IPPool" }, { signal }),
  ]);
  give(clusterInformationProcessor, cluster, clusterInformation);
  const felixConfig = felixConfigProcessor();
  for (const { key, value } of configurations.items) give(felixConfig, key, value);
  give(felixNodeProcessor({ usePodCidr: false }), node, ownNode);
  batcher.setInSync();
  batcher.flush();
  return {
    layers,
    isReady,
    pools: pools.items.flatMap(({ value }) => {
      try {
        return [convertPool(value).value];
      } catch (error) {
        report(`IPPool ${value.metadata.name}: ${error instanceof Error ? error.message : String(error)}`);
        return [];
      }
    }),
  };
}

async function getIfThere(store: Datastore, key: ResourceKey, signal: AbortSignal): Promise<Resource | undefined> {
  try {
    return (await store.get(key, { signal })).value;
  } catch (error) {
    if (error instanceof NotFound) return undefined;
    throw error;
  }
}
