// Tests the program calico-typha on etcd and on SQLite, with a client of every syncer.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  Client,
  createSyncer,
  type Datastore,
  openDatastore,
  openSqlite,
  type SyncerName,
} from "../../../src/datastore/index.ts";
import { silentLogger } from "../../../src/lib/log/log.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { API_VERSION, type KindName } from "../../../src/model/index.ts";
import { createTyphaSyncer } from "../../../src/typha/connect.ts";
import { typhaSettings } from "../../../src/typha/settings.ts";
import { TestAuthority } from "../../support/certificates.ts";
import { EtcdServer } from "../../support/etcd-server.ts";
import { freePort } from "../../support/free-port.ts";
import { stateOf, TestConsumer } from "./harness.ts";

const folder = mkdtempSync(join(tmpdir(), "typha-daemon-"));
let etcd: EtcdServer;
beforeAll(async () => {
  etcd = await EtcdServer.start({ tls: true });
});
afterAll(async () => {
  await etcd[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true });
});

/** Runs the program in a separate process. */
class Typha implements AsyncDisposable {
  readonly process;
  readonly port: number;
  constructor(env: Record<string, string>, port: number) {
    this.port = port;
    this.process = Bun.spawn([process.execPath, join(import.meta.dir, "../../support/run-program.ts")], {
      env: {
        PROGRAM: "calico-typha",
        PATH: process.env["PATH"]!,
        TYPHA_SERVERPORT: String(port),
        TYPHA_SERVERHOST: "127.0.0.1",
        TYPHA_LOGFILEPATH: "none",
        TYPHA_SHUTDOWNTIMEOUTSECS: "1",
        ...env,
      },
      stdout: "ignore",
      stderr: "pipe",
    });
  }
  async [Symbol.asyncDispose](): Promise<void> {
    this.process.kill("SIGKILL");
    await this.process.exited;
  }
}

/** Creates a client from environment variables, as programs do. */
async function follow(port: number, syncer: SyncerName): Promise<TestConsumer> {
  const env = { FELIX_TYPHAADDR: `127.0.0.1:${port}` };
  const settings = typhaSettings(env, ["FELIX_"])!;
  return TestConsumer.run(await createTyphaSyncer({ settings, syncer, hostname: "n1", log: silentLogger, env }));
}

const make = (kind: KindName, name: string, spec: object, namespace?: string) => ({
  apiVersion: API_VERSION,
  kind,
  metadata: { name, namespace },
  spec,
});

async function populate(store: Datastore): Promise<void> {
  const client = new Client(store);
  await client.create(make("IPPool", "p", { cidr: "10.65.0.0/16", ipipMode: "Always" }));
  await client.create(make("Node", "n1", { bgp: { ipv4Address: "10.0.0.1/24" }, ipv4VXLANTunnelAddr: "10.65.0.9" }));
  await client.create(make("GlobalNetworkPolicy", "gnp", { selector: "a == 'b'", ingress: [{ action: "Deny" }] }));
  await client.create(make("BGPPeer", "peer", { peerIP: "10.0.0.9", asNumber: 64512 }));
  await client.create(make("BGPFilter", "filter", {}));
  await client.create(make("CalicoNodeStatus", "status", { node: "n1", classes: ["BGP"], updatePeriodSeconds: 10 }));
  const spec = {
    orchestrator: "k8s",
    node: "n1",
    pod: "web",
    endpoint: "eth0",
    interfaceName: "cali1",
    ipNetworks: ["10.65.0.1/32"],
  };
  await client.create(make("WorkloadEndpoint", "", spec, "prod"));
  await store.create({
    key: { type: "blockAffinity", affinityType: "host", host: "n1", cidr: "10.65.0.0/26" as never },
    value: { state: "confirmed", deleted: false },
  });
}

