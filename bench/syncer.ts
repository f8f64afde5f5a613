// Measures a syncer with each driver: listing 100k keys; watching 15k changes while several writers write them in
// transactions of a hundred, so that the transaction rate of the datastore is not the limit; and reading 15k changes that
// were written before. The reference is `etcdctl` reading the same keys unparsed.
// Run: bun bench/syncer.ts [keys]
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  createSyncer,
  type Datastore,
  type DatastoreConfig,
  openDatastore,
  type SyncerUpdate,
} from "../src/datastore/index.ts";
import { API_VERSION, encodeValue, keyPath } from "../src/model/index.ts";
import { EtcdServer } from "../test/support/etcd-server.ts";

const KEYS = Number(process.argv[2] ?? 100_000) || 100_000;
const CHANGES = Math.min(KEYS, 15_000);
const BATCH = 100;
const WRITERS = 4;
const PREFIX = "/calico/resources/v3/projectcalico.org/workloadendpoints/";

function endpoint(i: number, generation: number) {
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
  } as const;
}

type WriteBatch = (from: number, to: number) => Promise<void>;

/** Prepares requests that bypass the driver, because only reading is measured. */
function etcdBatches(url: string, count: number, generation: number): WriteBatch {
  const base64 = (text: string) => Buffer.from(text).toString("base64");
  const bodies = new Map<number, string>();
  for (let from = 0; from < count; from += BATCH) {
    const items = Array.from({ length: Math.min(BATCH, count - from) }, (_, i) => endpoint(from + i, generation));
    const success = items.map(({ key, value }) => ({
      request_put: { key: base64(keyPath(key)), value: base64(encodeValue(key, value)) },
    }));
    bodies.set(from, JSON.stringify({ success }));
  }
  return async (from) => {
    const response = await fetch(`${url}/v3/kv/txn`, { method: "POST", body: bodies.get(from) ?? "" });
    if (!response.ok) throw new Error(await response.text());
    await response.arrayBuffer();
  };
}

async function sqliteBatches(store: Datastore, generation: number): Promise<WriteBatch> {
  const { items } = await store.list({ type: "resource", kind: "WorkloadEndpoint" });
  const revisions = new Map(items.map(({ key, revision }) => [keyPath(key), revision]));
  return async (from, to) => {
    const writes = Array.from({ length: to - from }, (_, i) => {
      const entry = endpoint(from + i, generation);
      const revision = revisions.get(keyPath(entry.key));
      return revision === undefined
        ? ({ op: "create", entry } as const)
        : ({ op: "update", entry: { ...entry, revision } } as const);
    });
    const outcome = await store.transact?.(writes);
    if (outcome?.done !== true) throw new Error(`${outcome?.refused.length} writes were rejected`);
  };
}

/** Runs in its own process: prepares the writes, prints "ready", and writes after a line on its input. */
async function write(config: DatastoreConfig, count: number, generation: number): Promise<void> {
  const store = await openDatastore(config);
  const writeBatch =
    config.type === "etcdv3"
      ? etcdBatches(config.endpoints[0] ?? "", count, generation)
      : await sqliteBatches(store, generation);
  console.log("ready");
  for await (const _ of Bun.stdin.stream()) break;
  const start = performance.now();
  let next = 0;
  const writer = async () => {
    while (next < count) {
      const from = next;
      next = Math.min(count, from + BATCH);
      await writeBatch(from, next);
    }
  };
  await Promise.all(Array.from({ length: WRITERS }, writer));
  await store.close();
  console.log(performance.now() - start);
}

class Writer {
  readonly #child;
  readonly #output;

