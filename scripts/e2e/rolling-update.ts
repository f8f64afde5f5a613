// A rolling restart of calico-node under traffic: every probe is a new connection or a new datagram flow between pods on
// different nodes. None of those allowed may be lost, none of those denied may arrive. Meanwhile other namespaces with
// pods and policies are deleted.
import { readFileSync } from "node:fs";
import { spawn } from "node:child_process";
import { PacketProber, type ProbeRequest, type ProbeTarget } from "../../src/kernel/index.ts";
import type { LabPod } from "../../src/lab/folder.ts";
import type { KubernetesCluster } from "../../src/lab/kubernetes/cluster.ts";
import { addClusterPods, clusterPods } from "../../src/lab/kubernetes/pods.ts";
import { baseEnvironment } from "../../src/lab/host.ts";
import { parseAddress } from "../../src/lib/ip.ts";
import { endTenants, makeTenants } from "./tenants.ts";
import { Witness } from "./witness.ts";

const PORT = 8080;
const NAMESPACE = "rolling-update";
const PACE_MS = 20;
const SLOW_MS = 500;
const AFTERMATH_MS = 5000;

export interface RollingUpdate {
  readonly sent: number;
  readonly lost: number;
  readonly denied: number;
  /** Of those denied. */
  readonly arrived: number;
  /** When which probes went astray. */
  readonly faults: readonly string[];
}

export interface RollingOptions {
  /** Where what happened is written, and kept when a probe went astray. */
  readonly evidence: string;
}

export async function rollUnderTraffic(
  cluster: KubernetesCluster,
  { evidence }: RollingOptions,
): Promise<RollingUpdate> {
  makeTenants(cluster);
  cluster.kubectl(
    ["apply", "--filename=-"],
    JSON.stringify({ apiVersion: "v1", kind: "List", items: [NAMESPACE_OBJECT, POLICY] }),
  );
  const nodes = cluster.lab.plan.nodes.map(({ name }) => name);
  const wanted = ["server", "client", "intruder"].map((name, i) => ({
    namespace: NAMESPACE,
    name,
    node: nodes[i % nodes.length] ?? "node1",
    labels: { role: name },
  }));
  addClusterPods(cluster, wanted);
  const pods = clusterPods(cluster).filter(({ namespace }) => namespace === NAMESPACE);
  using open = cluster.lab.openPods(pods);
  using prober = new PacketProber();
  try {
    const pod = (name: string): LabPod & { readonly target: ProbeTarget } => {
      const found = pods.find((each) => each.name === name);
      const target = found === undefined ? undefined : open.targets.get(found);
      if (found === undefined || target === undefined) throw new Error(`pod ${name} is not there`);
      return { ...found, target };
    };
    for (const name of ["server", "client"])
      for (const protocol of ["tcp", "udp"] as const) prober.listen(pod(name).target, protocol, PORT);
    const request = (from: string, to: string, protocol: "tcp" | "udp" | "icmp"): ProbeRequest => ({
      from: pod(from).target,
      to: parseAddress(pod(to).addresses[0] ?? ""),
      protocol,
      port: PORT,
    });
    const allowed = (["tcp", "udp", "icmp"] as const).flatMap((protocol) => [
      request("client", "server", protocol),
      request("server", "client", protocol),
    ]);
    const denied = (["tcp", "udp", "icmp"] as const).map((protocol) => request("intruder", "server", protocol));
    await enforced(prober, allowed, denied);
    const witness = new Witness(cluster, evidence);
    let result: RollingUpdate | undefined;
    try {
      result = await countWhile(prober, allowed, denied, witness, async () => {
        await Promise.all([restart(cluster), endTenants(cluster)]);
        await Bun.sleep(AFTERMATH_MS); // what the last agent does once it is ready counts too
      });
      return result;
    } finally {
      await witness.end(result === undefined || result.lost + result.arrived > 0);
    }
  } finally {
    cluster.tryKubectl(["delete", "namespace", NAMESPACE, "--wait=true"]);
  }
}

