// Measures ADD and DEL of a pod from exec to exit: single calls, 30 concurrent calls, and 30 consecutive calls, on SQLite
// and on etcd, compared with Debian's ptp with host-local. calico-ts is measured twice: the plugin with the CNI service of
// the node agent, and the plugin without it, which does the work in its own process. The time that ADD waits for policy is
// not included, because no Felix runs. Pods and host are network namespaces of the benchmark. Each candidate is its own
// node. Candidates alternate. A single call starts only after the kernel has finished the previous call: it continues to
// remove a link after DEL has returned, which would delay the next candidate. Consecutive calls do not wait, as on a node.
import { randomBytes } from "node:crypto";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chooseDatastore, configFromEnvironment, type Datastore, openDatastore } from "../src/datastore/index.ts";
import { createNamedNamespace, deleteNamedNamespace, NetworkNamespace, openRtnetlink } from "../src/kernel/index.ts";
import {
  WITH_SERVICE,
  type Budget,
  budgetLines,
  noTimes,
  WITHOUT_SERVICE,
  reportLines,
  type Times,
} from "./cni-report.ts";
import { type CallTimes, describeSteps } from "./cni-steps.ts";
import { API_VERSION, type KindName, type Resource } from "../src/model/index.ts";
import { median, percentile } from "./support/percentile.ts";

const PODS = Number(process.env["BENCH_CNI_PODS"] ?? 30);
const BURST = 30;
const BURSTS = 3;
/** On a real node the service has run for some time, and its hot code is compiled. All candidates get as many calls. */
const WARM_UP = 30;
const FIRST_CALLS = 7;
const SERVICE_SETTLE_MS = 500;
const DIST = join(import.meta.dir, "../dist");
const STOCK = "/usr/lib/cni";

