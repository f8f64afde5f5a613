// Measures the datastore drivers: writing and listing 100k keys, following 10k changes per second, compare-and-swap, and
// one-shot programs. Uses SQLite on this disk and a real etcd (with TLS, without fsync) on this machine; the reference is
// etcdctl. Run: bun bench/datastore.ts
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Conflict, type Datastore, openDatastore, openSqlite } from "../src/datastore/index.ts";
import { EtcdServer } from "../test/support/etcd-server.ts";
import { median } from "./support/percentile.ts";

const KEYS = 100_000;
const CHANGES_PER_SECOND = 10_000;
const WATCH_SECONDS = 3;
const CAS_ROUNDS = 500;
const LIST_ROUNDS = 3;
const QUERY = { type: "resource", kind: "WorkloadEndpoint" } as const;

const folder = mkdtempSync(join(tmpdir(), "bench-datastore-"));
const server = await EtcdServer.start({ tls: true, flags: ["--quota-backend-bytes", String(4 * 2 ** 30)] });
try {
  for (const [name, open] of [
    ["sqlite", () => openSqlite(join(folder, "calico.db"))],
    ["etcdv3", () => openDatastore(server.config)],
  ] as const) {
    console.log(`\n${name}`);
    const [store, other] = [await open(), await open()];
    await fill(store);
    await list(store);
    await watch(store, other);
    await compareAndSwap(store);
    await store.close();
    await other.close();
  }
  etcdctl();
  await oneShots();
} finally {
  await server[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true });
}

function endpoint(i: number, round = 0) {
  const [node, pod] = [`node-${i % 1000}`, `pod-${i}`];
  const name = `node--${i % 1000}-k8s-pod--${i}-eth0`;
  const address = `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}/32`;
  const metadata = { name, namespace: `ns-${i % 50}`, labels: { app: `app-${i % 97}`, round: String(round) } };
  const spec = { orchestrator: "k8s", node, pod, endpoint: "eth0", interfaceName: `cali${i}`, ipNetworks: [address] };
  return {
    key: { ...QUERY, name, namespace: metadata.namespace },
    value: { apiVersion: "projectcalico.org/v3", kind: "WorkloadEndpoint", metadata, spec },
  } as const;
}

async function fill(store: Datastore): Promise<void> {
  const started = performance.now();
  for (let i = 0; i < KEYS; i += 200)
    await Promise.all(Array.from({ length: 200 }, (_, j) => store.apply(endpoint(i + j))));
  const ms = performance.now() - started;
  print(`write ${KEYS / 1000}k keys, 200 at once`, `${rate(KEYS, ms)}/s`);
}

async function list(store: Datastore): Promise<void> {
  const times: number[] = [];
  for (let round = 0; round < LIST_ROUNDS; round++) {
    const started = performance.now();
    const { items } = await store.list(QUERY);
    if (items.length !== KEYS) throw new Error(`listed ${items.length}`);
    times.push(performance.now() - started);
  }
  print(`list ${KEYS / 1000}k keys, decoded`, `${median(times).toFixed(0)} ms, RSS ${rss()} MB`);
}

async function watch(store: Datastore, other: Datastore): Promise<void> {
  const aborter = new AbortController();
  const { revision } = await store.list({ ...QUERY, namespace: "none" });
  const sentAt = new Map<string, number>();
  const delays: number[] = [];
  const total = CHANGES_PER_SECOND * WATCH_SECONDS;
  const watching = (async () => {
    for await (const batch of await store.watch(QUERY, { after: revision, signal: aborter.signal })) {
      const now = performance.now();
      for (const event of batch)
        if (event.type === "modified") {
          const { labels = {} } = event.item.value.metadata;
          delays.push(now - (sentAt.get(labels["round"] ?? "") ?? now));
        }
      if (delays.length >= total) return;
    }
  })();
  const cpu = process.cpuUsage();
  const started = performance.now();
  for (let tick = 0; tick * 100 < total; tick++) {
    const due = started + (tick * 100 * 1000) / CHANGES_PER_SECOND;
    if (due > performance.now()) await Bun.sleep(due - performance.now());
    sentAt.set(String(tick + 1), performance.now());
    await Promise.all(Array.from({ length: 100 }, (_, j) => other.apply(endpoint((tick * 100 + j) % KEYS, tick + 1))));
  }
  const writtenMs = performance.now() - started;
  await watching;
  aborter.abort();
  const { user, system } = process.cpuUsage(cpu);
  delays.sort((a, b) => a - b);
  const p = (q: number) => delays[Math.floor((delays.length - 1) * q)]?.toFixed(1);
  print(
    `watch ${CHANGES_PER_SECOND / 1000}k changes/s for ${WATCH_SECONDS} s`,
    `written ${rate(total, writtenMs)}/s, all ${delays.length} seen, delay p50 ${p(0.5)} p99 ${p(0.99)} ms, writer+watcher CPU ${((user + system) / 1000 / (performance.now() - started)).toFixed(2)} cores`,
  );
}

