// Tests calico-kube-controllers as a process on a real API server, with Calico's datastore in etcd and in Kubernetes:
// start, health and metrics, restart after a configuration change, and exit. It uses the manifest's account.
import { afterAll, beforeAll, beforeEach, describe, expect } from "bun:test";
import { execFileSync, spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { Client, type Datastore, openDatastore } from "../../src/datastore/index.ts";
import { Ipam } from "../../src/ipam/index.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import type { KindName } from "../../src/model/index.ts";
import { EtcdServer } from "../support/etcd-server.ts";
import { freePort } from "../support/free-port.ts";
import { type Accounts, installAccounts } from "./accounts.ts";
import { type Cluster, type Environment, isAvailable, startCluster, suite } from "./cluster.ts";
import { command, ControllersProgram } from "./controllers-program.ts";
import { EtcdKeys } from "./controllers-run.ts";
import { readRecording, replay } from "./replay.ts";

const WITHIN = 30_000;
const TIMEOUT = 120_000;
const HEALTH_MS = 1000;
const FOLDER = "kubernetes/metrics";

let cluster: Cluster;
let etcd: EtcdServer;
let accounts: Accounts;
beforeAll(async () => {
  if (!isAvailable) return;
  cluster = await startCluster({ namespaces: ["ns1"] });
  etcd = await EtcdServer.start();
}, 600_000);
afterAll(async () => {
  await etcd?.[Symbol.asyncDispose]();
  await cluster?.[Symbol.asyncDispose]();
});

/** Creates the accounts and roles of the manifest for that datastore. */
const install = async (type: "etcdv3" | "kubernetes"): Promise<void> => {
  accounts = await installAccounts(cluster, type === "kubernetes" ? "calico.yaml" : "calico-etcd.yaml");
};
const environment = (type: "etcdv3" | "kubernetes", env: Environment = {}): Environment => ({
  DATASTORE_TYPE: type,
  ETCD_ENDPOINTS: etcd.url,
  KUBECONFIG: accounts.kubeconfig("calico-kube-controllers"),
  CALICO_LEASE_DURATION: "3s",
  CALICO_HEALTH_PERIOD: `${HEALTH_MS}ms`,
  ...env,
});
const ready = { Ready: true, Reason: "" };
const READY = { CalicoDatastore: ready, KubeAPIServer: ready, Startup: ready };
const checkStatus = (file: string, flag = "-r") => {
  const run = command("check-status", [flag, "-f", file]);
  const { status, stdout } = spawnSync(run.file, run.args, { env: { ...process.env, ...run.env }, encoding: "utf8" });
  return { status, text: stdout.trim() };
};

for (const type of ["etcdv3", "kubernetes"] as const)
  describe(type, () => {
    let store: Datastore;
    let client: Client;
    beforeAll(async () => {
      if (!isAvailable) return;
      await install(type);
      store = await openDatastore(type === "kubernetes" ? cluster.config : etcd.config);
      client = new Client(store);
    });
    afterAll(async () => await store?.close());
    beforeEach(async () => {
      if (!isAvailable) return;
      await new EtcdKeys(etcd).clear();
      await cluster.clear();
    });
    const configuration = async () => {
      const { items } = await client.list({ kind: "KubeControllersConfiguration" });
      return items[0] as { status?: { runningConfig?: Record<string, unknown> }; spec?: object } | undefined;
    };
    const running = async () => (await configuration())?.status?.runningConfig;
    const configure = (spec: object) =>
      client.apply({
        apiVersion: "projectcalico.org/v3",
        kind: "KubeControllersConfiguration",
        metadata: { name: "default" },
        spec: { prometheusMetricsPort: 0, controllers: { node: {} }, ...spec },
      } as never);

    suite(
      "TC-K03 TC-K04 TC-K05 TC-K07 it starts, serves health and metrics, restarts after a configuration change, and exits at once",
      async () => {
        const [health, metrics] = [await freePort(), await freePort()];
        await configure({ prometheusMetricsPort: metrics });
        await using program = new ControllersProgram(environment(type), ["--health-port", String(health)]);
        await eventually(() => program.isReady, WITHIN);
        await eventually(async () => (await running()) !== undefined, WITHIN);
        expect(checkStatus(program.statusFile)).toEqual({ status: 0, text: "Ready" });
        expect(checkStatus(program.statusFile, "-l").status).toBe(0);
        const ask = async (port: number, path: string) => (await fetch(`http://127.0.0.1:${port}${path}`)).status;
        expect([await ask(health, "/readiness"), await ask(health, "/liveness")]).toEqual([200, 200]);
        expect([await ask(health, "/health"), await ask(metrics, "/")]).toEqual([404, 404]);
        await eventually(async () => {
          const text = await (await fetch(`http://127.0.0.1:${metrics}/metrics`)).text();
          return text.includes("process_cpu_seconds_total");
        }, WITHIN);
        // After a configuration change the same process starts its controllers again.
        await configure({ prometheusMetricsPort: metrics, logSeverityScreen: "Debug" });
        await eventually(async () => (await running())?.["logSeverityScreen"] === "Debug", WITHIN);
        expect(program.isRunning).toBe(true);
        // A status that another client wrote is corrected.
        const resource = (await client.get({ kind: "KubeControllersConfiguration", name: "default" })) as never as {
          status: object;
        };
        await client.updateStatus({ ...resource, status: { environmentVars: { X: "Y" } } } as never, { trusted: true });
        await eventually(async () => (await running())?.["logSeverityScreen"] === "Debug", WITHIN);
        // A deleted configuration is created again.
        await client.delete({ kind: "KubeControllersConfiguration", name: "default" });
        await eventually(async () => (await configuration()) !== undefined, WITHIN);
        const asked = performance.now();
        program.kill("SIGTERM");
        expect(await program.ended).toBe(255);
        expect(performance.now() - asked).toBeLessThan(5_000);
      },
      TIMEOUT,
    );

    suite(
      "TC-K04 under a wrapper it exits with 129 after a configuration change, unless the environment overrides it",
      async () => {
        await configure({ logSeverityScreen: "Info" });
        const env = environment(type, { CALICO_KUBE_CONTROLLERS_INNER: "1", LOG_LEVEL: "info" });
        await using program = new ControllersProgram(env);
        await eventually(async () => (await running()) !== undefined, WITHIN);
        await configure({ logSeverityScreen: "Debug" });
        await Bun.sleep(500);
        expect(program.isRunning).toBe(true);
        await configure({ healthChecks: "Disabled" });
        expect(await program.ended).toBe(129);
      },
      TIMEOUT,
    );
  });

suite(
  "TC-K05 TC-K06 a replica that waits for the lease is ready, and stays ready",
  async () => {
    await install("kubernetes");
    await cluster.clear();
    await using leads = new ControllersProgram(environment("kubernetes"));
    await eventually(() => leads.isReady, WITHIN);
    await using waits = new ControllersProgram(environment("kubernetes"));
    await eventually(() => waits.isReady, WITHIN);
    await Bun.sleep(3 * HEALTH_MS); // until both have checked again
    expect([leads.readiness(), waits.readiness()]).toEqual([READY, READY]);
  },
  TIMEOUT,
);

suite(
  "TC-K06 the status file contains what does not answer, until it answers again",
  async () => {
    await install("etcdv3");
    await new EtcdKeys(etcd).clear();
    await using program = new ControllersProgram(environment("etcdv3"));
    await eventually(() => program.isReady, WITHIN);
    const isDown = (part: string) => program.readiness()[part]?.Ready === false;
    await cluster.server.stop(); // for longer than the duration of its lease
    try {
      await eventually(() => isDown("KubeAPIServer"), 60_000);
      const check = checkStatus(program.statusFile);
      expect(check).toMatchObject({ status: 1, text: expect.stringContaining("the API server does not answer") });
    } finally {
      await cluster.server.start();
    }
    await eventually(() => program.isReady, 60_000);
    etcd.pause();
    try {
      await eventually(() => isDown("CalicoDatastore"), 60_000);
      const check = checkStatus(program.statusFile);
      expect(check).toMatchObject({ status: 1, text: expect.stringContaining("the datastore does not answer") });
    } finally {
      etcd.resume();
    }
    await eventually(() => program.isReady, 60_000);
    expect(program.isRunning).toBe(true);
  },
  4 * TIMEOUT,
);

suite(
  "TC-K01 an invalid setting ends the program at once with a one-line error",
  async () => {
    await install("etcdv3");
    const cases: readonly [Environment, RegExp][] = [
      [{ ENABLED_CONTROLLERS: "node,foo" }, /^calico-kube-controllers: ENABLED_CONTROLLERS="node,foo" is invalid/],
      [{ RECONCILER_PERIOD: "60" }, /RECONCILER_PERIOD="60"/],
      [{ KUBECONFIG: "/nonexistent" }, /\/nonexistent/],
      [{ DATASTORE_TYPE: "sqlite" }, /need etcd or Kubernetes/],
    ];
    for (const [env, line] of cases) {
      await using program = new ControllersProgram(environment("etcdv3", env));
      expect(await program.ended).toBe(1);
      expect(program.output.trim().split("\n")).toHaveLength(1);
      expect(program.output).toMatch(line);
    }
  },
  TIMEOUT,
);

interface ExitCase {
  readonly name: string;
  readonly env: Record<string, string>;
  readonly args: readonly string[];
  readonly exitCode: number | string;
}
replay("kubernetes-controllers exit codes", FOLDER, async (score) => {
  await install("etcdv3");
  await new EtcdKeys(etcd).clear();
  const nobody = join(cluster.server.folder, "nobody.kubeconfig");
  const text = execFileSync("cat", [cluster.server.kubeconfig], { encoding: "utf8" });
  writeFileSync(nobody, text.replace(/127\.0\.0\.1:\d+/, `127.0.0.1:${await freePort()}`));
  const { cases } = readRecording<{ cases: ExitCase[] }>(`${FOLDER}/exit-codes.json`);
  const judge = async ({ name, env, args, exitCode }: ExitCase) => {
    const own = { ...env, ...(env["KUBECONFIG"]?.startsWith("(") === true ? { KUBECONFIG: nobody } : {}) };
    await using program = new ControllersProgram(environment("etcdv3", { ENABLED_CONTROLLERS: "node", ...own }), args);
    const patienceMs = typeof exitCode === "string" ? 4000 : WITHIN;
    const ended = await Promise.race([program.ended, Bun.sleep(patienceMs).then(() => "still running")]);
    score.same(name, [typeof exitCode === "string" ? "still running" : exitCode], ended);
    if (typeof exitCode === "number")
      score.check(`${name} prints a reason`, program.output.trim() !== "", "a line", "");
  };
  await Promise.all(cases.filter(({ exitCode }) => typeof exitCode === "number").map(judge));
  for (const each of cases) if (typeof each.exitCode === "string") await judge(each);
});

interface HealthRecording {
  readonly statusFile: string;
  readonly http: readonly { readonly url: string; readonly status: number; readonly body?: string }[];
  readonly sigterm: { readonly exitCode: number };
}
replay("kubernetes-controllers health", FOLDER, async (score) => {
  await install("etcdv3");
  await new EtcdKeys(etcd).clear();
  const ports: Record<string, number> = { "9099": await freePort(), "9094": await freePort() };
  await writeConfiguration({ prometheusMetricsPort: ports["9094"], controllers: { node: {} } });
  const recorded = readRecording<HealthRecording>(`${FOLDER}/health.json`);
  await using program = new ControllersProgram(environment("etcdv3"), ["--health-port", String(ports["9099"])]);
  await eventually(() => program.isReady, WITHIN);
  score.same("status file", [JSON.parse(recorded.statusFile)], { Readiness: program.readiness() });
  for (const { url, status, body } of recorded.http) {
    const [, port = "", path = ""] = /:(\d+)(\/.*)$/.exec(url) ?? [];
    const answer = await fetch(`http://127.0.0.1:${ports[port]}${path}`);
    score.same(`${url} status`, [status], answer.status);
    if (body !== undefined) score.check(`${url} body`, (await answer.text()).startsWith(body), body, "another");
  }
  program.kill("SIGTERM");
  score.same("exit code after SIGTERM", [recorded.sigterm.exitCode], await program.ended);
});

const writeConfiguration = async (spec: object): Promise<void> =>
  writeResource("KubeControllersConfiguration", "default", spec);
async function writeResource(kind: KindName, name: string, spec: object): Promise<void> {
  const store = await openDatastore(etcd.config);
  await new Client(store).apply({ apiVersion: "projectcalico.org/v3", kind, metadata: { name }, spec } as never);
  await store.close();
}

replay("kubernetes-controllers metrics", FOLDER, async (score) => {
  await install("etcdv3");
  const recorded = readRecording<{ afterStart: string[]; later: string[]; names: Record<string, { type: string }> }>(
    `${FOLDER}/metrics.json`,
  );
  const keys = new EtcdKeys(etcd);
  await keys.clear();
  const port = await freePort();
  await writeConfiguration({ prometheusMetricsPort: port, controllers: { node: { leakGracePeriod: "2s" } } });
  await writeResource("IPPool", "p4", { cidr: "10.65.0.0/16", blockSize: 28 });
  await writeResource("IPPool", "other", { cidr: "10.99.0.0/24", blockSize: 28 });
  await writeResource("IPReservation", "r", { reservedCIDRs: ["10.65.200.0/30"] });
  await writeResource("Node", "n1", { orchRefs: [{ orchestrator: "k8s", nodeName: "n1" }] });
  await cluster.apply({ kind: "Node", metadata: { name: "n1" } });
  const store = await openDatastore(etcd.config);
  const ipam = new Ipam({ datastore: store });
  await ipam.claimAffinity("10.65.1.0/28" as never, { type: "host", name: "n1" });
  await ipam.claimAffinity("10.99.0.0/28" as never, { type: "host", name: "ghost" });
  const give = (address: string, host: string, attributes: Record<string, string>) =>
    ipam.assignAddress({ address: address as never, host, handleId: `net.${address}`, attributes });
  const pod = (name: string, node: string) => ({ namespace: "ns1", pod: name, node });
  await give("10.65.1.1", "n1", pod("lives", "n1"));
  await give("10.65.1.2", "n1", pod("leaked", "n1"));
  await give("10.65.1.3", "n1", pod("nowhere", "unknown"));
  await give("10.99.0.1", "ghost", { node: "ghost" });
  await store.delete({ type: "resource", kind: "IPPool", name: "other" });
  await store.close();
  const status = { phase: "Running", podIP: "10.65.1.1", podIPs: [{ ip: "10.65.1.1" }] };
  await cluster.apply({
    kind: "Pod",
    metadata: { name: "lives", namespace: "ns1" },
    spec: { nodeName: "n1", containers: [{ name: "c", image: "i" }] },
    status,
  } as never);
  await using program = new ControllersProgram(environment("etcdv3", { ENABLED_CONTROLLERS: "node" }));
  const text = async () => {
    try {
      return await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
    } catch {
      return "";
    }
  };
  const figures = async () =>
    (await text())
      .split("\n")
      .filter((line) => line.startsWith("ipam_"))
      .sort();
  for (const [when, wanted] of Object.entries({ "after start": recorded.afterStart, later: recorded.later })) {
    await eventually(async () => (await figures()).join() === [...wanted].sort().join(), 15_000).catch(() => {});
    score.same(when, [[...wanted].sort()], await figures());
  }
  const shown = await text();
  for (const [name, { type }] of Object.entries(recorded.names))
    if (name.startsWith("ipam_")) score.check(`type of ${name}`, shown.includes(`# TYPE ${name} ${type}\n`), type, "");
  expect(program.isRunning).toBe(true);
  await cluster.delete("/api/v1/namespaces/ns1/pods/lives");
  await cluster.delete("/api/v1/nodes/n1");
});