describe.each([
  [
    "etcd",
    async () => ({
      store: await openDatastore(etcd.config),
      env: { TYPHA_DATASTORETYPE: "etcdv3", TYPHA_ETCDENDPOINTS: etcd.url, ...files(etcd) } as Record<string, string>,
    }),
  ],
  [
    "sqlite",
    async () => {
      const path = join(folder, "calico.db");
      return {
        store: await openSqlite(path),
        env: { TYPHA_DATASTORETYPE: "sqlite", CALICO_SQLITE_PATH: path } as Record<string, string>,
      };
    },
  ],
])("on %s", (_name, open) => {
  let store: Datastore;
  let typha: Typha;
  let ports: { health: number; metrics: number };
  beforeAll(async () => {
    const opened = await open();
    store = opened.store;
    await populate(store);
    ports = { health: await freePort(), metrics: await freePort() };
    typha = new Typha(
      {
        ...opened.env,
        TYPHA_HEALTHENABLED: "true",
        TYPHA_HEALTHPORT: String(ports.health),
        TYPHA_PROMETHEUSMETRICSENABLED: "true",
        TYPHA_PROMETHEUSMETRICSPORT: String(ports.metrics),
      },
      await freePort(),
    );
  });
  afterAll(async () => {
    await typha[Symbol.asyncDispose]();
    await store.close();
  });

  for (const [id, syncer] of [
    ["TC-T02", "felix"],
    ["TC-T03", "bgp"],
    ["TC-T04", "tunnel-ip-allocation"],
    ["TC-T05", "node-status"],
  ] as const)
    test(`${id} a client of the ${syncer} syncer receives the same snapshot and changes as from the datastore`, async () => {
      await using through = await follow(typha.port, syncer);
      await using straight = TestConsumer.run(createSyncer(syncer, store));
      await eventually(() => through.status === "in-sync" && straight.status === "in-sync", 15_000);
      expect(straight.state.size).toBeGreaterThan(0);
      // The pool of the previous case is deleted from the datastore, but may still be in Typha's cache.
      await eventually(() => Bun.deepEquals(stateOf(through), stateOf(straight)), 5000, "Typha has caught up");
      const before = stateOf(through);
      const client = new Client(store);
      const pool = await client.get({ kind: "IPPool", name: "p" });
      await client.update({ ...pool, spec: { ...pool.spec, natOutgoing: pool.spec.natOutgoing !== true } });
      const status = await client.get({ kind: "CalicoNodeStatus", name: "status" });
      await client.update({ ...status, spec: { ...status.spec, updatePeriodSeconds: 20 + syncer.length } });
      await client.create(make("IPPool", `more-${syncer}`, { cidr: `10.${66 + syncer.length}.0.0/16` }));
      await client.delete({ kind: "IPPool", name: `more-${syncer}` });
      await eventually(
        () => Bun.deepEquals(stateOf(through), stateOf(straight)) && !Bun.deepEquals(stateOf(through), before),
        10_000,
      );
    }, 30_000);

  test("TC-T02 an invalid value counts as absent, and as deleted if it was valid before", async () => {
    await using felix = await follow(typha.port, "felix");
    await eventually(() => felix.status === "in-sync", 10_000);
    const path = "/calico/v1/policy/GlobalNetworkPolicy//gnp";
    expect(felix.state.has(path)).toBe(true);
    const key = { type: "resource", kind: "GlobalNetworkPolicy", name: "gnp" } as const;
    const { value } = await store.get(key);
    await store.apply({ key, value: { ...value, spec: { ...(value.spec as object), selector: "a === b" } } });
    await eventually(() => !felix.state.has(path));
    await store.apply({ key, value });
    await eventually(() => felix.state.has(path));
    const node = { type: "resource", kind: "Node", name: "bad" } as const;
    await store.apply({ key: node, value: make("Node", "bad", { bgp: { ipv4Address: "nowhere" } }) });
    await store.apply({ key: { ...node, name: "good" }, value: make("Node", "good", {}) });
    await eventually(() => felix.state.has("/calico/resources/v3/projectcalico.org/nodes/good"));
    expect(felix.state.has("/calico/resources/v3/projectcalico.org/nodes/bad")).toBe(false);
  });

  test("TC-T27 the health port reports liveness and readiness", async () => {
    const get = (path: string) => fetch(`http://localhost:${ports.health}${path}`);
    await eventually(() =>
      get("/readiness").then(
        ({ status }) => status === 200,
        () => false,
      ),
    );
    const ready = await (await get("/readiness")).text();
    for (const name of ["felix-cache", "bgp-cache", "tunnel-ip-allocation-cache", "node-status-cache", "SyncServer"])
      expect(ready).toContain(name);
    expect((await get("/liveness")).status).toBe(200);
    expect((await get("/elsewhere")).status).toBe(404);
  });

  test("TC-T26 metrics are served", async () => {
    const page = await (await fetch(`http://localhost:${ports.metrics}/metrics`)).text();
    expect(page).toContain('typha_cache_size{syncer="felix"}');
    expect(page).toMatch(/process_resident_memory_bytes \d+/);
  });

  test("TC-T22 on SIGTERM, the program sends a goodbye to its clients and exits", async () => {
    await using client = await follow(typha.port, "felix");
    await eventually(() => client.status === "in-sync", 10_000);
    const known = stateOf(client);
    typha.process.kill("SIGTERM");
    expect(await typha.process.exited).toBe(0);
    await eventually(() => client.status === "wait-for-ready");
    expect(stateOf(client)).toEqual(known);
  });
});

