// The API server and its etcd are killed and come back: pods reach meanwhile whom they reached before, and nobody else.
import { breakLab, healLab } from "../../src/lab/faults.ts";
import type { KubernetesCluster } from "../../src/lab/kubernetes/cluster.ts";
import { addClusterPods } from "../../src/lab/kubernetes/pods.ts";
import { Lab } from "../../src/lab/lab.ts";
import { measureMatrix } from "../../src/lab/matrix.ts";

const NAMESPACE = "outage";
const ROUNDS = 5;
const WITHIN_MS = 60_000;
/** Each to itself and to the other, but for the way policy closes. */
const EXPECTED = ["client client", "client server", "server server"];

/** What went otherwise; empty when nothing did. */
export async function surviveOutage({ lab: { folder } }: KubernetesCluster): Promise<string[]> {
  const lab = Lab.open(folder.name);
  const { cluster } = lab;
  if (cluster === undefined) throw new Error(`lab ${folder.name} is no cluster`);
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
  const look = async (when: string): Promise<boolean> => {
    const found = await reached(lab);
    const isRight = found.join() === EXPECTED.join();
    if (!isRight) faults.push(`${when}: ${found.join(", ") || "nobody reaches anybody"}`);
    return isRight;
  };
  const settle = async (when: string) => {
    const deadline = performance.now() + WITHIN_MS;
    while (!(await look(when)) && performance.now() < deadline) faults.pop();
  };
  try {
    await settle("before");
    breakLab(lab, ["datastore"]);
    for (let i = 1; i <= ROUNDS; i++) await look(`without the API server, round ${i}`);
    await healLab(lab);
    for (let i = 1; i <= ROUNDS; i++) await look(`with it again, round ${i}`);
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
  metadata: { name: "client-hears-nobody", namespace: NAMESPACE },
  spec: { podSelector: { matchLabels: { name: "client" } }, policyTypes: ["Ingress"] },
};
