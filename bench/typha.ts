// Measures Typha: one watch for 500 and 2,000 clients, with 11,000 keys (10k endpoints, 1k policies) and with 100k; and the
// same clients connected directly to etcd. Clients run in two separate processes. "Full" clients decode everything like
// Felix; "light" clients only read the bytes, so that one machine can run many of them.
// Run: bun bench/typha.ts [11k | 100k]
import { readFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { createSyncer, type Datastore, openDatastore, type SyncerSink } from "../src/datastore/index.ts";
import { TyphaSyncer } from "../src/typha/client.ts";
import { FEATURES, FRAME, jsonFrame, PREFACE } from "../src/typha/protocol.ts";
import { EtcdServer } from "../test/support/etcd-server.ts";
import { freePort } from "../test/support/free-port.ts";

const CLIENT_PROCESSES = 2;
const UPDATES_PER_SECOND = 1000;
const UPDATE_SECONDS = 10;

interface Order {
  readonly mode: "full" | "light" | "stalled" | "etcd";
  readonly count: number;
  readonly port: number;
  readonly etcd: Parameters<typeof openDatastore>[0];
}
interface ClientResult {
  readonly inSyncMs: number;
  readonly cpuMs: number;
  readonly rssMb: number;
  readonly latenciesMs: readonly number[];
}

async function main(only: string | undefined): Promise<void> {
  for (const [name, endpoints, policies] of [
    ["11k", 10_000, 1_000],
    ["100k", 99_000, 1_000],
  ] as const) {
    if (only !== undefined && only !== name) continue;
    console.log(`\n${name} keys: ${endpoints} endpoints, ${policies} policies`);
    await using etcd = await EtcdServer.start({ flags: ["--quota-backend-bytes", String(4 * 2 ** 30)] });
    const store = await openDatastore(etcd.config);
    await fill(store, endpoints, policies);
    await using typha = await Typha.start(etcd);
    print("start to in sync, RSS idle", `${typha.startMs} ms, ${typha.rssMb()} MB`);
    if (name === "11k") {
      const order = { port: typha.port, etcd: etcd.config };
      for (const run of ["cold", "warm"]) {
        const one = await clients([{ ...order, mode: "full", count: 1 }], async () => {});
        print(`one full client in sync (${run} server)`, `${one.inSyncMs.toFixed(0)} ms (Typha ≤ 100)`);
      }
      await joining(typha, order, "full", 500, "(≤ 15 s; server ≤ 2 ms each, ≤ 150 MB)");
      await joining(typha, order, "light", 500);
      await fanOut(typha, store, order, 490);
      await fanOut(typha, store, order, 1890, 100);
      const direct = await clients(shares({ ...order, mode: "etcd", count: 500 }), async () => {});
      const pid = etcd.pid;
      print(
        "500 full clients direct on etcd",
        `${(direct.inSyncMs / 1000).toFixed(1)} s until all in sync, clients' CPU ${(direct.cpuMs / 1000).toFixed(0)} s, etcd RSS ${rssOf(pid)} MB`,
      );
    } else {
      const order = { port: typha.port, etcd: etcd.config };
      const one = await clients([{ ...order, mode: "full", count: 1 }], async () => {});
      print("one full client in sync", `${one.inSyncMs.toFixed(0)} ms`);
      await joining(typha, order, "light", 500);
      await joining(typha, order, "light", 2000);
      await fanOut(typha, store, order, 1890, 100);
    }
    await store.close();
  }
}

/** Measures `count` clients that connect at the same time. */
async function joining(
  typha: Typha,
  order: Omit<Order, "mode" | "count">,
  mode: Order["mode"],
  count: number,
  budget = "",
): Promise<void> {
  const cpu = typha.cpuMs();
  let [cpuAfter, rss] = [0, 0];
  const result = await clients(shares({ ...order, mode, count }), async () => {
    cpuAfter = typha.cpuMs();
    rss = typha.rssMb();
  });
  print(
    `${count} ${mode} clients join`,
    `all in sync after ${(result.inSyncMs / 1000).toFixed(1)} s, server CPU ${((cpuAfter - cpu) / count).toFixed(2)} ms each, RSS ${rss} MB, clients' CPU ${(result.cpuMs / count).toFixed(0)} ms each ${budget}`,
  );
}

/** Measures updates at a constant rate to many clients, of which ten decode them and measure the latency. */
async function fanOut(
  typha: Typha,
  store: Datastore,
  order: Omit<Order, "mode" | "count">,
  light: number,
  stalled = 0,
): Promise<void> {
  const orders: Order[] = [
    { ...order, mode: "full", count: 10 },
    { ...order, mode: "light", count: light },
  ];
  if (stalled > 0) orders.push({ ...order, mode: "stalled", count: stalled });
  let [cpu, rss, wall] = [0, 0, 0];
  const result = await clients(orders, async () => {
    const before = typha.cpuMs();
    const started = performance.now();
    await update(store);
    wall = performance.now() - started;
    cpu = typha.cpuMs() - before;
    rss = typha.rssMb();
  });
  const sorted = result.latenciesMs.toSorted((a, b) => a - b);
  const at = (q: number) => sorted[Math.floor((sorted.length - 1) * q)]?.toFixed(0) ?? "-";
  const who = `${10 + light}${stalled > 0 ? ` and ${stalled} that do not read` : ""}`;
  print(
    `1k updates/s to ${who} clients`,
    `written in etcd to decoded: p50 ${at(0.5)} p99 ${at(0.99)} ms, server CPU ${(cpu / wall).toFixed(2)} cores, RSS ${rss} MB${stalled > 0 ? " (≤ 300)" : ""}`,
  );
}

async function update(store: Datastore): Promise<void> {
  const started = performance.now();
  for (let tick = 0; tick < UPDATE_SECONDS * 100; tick++) {
    const due = started + tick * 10;
    if (due > performance.now()) await Bun.sleep(due - performance.now());
    const batch = Array.from({ length: UPDATES_PER_SECOND / 100 }, (_, i) =>
      store.apply(endpoint((tick * 10 + i) % 5000, Date.now())),
    );
    await Promise.all(batch);
  }
  await Bun.sleep(500);
}

function endpoint(i: number, at = 0) {
  const name = `node--${i % 500}-k8s-pod--${i}-eth0`;
  const namespace = `ns-${i % 50}`;
  const labels = {
    app: `app-${i % 97}`,
    "projectcalico.org/namespace": namespace,
    "projectcalico.org/orchestrator": "k8s",
    at: String(at),
  };
  const metadata = { name, namespace, uid: `uid-${i}`, creationTimestamp: "2026-01-02T03:04:05Z", labels };
  const address = `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}/32`;
  const spec = {
    orchestrator: "k8s",
    node: `node-${i % 500}`,
    pod: `pod-${i}`,
    endpoint: "eth0",
    interfaceName: `cali${i}`,
    ipNetworks: [address],
    profiles: [`kns.${namespace}`, `ksa.${namespace}.default`],
  };
  return {
    key: { type: "resource", kind: "WorkloadEndpoint", name, namespace },
    value: { apiVersion: "projectcalico.org/v3", kind: "WorkloadEndpoint", metadata, spec },
  } as const;
}

async function fill(store: Datastore, endpoints: number, policies: number): Promise<void> {
  for (let i = 0; i < endpoints; i += 200)
    await Promise.all(Array.from({ length: Math.min(200, endpoints - i) }, (_, j) => store.apply(endpoint(i + j))));
  for (let i = 0; i < policies; i++) {
    const rule = {
      action: "Allow",
      protocol: "TCP",
      source: { selector: `app == 'app-${i % 97}'` },
      destination: { ports: [80, "8080:8090"] },
    };
    const metadata = { name: `policy-${i}`, uid: `p-${i}`, creationTimestamp: "2026-01-02T03:04:05Z" };
    const spec = {
      tier: "default",
      order: i,
      selector: `app == 'app-${i % 97}'`,
      types: ["Ingress"],
      ingress: [rule, rule],
    };
    await store.apply({
      key: { type: "resource", kind: "GlobalNetworkPolicy", name: metadata.name },
      value: { apiVersion: "projectcalico.org/v3", kind: "GlobalNetworkPolicy", metadata, spec },
    });
  }
}

// --- the server's process ------------------------------------------------------------------------------------------

class Typha implements AsyncDisposable {
  readonly process;
  startMs = 0;
  constructor(
    etcd: EtcdServer,
    readonly port: number,
    readonly healthPort: number,
  ) {
    const script = new URL("../test/support/run-program.ts", import.meta.url).pathname;
    const env = {
      PROGRAM: "calico-typha",
      PATH: process.env["PATH"] ?? "",
      TYPHA_ETCDENDPOINTS: etcd.url,
      TYPHA_SERVERPORT: String(port),
      TYPHA_LOGFILEPATH: "none",
      TYPHA_LOGSEVERITYSCREEN: "ERROR",
      TYPHA_HEALTHENABLED: "true",
      TYPHA_HEALTHPORT: String(healthPort),
    };
    this.process = Bun.spawn([process.execPath, script], { env, stdout: "ignore", stderr: "inherit" });
  }
  static async start(etcd: EtcdServer): Promise<Typha> {
    const started = performance.now();
    const typha = new Typha(etcd, await freePort(), await freePort());
    while (
      !(await fetch(`http://localhost:${typha.healthPort}/readiness`).then(
        (r) => r.status === 200,
        () => false,
      ))
    )
      await Bun.sleep(20);
    typha.startMs = Math.round(performance.now() - started);
    return typha;
  }
  cpuMs(): number {
    return cpuOf(this.process.pid);
  }
  rssMb(): number {
    return rssOf(this.process.pid);
  }
  async [Symbol.asyncDispose](): Promise<void> {
    this.process.kill("SIGKILL");
    await this.process.exited;
  }
}

function cpuOf(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
  return (Number(fields[11]) + Number(fields[12])) * 10; // 100 ticks per second
}
function rssOf(pid: number): number {
  return Math.round(Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? 0) / 1024);
}

