import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "bun:test";
import type { DataplaneReport, ProtoWorkloadEndpoint } from "../../calc/index.ts";
import { Conflict, type Datastore, openSqliteInMemory } from "../../datastore/index.ts";
import type { Cidr } from "../../lib/ip/ip.ts";
import { silentLogger as log } from "../../lib/log/log.ts";
import { eventually } from "../../lib/testing/eventually.ts";
import type { ResourceKey } from "../../model/index.ts";
import { keepAliveFile } from "./alive-file.ts";
import { EndpointStatusReporter } from "./endpoint-status.ts";
import { ProcessStatusReporter, statusRegion } from "./process-status.ts";
import { StatusFiles } from "./status-files.ts";
import { WireguardKeyReporter } from "./wireguard-key.ts";

const id = { orchestrator: "k8s", workload: "default/pod-1", endpoint: "eth0" };
const endpoint = {
  name: "cali1",
  mac: "ee:ee:ee:ee:ee:ee",
  ipv4Nets: ["10.0.0.1/32" as Cidr],
  ipv6Nets: [] as Cidr[],
} as unknown as ProtoWorkloadEndpoint;
const up = (value = endpoint): DataplaneReport => ({
  type: "workloadEndpointStatus",
  id,
  status: "up",
  endpoint: value,
});
const down: DataplaneReport = { type: "workloadEndpointStatus", id, status: "down" };

/** The datastore with some of its operations replaced. */
const withReplaced = (store: Datastore, other: Partial<Datastore>): Datastore =>
  new Proxy(store, {
    get: (target, name) => {
      const value: unknown = Reflect.get(other, name) ?? Reflect.get(target, name);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
function folder(): { readonly path: string } & Disposable {
  const path = mkdtempSync(join(tmpdir(), "felix-status-"));
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true }) };
}

/** Maintains its folder until it is disposed; then the folder can be deleted. */
function statusFiles(path: string): Pick<StatusFiles, "onReport"> & Disposable {
  const files = new StatusFiles(path, log);
  const ending = new AbortController();
  void files.run(ending.signal);
  return { onReport: (report) => files.onReport(report), [Symbol.dispose]: () => ending.abort() };
}

test("FC-104 writes a file per endpoint that is up, after the dataplane's first round, and deletes other files", () => {
  using temporary = folder();
  const { path } = temporary;
  const dir = join(path, "endpoint-status");
  mkdirSync(dir);
  writeFileSync(join(dir, "k8s old%2Fpod eth0"), "{}");
  using files = statusFiles(path);
  files.onReport(up());
  expect(readdirSync(dir)).toEqual(["k8s old%2Fpod eth0"]);
  files.onReport({ type: "dataplaneInSync" });
  expect(readdirSync(dir)).toEqual(["k8s default%2Fpod-1 eth0"]);
  const file = join(dir, "k8s default%2Fpod-1 eth0");
  expect(JSON.parse(readFileSync(file, "utf8"))).toEqual({
    ifaceName: "cali1",
    mac: "ee:ee:ee:ee:ee:ee",
    ipv4Nets: ["10.0.0.1/32"],
  });
  expect(statSync(file).mode & 0o777).toBe(0o644);
  const before = statSync(file).mtimeMs;
  files.onReport(up());
  expect(statSync(file).mtimeMs).toBe(before);
  files.onReport(up({ ...endpoint, localBgpPeer: { bgpPeerName: "peer" } }));
  expect(JSON.parse(readFileSync(file, "utf8")).bgpPeerName).toBe("peer");
  files.onReport(down);
  expect(readdirSync(dir)).toEqual([]);
  files.onReport(up());
  files.onReport({ type: "workloadEndpointStatusRemove", id });
  expect(readdirSync(dir)).toEqual([]);
});

test("a pod name that is too long for a file does not prevent the files of other pods", () => {
  using temporary = folder();
  using files = statusFiles(temporary.path);
  const long = { ...id, workload: `${"n".repeat(63)}/${"p".repeat(253)}` };
  files.onReport({ type: "workloadEndpointStatus", id: long, status: "up", endpoint });
  files.onReport(up());
  files.onReport({ type: "dataplaneInSync" });
  expect(readdirSync(join(temporary.path, "endpoint-status"))).toEqual(["k8s default%2Fpod-1 eth0"]);
});

test("FC-104 retries a folder that cannot be written", async () => {
  using temporary = folder();
  writeFileSync(join(temporary.path, "endpoint-status"), "not a folder");
  using files = statusFiles(temporary.path);
  files.onReport(up());
  files.onReport({ type: "dataplaneInSync" });
  rmSync(join(temporary.path, "endpoint-status"));
  await eventually(() => {
    try {
      return readdirSync(join(temporary.path, "endpoint-status")).length === 1;
    } catch {
      return false;
    }
  });
});

test("keeps the alive file recent and deletes it on shutdown", async () => {
  using temporary = folder();
  const stop = new AbortController();
  const done = keepAliveFile(join(temporary.path, "run"), stop.signal);
  expect(Date.now() - statSync(join(temporary.path, "run/felix-alive")).mtimeMs).toBeLessThan(5000);
  stop.abort();
  await done;
  expect(readdirSync(join(temporary.path, "run"))).toEqual([]);
});

