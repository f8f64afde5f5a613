// ADD and DEL of one pod from exec to exit, 30 of each at once, and 30 in a row, all in one run and interleaved, on SQLite
// and on etcd, beside Debian's ptp with host-local. Of ours there are two kinds: the plugin beside the node agent's service,
// and the plugin alone, which does the work in its own process. The wait for policy is not included: no agent runs. Pods and
// host are network namespaces of the benchmark's own. Each contestant is a node of its own. One by one, no call begins
// before the kernel is done with the last one: it goes on burying a link after our DEL has returned, and would make the next
// contestant wait for it. In a row, a contestant's own calls follow each other at once, as on a node.
import { randomBytes } from "node:crypto";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chooseDatastore, configFromEnvironment, type Datastore, openDatastore } from "../src/datastore/index.ts";
import { createNamedNamespace, deleteNamedNamespace, NetworkNamespace, openRtnetlink } from "../src/kernel/index.ts";
import {
  BESIDE_AGENT,
  type Budget,
  budgetLines,
  noTimes,
  PLUGIN_ALONE,
  reportLines,
  type Times,
} from "./cni-report.ts";
import { type Called, describeSteps } from "./cni-steps.ts";
import { API_VERSION, type KindName, type Resource } from "../src/model/index.ts";
import { median, percentile } from "./support/percentile.ts";

const PODS = Number(process.env["BENCH_CNI_PODS"] ?? 30);
const BURST = 30;
const BURSTS = 3;
/** An agent's service has run for a while: the runtime has compiled what is hot. The others get as many calls. */
const WARM_UP = 30;
const FIRST_CALLS = 7;
const SERVICE_SETTLE_MS = 500;
const DIST = join(import.meta.dir, "../dist");
const STOCK = "/usr/lib/cni";

interface Contestant extends Times {
  readonly bin: string;
  readonly conf: Record<string, unknown>;
  /** Process of the service. */
  service?: number;
  readonly serviceEnv?: Readonly<Record<string, string>>;
}

if (process.env["BENCH_CNI_SEED"] === "1") {
  await seed(configFromEnvironment(process.env));
  process.exit(0);
}
const tag = `bcni-${randomBytes(2).toString("hex")}`;
const folder = mkdtempSync(join(tmpdir(), "bench-cni-"));
const children: ReturnType<typeof Bun.spawn>[] = [];
createNamedNamespace(tag);
const host = NetworkNamespace.named(tag);
const pods = Array.from({ length: Math.max(PODS, BURST) }, (_, i) => `${tag}-${i}`);
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const)
  process.once(signal, () => void tidy().then(() => process.exit(1)));
try {
  using kernel = openRtnetlink(host);
  kernel.links.set("lo", { up: true });
  for (const pod of pods) createNamedNamespace(pod);
  console.log(`cni: ${PODS} pods one by one, ${BURST} at once (median of ${BURSTS}), ${BURST} in a row`);
  console.log(`cni: the executable alone starts and ends in ${(await bareStart()).toFixed(1)} ms`);
  const { served, alone } = await prepare();
  await compete([ptp(), ...served], BESIDE_AGENT);
  // Apart: each of their calls takes the caches from those that come after it.
  await compete([ptp(), ...alone], PLUGIN_ALONE);
  for (const contestant of served) await firstCalls(contestant);
  for (const contestant of [...served, ...alone]) await breakDown(contestant);
} finally {
  await tidy();
}

async function compete(all: readonly Contestant[], budget: Budget): Promise<void> {
  const only = process.env["BENCH_CNI_ONLY"]?.split(";");
  const contestants = all.filter(({ name }, i) => i === 0 || only === undefined || only.includes(name));
  for (const contestant of contestants)
    for (const pod of pods.slice(0, WARM_UP)) {
      await call(contestant, "ADD", pod);
      await call(contestant, "DEL", pod);
    }
  for (const pod of pods.slice(0, PODS))
    for (const contestant of contestants) {
      const before = cpuOf(contestant.service);
      settle();
      const add = await call(contestant, "ADD", pod);
      settle();
      const del = await call(contestant, "DEL", pod);
      contestant.add.push(add.took);
      contestant.del.push(del.took);
      contestant.cpu.push(add.cpu + del.cpu + cpuOf(contestant.service) - before);
    }
  for (let round = 0; round < BURSTS; round++)
    for (const contestant of contestants) {
      contestant.bursts.push(await burst(contestant, "ADD"));
      contestant.delBursts.push(await burst(contestant, "DEL"));
    }
  for (const contestant of contestants) await inARow(contestant);
  for (const line of reportLines(contestants)) console.log(`cni: ${line}`);
  for (const line of budgetLines(contestants, budget)) console.log(`cni: ${line}`);
}

