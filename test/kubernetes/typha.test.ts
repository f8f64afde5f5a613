// Tests Typha on a real API server: its clients find the instances by the Service, connect to another instance when theirs
// is killed, and an instance drops clients above its limit. All programs use the manifests' accounts.
import { afterAll, beforeAll, expect } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { networkInterfaces, tmpdir } from "node:os";
import { join } from "node:path";
import { createSyncer, openDatastore, type SyncerName } from "../../src/datastore/index.ts";
import { silentLogger } from "../../src/lib/log/log.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { createTyphaSyncer, typhaSettings } from "../../src/typha/index.ts";
import { stateOf, TestConsumer } from "../functional/typha/harness.ts";
import { FelixProcess } from "../support/felix-process.ts";
import { freePort } from "../support/free-port.ts";
import { type Accounts, installAccounts } from "./accounts.ts";
import { type Cluster, isAvailable, startCluster, suite } from "./cluster.ts";
import { TyphaProcess } from "./typha-process.ts";

const SLICES = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices";
const IN_SYNC = 1;
const HOST_METADATA = 14;
/** Service accounts, namespaces and services, whose unchanged updates are repeated after a connection to another Typha. */
const REPEATED_MESSAGES = [19, 21, 31];
/** The API server rejects loopback addresses as endpoints. */
const host = Object.values(networkInterfaces())
  .flatMap((addresses) => addresses ?? [])
  .find(({ family, internal }) => family === "IPv4" && !internal)?.address;

let cluster: Cluster;
let accounts: Accounts;
let folder: string;
beforeAll(async () => {
  if (!isAvailable) return;
  folder = mkdtempSync(join(tmpdir(), "typha-kubernetes-"));
  cluster = await startCluster();
  accounts = await installAccounts(cluster);
  await cluster.put("/apis/crd.projectcalico.org/v1/clusterinformations", {
    apiVersion: "crd.projectcalico.org/v1",
    kind: "ClusterInformation",
    metadata: { name: "default" },
    spec: { datastoreReady: true },
  });
  await putNode("n1", 1);
}, 600_000);
afterAll(async () => {
  await cluster?.[Symbol.asyncDispose]();
  if (isAvailable) rmSync(folder, { recursive: true });
});

const putNode = (name: string, number: number) =>
  cluster.apply({
    apiVersion: "v1",
    kind: "Node",
    metadata: { name, annotations: { "projectcalico.org/IPv4Address": `192.0.2.${number}/24` } },
    spec: { podCIDR: `10.244.${number}.0/24` },
    status: { addresses: [{ type: "InternalIP", address: `192.0.2.${number}` }] },
  } as never);

/** An instance of Typha, which belongs to the Service after `list`. */
class Instance implements AsyncDisposable {
  readonly #process: TyphaProcess;
  constructor(
    readonly name: string,
    readonly port: number,
    env: Readonly<Record<string, string>> = {},
  ) {
    this.#process = new TyphaProcess(port, { KUBECONFIG: accounts.kubeconfig("calico-typha"), ...env });
  }

  static async start(name: string, env: Readonly<Record<string, string>> = {}): Promise<Instance> {
    return new Instance(name, await freePort(), env);
  }

  async list(options: { readonly ready: boolean; readonly nodeName: string }): Promise<void> {
    await cluster.put(SLICES, {
      metadata: { name: this.name, labels: { "kubernetes.io/service-name": "calico-typha" } },
      addressType: "IPv4",
      ports: [{ name: "calico-typha", port: this.port, protocol: "TCP" }],
      endpoints: [{ addresses: [host], conditions: { ready: options.ready }, nodeName: options.nodeName }],
    });
  }

  async kill(): Promise<void> {
    await this.#process.kill();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
    await cluster.delete(`${SLICES}/${this.name}`);
  }
}

const environment = () => ({
  KUBECONFIG: accounts.kubeconfig("calico-node"),
  FELIX_TYPHAK8SSERVICENAME: "calico-typha",
});

async function follow(syncer: SyncerName): Promise<TestConsumer> {
  const env = environment();
  const settings = typhaSettings(env, ["FELIX_"])!;
  return TestConsumer.run(await createTyphaSyncer({ settings, syncer, hostname: "n1", log: silentLogger, env }));
}

/** Without updates that change nothing, which Typha skips. */
const asTold = (consumer: TestConsumer) =>
  JSON.parse(JSON.stringify(stateOf(consumer)), (name, value: unknown) =>
    name === "resourceVersion" || name === "managedFields" ? undefined : value,
  ) as object;

suite("TC-T02 TC-T03 TC-T04 TC-T05 TC-T23 Typha, found by its Service, sends the same updates as the API server for each syncer", async () => {
  await using one = await Instance.start("typha-1");
  await one.list({ ready: true, nodeName: "n1" });
  const store = await openDatastore(cluster.config);
  try {
    for (const name of ["felix", "bgp", "tunnel-ip-allocation", "node-status"] as const) {
      await using through = await follow(name);
      await using straight = TestConsumer.run(createSyncer(name, store));
      await eventually(() => through.status === "in-sync" && straight.status === "in-sync", 30_000);
      if (name !== "node-status") expect(straight.state.size).toBeGreaterThan(0);
      // Both watch the same server, and either may be slightly behind.
      await eventually(() => Bun.deepEquals(asTold(through), asTold(straight))).catch(() => {});
      expect(asTold(through)).toEqual(asTold(straight));
    }
  } finally {
    await store.close();
  }
}, 60_000);

