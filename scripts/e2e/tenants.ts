// Creates namespaces like those of the specs, with pods on every node and several policies, which are deleted while the agents
// are replaced. A restarted agent finds their endpoints, sets and chains in the kernel, but not in the datastore.
import { spawn } from "node:child_process";
import { baseEnvironment } from "../../src/lab/host.ts";
import type { KubernetesCluster } from "../../src/lab/kubernetes/cluster.ts";
import { AGNHOST_IMAGE } from "../../src/lab/kubernetes/image-names.ts";

const NAMESPACES = ["tenant-x", "tenant-y", "tenant-z"];
const PODS = ["a", "b", "c"];

/** Creates the namespaces and waits until their pods are ready. */
export function createTenants(cluster: KubernetesCluster): void {
  cluster.tryKubectl(["delete", "namespace", ...NAMESPACES, "--ignore-not-found", "--wait=true"]);
  const nodes = cluster.lab.plan.nodes.map(({ name }) => name);
  const items = NAMESPACES.flatMap((namespace) => [
    { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace, labels: { ns: namespace } } },
    ...policies(namespace),
    ...PODS.map((pod, i) => podObject(namespace, pod, nodes[i % nodes.length])),
  ]);
  cluster.kubectl(["apply", "--filename=-"], JSON.stringify({ apiVersion: "v1", kind: "List", items }));
  for (const namespace of NAMESPACES)
    cluster.kubectl(["wait", `--namespace=${namespace}`, "--for=condition=Ready", "pod", "--all", "--timeout=180s"]);
}

/** Requests the deletion of the namespaces and does not wait for it. */
export function deleteTenants(cluster: KubernetesCluster): Promise<void> {
  const [file, ...args] = cluster.kubectlCommand(["delete", "namespace", ...NAMESPACES, "--wait=false"]);
  const child = spawn(file, args, { env: baseEnvironment(), stdio: "ignore" });
  return new Promise((resolve) => child.once("exit", () => resolve()));
}

function podObject(namespace: string, name: string, nodeName: string | undefined): object {
  const container = { name: "agnhost", image: AGNHOST_IMAGE, args: ["pause"], imagePullPolicy: "Never" };
  const metadata = { name, namespace, labels: { pod: name } };
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata,
    spec: { nodeName, terminationGracePeriodSeconds: 1, containers: [container] },
  };
}

function policies(namespace: string): object[] {
  const policy = (name: string, spec: object) => ({
    apiVersion: "networking.k8s.io/v1",
    kind: "NetworkPolicy",
    metadata: { name, namespace },
    spec,
  });
  const others = NAMESPACES.filter((other) => other !== namespace);
  return [
    policy("deny", { podSelector: {}, policyTypes: ["Ingress", "Egress"] }),
    policy("own", { podSelector: {}, ingress: [{ from: [{ podSelector: {} }] }], policyTypes: ["Ingress"] }),
    policy("others", {
      podSelector: { matchLabels: { pod: "a" } },
      policyTypes: ["Ingress", "Egress"],
      ingress: others.map((ns) => ({ from: [{ namespaceSelector: { matchLabels: { ns } } }], ports: [{ port: 80 }] })),
      egress: [{ to: [{ ipBlock: { cidr: "10.0.0.0/8", except: ["10.77.0.0/24"] } }] }],
    }),
  ];
}