// --- the clients' processes ----------------------------------------------------------------------------------------

function shares(order: Order): Order[] {
  return Array.from({ length: CLIENT_PROCESSES }, (_, i) => ({
    ...order,
    count: Math.floor((order.count + i) / CLIENT_PROCESSES),
  })).filter(({ count }) => count > 0);
}

/** Starts the clients, waits until all are in sync, runs `meanwhile`, and stops them. */
async function clients(orders: readonly Order[], meanwhile: () => Promise<void>): Promise<ClientResult> {
  const processes = orders.map((order) =>
    Bun.spawn([process.execPath, import.meta.filename, "client", JSON.stringify(order)], {
      stdin: "pipe",
      stdout: "pipe",
      stderr: "inherit",
    }),
  );
  const readers = processes.map(({ stdout }) => lines(stdout));
  const started = performance.now();
  for (const { stdin } of processes) void stdin.write("go\n");
  for (const { stdin } of processes) void stdin.flush();
  await Promise.all(readers.map((reader) => reader.next()));
  const inSyncMs = performance.now() - started;
  await meanwhile();
  for (const { stdin } of processes) void stdin.end();
  const results = await Promise.all(
    readers.map(async (reader) => JSON.parse((await reader.next()).value ?? "{}") as ClientResult),
  );
  await Promise.all(processes.map(({ exited }) => exited));
  return {
    inSyncMs: Math.max(...results.map((result) => result.inSyncMs), orders.length === 1 ? 0 : inSyncMs),
    cpuMs: results.reduce((sum, { cpuMs }) => sum + cpuMs, 0),
    rssMb: results.reduce((sum, { rssMb }) => sum + rssMb, 0),
    latenciesMs: results.flatMap(({ latenciesMs }) => latenciesMs),
  };
}

