// Runs `calicoctl doctor` on a healthy cluster: on every host, in every calico-node pod, and from outside. It must find
// nothing, run all checks, and print which hosts it examined.
import { spawnSync } from "node:child_process";
import { FABRIC } from "../../src/lab/fabric.ts";
import { baseEnvironment } from "../../src/lab/host.ts";
import type { KubernetesCluster } from "../../src/lab/kubernetes/cluster.ts";
import { inNamespace } from "../../src/lab/kubernetes/control-plane.ts";
import type { KubernetesHost } from "../../src/lab/kubernetes/host.ts";
import { datastoreEnvironment, rolePath } from "../../src/lab/programs.ts";
import { delay } from "../../src/lib/retry.ts";

const WITHIN_MS = 60_000;

interface Answer {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Returns the unexpected output of each run; empty if the cluster is healthy. */
export async function examineEverywhere(cluster: KubernetesCluster): Promise<readonly string[]> {
  const names = cluster.places.map(({ host }) => host.name);
  const headline = (here: string | undefined): string => {
    const others = names.filter((name) => name !== here);
    return [
      `Examined: the datastore (${names.length} nodes)${here === undefined ? "" : `, this host (${here})`}.`,
      ` Not examined: ${others.length === 1 ? "host" : "hosts"} ${others.join(", ")}.`,
    ].join("");
  };
  const runs: readonly { where: string; here?: string; run: () => Answer }[] = [
    ...cluster.places.flatMap(({ host }) => [
      { where: `on host ${host.name}`, here: host.name, run: () => onHost(cluster, host) },
      { where: `in the pod on ${host.name}`, here: host.name, run: () => inPod(cluster, host.name) },
    ]),
    { where: "from outside", run: () => outside(cluster) },
  ];
  const faults: string[] = [];
  for (const { where, here, run } of runs) {
    const want = `${headline(here)}\n\nNothing wrong found.\n`;
    const isAsWanted = ({ code, stdout }: Answer): boolean => code === 0 && stdout === want;
    const deadline = performance.now() + WITHIN_MS; // sessions and routes of a new cluster need some time
    let answer = run();
    while (!isAsWanted(answer) && performance.now() < deadline) {
      await delay(1000);
      answer = run();
    }
    if (!isAsWanted(answer)) faults.push(`doctor ${where}: ${answer.stdout}${answer.stderr}`);
  }
  return faults;
}

const onHost = ({ lab }: KubernetesCluster, host: KubernetesHost): Answer =>
  host.run([rolePath("calicoctl"), "doctor"], { environment: datastoreEnvironment(lab.options, lab.plan) });

function inPod(cluster: KubernetesCluster, node: string): Answer {
  const select = ["--selector=k8s-app=calico-node", `--field-selector=spec.nodeName=${node}`];
  const pod = cluster.kubectl(["get", "pods", "--namespace=kube-system", ...select, "--output=name"]).trim();
  return cluster.tryKubectl([
    ...["exec", "--namespace=kube-system", pod, "--container=calico-node"],
    ...["--", "calicoctl", "doctor"],
  ]);
}

/** Runs in the namespace of the lab's switch, which is not a node. */
function outside(cluster: KubernetesCluster): Answer {
  const namespace = cluster.folder.namespace(FABRIC);
  const [file, ...args] = inNamespace({ namespace }, [rolePath("calicoctl"), "doctor"]);
  const env = {
    ...baseEnvironment(),
    DATASTORE_TYPE: "kubernetes",
    KUBECONFIG: cluster.kubeconfig,
    CALICO_NODENAME_FILE: "/nonexistent", // the machine itself may be a node of another cluster
  };
  const { status, stdout, stderr } = spawnSync(file, args, { encoding: "utf8", env });
  return { code: status ?? 1, stdout, stderr };
}
