// What stands and what does not, as Kubernetes says it of each node.
import type { Lab } from "../lab.ts";
import type { HostStatus } from "../status.ts";
import { KubernetesCluster } from "./cluster.ts";

interface PodObject {
  readonly spec: { readonly nodeName?: string };
}

export function clusterStatus(lab: Lab): HostStatus[] {
  const cluster = new KubernetesCluster(lab);
  const answer = cluster.tryKubectl(["get", "nodes", "--request-timeout=5s"]);
  const ready = answer.code === 0 ? cluster.readyNodes() : [];
  const pods = answer.code === 0 ? cluster.get<{ items: readonly PodObject[] }>(["pods", "-A"]).items : [];
  return lab.plan.nodes.map(({ name, interfaces }) => {
    const base = {
      host: name,
      addresses: interfaces.flatMap((nic) => nic.addresses),
      pods: pods.filter(({ spec }) => spec.nodeName === name).length,
    };
    if (lab.host(name).holder === undefined)
      return { ...base, state: "down", detail: "the host is gone; calico lab up" };
    if (answer.code !== 0)
      return { ...base, state: "not ready", detail: answer.stderr.trim().split("\n").at(-1) ?? "" };
    const isReady = ready.includes(name);
    return {
      ...base,
      state: isReady ? "ready" : "not ready",
      detail: isReady ? "" : `calico lab kubectl describe node ${name}`,
    };
  });
}