  private constructor(config: DatastoreConfig, count: number, generation: number) {
    const call = ["write", JSON.stringify(config), String(count), String(generation)];
    this.#child = Bun.spawn([process.execPath, import.meta.filename, ...call], {
      stdin: "pipe",
      stdout: "pipe",
      stderr: "inherit",
    });
    this.#output = this.#child.stdout.getReader();
  }

  static async ready(config: DatastoreConfig, count: number, generation: number): Promise<Writer> {
    const writer = new Writer(config, count, generation);
    await writer.#output.read();
    return writer;
  }

  go(): void {
    this.#child.stdin.write("go\n");
    this.#child.stdin.flush();
  }

  /** Returns the duration of the writes in milliseconds. */
  async finish(): Promise<number> {
    const { value } = await this.#output.read();
    if ((await this.#child.exited) !== 0) throw new Error("the writer failed");
    return Number(new TextDecoder().decode(value));
  }

  /** Blocks this process until the writer has ended. */
  runBlocking(): void {
    this.go();
    while (isRunning(this.#child.pid)) Bun.sleepSync(20);
  }
}

function isRunning(pid: number): boolean {
  const stat = Bun.spawnSync(["cat", `/proc/${pid}/stat`]).stdout.toString();
  return stat !== "" && !/\) [ZX] /.test(stat);
}

const rate = (count: number, ms: number) => `${Math.round((count / ms) * 1000).toLocaleString("en")}/s`;
const number = (count: number) => count.toLocaleString("en");

async function measure(name: string, config: DatastoreConfig, peerListMs?: () => number): Promise<void> {
  const filler = await Writer.ready(config, KEYS, 0);
  filler.go();
  await filler.finish();
  const datastore = await openDatastore(config);
  const rss = process.memoryUsage.rss();
  const start = performance.now();
  const abort = new AbortController();
  let listMs = 0;
  let inSync = () => {};
  const ready = new Promise<void>((resolve) => (inSync = resolve));
  let seen = 0;
  let changed = 0;
  let awaited = Infinity;
  let reached = () => {};
  const updatesReached = (count: number) => {
    awaited = count;
    return new Promise<void>((resolve) => (reached = resolve));
  };
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
        if (changed >= awaited) reached();
      },
    },
    abort.signal,
  );
  await ready;
  if (seen !== KEYS) throw new Error(`${name}: received ${seen} of ${KEYS} keys`);
  const grownMb = (process.memoryUsage.rss() - rss) / 1e6;
  const peer = peerListMs?.();
  const beside = peer === undefined ? "" : `; etcdctl ${peer.toFixed(0)} ms, ratio ${(peer / listMs).toFixed(1)}`;
  console.log(
    `${name.padEnd(7)} list ${number(KEYS)} keys: ${listMs.toFixed(0)} ms (${rate(KEYS, listMs)}, RSS +${grownMb.toFixed(0)} MB${beside})`,
  );

  const writer = await Writer.ready(config, CHANGES, 1);
  const live = updatesReached(CHANGES);
  const cpu = process.cpuUsage();
  const liveStart = performance.now();
  writer.go();
  const writeMs = await writer.finish();
  await live;
  const liveMs = performance.now() - liveStart;
  const { user, system } = process.cpuUsage(cpu);
  console.log(
    `${name.padEnd(7)} watch ${number(CHANGES)} changes as they are written at ${rate(CHANGES, writeMs)}: ${rate(CHANGES, liveMs)},` +
      ` the last received ${Math.max(0, liveMs - writeMs).toFixed(0)} ms after it was written, ${((user + system) / CHANGES).toFixed(0)} µs CPU each`,
  );

  const ahead = await Writer.ready(config, CHANGES, 2);
  const caughtUp = updatesReached(2 * CHANGES);
  ahead.runBlocking();
  const catchStart = performance.now();
  await caughtUp;
  const catchMs = performance.now() - catchStart;
  console.log(
    `${name.padEnd(7)} watch ${number(CHANGES)} changes already written: ${catchMs.toFixed(0)} ms, ${rate(CHANGES, catchMs)}, ${(CHANGES / catchMs / 10).toFixed(1)} × the budget of 10,000/s`,
  );
  abort.abort();
  await running;
  await datastore.close();
}

if (process.argv[2] === "write") {
  const [config = "", count = "", generation = ""] = process.argv.slice(3);
  await write(JSON.parse(config) as DatastoreConfig, Number(count), Number(generation));
  process.exit(0);
}
const folder = mkdtempSync(join(tmpdir(), "calico-bench-"));
try {
  await measure("sqlite", { type: "sqlite", path: join(folder, "calico.db"), isFallback: false });
} finally {
  rmSync(folder, { recursive: true, force: true });
}
await using server = await EtcdServer.start();
await measure("etcd", server.config, () => {
  const start = performance.now();
  server.etcdctl("get", "--prefix", PREFIX);
  return performance.now() - start;
});
