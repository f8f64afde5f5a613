// A syncer over each driver: 100k keys listed, then 20k changes watched as fast as they can be written. etcd carries
// out few transactions a second, so the changes go there a hundred to each. Run: bun bench/syncer.ts [keys]
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createSyncer, type DatastoreConfig, openDatastore, type SyncerUpdate } from "../src/datastore/index.ts";
import { API_VERSION, encodeValue, keyPath, type StoredKey, type ValueOf } from "../src/model/index.ts";
import { EtcdServer } from "../test/support/etcd-server.ts";

const KEYS = Number(process.argv[2] ?? 100_000) || 100_000;
const CHANGES = Math.min(KEYS, 20_000);

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

/** Past the driver, whose writes are single and wait for one another: this measures reading. */
async function writeByTransaction(url: string, items: readonly ReturnType<typeof endpoint>[]): Promise<void> {
  const base64 = (text: string) => Buffer.from(text).toString("base64");
  const success = items.map(({ key, value }) => ({
    request_put: { key: base64(keyPath(key)), value: base64(encodeValue(key, value)) },
  }));
  const response = await fetch(`${url}/v3/kv/txn`, { method: "POST", body: JSON.stringify({ success }) });
  if (!response.ok) throw new Error(await response.text());
  await response.arrayBuffer();
}

async function writeAll(config: DatastoreConfig, count: number, generation: number): Promise<void> {
  const { writers, batch } = config.type === "sqlite" ? { writers: 64, batch: 1 } : { writers: 4, batch: 100 };
  const store = await openDatastore(config);
  let next = 0;
  const writer = async () => {
    while (next < count) {
      const from = next;
      next = Math.min(count, from + batch);
      const items = Array.from({ length: next - from }, (_, i) => endpoint(from + i, generation));
      if (config.type === "etcdv3") await writeByTransaction(config.endpoints[0] ?? "", items);
      else for (const item of items) await store.apply(item as never);
    }
  };
  await Promise.all(Array.from({ length: writers }, writer));
  await store.close();
}

/** In a process of its own: the syncer's time is to be its own. */
async function writeElsewhere(config: DatastoreConfig, count: number, generation: number): Promise<number> {
  const start = performance.now();
  const call = ["write", JSON.stringify(config), String(count), String(generation)];
  const child = Bun.spawn([process.execPath, import.meta.filename, ...call], { stderr: "inherit" });
  if ((await child.exited) !== 0) throw new Error("the writer failed");
  return performance.now() - start;
}

async function measure(name: string, config: DatastoreConfig): Promise<void> {
  await writeElsewhere(config, KEYS, 0);
  const datastore = await openDatastore(config);
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
  const cpuStart = process.cpuUsage();
  const writeMs = await writeElsewhere(config, CHANGES, 1);
  await finished;
  const watchMs = performance.now() - watchStart;
  const { user, system } = process.cpuUsage(cpuStart);
  const rate = (count: number, ms: number) => `${Math.round((count / ms) * 1000).toLocaleString("en")}/s`;
  console.log(
    `${name.padEnd(8)} list ${KEYS.toLocaleString("en")} keys: ${listMs.toFixed(0)} ms (${rate(KEYS, listMs)}, RSS +${grownMb.toFixed(0)} MB)` +
      `   watch ${CHANGES.toLocaleString("en")} changes: ${rate(CHANGES, watchMs)}, last told ${(watchMs - writeMs).toFixed(0)} ms after the last write,` +
      ` ${((user + system) / CHANGES).toFixed(0)} µs CPU each`,
  );
  abort.abort();
  await running;
  await datastore.close();
}

if (process.argv[2] === "write") {
  const [config = "", count = "", generation = ""] = process.argv.slice(3);
  await writeAll(JSON.parse(config) as DatastoreConfig, Number(count), Number(generation));
  process.exit(0);
}
const folder = mkdtempSync(join(tmpdir(), "calico-bench-"));
try {
  await measure("sqlite", { type: "sqlite", path: join(folder, "calico.db"), isFallback: false });
} finally {
  rmSync(folder, { recursive: true, force: true });
}
await using server = await EtcdServer.start();
await measure("etcd", server.config);