/** Nothing is left, also of what children were just writing. */
async function tidy(): Promise<void> {
  for (const child of children) child.kill("SIGKILL");
  await Promise.all(children.map((child) => child.exited));
  for (const pod of pods) deleteNamedNamespace(pod);
  deleteNamedNamespace(tag);
  rmSync(folder, { recursive: true, force: true });
}

/** The first ADD after the service has started, several times: code that never ran, a cache that is not filled. */
async function firstCalls(contestant: Contestant): Promise<void> {
  const [first = "", second = ""] = pods;
  const [firsts, seconds]: [number[], number[]] = [[], []];
  for (let i = 0; i < FIRST_CALLS; i++) {
    const socket = join(folder, `first-${contestant.name}-${i}.sock`);
    const { child } = await startService(socket, contestant.serviceEnv ?? {});
    await Bun.sleep(SERVICE_SETTLE_MS); // an agent has started long before the kubelet asks for a pod
    const started = { ...contestant, conf: { ...contestant.conf, service_socket: socket } };
    settle();
    firsts.push((await call(started, "ADD", first)).took);
    seconds.push((await call(started, "ADD", second)).took);
    for (const pod of [first, second]) await call(started, "DEL", pod);
    child.kill();
    await child.exited;
  }
  console.log(
    `cni: ${contestant.name.padEnd(18)} first ADD p50 ${median(firsts).toFixed(1)} ms, second ${median(seconds).toFixed(1)} ms`,
  );
}

async function inARow(contestant: Contestant): Promise<void> {
  settle();
  const row = pods.slice(0, BURST);
  for (const pod of row) contestant.addRow.push((await call(contestant, "ADD", pod)).took);
  for (const pod of row) contestant.delRow.push((await call(contestant, "DEL", pod)).took);
}

async function burst(contestant: Contestant, command: "ADD" | "DEL"): Promise<number> {
  settle();
  const began = performance.now();
  await Promise.all(pods.slice(0, BURST).map((pod) => call(contestant, command, pod)));
  return performance.now() - began;
}

/** Again, with the times of the steps written down; that costs a little, so these calls are not counted above. */
async function breakDown(contestant: Contestant): Promise<void> {
  const file = join(folder, `${contestant.name}.times`);
  const written = { CALICO_CNI_TIMES: file }; // by the service, where there is one: then no runtime starts
  const isServed = contestant.serviceEnv !== undefined;
  const conf = { ...contestant.conf, ...(isServed ? { service_socket: `${file}.sock` } : {}) };
  if (isServed) await startService(conf.service_socket as string, { ...contestant.serviceEnv, ...written });
  const called = new Map() as Called & Map<string, { began: number; ended: number }>;
  const timed = async (command: "ADD" | "DEL", pod: string): Promise<void> => {
    const began = performance.timeOrigin + performance.now();
    await call({ ...contestant, conf }, command, pod, isServed ? {} : written);
    called.set(`${command} ${containerId(pod)}`, { began, ended: performance.timeOrigin + performance.now() });
  };
  for (const pod of pods.slice(0, PODS))
    for (const command of ["ADD", "DEL"] as const) {
      settle();
      await timed(command, pod);
    }
  for (const command of ["ADD", "DEL"])
    console.log(`cni: ${contestant.name.padEnd(18)} ${command} ms: ${describeSteps(file, command, called)}`);
}

/** Returns when the kernel has time for changes to links: they happen one after the other, machine-wide. */
function settle(): void {
  using kernel = openRtnetlink(host);
  kernel.links.set("lo", { up: true });
}

function containerId(pod: string): string {
  return `c${pod.replaceAll("-", "")}`;
}

function contestant(name: string, bin: string, conf: Record<string, unknown>): Contestant {
  return { ...noTimes(name), bin, conf };
}

function ptp(): Contestant {
  const ipam = { type: "host-local", subnet: "10.88.0.0/16", dataDir: join(folder, "host-local") };
  return contestant("ptp+host-local", join(STOCK, "ptp"), { type: "ptp", name: "ptp", ipMasq: false, ipam });
}