async function* lines(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  let rest = "";
  for await (const chunk of stream) {
    const parts = (rest + Buffer.from(chunk).toString()).split("\n");
    rest = parts.pop() ?? "";
    yield* parts;
  }
}

async function runClients(order: Order): Promise<void> {
  const input = lines(Bun.stdin.stream());
  await input.next();
  const cpu = process.cpuUsage();
  const started = performance.now();
  const aborter = new AbortController();
  const latenciesMs: number[] = [];
  const joined = Array.from({ length: order.count }, () => join(order, aborter.signal, latenciesMs));
  await Promise.all(joined);
  const inSyncMs = performance.now() - started;
  const used = process.cpuUsage(cpu);
  latenciesMs.length = 0;
  console.log("in sync");
  await input.next();
  const rssMb = process.memoryUsage.rss() / 2 ** 20;
  console.log(
    JSON.stringify({
      inSyncMs,
      cpuMs: (used.user + used.system) / 1000,
      rssMb,
      latenciesMs: latenciesMs.slice(-200_000),
    }),
  );
  aborter.abort();
  process.exit(0);
}

/** Resolves when the client is in sync. */
async function join(order: Order, signal: AbortSignal, latenciesMs: number[]): Promise<void> {
  if (order.mode === "light" || order.mode === "stalled") return lightClient(order.port, order.mode === "stalled");
  const { promise, resolve } = Promise.withResolvers<void>();
  const sink: SyncerSink = {
    onStatus: (status) => {
      if (status === "in-sync") resolve();
    },
    onUpdates: (updates) => {
      const now = Date.now();
      for (const { key, value } of updates) {
        const at =
          key.type === "workloadEndpoint"
            ? Number((value as { labels: Record<string, string> } | undefined)?.labels["at"] ?? 0)
            : 0;
        if (at > 0) latenciesMs.push(now - at);
      }
    },
  };
  const address = { host: "127.0.0.1", port: order.port };
  const syncer =
    order.mode === "etcd"
      ? createSyncer("felix", await openDatastore(order.etcd, { timeoutMs: 120_000 }))
      : new TyphaSyncer({ syncer: "felix", hostname: "bench", find: async () => [address], readTimeoutMs: 120_000 });
  void syncer.run(sink, signal);
  return promise;
}

