// Which node of Kubernetes a node of ours stands for, and what is kept of it.
import type { Labels, Resource, SpecOf } from "../../model/index.ts";

export interface KubernetesNode {
  readonly labels: Labels;
}

/** Undefined for a node that is none of Kubernetes'. */
export function kubernetesName(node: Resource): string | undefined {
  const { orchRefs = [] } = node.spec as SpecOf<"Node">;
  const name = orchRefs.find(({ orchestrator }) => orchestrator === "k8s")?.nodeName;
  return name === "" ? undefined : name;
}
