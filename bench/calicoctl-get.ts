// Measures `calicoctl get` of 10,000 workload endpoints from SQLite and from a real etcd: the time to the first row, the
// total time, and the maximum resident set. Prints medians of 9 runs, compared with `etcdctl` printing the same keys
// unparsed. Calico, which does not run here, needs 0.59 s for the table (etcd, 2 cores).
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Datastore, type DatastoreConfig, openDatastore } from "../src/datastore/index.ts";
import { API_VERSION } from "../src/model/index.ts";
import { EtcdServer } from "../test/support/etcd-server.ts";

const ENDPOINTS = 10_000;
const ROUNDS = 9;
const BUDGET_MS = 300;
const ORIGINAL_MS = 590;
const KEYS = "/calico/resources/v3/projectcalico.org/workloadendpoints/";
const program = join(import.meta.dir, "../dist/calicoctl");

// The datastore is filled by a separate process, because the maximum resident set of a child starts at that of its parent.
if (process.argv[2] === "fill") {
  await fill(await openDatastore(JSON.parse(process.argv[3] ?? "") as DatastoreConfig));
  process.exit(0);
}

const folder = mkdtempSync(join(tmpdir(), "calicoctl-bench-"));
const etcd = await EtcdServer.start();
try {
  const path = join(folder, "calico.db");
  for (const config of [{ type: "sqlite", path, isFallback: false }, etcd.config])
    Bun.spawnSync([process.execPath, import.meta.filename, "fill", JSON.stringify(config)], { stderr: "inherit" });
  console.log(
    `get of ${ENDPOINTS} workload endpoints, median of ${ROUNDS}   first row     total      RSS   ratio to Calico, to etcdctl`,
  );
  const stores = {
    sqlite: { DATASTORE_TYPE: "sqlite", CALICO_SQLITE_PATH: path },
    etcd: { DATASTORE_TYPE: "etcdv3", ETCD_ENDPOINTS: etcd.url },
  };
  for (const [store, env] of Object.entries(stores))
    for (const output of ["ps", "wide", "yaml", "json"]) {
      const runs: Run[] = [];
      const peers: Run[] = [];
      for (let i = 0; i < ROUNDS; i++) {
        runs.push(await run([program, "get", "wep", "-A", "-o", output], env));
        peers.push(await run(["etcdctl", "--endpoints", etcd.url, "get", "--prefix", KEYS], { ETCDCTL_API: "3" }));
      }
      const median = (pick: (r: Run) => number, of = runs) => of.map(pick).sort((a, b) => a - b)[ROUNDS >> 1] ?? 0;
      const total = median((r) => r.totalMs);
      const late = output === "ps" && total > BUDGET_MS;
      if (late) process.exitCode = 1;
      const cells = [median((r) => r.firstMs), total].map((ms) => `${ms.toFixed(0).padStart(6)} ms`);
      const rss = `${(median((r) => r.rssKb) / 1024).toFixed(0).padStart(5)} MB`;
      const ratios = [
        ...(output === "ps" ? [(ORIGINAL_MS / total).toFixed(1)] : ["  –"]),
        (median((r) => r.totalMs, peers) / total).toFixed(1),
      ];
      console.log(
        `  ${store.padEnd(7)} ${output.padEnd(40)} ${cells.join(" ")} ${rss}   ${ratios.join("   ")}${late ? `  over the budget of ${BUDGET_MS} ms` : ""}`,
      );
    }
} finally {
  await etcd[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
}

async function fill(store: Datastore): Promise<void> {
  for (let i = 0; i < ENDPOINTS; i += 500)
    await Promise.all(Array.from({ length: 500 }, (_, j) => store.create(endpoint(i + j))));
  await store.close();
}

function endpoint(i: number) {
  const [node, pod, namespace] = [`node-${i % 200}`, `pod-${i}`, `ns${i % 50}`];
  const name = `node--${i % 200}-k8s-pod--${i}-eth0`;
  return {
    key: { type: "resource", kind: "WorkloadEndpoint", namespace, name },
    value: {
      apiVersion: API_VERSION,
      kind: "WorkloadEndpoint",
      metadata: {
        name,
        namespace,
        uid: crypto.randomUUID(),
        creationTimestamp: "2026-01-01T00:00:00Z",
        labels: { app: `a${i % 7}` },
      },
      spec: {
        ...{ orchestrator: "k8s", node, pod, endpoint: "eth0", interfaceName: `cali${i}` },
        ipNetworks: [`10.${i >> 16}.${(i >> 8) & 255}.${i & 255}/32`],
        profiles: [`kns.${namespace}`],
      },
    },
  } as const;
}

interface Run {
  readonly firstMs: number;
  readonly totalMs: number;
  readonly rssKb: number;
}

async function run(words: readonly string[], env: Record<string, string>): Promise<Run> {
  const started = performance.now();
  const all = { PATH: process.env["PATH"] ?? "", ...env };
  const child = Bun.spawn([...words], { env: all, stdin: "ignore", stdout: "pipe", stderr: "inherit" });
  let firstMs = 0;
  for await (const _ of child.stdout) firstMs ||= performance.now() - started;
  if ((await child.exited) !== 0) throw new Error(`${words.join(" ")} failed`);
  return { firstMs, totalMs: performance.now() - started, rssKb: (child.resourceUsage()?.maxRSS ?? 0) / 1024 };
}