async function enforced(prober: PacketProber, allowed: ProbeRequest[], denied: ProbeRequest[]): Promise<void> {
  const deadline = performance.now() + 60_000;
  for (;;) {
    const outcomes = await prober.probe([...allowed, ...denied], { timeoutMs: 500 });
    if (outcomes.every(({ result }, i) => (result === "reached") === i < allowed.length)) return;
    if (performance.now() > deadline)
      throw new Error(`before the update: ${outcomes.map(({ result }) => result).join(" ")}`);
  }
}

async function countWhile(
  prober: PacketProber,
  allowed: readonly ProbeRequest[],
  denied: readonly ProbeRequest[],
  witness: Witness,
  work: () => Promise<void>,
): Promise<RollingUpdate> {
  const counts = { sent: 0, lost: 0, denied: 0, arrived: 0 };
  const faults: string[] = [];
  const overflowsBefore = arpOverflows();
  const begun = performance.now();
  let isOver = false;
  const keepSending = async (
    requests: readonly ProbeRequest[],
    timeoutMs: number,
    count: (reached: boolean, fault: (what: string) => void) => void,
  ) => {
    for (let round = 1; !isOver; round++) {
      const started = performance.now();
      const sentAt = new Date().toISOString();
      const outcomes = await prober.probe(requests, { timeoutMs });
      const took = performance.now() - started;
      if (took > SLOW_MS && timeoutMs > SLOW_MS)
        witness.note(`round ${round} sent ${sentAt} took ${took.toFixed(0)} ms`);
      for (const [i, { from, to, protocol }] of requests.entries())
        count(outcomes[i]?.result === "reached", (what) => {
          const probe = `${protocol} ${from.name} to ${to}, round ${round}, sent ${sentAt}`;
          witness.note(`${probe}: ${what} ${JSON.stringify(outcomes[i])}`);
          void witness.snapshot();
          faults.push(`${((started - begun) / 1000).toFixed(1)} s: ${probe} ${what}`);
        });
      await Bun.sleep(Math.max(0, PACE_MS - took));
    }
  };
  const sending = keepSending(allowed, 3000, (reached, fault) => {
    counts.sent++;
    if (reached) return;
    counts.lost++;
    fault("was lost");
  });
  const trying = keepSending(denied, 100, (reached, fault) => {
    counts.denied++;
    if (!reached) return;
    counts.arrived++;
    fault("arrived");
  });
  try {
    await work();
  } finally {
    isOver = true;
    await Promise.all([sending, trying]);
  }
  // The kernel has one table for all namespaces of a machine: when others fill it, packets are lost that we cannot save.
  const overflows = arpOverflows() - overflowsBefore;
  if (counts.lost > 0 && overflows > 0)
    faults.push(`the machine's ARP table was full ${overflows} times meanwhile (net.ipv4.neigh.default.gc_thresh3)`);
  return { ...counts, faults };
}

/** Column `table_fulls`, one row a processor. */
function arpOverflows(): number {
  const [names = "", ...rows] = readFileSync("/proc/net/stat/arp_cache", "utf8").trim().split("\n");
  const column = names.trim().split(/\s+/).indexOf("table_fulls");
  return rows.reduce((sum, row) => sum + Number.parseInt(row.trim().split(/\s+/)[column] ?? "0", 16), 0);
}

async function restart(cluster: KubernetesCluster): Promise<void> {
  for (const words of [
    ["rollout", "restart", "--namespace=kube-system", "daemonset/calico-node"],
    ["rollout", "status", "--namespace=kube-system", "--timeout=300s", "daemonset/calico-node"],
  ]) {
    const [file, ...args] = cluster.kubectlCommand(words);
    const child = spawn(file, args, { env: baseEnvironment(), stdio: "ignore" });
    const code = await new Promise<number | null>((resolve) => child.once("exit", resolve));
    if (code !== 0) throw new Error(`kubectl ${words.join(" ")} ended with ${code}`);
  }
}

const NAMESPACE_OBJECT = { apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE } };

/** The server hears the client alone. */
const POLICY = {
  apiVersion: "networking.k8s.io/v1",
  kind: "NetworkPolicy",
  metadata: { name: "only-the-client", namespace: NAMESPACE },
  spec: {
    podSelector: { matchLabels: { role: "server" } },
    policyTypes: ["Ingress"],
    ingress: [{ from: [{ podSelector: { matchLabels: { role: "client" } } }] }],
  },
};