const statusesIn = async (store: Datastore) => {
  const workloads = await store.list({ type: "workloadStatus", region: "no-region" });
  const hosts = await store.list({ type: "hostEndpointStatus" });
  return Object.fromEntries(
    [...workloads.items, ...hosts.items].map(({ key, value }) => [
      `${key.host} ${key.type === "workloadStatus" ? key.workload : key.endpoint}`,
      value.status,
    ]),
  );
};

test("FC-103 writes endpoint statuses to the datastore, restores deleted ones, deletes superfluous ones of this host", async () => {
  const store = await openSqliteInMemory();
  const workload = (host: string, name: string) =>
    ({
      type: "workloadStatus",
      region: "no-region",
      host,
      orchestrator: "k8s",
      workload: name,
      endpoint: "eth0",
    }) as const;
  await store.apply({ key: workload("here", "stray"), value: { status: "up" } });
  await store.apply({ key: workload("there", "other"), value: { status: "up" } });
  const reporter = new EndpointStatusReporter({
    store,
    host: "here",
    region: "no-region",
    delayMs: 1,
    log,
    random: () => 0,
  });
  const stop = new AbortController();
  const running = reporter.run(stop.signal);
  reporter.onReport(up());
  reporter.onReport({ type: "hostEndpointStatus", endpointId: "eth0", status: "error" });
  reporter.onReport({ type: "dataplaneInSync" });
  await eventually(async () =>
    Bun.deepEquals(await statusesIn(store), { "here default/pod-1": "up", "here eth0": "error", "there other": "up" }),
  );
  await store.delete(workload("here", "default/pod-1"));
  await eventually(async () => (await statusesIn(store))["here default/pod-1"] === "up"); // compared again after 180 delays
  reporter.onReport(down);
  reporter.onReport({ type: "hostEndpointStatusRemove", endpointId: "eth0" });
  await eventually(async () =>
    Bun.deepEquals(await statusesIn(store), { "here default/pod-1": "down", "there other": "up" }),
  );
  stop.abort();
  await running;
});

test("FC-103 retries a failed write", async () => {
  const store = await openSqliteInMemory();
  let failures = 3;
  const flaky: Datastore = withReplaced(store, {
    apply: (entry, options) => {
      if (failures-- > 0) return Promise.reject(new Error("no"));
      return store.apply(entry, options);
    },
  });
  const reporter = new EndpointStatusReporter({ store: flaky, host: "here", region: "no-region", delayMs: 1, log });
  const stop = new AbortController();
  const running = reporter.run(stop.signal);
  reporter.onReport(up());
  await eventually(async () => (await statusesIn(store))["here default/pod-1"] === "up");
  stop.abort();
  await running;
});

test("FC-101 writes the process status twice, and marks the first update", async () => {
  const store = await openSqliteInMemory();
  const region = statusRegion("eu");
  const reporter = new ProcessStatusReporter({ store, host: "here", region, ttlSeconds: 90, log });
  reporter.onReport({ type: "processStatus", time: "2026-01-01T00:00:00Z", uptimeSeconds: 10 });
  const key = (last: boolean) => ({ type: "felixStatus", region: "region-eu", host: "here", last }) as const;
  await eventually(async () => (await store.list({ type: "felixStatus" })).items.length === 2);
  expect((await store.get(key(false))).value).toEqual({ time: "2026-01-01T00:00:00Z", uptime: 10, firstUpdate: true });
  reporter.onReport({ type: "processStatus", time: "2026-01-01T00:00:30Z", uptimeSeconds: 40 });
  await eventually(async () => !(await store.get(key(true))).value.firstUpdate);
  expect(statusRegion("")).toBe("no-region");
});

test("FC-102 writes the WireGuard key of each IP family to the Node, and retries after conflicts", async () => {
  const store = await openSqliteInMemory();
  const key: ResourceKey = { type: "resource", kind: "Node", name: "here" };
  await store.create({
    key,
    value: { apiVersion: "projectcalico.org/v3", kind: "Node", metadata: { name: "here" }, spec: {} },
  });
  let conflicts = 2;
  const contested: Datastore = withReplaced(store, {
    update: (entry, options) => {
      if (conflicts-- > 0) return Promise.reject(new Conflict("Node(here)"));
      return store.update(entry, options);
    },
  });
  const reporter = new WireguardKeyReporter({ store: contested, host: "here", log, onNoNode: () => {}, retryMs: 1 });
  reporter.onReport({ type: "wireguardStatus", ipVersion: 6, publicKey: "six" });
  reporter.onReport({ type: "wireguardStatus", ipVersion: 4, publicKey: "four" });
  await eventually(async () =>
    Bun.deepEquals((await store.get(key)).value.status, { wireguardPublicKey: "four", wireguardPublicKeyV6: "six" }),
  );
});

test("FC-102 reports a key without a Node, so that Felix restarts", async () => {
  const reasons: string[] = [];
  const store = await openSqliteInMemory();
  const reporter = new WireguardKeyReporter({ store, host: "here", log, onNoNode: (reason) => reasons.push(reason) });
  reporter.onReport({ type: "wireguardStatus", ipVersion: 4, publicKey: "" });
  reporter.onReport({ type: "wireguardStatus", ipVersion: 4, publicKey: "key" });
  await eventually(() => reasons.length === 1);
});