/** Reads frames without decoding them. A stalled client stops reading after the first bytes. */
function lightClient(port: number, isStalled: boolean): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const socket: Socket = connect({ port, host: "127.0.0.1" }, () => {
    const hello = { version: 1, hostname: "bench", info: "", clientVersion: "", syncer: "felix", features: FEATURES };
    socket.write(Buffer.concat([PREFACE, jsonFrame(FRAME.clientHello, hello)]));
  });
  let header = Buffer.alloc(0);
  let skip = 0;
  let isDone = false;
  socket.on("error", () => {});
  socket.on("close", () => {
    if (isDone) return;
    console.error("a client was disconnected before it was in sync, reconnecting");
    lightClient(port, isStalled).then(resolve, reject);
  });
  socket.on("data", (chunk: Buffer) => {
    if (isStalled) {
      isDone = true;
      socket.pause();
      return resolve();
    }
    for (let at = 0; at < chunk.length; ) {
      if (skip > 0) {
        const step = Math.min(skip, chunk.length - at);
        skip -= step;
        at += step;
        continue;
      }
      const part = chunk.subarray(at, at + 5 - header.length);
      at += part.length;
      header = header.length === 0 ? Buffer.from(part) : Buffer.concat([header, part]);
      if (header.length < 5) return;
      const type = (header[4] ?? 0) & 0x7f;
      skip = header.readUInt32BE(0) - 1;
      header = Buffer.alloc(0);
      if (type === FRAME.end) {
        isDone = true;
        resolve();
      }
      if (type === FRAME.ping) socket.write(jsonFrame(FRAME.pong, {}));
    }
  });
  return promise;
}

function print(what: string, result: string): void {
  console.log(`  ${what.padEnd(52)} ${result}`);
}

if (process.argv[2] === "client") await runClients(JSON.parse(process.argv[3] ?? "") as Order);
else await main(process.argv[2]);