suite("FC-018 FC-019 TC-T24 TC-T25 an agent whose Typha is killed keeps its state and connects to another instance", async () => {
  await using one = await Instance.start("typha-1");
  await using two = await Instance.start("typha-2");
  await one.list({ ready: true, nodeName: "n1" });
  await two.list({ ready: false, nodeName: "n2" });
  await using felix = await FelixProcess.prepare();
  felix.start({
    ...environment(),
    DATASTORE_TYPE: "kubernetes",
    FELIX_DATASTORETYPE: "kubernetes",
    FELIX_FELIXHOSTNAME: "n1",
    NODENAME: "n1",
  });
  await felix.untilReady();
  await eventually(() => felix.messages().some(({ tag }) => tag === IN_SYNC), 30_000);
  const hosts = () => felix.messages().filter(({ tag }) => tag === HOST_METADATA).length;
  await eventually(() => hosts() >= 1);
  const before = hosts();
  const messagesBefore = felix.messages();
  await two.list({ ready: true, nodeName: "n2" });
  await one.kill(); // still listed as ready
  await putNode("n2", 2);
  await eventually(() => hosts() === before + 1, 30_000);
  expect(felix.isRunning).toBe(true);
  // No deletion was emitted meanwhile, and no update was repeated as new.
  expect(felix.messages().filter(({ tag }) => tag === IN_SYNC)).toHaveLength(1);
  expect(felix.output).toContain(`${host}:${two.port}`);
  const late = felix.messages().slice(messagesBefore.length);
  const known = new Set(messagesBefore.map(({ tag, body }) => `${tag} ${body}`));
  const again = late.filter(({ tag }) => REPEATED_MESSAGES.includes(tag));
  expect(again.filter(({ tag, body }) => !known.has(`${tag} ${body}`))).toEqual([]);
  expect(late.filter(({ tag }) => !REPEATED_MESSAGES.includes(tag)).length).toBeLessThan(5);
}, 90_000);

suite("TC-T20 TC-T21 an instance computes its limit from the API server and drops clients above it, which other instances accept", async () => {
  const env = {
    TYPHA_CONNECTIONREBALANCINGMODE: "kubernetes",
    TYPHA_K8SSERVICEPOLLINTERVALSECS: "0.2",
    TYPHA_CONNECTIONDROPINTERVALSECS: "0.05",
    TYPHA_MAXCONNECTIONSLOWERLIMIT: "1",
  };
  await putNode("n2", 2);
  const metrics = [await freePort(), await freePort()] as const;
  const withMetrics = (port: number) => ({
    ...env,
    TYPHA_PROMETHEUSMETRICSENABLED: "true",
    TYPHA_PROMETHEUSMETRICSPORT: String(port),
  });
  await using one = await Instance.start("typha-1", withMetrics(metrics[0]));
  await one.list({ ready: true, nodeName: "n1" }); // on the clients' node, so all of them connect to it first
  const count = async (port: number) => {
    const page = await fetch(`http://localhost:${port}/metrics`).then((answer) => answer.text());
    return Number(/^typha_connections_active (\d+)$/m.exec(page)?.[1] ?? "0");
  };
  await using clients = new AsyncDisposableStack();
  const consumers = await Promise.all(Array.from({ length: 20 }, () => follow("felix")));
  for (const consumer of consumers) clients.use(consumer);
  await eventually(() => consumers.every(({ status }) => status === "in-sync"), 30_000);
  expect(await count(metrics[0])).toBe(20);
  // With two servers and four clients per node, the limit is 4 × (1 + nodes × 1.2), in whole numbers.
  await using two = await Instance.start("typha-2", withMetrics(metrics[1]));
  await two.list({ ready: true, nodeName: "n2" });
  await cluster.put(SLICES, {
    metadata: { name: "typha-3", labels: { "kubernetes.io/service-name": "calico-typha" } },
    addressType: "IPv4",
    ports: [{ name: "calico-typha", port: 5473, protocol: "TCP" }],
    endpoints: [{ addresses: ["198.51.100.1"], conditions: { ready: false } }],
  });
  try {
    const end = Date.now() + 30_000;
    const share = 12;
    while ((await count(metrics[0])) > share) {
      if (Date.now() > end) throw new Error("the first instance has more clients than its limit");
      await Bun.sleep(50);
    }
    await eventually(() => consumers.every(({ status }) => status === "in-sync"), 10_000);
    expect(await count(metrics[1])).toBeGreaterThanOrEqual(20 - share);
  } finally {
    await cluster.delete(`${SLICES}/typha-3`);
  }
}, 90_000);
