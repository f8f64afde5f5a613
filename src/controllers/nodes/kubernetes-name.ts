// Finds the Kubernetes Node that a Calico Node represents.
import { ignoreUnreadable, type Labels, readNode, type Resource } from "../../model/index.ts";

/** The fields of a Kubernetes Node that the controllers use. */
export interface KubernetesNode {
  readonly labels: Labels;
}

/** @returns undefined if the node does not belong to Kubernetes */
export function kubernetesNodeName(node: Resource): string | undefined {
  return readNode(node, ignoreUnreadable).orchRefs.find(({ orchestrator }) => orchestrator === "k8s")?.nodeName;
}
