// How a call reaches the datastore and the Kubernetes API, all of it in one text: two calls with the same text reach the
// same things as the same account. It holds what is secret: to be compared, never shown.
import { chooseDatastore, type DatastoreConfig, type PemSource } from "../datastore/index.ts";
import { apiConfig } from "./api-config.ts";
import type { NetConf } from "./net-conf.ts";
import type { Environment } from "./request.ts";

/** @throws InvalidConfig */
export function accessOf(conf: NetConf, env: Environment): string {
  return JSON.stringify([configsOf(conf, env), isInCluster(conf, env) ? accountOf(env) : null]);
}

/** The datastore, and the Kubernetes API where it is asked too. */
function configsOf(conf: NetConf, env: Environment): DatastoreConfig[] {
  const api = apiConfig(conf, env);
  const datastore = chooseDatastore(api, { env });
  if (!asksKubernetes(conf)) return [datastore];
  return [datastore, chooseDatastore({ ...api, datastoreType: "kubernetes" }, { env })];
}

export const asksKubernetes = (conf: NetConf): boolean =>
  conf.policy.type === "k8s" || conf.kubernetes.kubeconfig !== "";

/** Nobody names an API server: the environment does. */
const isInCluster = (conf: NetConf, env: Environment): boolean =>
  configsOf(conf, env).some(
    (config) =>
      config.type === "kubernetes" &&
      (config.kubeconfig ?? config.kubeconfigInline ?? config.apiEndpoint) === undefined,
  );

const accountOf = (env: Environment): unknown[] => [env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"]];

/** The files it is read from: what they hold is part of it. */
export function filesOfAccess(conf: NetConf, env: Environment): string[] {
  return configsOf(conf, env).flatMap((config) => {
    switch (config.type) {
      case "sqlite":
        return [];
      case "etcdv3":
        return [config.tls?.ca, config.tls?.cert, config.tls?.key].flatMap(fileOf);
      case "kubernetes": {
        const named = [...(config.kubeconfig?.split(":") ?? []), config.certFile, config.keyFile, config.caFile];
        return named.filter((file) => file !== undefined && file !== "") as string[];
      }
    }
  });
}

/** The same, and an embedded datastore's own file. */
export function placesOfAccess(conf: NetConf, env: Environment): string[] {
  const databases = configsOf(conf, env).flatMap((config) => (config.type === "sqlite" ? [config.path] : []));
  return [...databases, ...filesOfAccess(conf, env)];
}

/** Names that mean something else in another folder. */
export const isRelative = (conf: NetConf, env: Environment): boolean =>
  placesOfAccess(conf, env).some((file) => !file.startsWith("/"));

export const reachesKubernetes = (conf: NetConf, env: Environment): boolean =>
  configsOf(conf, env).some((config) => config.type === "kubernetes");

const fileOf = (source: PemSource | undefined): string[] =>
  source !== undefined && "file" in source ? [source.file] : [];
