// Reading pods, namespaces and nodes from the Kubernetes API with the account the network configuration names.
import { chooseDatastore, type KubeObject, openKubeApi } from "../datastore/index.ts";
import { apiConfig } from "./api-config.ts";
import { ROLLBACK_SHARE } from "./attach.ts";
import { CniError, INTERNAL } from "./error.ts";
import type { KubernetesApi, KubernetesNamespace, KubernetesNode, KubernetesPod } from "./kubernetes-api.ts";
import type { NetConf } from "./net-conf.ts";
import type { Environment } from "./request.ts";

export async function openKubernetes(conf: NetConf, env: Environment): Promise<KubernetesApi> {
  const config = chooseDatastore({ ...apiConfig(conf, env), datastoreType: "kubernetes" }, { env });
  if (config.type !== "kubernetes") throw new CniError(INTERNAL, "no access to the Kubernetes API");
  const timeoutMs = conf.datastoreTimeoutSeconds * (1 - ROLLBACK_SHARE) * 1000;
  const api = await openKubeApi(config, env, { timeoutMs });
  const get = async <T>(path: string, what: string): Promise<T> => {
    try {
      return (await api.get<KubeObject>(path)) as unknown as T;
    } catch (error) {
      const { reason } = error as { reason?: unknown };
      if (reason === "NotFound") throw new CniError(INTERNAL, `${what} not found`, undefined, { cause: error });
      throw error;
    }
  };
  const segment = encodeURIComponent;
  return {
    pod: (namespace, name) =>
      get<KubernetesPod>(
        `/api/v1/namespaces/${segment(namespace)}/pods/${segment(name)}`,
        `pods ${JSON.stringify(name)}`,
      ),
    namespace: (name) =>
      get<KubernetesNamespace>(`/api/v1/namespaces/${segment(name)}`, `namespaces ${JSON.stringify(name)}`),
    node: (name) => get<KubernetesNode>(`/api/v1/nodes/${segment(name)}`, `nodes ${JSON.stringify(name)}`),
    version: () => api.json({ method: "GET", path: "/version" }),
  };
}
