// What ADD wants to know of Kubernetes, whoever answers.
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

/** A KubeVirt machine, or an instance of one: what runs while it is on. */
export interface KubernetesMachine {
  readonly metadata: {
    readonly name: string;
    readonly uid?: string;
    readonly deletionTimestamp?: string;
    readonly ownerReferences?: readonly OwnerReference[];
  };
}

/** Rejects with a `MissingObject` that names the object when there is none. */
export interface KubernetesApi {
  pod(namespace: string, name: string): Promise<KubernetesPod>;
  namespace(name: string): Promise<KubernetesNamespace>;
  node(name: string): Promise<KubernetesNode>;
  machine(namespace: string, name: string): Promise<KubernetesMachine>;
  machineInstance(namespace: string, name: string): Promise<KubernetesMachine>;
  /** Whether the API answers at all. */
  version(): Promise<unknown>;
}