/** Of calico-ts: beside an agent's service, and alone. */
async function prepare(): Promise<{ readonly served: Contestant[]; readonly alone: Contestant[] }> {
  const calico = join(DIST, "calico");
  const beside = async (name: string, conf: Record<string, unknown>, serviceEnv: Record<string, string>) => {
    const socket = join(folder, `${name}.sock`);
    const { child } = await startService(socket, serviceEnv);
    const own = contestant(name, calico, { ...conf, nodename: "n2", service_socket: socket });
    return { ...own, service: child.pid, serviceEnv };
  };
  const alone = (name: string, conf: Record<string, unknown>): Contestant => contestant(`${name}, alone`, calico, conf);
  const sqlite = { datastore_type: "sqlite", sqlite_path: join(folder, "calico.db") };
  await seed({ datastoreType: "sqlite", sqlitePath: sqlite.sqlite_path });
  const sqliteEnv = { DATASTORE_TYPE: "sqlite", CALICO_SQLITE_PATH: sqlite.sqlite_path };
  const onSqlite = await beside("sqlite, service", sqlite, sqliteEnv);
  if (Bun.which("etcd") === null) {
    console.log("cni: etcd is not installed, its rows are left out");
    return { served: [onSqlite], alone: [alone("sqlite", sqlite)] };
  }
  const endpoint = "http://127.0.0.1:2379"; // inside the benchmark's own namespace
  start(["etcd", "--data-dir", join(folder, "etcd"), "--unsafe-no-fsync", "--log-level", "error"], {});
  const etcd = { datastore_type: "etcdv3", etcd_endpoints: endpoint };
  const etcdEnv = { DATASTORE_TYPE: "etcdv3", ETCD_ENDPOINTS: endpoint };
  await seedInside(etcdEnv);
  const onEtcd = await beside("etcd, service", etcd, etcdEnv);
  return { served: [onSqlite, onEtcd], alone: [alone("sqlite", sqlite), alone("etcd", etcd)] };
}

async function seed(config: Parameters<typeof chooseDatastore>[0]): Promise<void> {
  const store: Datastore = await openDatastore(chooseDatastore(config, { env: {} }), { timeoutMs: 10_000 });
  const put = (kind: KindName, name: string, spec: object) =>
    store.apply({
      key: { type: "resource", kind, name },
      value: { apiVersion: API_VERSION, kind, metadata: { name }, spec } as Resource,
    });
  await put("ClusterInformation", "default", { datastoreReady: true });
  for (const node of ["n1", "n2"]) await put("Node", node, {});
  await put("IPPool", "p4", { cidr: "10.65.0.0/16", blockSize: 26 });
  await store.close();
}

/** etcd listens inside the namespace: what writes there must be a process that lives there. */
async function seedInside(env: Record<string, string>): Promise<void> {
  const deadline = performance.now() + 15_000;
  for (;;) {
    const child = start([process.execPath, import.meta.path], { ...env, BENCH_CNI_SEED: "1" });
    if ((await child.exited) === 0) return;
    if (performance.now() > deadline) throw new Error("etcd did not come up");
    await Bun.sleep(200);
  }
}

async function startService(socket: string, env: Readonly<Record<string, string>>) {
  const child = start([join(DIST, "calico"), "cni-service", "--socket", socket], env);
  for (let i = 0; i < 500 && !existsSync(socket); i++) await Bun.sleep(10);
  return { child };
}

function start(command: string[], env: Record<string, string>) {
  const all = { PATH: process.env["PATH"] ?? "", ...env };
  const child: ReturnType<typeof Bun.spawn> = host.run(
    () => Bun.spawn(command, { env: all, stdio: ["ignore", "ignore", "ignore"] }) as never,
  );
  children.push(child);
  return child;
}

async function call(
  contestant: Contestant,
  command: "ADD" | "DEL",
  pod: string,
  more: Record<string, string> = {},
): Promise<{ readonly took: number; readonly cpu: number }> {
  const stdin = JSON.stringify({
    cniVersion: "1.0.0",
    name: "net1",
    type: "calico",
    nodename: "n1",
    nodename_file_optional: true,
    log_level: "error",
    service_socket: "",
    ipam_lock_file: join(folder, "ipam.lock"),
    ipam: { type: "calico-ipam" },
    ...contestant.conf,
  });
  const env = {
    PATH: process.env["PATH"] ?? "",
    CNI_COMMAND: command,
    CNI_CONTAINERID: containerId(pod),
    CNI_NETNS: `/run/netns/${pod}`,
    CNI_IFNAME: "eth0",
    CNI_PATH: STOCK,
    ...more,
  };
  const began = performance.now();
  const child = host.run(
    () => Bun.spawn([contestant.bin], { env, stdin: Buffer.from(stdin), stdout: "pipe", stderr: "ignore" }) as never,
  ) as ReturnType<typeof Bun.spawn>;
  const code = await child.exited;
  const took = performance.now() - began;
  if (code !== 0)
    throw new Error(`${contestant.name} ${command}: ${await new Response(child.stdout as ReadableStream).text()}`);
  return { took, cpu: Number(child.resourceUsage()?.cpuTime.total ?? 0) / 1000 };
}

/** Milliseconds of processor time a process has used, to the hundredth of a second. */
function cpuOf(pid: number | undefined): number {
  if (pid === undefined) return 0;
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8")
    .replace(/^.*\) /, "")
    .split(" ");
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

async function bareStart(): Promise<number> {
  const times: number[] = [];
  for (let i = 0; i < 15; i++) {
    const began = performance.now();
    await Bun.spawn([join(DIST, "calico"), "version"], { stdio: ["ignore", "ignore", "ignore"] }).exited;
    times.push(performance.now() - began);
  }
  return percentile(times, 0.5);
}
