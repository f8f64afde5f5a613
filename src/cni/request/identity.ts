// Who the endpoint is: for Kubernetes its pod, for any other runtime its container.
import type { WorkloadNameFields } from "../../model/index.ts";
import type { NetConf } from "./net-conf.ts";
import { nodeName } from "./node-files.ts";
import type { CniRequest } from "./request.ts";

export interface EndpointIdentity {
  readonly orchestrator: "k8s" | "cni";
  readonly node: string;
  readonly namespace: string;
  readonly containerId: string;
  /** Empty for `cni`. */
  readonly pod: string;
  /** Name of the interface in the pod. */
  readonly endpoint: string;
}

export function identify(request: CniRequest, conf: NetConf): EndpointIdentity {
  const { podName, podNamespace, testNamespace } = request.args;
  const isPod = podName !== undefined && podNamespace !== undefined;
  return {
    orchestrator: isPod ? "k8s" : "cni",
    node: nodeName(conf),
    namespace: isPod ? podNamespace : (testNamespace ?? "default"),
    containerId: request.containerId,
    pod: isPod ? podName : "",
    endpoint: request.ifName,
  };
}

/**
 * Whether the pod may run a virtual machine: KubeVirt names all that do so. Told without a question, so that no other pod
 * costs one.
 */
export const mayRunVirtualMachine = ({ orchestrator, pod }: EndpointIdentity): boolean =>
  orchestrator === "k8s" && pod.startsWith("virt-launcher-");

/** What the endpoint's name is built from. */
export function nameFields(identity: EndpointIdentity): WorkloadNameFields {
  const { node, orchestrator, pod, containerId, endpoint } = identity;
  return { node, orchestrator, pod, containerID: containerId, endpoint };
}

/** The host's end of the wire: the same for the same pod, whatever its container. */
export function hostInterfaceName(identity: EndpointIdentity, prefix: string): string {
  if (identity.orchestrator === "cni") return `cali${identity.containerId.slice(0, 11)}`;
  // The runtime's own hasher: loading node:crypto takes longer than all else of a pod's identity.
  const hash = new Bun.CryptoHasher("sha1").update(`${identity.namespace}.${identity.pod}`).digest("hex");
  return prefix + hash.slice(0, 11);
}

/**
 * A name for the host's end of the wire if another workload has the one above. Nobody can compute it before the container
 * runtime has chosen the container's ID.
 * @param attempt counts the names that were tried
 */
export function alternativeInterfaceName(identity: EndpointIdentity, prefix: string, attempt: number): string {
  const { orchestrator, containerId, namespace, pod } = identity;
  const hash = new Bun.CryptoHasher("sha256").update(`${attempt} ${containerId} ${namespace}/${pod}`).digest("hex");
  return (orchestrator === "cni" ? "cali" : prefix) + hash.slice(0, 11);
}
