// Determines how to connect to the datastore, and reads Felix's settings from it once at startup.
import { type ConfigLayers, ConfigBatcher, type RawConfig } from "../calc/index.ts";
import { type ApiConfig, configFromEnvironment, type Datastore, NotFound } from "../datastore/index.ts";
import {
  clusterInformationProcessor,
  convertPool,
  felixConfigProcessor,
  felixNodeProcessor,
  type FelixConfig,
  felixSettings,
  ignoreUnreadable,
  type Node,
  type Pool,
  readNode,
  type Resource,
  type ResourceKey,
  type UpdateProcessor,
} from "../model/index.ts";
import type { Environment, ResolvedConfig } from "./config/index.ts";

/** Returns the datastore settings that all programs read from the environment, overridden by Felix's own settings. */
export function datastoreSettings(env: Environment, { config, sources }: ResolvedConfig): ApiConfig {
  const isSet = (name: keyof FelixConfig) => sources.has(name);
  const endpoints =
    config.EtcdEndpoints.length > 0
      ? config.EtcdEndpoints.join(",")
      : isSet("EtcdAddr")
        ? `${config.EtcdScheme}://${config.EtcdAddr}`
        : undefined;
  return {
    ...configFromEnvironment(env),
    // A configured etcd address implies the datastore type etcdv3.
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
  /** `datastoreReady` of ClusterInformation is true. */
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
    listener: { onConfig: (emitted) => (layers = emitted), onNotReady: () => (isReady = false) },
  });
  const apply = (processor: UpdateProcessor, key: ResourceKey, value: Resource | undefined) => {
    for (const update of processor.process({ key, value }, report)) {
      const { key: derived } = update;
      const text = update.value as string | undefined;
      if (derived.type === "globalConfig") batcher.setGlobal(derived.name, text);
      else if (derived.type === "hostConfig") batcher.setHost(derived.host, derived.name, text);
      else if (derived.type === "ready") batcher.setReady(update.value === true);
      else if (derived.type === "resource" && derived.kind === "FelixConfiguration")
        batcher.setConfiguration(derived.name, update.value as Resource | undefined);
      else if (derived.type === "resource" && derived.kind === "Node")
        batcher.setNode(derived.name, nodeOf(update.value as Resource | undefined));
    }
  };
  const cluster: ResourceKey = { type: "resource", kind: "ClusterInformation", name: "default" };
  const node: ResourceKey = { type: "resource", kind: "Node", name: host };
  // Concurrent, because some datastores answer concurrent reads in one round trip.
  const [configurations, clusterInformation, ownNode, pools] = await Promise.all([
    store.list({ type: "resource", kind: "FelixConfiguration" }, { signal }),
    getIfExists(store, cluster, signal),
    getIfExists(store, node, signal),
    store.list({ type: "resource", kind: "IPPool" }, { signal }),
  ]);
  apply(clusterInformationProcessor, cluster, clusterInformation);
  const felixConfig = felixConfigProcessor();
  for (const { key, value } of configurations.items) apply(felixConfig, key, value);
  apply(felixNodeProcessor({ usePodCidr: false }), node, ownNode);
  batcher.setInSync();
  batcher.flush();
  return {
    layers,
    isReady,
    pools: pools.items.flatMap(({ value }) => {
      try {
        return convertPool(value)?.value ?? [];
      } catch (error) {
        report(`IPPool ${value.metadata.name}: ${error instanceof Error ? error.message : String(error)}`);
        return [];
      }
    }),
  };
}

const nodeOf = (resource: Resource | undefined): Node | undefined =>
  resource === undefined ? undefined : readNode(resource, ignoreUnreadable);

async function getIfExists(store: Datastore, key: ResourceKey, signal: AbortSignal): Promise<Resource | undefined> {
  try {
    return (await store.get(key, { signal })).value;
  } catch (error) {
    if (error instanceof NotFound) return undefined;
    throw error;
  }
}
