// Reads facts from the Kubernetes API that startup needs (installer, pod subnets, the node's InternalIP addresses), and sets
// the node condition NetworkUnavailable. Optional: a node can run without Kubernetes.
import { existsSync } from "node:fs";
import {
  chooseDatastore,
  configFromEnvironment,
  type Environment,
  type KubeApi,
  type KubeObject,
  openKubeApi,
} from "../../datastore/index.ts";
import { type Cidr, type IpAddress, tryParseAddress, tryParseCidr } from "../../lib/ip/ip.ts";
import { FatalNodeError } from "../failure.ts";

const ACCOUNT_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token";
const TIMEOUT_MS = 2_000;

/** Opens the API server that the environment or the pod's service account names; undefined if there is none. */
export async function findKubernetes(env: Environment, timeoutMs = TIMEOUT_MS): Promise<KubeApi | undefined> {
  const inPod = (env["KUBERNETES_SERVICE_HOST"] ?? "") !== "" && existsSync(ACCOUNT_TOKEN);
  const api = configFromEnvironment(env);
  if (api.kubeconfig === undefined && api.k8sAPIEndpoint === undefined && !inPod) return undefined;
  const config = chooseDatastore({ ...api, datastoreType: "kubernetes" }, { env });
  if (config.type !== "kubernetes") return undefined;
  return openKubeApi(config, env, { timeoutMs });
}

export interface KubernetesFacts {
  /** Set if kubeadm installed the cluster. */
  readonly kubeadm?: { readonly podSubnets: readonly Cidr[] };
  readonly isRancher: boolean;
  /** InternalIP addresses of this node. */
  readonly internalAddresses: readonly IpAddress[];
}

export async function readFacts(api: KubeApi, node: string): Promise<KubernetesFacts> {
  const kubeadm = await configMap(api, "kubeadm-config");
  const rancher = await configMap(api, "full-cluster-state");
  return {
    kubeadm: kubeadm === undefined ? undefined : { podSubnets: podSubnetsIn(kubeadm) },
    isRancher: rancher !== undefined,
    internalAddresses: await internalAddresses(api, node),
  };
}

type ConfigMap = KubeObject & { readonly data?: Readonly<Record<string, string>> };

/** Returns undefined if the ConfigMap does not exist or may not be read. */
async function configMap(api: KubeApi, name: string): Promise<ConfigMap | undefined> {
  try {
    return await api.get<ConfigMap>(`/api/v1/namespaces/kube-system/configmaps/${name}`);
  } catch (error) {
    if ([401, 403, 404].includes(statusCode(error) ?? 0)) return undefined;
    throw new FatalNodeError(`cannot read ConfigMap kube-system/${name}`, { cause: error });
  }
}

/** Returns the subnets before the first invalid one. */
export function podSubnetsIn({ data }: Pick<ConfigMap, "data">): readonly Cidr[] {
  for (const text of Object.values(data ?? {})) {
    const list = /podSubnet:[ \t]*(.*)/.exec(text)?.[1];
    if (list === undefined) continue;
    const subnets: Cidr[] = [];
    for (const item of list.split(",")) {
      const cidr = tryParseCidr(item.trim().replaceAll(/^["']|["']$/g, ""));
      if (cidr === undefined) break;
      subnets.push(cidr);
    }
    return subnets;
  }
  return [];
}

async function internalAddresses(api: KubeApi, node: string): Promise<readonly IpAddress[]> {
  type KubeNode = KubeObject & {
    readonly status?: { readonly addresses?: readonly { readonly type: string; readonly address: string }[] };
  };
  try {
    const { status } = await api.get<KubeNode>(`/api/v1/nodes/${encodeURIComponent(node)}`);
    return (status?.addresses ?? []).flatMap(({ type, address }) =>
      type === "InternalIP" ? (tryParseAddress(address) ?? []) : [],
    );
  } catch (error) {
    throw new FatalNodeError(`cannot read the Kubernetes node ${node}: set CALICO_K8S_NODE_REF to its name`, {
      cause: error,
    });
  }
}

/** The scheduler assigns no pods to a node whose condition is True. */
export async function setNetworkUnavailable(
  api: KubeApi,
  node: string,
  isDown: boolean,
  signal?: AbortSignal,
): Promise<void> {
  const now = new Date().toISOString().replace(/\.\d+/, "");
  const condition = {
    type: "NetworkUnavailable",
    status: isDown ? "True" : "False",
    reason: isDown ? "CalicoIsDown" : "CalicoIsUp",
    message: isDown ? "Calico is shutting down on this node" : "Calico is running on this node",
    lastTransitionTime: now,
    lastHeartbeatTime: now,
  };
  await api.json({
    method: "PATCH",
    path: `/api/v1/nodes/${encodeURIComponent(node)}/status`,
    body: { status: { conditions: [condition] } },
    contentType: "application/strategic-merge-patch+json",
    signal,
  });
}

/** The HTTP status with which the API server rejected the request. */
function statusCode(error: unknown): number | undefined {
  return error instanceof Error && error.name === "KubeStatusError" ? (error as { code?: number }).code : undefined;
}