interface Candidate extends Times {
  readonly bin: string;
  readonly conf: Record<string, unknown>;
  /** Process ID of the service. */
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
  process.once(signal, () => void cleanUp().then(() => process.exit(1)));
try {
  using kernel = openRtnetlink(host);
  kernel.links.set("lo", { up: true });
  for (const pod of pods) createNamedNamespace(pod);
  console.log(`cni: ${PODS} single pods, ${BURST} at once (median of ${BURSTS}), ${BURST} in a row`);
  console.log(`cni: the executable alone starts and ends in ${(await bareStart()).toFixed(1)} ms`);
  const { served, alone } = await prepare();
  await compare([ptp(), ...served], WITH_SERVICE);
  // Separately, because each of their calls evicts the CPU caches that the next call would use.
  await compare([ptp(), ...alone], WITHOUT_SERVICE);
  for (const candidate of served) await firstCalls(candidate);
  for (const candidate of [...served, ...alone]) await printSteps(candidate);
} finally {
  await cleanUp();
}

async function compare(all: readonly Candidate[], budget: Budget): Promise<void> {
  const only = process.env["BENCH_CNI_ONLY"]?.split(";");
  const candidates = all.filter(({ name }, i) => i === 0 || only === undefined || only.includes(name));
  for (const candidate of candidates)
    for (const pod of pods.slice(0, WARM_UP)) {
      await call(candidate, "ADD", pod);
      await call(candidate, "DEL", pod);
    }
  for (const pod of pods.slice(0, PODS))
    for (const candidate of candidates) {
      const before = cpuOf(candidate.service);
      waitForLinkChanges();
      const add = await call(candidate, "ADD", pod);
      waitForLinkChanges();
      const del = await call(candidate, "DEL", pod);
      candidate.add.push(add.took);
      candidate.del.push(del.took);
      candidate.cpu.push(add.cpu + del.cpu + cpuOf(candidate.service) - before);
    }
  for (let round = 0; round < BURSTS; round++)
    for (const candidate of candidates) {
      candidate.bursts.push(await burst(candidate, "ADD"));
      candidate.delBursts.push(await burst(candidate, "DEL"));
    }
  for (const candidate of candidates) await measureSequence(candidate);
  for (const line of reportLines(candidates)) console.log(`cni: ${line}`);
  for (const line of budgetLines(candidates, budget)) console.log(`cni: ${line}`);
}

/** Waits for all children, so that none of them creates a file after the folder is removed. */
async function cleanUp(): Promise<void> {
  for (const child of children) child.kill("SIGKILL");
  await Promise.all(children.map((child) => child.exited));
  for (const pod of pods) deleteNamedNamespace(pod);
  deleteNamedNamespace(tag);
  rmSync(folder, { recursive: true, force: true });
}

/** Measures the first ADD after a start of the service: its code has not run, and its caches are empty. */
async function firstCalls(candidate: Candidate): Promise<void> {
  const [first = "", second = ""] = pods;
  const [firsts, seconds]: [number[], number[]] = [[], []];
  for (let i = 0; i < FIRST_CALLS; i++) {
    const socket = join(folder, `first-${candidate.name}-${i}.sock`);
    const { child } = await startService(socket, candidate.serviceEnv ?? {});
    await Bun.sleep(SERVICE_SETTLE_MS); // on a real node the service starts long before the first pod
    const started = { ...candidate, conf: { ...candidate.conf, service_socket: socket } };
    waitForLinkChanges();
    firsts.push((await call(started, "ADD", first)).took);
    seconds.push((await call(started, "ADD", second)).took);
    for (const pod of [first, second]) await call(started, "DEL", pod);
    child.kill();
    await child.exited;
  }
  console.log(
    `cni: ${candidate.name.padEnd(18)} first ADD p50 ${median(firsts).toFixed(1)} ms, second ${median(seconds).toFixed(1)} ms`,
  );
}

async function measureSequence(candidate: Candidate): Promise<void> {
  waitForLinkChanges();
  const row = pods.slice(0, BURST);
  for (const pod of row) candidate.addRow.push((await call(candidate, "ADD", pod)).took);
  for (const pod of row) candidate.delRow.push((await call(candidate, "DEL", pod)).took);
}

async function burst(candidate: Candidate, command: "ADD" | "DEL"): Promise<number> {
  waitForLinkChanges();
  const startMs = performance.now();
  await Promise.all(pods.slice(0, BURST).map((pod) => call(candidate, command, pod)));
  return performance.now() - startMs;
}

/** Repeats the calls with recording of step times. Recording takes time, so these calls are not part of the results above. */
async function printSteps(candidate: Candidate): Promise<void> {
  const file = join(folder, `${candidate.name}.times`);
  const timesEnv = { CALICO_CNI_TIMES: file }; // set for the service, if there is one; otherwise for the plugin
  const isServed = candidate.serviceEnv !== undefined;
  const conf = { ...candidate.conf, ...(isServed ? { service_socket: `${file}.sock` } : {}) };
  if (isServed) await startService(conf.service_socket as string, { ...candidate.serviceEnv, ...timesEnv });
  const calls = new Map() as CallTimes & Map<string, { startMs: number; endMs: number }>;
  const timed = async (command: "ADD" | "DEL", pod: string): Promise<void> => {
    const startMs = performance.timeOrigin + performance.now();
    await call({ ...candidate, conf }, command, pod, isServed ? {} : timesEnv);
    calls.set(`${command} ${containerId(pod)}`, { startMs, endMs: performance.timeOrigin + performance.now() });
  };
  for (const pod of pods.slice(0, PODS))
    for (const command of ["ADD", "DEL"] as const) {
      waitForLinkChanges();
      await timed(command, pod);
    }
  for (const command of ["ADD", "DEL"])
    console.log(`cni: ${candidate.name.padEnd(18)} ${command} ms: ${describeSteps(file, command, calls)}`);
}

/** Returns when the kernel has completed pending changes of links, which it makes sequentially for the whole machine. */
function waitForLinkChanges(): void {
  using kernel = openRtnetlink(host);
  kernel.links.set("lo", { up: true });
}

function containerId(pod: string): string {
  return `c${pod.replaceAll("-", "")}`;
}

function candidate(name: string, bin: string, conf: Record<string, unknown>): Candidate {
  return { ...noTimes(name), bin, conf };
}

function ptp(): Candidate {
  const ipam = { type: "host-local", subnet: "10.88.0.0/16", dataDir: join(folder, "host-local") };
  return candidate("ptp+host-local", join(STOCK, "ptp"), { type: "ptp", name: "ptp", ipMasq: false, ipam });
}

/** Returns the candidates of calico-ts: with the CNI service, and without it. */
async function prepare(): Promise<{ readonly served: Candidate[]; readonly alone: Candidate[] }> {
  const calico = join(DIST, "calico");
  const withService = async (name: string, conf: Record<string, unknown>, serviceEnv: Record<string, string>) => {
    const socket = join(folder, `${name}.sock`);
    const { child } = await startService(socket, serviceEnv);
    const own = candidate(name, calico, { ...conf, nodename: "n2", service_socket: socket });
    return { ...own, service: child.pid, serviceEnv };
  };
  const alone = (name: string, conf: Record<string, unknown>): Candidate => candidate(`${name}, alone`, calico, conf);
  const sqlite = { datastore_type: "sqlite", sqlite_path: join(folder, "calico.db") };
  await seed({ datastoreType: "sqlite", sqlitePath: sqlite.sqlite_path });
  const sqliteEnv = { DATASTORE_TYPE: "sqlite", CALICO_SQLITE_PATH: sqlite.sqlite_path };
  const onSqlite = await withService("sqlite, service", sqlite, sqliteEnv);
  if (Bun.which("etcd") === null) {
    console.log("cni: etcd is not installed and not measured");
    return { served: [onSqlite], alone: [alone("sqlite", sqlite)] };
  }
  const endpoint = "http://127.0.0.1:2379"; // in the network namespace of the benchmark
  start(["etcd", "--data-dir", join(folder, "etcd"), "--unsafe-no-fsync", "--log-level", "error"], {});
  const etcd = { datastore_type: "etcdv3", etcd_endpoints: endpoint };
  const etcdEnv = { DATASTORE_TYPE: "etcdv3", ETCD_ENDPOINTS: endpoint };
  await seedInside(etcdEnv);
  const onEtcd = await withService("etcd, service", etcd, etcdEnv);
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

/** etcd listens in the network namespace of the benchmark, so it must be filled by a process in that namespace. */
async function seedInside(env: Record<string, string>): Promise<void> {
  const deadline = performance.now() + 15_000;
  for (;;) {
    const child = start([process.execPath, import.meta.path], { ...env, BENCH_CNI_SEED: "1" });
    if ((await child.exited) === 0) return;
    if (performance.now() > deadline) throw new Error("etcd did not start");
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
  candidate: Candidate,
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
    ...candidate.conf,
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
  const startMs = performance.now();
  const child = host.run(
    () => Bun.spawn([candidate.bin], { env, stdin: Buffer.from(stdin), stdout: "pipe", stderr: "ignore" }) as never,
  ) as ReturnType<typeof Bun.spawn>;
  const code = await child.exited;
  const took = performance.now() - startMs;
  if (code !== 0)
    throw new Error(`${candidate.name} ${command}: ${await new Response(child.stdout as ReadableStream).text()}`);
  return { took, cpu: Number(child.resourceUsage()?.cpuTime.total ?? 0) / 1000 };
}

/** Returns the CPU time of a process in milliseconds, with a resolution of 10 ms. */
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
    const startMs = performance.now();
    await Bun.spawn([join(DIST, "calico"), "version"], { stdio: ["ignore", "ignore", "ignore"] }).exited;
    times.push(performance.now() - startMs);
  }
  return percentile(times, 0.5);
}
