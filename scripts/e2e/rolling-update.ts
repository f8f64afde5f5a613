// Restarts calico-node on all nodes in a rolling update while probes are sent between pods on different nodes. Every probe is
// a new connection or a new datagram flow. No allowed probe may be lost, and no denied probe may arrive. Meanwhile other
// namespaces with pods and policies are deleted.
import { spawn } from "node:child_process";
import { PacketProber, type ProbeRequest, type ProbeEndpoint } from "../../src/kernel/index.ts";
import type { LabPod } from "../../src/lab/folder.ts";
import type { KubernetesCluster } from "../../src/lab/kubernetes/cluster.ts";
import { addClusterPods, clusterPods } from "../../src/lab/kubernetes/pods.ts";
import { baseEnvironment } from "../../src/lab/host.ts";
import { parseAddress } from "../../src/lib/ip/ip.ts";
import { AgentTimeline } from "./agent-timeline.ts";
import { NeighbourOverflowMonitor } from "./neighbour-overflow.ts";
import { deleteTenants, createTenants } from "./tenants.ts";
import { EventRecorder } from "./event-recorder.ts";

const PORT = 8080;
const NAMESPACE = "rolling-update";
const INTERVAL_MS = 20;
const SLOW_MS = 500;
const SETTLE_MS = 5000;
const ALLOWED_TIMEOUT_MS = 3000;
const DENIED_TIMEOUT_MS = 100;
/** The maximum number of failed probes in the report. */
const MAX_REPORTED = 50;

export interface RollingUpdate {
  readonly sent: number;
  readonly lost: number;
  readonly denied: number;
  /** The number of denied probes that arrived. */
  readonly arrived: number;
  /** A timeline of the failed probes, the events of the agents and the overflows of the neighbour tables. */
  readonly faults: readonly string[];
}

export interface RollingOptions {
  /** The folder for recorded events, which is kept if a probe failed. */
  readonly evidence: string;
}

export async function rollUnderTraffic(
  cluster: KubernetesCluster,
  { evidence }: RollingOptions,
): Promise<RollingUpdate> {
  createTenants(cluster);
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
    const pod = (name: string): LabPod & { readonly target: ProbeEndpoint } => {
      const found = pods.find((each) => each.name === name);
      const target = found === undefined ? undefined : open.targets.get(found);
      if (found === undefined || target === undefined) throw new Error(`pod ${name} does not exist`);
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
    await waitUntilEnforced(prober, allowed, denied);
    const recorder = new EventRecorder(cluster, evidence);
    let result: RollingUpdate | undefined;
    try {
      result = await countWhile({ cluster, prober, allowed, denied, recorder }, async () => {
        await Promise.all([restart(cluster), deleteTenants(cluster)]);
        await Bun.sleep(SETTLE_MS); // includes the work of the last agent after it is ready
      });
      return result;
    } finally {
      await recorder.end(result === undefined || result.lost + result.arrived > 0);
    }
  } finally {
    cluster.tryKubectl(["delete", "namespace", NAMESPACE, "--wait=true"]);
  }
}

async function waitUntilEnforced(prober: PacketProber, allowed: ProbeRequest[], denied: ProbeRequest[]): Promise<void> {
  const deadline = performance.now() + 60_000;
  for (;;) {
    const outcomes = await prober.probe([...allowed, ...denied], { timeoutMs: 500 });
    if (outcomes.every(({ result }, i) => (result === "reached") === i < allowed.length)) return;
    if (performance.now() > deadline)
      throw new Error(`before the update: ${outcomes.map(({ result }) => result).join(" ")}`);
  }
}

interface Traffic {
  readonly cluster: KubernetesCluster;
  readonly prober: PacketProber;
  readonly allowed: readonly ProbeRequest[];
  readonly denied: readonly ProbeRequest[];
  readonly recorder: EventRecorder;
}
interface FailedProbe {
  readonly atMs: number;
  readonly text: string;
  readonly isLost: boolean;
}

async function countWhile(traffic: Traffic, work: () => Promise<void>): Promise<RollingUpdate> {
  const { cluster, prober, allowed, denied, recorder } = traffic;
  const counts = { sent: 0, lost: 0, denied: 0, arrived: 0 };
  const failedProbes: FailedProbe[] = [];
  const startMs = performance.now();
  const elapsed = () => performance.now() - startMs;
  const neighbours = new NeighbourOverflowMonitor();
  using agents = new AgentTimeline(cluster, elapsed);
  let isDone = false;
  const sendUntilDone = async (
    requests: readonly ProbeRequest[],
    timeoutMs: number,
    count: (reached: boolean, fault: (what: string) => void) => void,
  ) => {
    for (let round = 1; !isDone; round++) {
      neighbours.sample(elapsed());
      const atMs = elapsed();
      const sentAt = new Date().toISOString();
      const outcomes = await prober.probe(requests, { timeoutMs });
      const took = elapsed() - atMs;
      if (took > SLOW_MS && timeoutMs > SLOW_MS)
        recorder.note(`round ${round} sent ${sentAt} took ${took.toFixed(0)} ms`);
      for (const [i, { from, to, protocol }] of requests.entries())
        count(outcomes[i]?.result === "reached", (what) => {
          const probe = `${protocol} ${from.name} to ${to}, round ${round}, sent ${sentAt}`;
          recorder.note(`${probe}: ${what} ${JSON.stringify(outcomes[i])}`);
          void recorder.snapshot();
          failedProbes.push({ atMs, text: `${probe} ${what}`, isLost: what === "was lost" });
        });
      await Bun.sleep(Math.max(0, INTERVAL_MS - took));
    }
  };
  const sendingAllowed = sendUntilDone(allowed, ALLOWED_TIMEOUT_MS, (reached, fault) => {
    counts.sent++;
    if (reached) return;
    counts.lost++;
    fault("was lost");
  });
  const sendingDenied = sendUntilDone(denied, DENIED_TIMEOUT_MS, (reached, fault) => {
    counts.denied++;
    if (!reached) return;
    counts.arrived++;
    fault("arrived");
  });
  try {
    await work();
  } finally {
    isDone = true;
    await Promise.all([sendingAllowed, sendingDenied]);
  }
  neighbours.sample(elapsed());
  return { ...counts, faults: failedProbes.length === 0 ? [] : explain(failedProbes, agents.events, neighbours) };
}

/** Returns a timeline of failed probes, events of the agents and overflows of the neighbour tables. */
function explain(
  failedProbes: readonly FailedProbe[],
  agents: AgentTimeline["events"],
  neighbours: NeighbourOverflowMonitor,
): string[] {
  const overflows = neighbours.overflows.map(({ atMs, count }) => ({
    atMs,
    text: `the neighbour table of the machine was full, ${count} times (net.ipv4.neigh.default.gc_thresh3)`,
  }));
  const timeline = [...failedProbes.slice(0, MAX_REPORTED), ...agents, ...overflows].sort((a, b) => a.atMs - b.atMs);
  const lost = failedProbes.filter(({ isLost }) => isLost);
  const duringOverflow = lost.filter(({ atMs }) => neighbours.wasFull(atMs, ALLOWED_TIMEOUT_MS)).length;
  return [
    ...timeline.map(({ atMs, text }) => `${(atMs / 1000).toFixed(1)} s: ${text}`),
    `${duringOverflow} of ${lost.length} lost probes were in flight while a neighbour table was full`,
    neighbours.describe(),
  ];
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

/** Allows traffic to the server only from the client. */
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
