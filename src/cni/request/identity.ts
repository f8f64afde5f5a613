// Identifies the endpoint of a request: by pod for Kubernetes, by container for other runtimes.
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

/** True if the pod may run a virtual machine. KubeVirt gives all its pods this prefix, so no API call is needed for other pods. */
export const mayRunVirtualMachine = ({ orchestrator, pod }: EndpointIdentity): boolean =>
  orchestrator === "k8s" && pod.startsWith("virt-launcher-");

/** Returns the fields that the endpoint's name consists of. */
export function nameFields(identity: EndpointIdentity): WorkloadNameFields {
  const { node, orchestrator, pod, containerId, endpoint } = identity;
  return { node, orchestrator, pod, containerID: containerId, endpoint };
}

/** Returns the name of the host's interface. It depends on the pod, not on its container. */
export function hostInterfaceName(identity: EndpointIdentity, prefix: string): string {
  if (identity.orchestrator === "cni") return `cali${identity.containerId.slice(0, 11)}`;
  // Bun's hasher, because loading node:crypto takes longer than the rest of this file.
  const hash = new Bun.CryptoHasher("sha1").update(`${identity.namespace}.${identity.pod}`).digest("hex");
  return prefix + hash.slice(0, 11);
}

/**
 * Returns a name for the host's interface if another workload has the usual one. The name cannot be computed before the
 * container runtime has chosen the container's ID.
 * @param attempt number of the attempt; each gives another name
 */
export function alternativeInterfaceName(identity: EndpointIdentity, prefix: string, attempt: number): string {
  const { orchestrator, containerId, namespace, pod } = identity;
  const hash = new Bun.CryptoHasher("sha256").update(`${attempt} ${containerId} ${namespace}/${pod}`).digest("hex");
  return (orchestrator === "cni" ? "cali" : prefix) + hash.slice(0, 11);
}
