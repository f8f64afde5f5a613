// Reading pods, namespaces and nodes from the Kubernetes API with the account the network configuration names.
import { CniError, INTERNAL } from "./error.ts";
import type { KubernetesApi } from "./kubernetes-api.ts";
import type { NetConf } from "./net-conf.ts";
import type { Environment } from "./request.ts";

export async function openKubernetes(_conf: NetConf, _env: Environment): Promise<KubernetesApi> {
  throw new CniError(
    INTERNAL,
    "no access to the Kubernetes API: set kubernetes.kubeconfig in the network configuration",
  );
}
