// A rolling restart of calico-node under traffic: every probe is a new connection or a new datagram flow between pods on
// different nodes. None of those allowed may be lost, none of those denied may arrive.
import { closeSync, openSync, readFileSync } from "node:fs";
import { spawn } from "node:child_process";
import { PacketProber, type ProbeRequest, type ProbeTarget } from "../../src/kernel/index.ts";
import type { KubernetesCluster } from "../../src/lab/kubernetes/cluster.ts";
import { baseEnvironment } from "../../src/lab/host.ts";
import { AGNHOST_IMAGE } from "../../src/lab/kubernetes/image-names.ts";
import { parseAddress } from "../../src/lib/ip.ts";

const PORT = 8080;
const NAMESPACE = "rolling-update";
const PACE_MS = 20;

export interface RollingUpdate {
  readonly sent: number;
  readonly lost: number;
  readonly denied: number;
  /** Of those denied. */
  readonly arrived: number;
  /** When which probes went astray. */
  readonly faults: readonly string[];
}

interface Pod {
  readonly metadata: { readonly name: string };
  readonly spec: { readonly nodeName: string };
  readonly status: { readonly podIP?: string };
}

export async function rollUnderTraffic(cluster: KubernetesCluster): Promise<RollingUpdate> {
  cluster.kubectl(
    ["apply", "--filename=-"],
    JSON.stringify({ apiVersion: "v1", kind: "List", items: objects(cluster) }),
  );
  const wait = ["wait", `--namespace=${NAMESPACE}`, "--for=condition=Ready", "pod", "--all", "--timeout=120s"];
  cluster.kubectl(wait);
  const { items } = cluster.get<{ items: readonly Pod[] }>([`--namespace=${NAMESPACE}`, "pods"]);
  const targets = new Map(items.map((pod) => [pod.metadata.name, openPod(cluster, pod)]));
  using prober = new PacketProber();
  try {
    const target = (name: string): ProbeTarget => {
      const found = targets.get(name);
      if (found === undefined) throw new Error(`pod ${name} is not there`);
      return found;
    };
    const addressOf = (name: string) => {
      const pod = items.find(({ metadata }) => metadata.name === name);
      return parseAddress(pod?.status.podIP ?? "");
    };
    for (const name of ["server", "client"])
      for (const protocol of ["tcp", "udp"] as const) prober.listen(target(name), protocol, PORT);
    const request = (from: string, to: string, protocol: "tcp" | "udp" | "icmp"): ProbeRequest => ({
      from: target(from),
      to: addressOf(to),
      protocol,
      port: PORT,
    });
    const allowed = (["tcp", "udp", "icmp"] as const).flatMap((protocol) => [
      request("client", "server", protocol),
      request("server", "client", protocol),
    ]);
    const denied = (["tcp", "udp", "icmp"] as const).map((protocol) => request("intruder", "server", protocol));
    await enforced(prober, allowed, denied);
    return await countWhile(prober, allowed, denied, () => restart(cluster));
  } finally {
    for (const { namespace } of targets.values()) closeSync(namespace);
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
  work: () => Promise<void>,
): Promise<RollingUpdate> {
  const counts = { sent: 0, lost: 0, denied: 0, arrived: 0 };
  const faults: string[] = [];
  const overflowsBefore = arpOverflows();
  const begun = performance.now();
  const note = (what: string, { from, to, protocol }: ProbeRequest) =>
    faults.push(`${((performance.now() - begun) / 1000).toFixed(1)} s: ${protocol} ${from.name} to ${to} ${what}`);
  let isOver = false;
  const keepSending = async (
    requests: readonly ProbeRequest[],
    timeoutMs: number,
    count: (reached: boolean, request: ProbeRequest) => void,
  ) => {
    while (!isOver) {
      const started = performance.now();
      const outcomes = await prober.probe(requests, { timeoutMs });
      for (const [i, request] of requests.entries()) count(outcomes[i]?.result === "reached", request);
      await Bun.sleep(Math.max(0, PACE_MS - (performance.now() - started)));
    }
  };
  const sending = keepSending(allowed, 3000, (reached, request) => {
    counts.sent++;
    if (reached) return;
    counts.lost++;
    note("was lost", request);
  });
  const trying = keepSending(denied, 100, (reached, request) => {
    counts.denied++;
    if (!reached) return;
    counts.arrived++;
    note("arrived", request);
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

/** One pod a node, and a policy under which the server hears the client alone. */
function objects(cluster: KubernetesCluster): object[] {
  const nodes = cluster.lab.plan.nodes.map(({ name }) => name);
  const pod = (name: string, index: number) => ({
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, namespace: NAMESPACE, labels: { role: name } },
    spec: {
      nodeName: nodes[index % nodes.length],
      terminationGracePeriodSeconds: 0,
      containers: [{ name: "agnhost", image: AGNHOST_IMAGE, args: ["pause"], imagePullPolicy: "Never" }],
    },
  });
  return [
    { apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE } },
    {
      apiVersion: "networking.k8s.io/v1",
      kind: "NetworkPolicy",
      metadata: { name: "only-the-client", namespace: NAMESPACE },
      spec: {
        podSelector: { matchLabels: { role: "server" } },
        policyTypes: ["Ingress"],
        ingress: [{ from: [{ podSelector: { matchLabels: { role: "client" } } }] }],
      },
    },
    ...["server", "client", "intruder"].map(pod),
  ];
}

/** The pod's network namespace, found on its node by its address. */
function openPod(cluster: KubernetesCluster, pod: Pod): ProbeTarget {
  const host = cluster.places.find((place) => place.host.name === pod.spec.nodeName)?.host;
  const holder = host?.holder;
  if (host === undefined || holder === undefined) throw new Error(`node ${pod.spec.nodeName} is down`);
  for (const name of host.run(["ls", "/run/netns"]).stdout.trim().split("\n")) {
    const { stdout } = host.run(["ip", "-n", name, "-4", "-o", "address"]);
    if (stdout.includes(` ${pod.status.podIP}/`))
      return { namespace: openSync(`/proc/${holder.pid}/root/run/netns/${name}`, "r"), name: pod.metadata.name };
  }
  throw new Error(`${pod.metadata.name}: no namespace on ${host.name} has ${pod.status.podIP}`);
}
