// Reports the state of each node of a cluster.
import type { Lab } from "../lab.ts";
import type { HostStatus } from "../status.ts";
import { KubernetesCluster } from "./cluster.ts";

interface PodObject {
  readonly spec: { readonly nodeName?: string };
}

export function clusterStatus(lab: Lab): HostStatus[] {
  const cluster = new KubernetesCluster(lab);
  const result = cluster.tryKubectl(["get", "nodes", "--request-timeout=5s"]);
  const ready = result.code === 0 ? cluster.readyNodes() : [];
  const pods = result.code === 0 ? cluster.get<{ items: readonly PodObject[] }>(["pods", "-A"]).items : [];
  return lab.plan.nodes.map(({ name, interfaces }) => {
    const base = {
      host: name,
      addresses: interfaces.flatMap((nic) => nic.addresses),
      pods: pods.filter(({ spec }) => spec.nodeName === name).length,
    };
    if (lab.host(name).holder === undefined)
      return { ...base, state: "down", detail: "the host does not run; start it with calico lab up" };
    if (result.code !== 0)
      return { ...base, state: "not ready", detail: result.stderr.trim().split("\n").at(-1) ?? "" };
    const isReady = ready.includes(name);
    return {
      ...base,
      state: isReady ? "ready" : "not ready",
      detail: isReady ? "" : `see calico lab kubectl describe node ${name}`,
    };
  });
}
