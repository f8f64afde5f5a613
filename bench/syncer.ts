// A syncer over each driver: 100k keys listed, then 10k changes a second watched. Run: bun bench/syncer.ts [keys]
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createSyncer, type Datastore, openDatastore, openSqlite, type SyncerUpdate } from "../src/datastore/index.ts";
import { API_VERSION, type StoredKey, type ValueOf } from "../src/model/index.ts";
import { EtcdServer } from "../test/support/etcd-server.ts";

const KEYS = Number(process.argv[2] ?? 100_000);
const CHANGES = Math.min(KEYS, 20_000);
const WRITERS = 64;

function endpoint(i: number, generation: number): { key: StoredKey; value: ValueOf<StoredKey> } {
  const name = `n${i % 500}-k8s-pod--${i}-eth0`;
  const spec = {
    orchestrator: "k8s",
    node: `n${i % 500}`,
    pod: `pod-${i}`,
    endpoint: "eth0",
    interfaceName: `cali${i.toString(16)}`,
    ipNetworks: [`10.${(i >> 16) & 255}.${(i >> 8) & 255}.${i & 255}/32`],
    profiles: ["kns.default"],
  };
  const metadata = { name, namespace: "default", labels: { app: `app-${i % 97}`, generation: String(generation) } };
  return {
    key: { type: "resource", kind: "WorkloadEndpoint", namespace: "default", name },
    value: { apiVersion: API_VERSION, kind: "WorkloadEndpoint", metadata, spec },
  };
}

async function writeAll(datastore: Datastore, count: number, generation: number): Promise<number> {
  const start = performance.now();
  let next = 0;
  const writer = async () => {
    while (next < count) await datastore.apply(endpoint(next++, generation) as never);
  };
  await Promise.all(Array.from({ length: WRITERS }, writer));
  return performance.now() - start;
}

async function measure(name: string, datastore: Datastore): Promise<void> {
  await writeAll(datastore, KEYS, 0);
  const rss = process.memoryUsage.rss();
  const start = performance.now();
  const abort = new AbortController();
  let listMs = 0;
  let inSync = () => {};
  const ready = new Promise<void>((resolve) => (inSync = resolve));
  let seen = 0;
  let changed = 0;
  let allChanged = () => {};
  const finished = new Promise<void>((resolve) => (allChanged = resolve));
  const running = createSyncer("felix", datastore).run(
    {
      onStatus: (status) => {
        if (status !== "in-sync") return;
        listMs = performance.now() - start;
        inSync();
      },
      onUpdates: (updates: readonly SyncerUpdate[]) => {
        for (const update of updates) if (update.change === "updated") changed++;
        seen += updates.length;
        if (changed >= CHANGES) allChanged();
      },
    },
    abort.signal,
  );
  await ready;
  if (seen !== KEYS) throw new Error(`${name}: told of ${seen} keys of ${KEYS}`);
  const grownMb = (process.memoryUsage.rss() - rss) / 1e6;
  const watchStart = performance.now();
  const writeMs = await writeAll(datastore, CHANGES, 1);
  await finished;
  const watchMs = performance.now() - watchStart;
  console.log(
    `${name.padEnd(8)} list ${KEYS.toLocaleString("en")} keys: ${listMs.toFixed(0)} ms (${Math.round((KEYS / listMs) * 1000).toLocaleString("en")}/s, RSS +${grownMb.toFixed(0)} MB)` +
      `   watch: ${Math.round((CHANGES / watchMs) * 1000).toLocaleString("en")}/s, last told ${(watchMs - writeMs).toFixed(0)} ms after the last write`,
  );
  abort.abort();
  await running;
}

const folder = mkdtempSync(join(tmpdir(), "calico-bench-"));
try {
  const sqlite = await openSqlite(join(folder, "calico.db"));
  await measure("sqlite", sqlite);
  await sqlite.close();
} finally {
  rmSync(folder, { recursive: true, force: true });
}
await using server = await EtcdServer.start();
const etcd = await openDatastore(server.config);
await measure("etcd", etcd);
await etcd.close();
