// Reads pods, namespaces and nodes from the Kubernetes API. The plugin uses the kubeconfig of the network configuration. The
// service uses the node agent's own account, because that kubeconfig is a file of the host, not of the agent's container.
import {
  chooseDatastore,
  configFromEnvironment,
  type KubeApi,
  type KubeObject,
  type KubernetesConfig,
  openKubeApi,
} from "../../datastore/index.ts";
import { apiConfig } from "../request/api-config.ts";
import { ROLLBACK_SHARE } from "../deadline.ts";
import { CniError, INTERNAL, MissingObject } from "../error.ts";
import type { KubernetesApi, KubernetesMachine, KubernetesNamespace, KubernetesNode, KubernetesPod } from "./api.ts";
import type { NetConf } from "../request/net-conf.ts";
import type { Environment } from "../request/request.ts";

export async function openKubernetes(conf: NetConf, env: Environment): Promise<KubernetesApi> {
  const config = chooseDatastore({ ...apiConfig(conf, env), datastoreType: "kubernetes" }, { env });
  if (config.type !== "kubernetes") throw new CniError(INTERNAL, "no access to the Kubernetes API");
  return openReader(config, env, conf.datastoreTimeoutSeconds * (1 - ROLLBACK_SHARE) * 1000);
}

const AGENT_TIMEOUT_MS = 30_000;

/** Returns a function that opens the agent's connection to the API server once; undefined if its environment configures none. */
export function agentKubeApiOpener(env: Environment): (() => Promise<KubeApi>) | undefined {
  // Datastore settings are ignored: pods are in Kubernetes even if the datastore is etcd.
  const {
    datastoreType: _t,
    etcdEndpoints: _e,
    etcdDiscoverySrv: _d,
    sqlitePath: _p,
    ...kubernetesSettings
  } = configFromEnvironment(env);
  // Without HOME, because ~/.kube/config is not the agent's.
  const config = chooseDatastore(kubernetesSettings, { env: { ...env, HOME: undefined } });
  if (config.type !== "kubernetes") return undefined;
  let opened: Promise<KubeApi> | undefined;
  return () => {
    opened ??= openKubeApi(config, env, { timeoutMs: AGENT_TIMEOUT_MS }).catch((error: unknown) => {
      opened = undefined; // retried by the next call: credentials may be written later
      throw error;
    });
    return opened;
  };
}

async function openReader(config: KubernetesConfig, env: Environment, timeoutMs: number): Promise<KubernetesApi> {
  return kubernetesReader(await openKubeApi(config, env, { timeoutMs }));
}

export function kubernetesReader(api: KubeApi): KubernetesApi {
  const get = async <T>(path: string, what: string): Promise<T> => {
    try {
      return (await api.get<KubeObject>(path)) as unknown as T;
    } catch (error) {
      // Only the code is checked: for an unknown kind the server returns no reason.
      const { code } = error as { code?: unknown };
      if (code === 404) throw new MissingObject(INTERNAL, `${what} not found`, undefined, { cause: error });
      throw error;
    }
  };
  const segment = encodeURIComponent;
  const machine = (plural: string) => (namespace: string, name: string) =>
    get<KubernetesMachine>(
      `/apis/kubevirt.io/v1/namespaces/${segment(namespace)}/${plural}/${segment(name)}`,
      `${plural} ${JSON.stringify(name)}`,
    );
  return {
    pod: (namespace, name) =>
      get<KubernetesPod>(
        `/api/v1/namespaces/${segment(namespace)}/pods/${segment(name)}`,
        `pods ${JSON.stringify(name)}`,
      ),
    namespace: (name) =>
      get<KubernetesNamespace>(`/api/v1/namespaces/${segment(name)}`, `namespaces ${JSON.stringify(name)}`),
    node: (name) => get<KubernetesNode>(`/api/v1/nodes/${segment(name)}`, `nodes ${JSON.stringify(name)}`),
    machine: machine("virtualmachines"),
    machineInstance: machine("virtualmachineinstances"),
    version: () => api.json({ method: "GET", path: "/version" }),
  };
}
