// Kills the API server and its etcd and restarts them. During the outage, the connectivity between pods must not change.
import { breakLab, healLab } from "../../src/lab/faults.ts";
import type { KubernetesCluster } from "../../src/lab/kubernetes/cluster.ts";
import { addClusterPods } from "../../src/lab/kubernetes/pods.ts";
import { Lab } from "../../src/lab/lab.ts";
import { measureMatrix } from "../../src/lab/matrix.ts";

const NAMESPACE = "outage";
const ROUNDS = 5;
const WITHIN_MS = 60_000;
/** Each pod reaches itself and the other pod, except in the direction that policy denies. */
const EXPECTED = ["client client", "client server", "server server"];

/** Returns the unexpected results; empty if there are none. */
export async function findOutageFaults({ lab: { folder } }: KubernetesCluster): Promise<string[]> {
  const lab = Lab.open(folder.name);
  const { cluster } = lab;
  if (cluster === undefined) throw new Error(`lab ${folder.name} is not a cluster`);
  const nodes = lab.plan.nodes.map(({ name }) => name);
  const pod = (name: string, i: number) => ({
    namespace: NAMESPACE,
    name,
    node: nodes[i % nodes.length] ?? "node1",
    labels: {},
  });
  addClusterPods(cluster, ["client", "server"].map(pod));
  cluster.kubectl(["apply", "--filename=-"], JSON.stringify(POLICY));
  const faults: string[] = [];
  const check = async (when: string): Promise<boolean> => {
    const found = await reached(lab);
    const isExpected = found.join() === EXPECTED.join();
    if (!isExpected) faults.push(`${when}: ${found.join(", ") || "no pod reaches another"}`);
    return isExpected;
  };
  const waitUntilExpected = async (when: string) => {
    const deadline = performance.now() + WITHIN_MS;
    while (!(await check(when)) && performance.now() < deadline) faults.pop();
  };
  try {
    await waitUntilExpected("before");
    breakLab(lab, ["datastore"]);
    for (let i = 1; i <= ROUNDS; i++) await check(`without the API server, round ${i}`);
    await healLab(lab);
    for (let i = 1; i <= ROUNDS; i++) await check(`with it again, round ${i}`);
    await cluster.until("all nodes are Ready", () => cluster.readyNodes().length === nodes.length, WITHIN_MS);
    return faults;
  } finally {
    await healLab(lab);
    cluster.tryKubectl(["delete", "namespace", NAMESPACE, "--wait=true"]);
  }
}

async function reached(lab: Lab): Promise<string[]> {
  const options = { protocol: "tcp", port: 80, version: 4, timeoutMs: 2000, namespace: NAMESPACE } as const;
  const cells = await measureMatrix(lab, options);
  return cells
    .filter(({ result }) => result === "reached")
    .map(({ from, to }) => `${from} ${to}`.replaceAll(`${NAMESPACE}/`, ""))
    .sort();
}

const POLICY = {
  apiVersion: "networking.k8s.io/v1",
  kind: "NetworkPolicy",
  metadata: { name: "deny-ingress-of-client", namespace: NAMESPACE },
  spec: { podSelector: { matchLabels: { name: "client" } }, policyTypes: ["Ingress"] },
};
