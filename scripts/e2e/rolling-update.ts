// A rolling restart of calico-node under traffic: every probe is a new connection or a new datagram flow between pods on
// different nodes. None of those allowed may be lost, none of those denied may arrive. Meanwhile other namespaces with
// pods and policies are deleted.
import { spawn } from "node:child_process";
import { PacketProber, type ProbeRequest, type ProbeTarget } from "../../src/kernel/index.ts";
import type { LabPod } from "../../src/lab/folder.ts";
import type { KubernetesCluster } from "../../src/lab/kubernetes/cluster.ts";
import { addClusterPods, clusterPods } from "../../src/lab/kubernetes/pods.ts";
import { baseEnvironment } from "../../src/lab/host.ts";
import { parseAddress } from "../../src/lib/ip/ip.ts";
import { AgentTimeline } from "./agent-timeline.ts";
import { NeighbourWatch } from "./neighbour-table.ts";
import { endTenants, makeTenants } from "./tenants.ts";
import { Witness } from "./witness.ts";

const PORT = 8080;
const NAMESPACE = "rolling-update";
const PACE_MS = 20;
const SLOW_MS = 500;
const AFTERMATH_MS = 5000;
const PATIENCE_MS = 3000;
const DENIED_PATIENCE_MS = 100;
/** Of those that went astray; more tell nothing new. */
const SHOWN = 50;

export interface RollingUpdate {
  readonly sent: number;
  readonly lost: number;
  readonly denied: number;
  /** Of those denied. */
  readonly arrived: number;
  /** When which probes went astray, what the agents did around then, and what the kernel counted. */
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
      result = await countWhile({ cluster, prober, allowed, denied, witness }, async () => {
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

interface Traffic {
  readonly cluster: KubernetesCluster;
  readonly prober: PacketProber;
  readonly allowed: readonly ProbeRequest[];
  readonly denied: readonly ProbeRequest[];
  readonly witness: Witness;
}
interface Astray {
  readonly atMs: number;
  readonly text: string;
  readonly isLost: boolean;
}

async function countWhile(traffic: Traffic, work: () => Promise<void>): Promise<RollingUpdate> {
  const { cluster, prober, allowed, denied, witness } = traffic;
  const counts = { sent: 0, lost: 0, denied: 0, arrived: 0 };
  const astray: Astray[] = [];
  const begun = performance.now();
  const elapsed = () => performance.now() - begun;
  const neighbours = new NeighbourWatch();
  using agents = new AgentTimeline(cluster, elapsed);
  let isOver = false;
  const keepSending = async (
    requests: readonly ProbeRequest[],
    timeoutMs: number,
    count: (reached: boolean, fault: (what: string) => void) => void,
  ) => {
    for (let round = 1; !isOver; round++) {
      neighbours.look(elapsed());
      const atMs = elapsed();
      const sentAt = new Date().toISOString();
      const outcomes = await prober.probe(requests, { timeoutMs });
      const took = elapsed() - atMs;
      if (took > SLOW_MS && timeoutMs > SLOW_MS)
        witness.note(`round ${round} sent ${sentAt} took ${took.toFixed(0)} ms`);
      for (const [i, { from, to, protocol }] of requests.entries())
        count(outcomes[i]?.result === "reached", (what) => {
          const probe = `${protocol} ${from.name} to ${to}, round ${round}, sent ${sentAt}`;
          witness.note(`${probe}: ${what} ${JSON.stringify(outcomes[i])}`);
          void witness.snapshot();
          astray.push({ atMs, text: `${probe} ${what}`, isLost: what === "was lost" });
        });
      await Bun.sleep(Math.max(0, PACE_MS - took));
    }
  };
  const sending = keepSending(allowed, PATIENCE_MS, (reached, fault) => {
    counts.sent++;
    if (reached) return;
    counts.lost++;
    fault("was lost");
  });
  const trying = keepSending(denied, DENIED_PATIENCE_MS, (reached, fault) => {
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
  neighbours.look(elapsed());
  return { ...counts, faults: astray.length === 0 ? [] : explain(astray, agents.events, neighbours) };
}

/** In the order of time: what went astray, what the agents did, when the machine's neighbour tables were full. */
function explain(astray: readonly Astray[], agents: AgentTimeline["events"], neighbours: NeighbourWatch): string[] {
  const overflows = neighbours.overflows.map(({ atMs, count }) => ({
    atMs,
    text: `the machine's table of neighbours was full, ${count} times (net.ipv4.neigh.default.gc_thresh3)`,
  }));
  const timeline = [...astray.slice(0, SHOWN), ...agents, ...overflows].sort((a, b) => a.atMs - b.atMs);
  const lost = astray.filter(({ isLost }) => isLost);
  const beside = lost.filter(({ atMs }) => neighbours.wasFull(atMs, PATIENCE_MS)).length;
  return [
    ...timeline.map(({ atMs, text }) => `${(atMs / 1000).toFixed(1)} s: ${text}`),
    `${beside} of ${lost.length} lost probes were on their way while a table of neighbours was full`,
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
