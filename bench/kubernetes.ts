// Measures a real API server with 50k pods on 500 nodes: listing everything that Felix watches until it is in sync (time, CPU,
// memory), compared with kubectl reading the same pods; the latency of a change; and the requests to the server for one ADD
// through the warm CNI service. Run as root: bun bench/kubernetes.ts [pods]
import { rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createSyncer, openDatastore, openKubeApi } from "../src/datastore/index.ts";
import { canRun } from "../test/functional/cni/cni-host.ts";
import { type Cluster, configOf, isAvailable, startCluster } from "../test/kubernetes/cluster.ts";
import { ServedHost } from "../test/kubernetes/served-host.ts";
import { describeSteps } from "./cni-steps.ts";

const NODES = 500;
const CHANGES = 300;
const ADDS = 20;

if (process.argv[2] === "follow") await follow(process.argv[3] ?? "", Number(process.argv[4]));
else if (isAvailable) await measure(Number(process.argv[2] ?? 50_000) || 50_000);
else console.log("no API server is available here");

async function measure(pods: number): Promise<void> {
  {
    await using cluster = await startCluster({ namespaces: ["ns1"], flags: () => [] });
    await seed(cluster, pods);
    const ours = Bun.spawnSync(
      [process.execPath, import.meta.path, "follow", cluster.server.kubeconfig, String(pods)],
      {
        stdout: "inherit",
        stderr: "inherit",
      },
    );
    if (ours.exitCode !== 0) throw new Error("the syncer failed");
    const started = performance.now();
    const kubectl = Bun.spawnSync(
      ["kubectl", "--kubeconfig", cluster.server.kubeconfig, "get", "pods", "-A", "-o", "json"],
      { stdout: "ignore", stderr: "inherit" },
    );
    print(
      `kubectl get pods -o json, ${pods / 1000}k`,
      `${seconds(performance.now() - started)}, ${seconds(kubectl.resourceUsage.cpuTime.total / 1000n)} CPU, ${megabytes(kubectl.resourceUsage.maxRSS)}`,
    );
  }
  if (canRun) await requestsPerAdd();
}

/** Writes pods directly to the storage of the server. Creating them through the API would take minutes. */
async function seed(cluster: Cluster, pods: number): Promise<void> {
  const made = Array.from({ length: pods }, (_, i) => podOf(i));
  await cluster.plant(new Map(made.map((pod) => [`pods/ns1/${pod.metadata.name}`, pod])));
}

function podOf(i: number) {
  const address = `10.${(i >> 16) + 64}.${(i >> 8) & 255}.${i & 255}`;
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      name: `pod-${i}`,
      namespace: "ns1",
      uid: crypto.randomUUID(),
      creationTimestamp: "2026-01-01T00:00:00Z",
      labels: { app: `app-${i % 97}`, tier: `t${i % 7}`, "pod-template-hash": "5d4f8c7b9" },
      annotations: { "cni.projectcalico.org/podIPs": `${address}/32`, "cni.projectcalico.org/podIP": `${address}/32` },
    },
    spec: {
      nodeName: `node-${i % NODES}`,
      serviceAccountName: "default",
      containers: [{ name: "main", image: "app:v1", ports: [{ name: "http", containerPort: 8080 }] }],
    },
    status: { phase: "Running", podIP: address, podIPs: [{ ip: address }] },
  };
}

/** Runs in its own process, so that memory is measured separately. */
async function follow(kubeconfig: string, pods: number): Promise<void> {
  const store = await openDatastore(configOf(kubeconfig));
  const stop = new AbortController();
  const seen = new Map<string, number>();
  let endpoints = 0;
  const started = performance.now();
  const inSync = Promise.withResolvers<void>();
  const running = createSyncer("felix", store).run(
    {
      onStatus: (status) => void (status === "in-sync" && inSync.resolve()),
      onUpdates: (updates) => {
        for (const { key, change } of updates) {
          if (key.type === "workloadEndpoint" && change === "new") endpoints++;
          if (key.type === "resource" && key.kind === "KubernetesService") seen.set(key.name, performance.now());
        }
      },
    },
    stop.signal,
  );
  await inSync.promise;
  while (endpoints < pods) await Bun.sleep(5);
  const usage = process.resourceUsage();
  print(
    `list ${pods / 1000}k pods, in sync`,
    `${seconds(performance.now() - started)}, ${seconds((usage.userCPUTime + usage.systemCPUTime) / 1000)} CPU, ${megabytes(process.memoryUsage.rss())} RSS, peak ${megabytes(usage.maxRSS * 1024)}`,
  );
  const api = await openKubeApi(configOf(kubeconfig), {});
  const delays: number[] = [];
  for (let i = 0; i < CHANGES; i++) {
    const name = `svc-${i}`;
    const body = { metadata: { name }, spec: { ports: [{ port: 80 }], clusterIP: "None" } };
    await api.json({ method: "POST", path: "/api/v1/namespaces/ns1/services", body });
    const written = performance.now();
    while (!seen.has(name)) await Bun.sleep(0);
    delays.push(Math.max(0, (seen.get(name) ?? 0) - written));
  }
  print(
    `${CHANGES} changes, seen after the write`,
    `p50 ${percentile(delays, 50)} ms, p99 ${percentile(delays, 99)} ms`,
  );
  print("RSS afterwards", megabytes(process.memoryUsage.rss()));
  stop.abort();
  await running;
  api.close();
  await store.close();
}

async function requestsPerAdd(): Promise<void> {
  const steps = join(tmpdir(), `bench-kubernetes-steps-${process.pid}`);
  await using served = await ServedHost.create(steps);
  await served.warmUp();
  const counts: number[] = [];
  const times: number[] = [];
  const called = new Map<string, { startMs: number; endMs: number }>();
  for (let i = 0; i < ADDS; i++) {
    const { env } = await served.makePod(`pod-${i}`);
    const pod = served.host.pod(`pod${i}`);
    await Bun.sleep(50); // a container runtime creates the sandbox first
    const before = served.requests().length;
    const startMs = performance.timeOrigin + performance.now();
    const run = await served.host.add(pod, { conf: served.conf, env });
    const endMs = performance.timeOrigin + performance.now();
    times.push(endMs - startMs);
    called.set(`ADD pod${i}`, { startMs, endMs });
    if (run.code !== 0) throw new Error(run.stdout);
    counts.push(served.requests().length - before);
  }
  print(`requests of an ADD, warm service, ${ADDS} pods`, `${percentile(counts, 50)} (most ${Math.max(...counts)})`);
  print("ADD, exec to exit", `p50 ${percentile(times, 50)} ms, p95 ${percentile(times, 95)} ms`);
  print("of which, ms", describeSteps(steps, "ADD", called));
  rmSync(steps, { force: true });
}

function print(what: string, value: string): void {
  console.log(`${what.padEnd(44)} ${value}`);
}
function seconds(ms: number | bigint): string {
  return `${(Number(ms) / 1000).toFixed(2)} s`;
}
function megabytes(bytes: number): string {
  return `${Math.round(bytes / 2 ** 20)} MB`;
}
function percentile(values: readonly number[], p: number): string {
  const sorted = values.toSorted((a, b) => a - b);
  const value = sorted[Math.min(sorted.length - 1, Math.floor((sorted.length * p) / 100))] ?? 0;
  return Number.isInteger(value) ? String(value) : value.toFixed(1);
}