async function compareAndSwap(store: Datastore): Promise<void> {
  const target = endpoint(0);
  await store.apply(target);
  const started = performance.now();
  for (let i = 0; i < CAS_ROUNDS; i++) await store.update(await store.get(target.key));
  print(`read + compare-and-swap, sequentially`, `${rate(CAS_ROUNDS, performance.now() - started)}/s`);
  const contended = performance.now();
  let conflicts = 0;
  const worker = async () => {
    for (let done = 0; done < 50; ) {
      try {
        await store.update(await store.get(target.key));
        done++;
      } catch (error) {
        if (!(error instanceof Conflict)) throw error;
        conflicts++;
      }
    }
  };
  await Promise.all(Array.from({ length: 8 }, worker));
  print("the same key by 8 writers", `${rate(400, performance.now() - contended)}/s won, ${conflicts} conflicts`);
}

/** Lists the same keys with etcdctl, as protobuf and as decoded JSON. */
function etcdctl(): void {
  console.log("\nreference: etcdctl");
  for (const format of ["simple", "json"]) {
    const started = performance.now();
    server.etcdctl("get", "--prefix", "/calico/resources/v3/projectcalico.org/workloadendpoints/", "-w", format);
    print(`list ${KEYS / 1000}k keys, ${format}`, `${(performance.now() - started).toFixed(0)} ms`);
  }
}

/** Measures a compiled program that reads one key and writes one, from exec to exit. */
async function oneShots(): Promise<void> {
  await using _agent = await openSqlite(join(folder, "calico.db")).then((store) => ({
    [Symbol.asyncDispose]: () => store.close(), // like the node agent, which keeps the file open
  }));
  console.log("\none-shot program: one read, one write, exec to exit");
  const script = join(folder, "one-shot.ts");
  const index = join(import.meta.dir, "../src/datastore/index.ts");
  writeFileSync(
    script,
    `import { openDatastore } from ${JSON.stringify(index)};
     const [config, oneShot] = JSON.parse(process.argv[2]);
     const store = await openDatastore(config, { oneShot });
     const key = { type: "ipamHandle", handleId: "bench" };
     await store.get(key).catch(() => {});
     await store.apply({ key, value: { handleId: "bench", block: {}, deleted: false } });
     process.exit(0);`,
  );
  const sqlite = { type: "sqlite", path: join(folder, "calico.db"), isFallback: false };
  const variants = [
    ["nothing (the runtime's start)", undefined],
    ["sqlite", [sqlite, true]],
    ["etcdv3 by JSON gateway, TLS", [server.config, true]],
    ["etcdv3 by gRPC, TLS", [server.config, false]],
  ] as const;
  const times = new Map<string, number[]>();
  const empty = join(folder, "empty.ts");
  writeFileSync(empty, "process.exit(0)");
  const [program, nothing] = [compile(script), compile(empty)];
  for (let round = 0; round < 15; round++)
    for (const [name, argument] of variants) {
      const started = performance.now();
      const command = argument === undefined ? [nothing] : [program, JSON.stringify(argument)];
      const { exitCode, stderr } = Bun.spawnSync(command);
      if (exitCode !== 0) throw new Error(stderr.toString());
      times.set(name, [...(times.get(name) ?? []), performance.now() - started]);
    }
  for (const [name, all] of times) print(name, `p50 ${median(all).toFixed(1)} ms`);
}

function compile(source: string): string {
  const outfile = source.replace(/\.ts$/, "");
  const flags = ["--compile", "--minify", "--bytecode", "--format=esm", "--splitting"];
  const built = Bun.spawnSync([process.execPath, "build", ...flags, source, `--outfile=${outfile}`]);
  if (built.exitCode !== 0) throw new Error(built.stderr.toString());
  return outfile;
}

function print(what: string, result: string): void {
  console.log(`  ${what.padEnd(46)} ${result}`);
}
function rate(count: number, ms: number): string {
  return Math.round((count / ms) * 1000).toLocaleString("en");
}
function rss(): number {
  return Math.round(process.memoryUsage.rss() / 2 ** 20);
}
