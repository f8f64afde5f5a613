// Manages pods of a lab with kubelets. Each running Pod with its own address is a pod of the lab, also if it was not created
// with `calico lab pod add`.
import { readdirSync } from "node:fs";
import { NetworkNamespace, openRtnetlink } from "../../kernel/index.ts";
import type { LabPod, NewPod } from "../folder.ts";
import { namespaceFolderOf } from "../process.ts";
import type { KubernetesCluster } from "./cluster.ts";
import { AGNHOST_IMAGE } from "./image-names.ts";

const READY_WITHIN = "120s";

interface PodObject {
  readonly metadata: {
    readonly name: string;
    readonly namespace: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly deletionTimestamp?: string;
  };
  readonly spec: { readonly nodeName?: string; readonly hostNetwork?: boolean };
  readonly status: { readonly phase?: string; readonly podIPs?: readonly { readonly ip: string }[] };
}

export function clusterPods(cluster: KubernetesCluster): LabPod[] {
  const { items } = cluster.get<{ items: readonly PodObject[] }>(["pods", "--all-namespaces"]);
  return items.flatMap((pod) => labPod(pod) ?? []);
}

/** Returns undefined if the pod does not run or has no own network. */
export function labPod({ metadata, spec, status }: PodObject): LabPod | undefined {
  const addresses = (status.podIPs ?? []).map(({ ip }) => ip);
  const isRunning = status.phase === "Running" && metadata.deletionTimestamp === undefined;
  if (!isRunning || spec.hostNetwork === true || spec.nodeName === undefined || addresses.length === 0)
    return undefined;
  const { namespace, name, labels = {} } = metadata;
  return { namespace, name, node: spec.nodeName, addresses, labels };
}

/** Creates missing pods, and waits until all are ready. */
export function addClusterPods(cluster: KubernetesCluster, pods: readonly NewPod[]): void {
  const namespaces = [...new Set(pods.map(({ namespace }) => namespace))];
  const items = [
    ...namespaces.map((name) => ({ apiVersion: "v1", kind: "Namespace", metadata: { name } })),
    ...pods.map(podObject),
  ];
  cluster.kubectl(["apply", "--filename=-"], JSON.stringify({ apiVersion: "v1", kind: "List", items }));
  for (const namespace of namespaces) {
    const names = pods.filter((pod) => pod.namespace === namespace).map(({ name }) => `pod/${name}`);
    const wait = ["wait", `--namespace=${namespace}`, "--for=condition=Ready", `--timeout=${READY_WITHIN}`];
    cluster.kubectl([...wait, ...names]);
  }
}

export function deleteClusterPod(cluster: KubernetesCluster, { namespace, name }: LabPod): void {
  cluster.kubectl(["delete", "pod", `--namespace=${namespace}`, name, "--wait=true"]);
}

/** A pod without activity of its own: the lab sends and receives packets in its namespace. */
function podObject({ namespace, name, node, labels }: NewPod): object {
  const container = { name: "agnhost", image: AGNHOST_IMAGE, args: ["pause"], imagePullPolicy: "Never" };
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { namespace, name, labels: { name, ...labels } },
    spec: { nodeName: node, terminationGracePeriodSeconds: 0, containers: [container] },
  };
}

/** Finds the name of each pod's network namespace on its node, by the pod's address. */
export function podNamespaceNames(cluster: KubernetesCluster, pods: readonly LabPod[]): Map<LabPod, string> {
  const found = new Map<LabPod, string>();
  for (const { host } of cluster.places) {
    const own = pods.filter(({ node }) => node === host.name);
    if (own.length === 0) continue;
    const holder = host.holder;
    if (holder === undefined) throw new Error(`node ${host.name} is down`);
    const names = namesByAddress(namespaceFolderOf(holder.pid));
    for (const pod of own) {
      const name = pod.addresses.map((address) => names.get(address)).find((each) => each !== undefined);
      if (name === undefined)
        throw new Error(`pod ${pod.namespace}/${pod.name}: no network namespace on ${host.name} has its address`);
      found.set(pod, name);
    }
  }
  return found;
}

function namesByAddress(folder: string): Map<string, string> {
  const names = new Map<string, string>();
  for (const name of readdirSync(folder)) {
    try {
      using namespace = NetworkNamespace.open(`${folder}/${name}`);
      using kernel = openRtnetlink(namespace);
      for (const { address } of kernel.addresses.list()) names.set(address, name);
    } catch {
      // the pod was deleted meanwhile
    }
  }
  return names;
}
