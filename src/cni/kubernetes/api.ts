// Declares the Kubernetes objects that the plugin reads, and the interface that returns them.
import type { Labels, OwnerReference } from "../../model/index.ts";

export interface PodContainerPort {
  readonly name?: string;
  readonly protocol?: string;
  readonly containerPort?: number;
  readonly hostPort?: number;
  readonly hostIP?: string;
}

export interface KubernetesPod {
  readonly metadata: {
    readonly name: string;
    readonly namespace: string;
    readonly uid?: string;
    readonly generateName?: string;
    readonly labels?: Labels;
    readonly annotations?: Labels;
    readonly ownerReferences?: readonly OwnerReference[];
  };
  readonly spec: {
    readonly nodeName?: string;
    readonly serviceAccountName?: string;
    readonly containers?: readonly { readonly ports?: readonly PodContainerPort[] }[];
    readonly initContainers?: readonly { readonly ports?: readonly PodContainerPort[] }[];
  };
}

export interface KubernetesNamespace {
  readonly metadata: { readonly name: string; readonly labels?: Labels; readonly annotations?: Labels };
}

export interface KubernetesNode {
  readonly metadata: { readonly name: string };
  readonly spec: { readonly podCIDR?: string; readonly podCIDRs?: readonly string[] };
}

/** A KubeVirt VirtualMachine or VirtualMachineInstance. The instance exists while the machine runs. */
export interface KubernetesMachine {
  readonly metadata: {
    readonly name: string;
    readonly uid?: string;
    readonly deletionTimestamp?: string;
    readonly ownerReferences?: readonly OwnerReference[];
  };
}

/** Methods reject with `MissingObject` if the object does not exist. */
export interface KubernetesApi {
  pod(namespace: string, name: string): Promise<KubernetesPod>;
  namespace(name: string): Promise<KubernetesNamespace>;
  node(name: string): Promise<KubernetesNode>;
  machine(namespace: string, name: string): Promise<KubernetesMachine>;
  machineInstance(namespace: string, name: string): Promise<KubernetesMachine>;
  /** Resolves if the API server responds. */
  version(): Promise<unknown>;
}