test("TC-T01 the program retries while its datastore is not available, and serves clients when it is", async () => {
  await using own = await EtcdServer.start();
  await own.kill();
  await using typha = new Typha({ TYPHA_ETCDENDPOINTS: own.url }, await freePort());
  await Bun.sleep(500);
  expect(typha.process.exitCode).toBeNull();
  await own.run();
  await using client = await follow(typha.port, "felix");
  await eventually(() => client.status === "in-sync", 20_000);
  const store = await openDatastore(own.config);
  const { spec } = await new Client(store).get({ kind: "ClusterInformation", name: "default" });
  expect(spec.clusterType).toBe("typha");
  await store.close();
}, 40_000);

const CLIENT_AUTH = [
  { mode: "NoClientCert", none: true, ours: true, theirs: true },
  { mode: "RequireAndVerifyClientCert", none: false, ours: true, theirs: false },
  { mode: "RequireAnyClientCert", none: false, ours: true, theirs: true },
  { mode: "VerifyClientCertIfGiven", none: true, ours: true, theirs: false },
] as const;
test("TC-T19 metrics over HTTPS, with a client certificate if it is required", async () => {
  const authority = new TestAuthority(folder, "metrics CA");
  const strangers = new TestAuthority(mkdtempSync(join(folder, "strangers-")), "other CA");
  const own = authority.issue("metrics");
  const ca = readFileSync(authority.certFile, "utf8");
  const pem = (certificate: { readonly certFile: string; readonly keyFile: string }) => ({
    cert: readFileSync(certificate.certFile, "utf8"),
    key: readFileSync(certificate.keyFile, "utf8"),
  });
  const [ours, theirs] = [pem(authority.issue("scraper")), pem(strangers.issue("scraper"))];
  const path = join(folder, "https.db");
  await (await openSqlite(path)).close(); // Typha does not create it
  for (const { mode, ...want } of CLIENT_AUTH) {
    const port = await freePort();
    await using _typha = new Typha(
      {
        TYPHA_DATASTORETYPE: "sqlite",
        CALICO_SQLITE_PATH: path,
        TYPHA_PROMETHEUSMETRICSENABLED: "true",
        TYPHA_PROMETHEUSMETRICSPORT: String(port),
        TYPHA_PROMETHEUSMETRICSCERTFILE: own.certFile,
        TYPHA_PROMETHEUSMETRICSKEYFILE: own.keyFile,
        TYPHA_PROMETHEUSMETRICSCAFILE: authority.certFile,
        TYPHA_PROMETHEUSMETRICSCLIENTAUTH: mode,
      },
      await freePort(),
    );
    const scrape = (tls: object) =>
      fetch(`https://localhost:${port}/metrics`, { tls: { ca, ...tls }, signal: AbortSignal.timeout(2000) }).then(
        async (response) => (await response.text()).includes("typha_cache_size"),
        () => false,
      );
    await eventually(() => scrape(ours));
    expect({ mode, none: await scrape({}), ours: await scrape(ours), theirs: await scrape(theirs) }).toEqual({
      mode,
      ...want,
    });
  }
}, 40_000);

function files(server: EtcdServer): Record<string, string> {
  const { ca, cert, key } = server.config.tls as unknown as Record<string, { file: string }>;
  return { TYPHA_ETCDCAFILE: ca!.file, TYPHA_ETCDCERTFILE: cert!.file, TYPHA_ETCDKEYFILE: key!.file };
}
