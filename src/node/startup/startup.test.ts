// Tests the complete startup on a SQLite datastore in a temporary folder.
import { expect, test } from "bun:test";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client, mayRecordVersion, openDatastore, recordVersion, releaseVersion } from "../../datastore/index.ts";
import { VERSION_ANNOTATION } from "../../lib/process/build.ts";
import { silentLogger } from "../../lib/log/log.ts";
import type { KindName, Resource } from "../../model/index.ts";
import { openNodeDatastore } from "../node-datastore.ts";
import { startUp } from "./startup.ts";

class Bench implements Disposable {
  readonly folder = mkdtempSync(join(tmpdir(), "node-startup-"));
  readonly env = {
    DATASTORE_TYPE: "sqlite",
    CALICO_SQLITE_PATH: join(this.folder, "calico.db"),
    CALICO_NODENAME_FILE: join(this.folder, "lib/nodename"),
    NODENAME: "n1",
    IP: "192.0.2.5/24",
  };
  start(env: Record<string, string> = {}): Promise<string> {
    return startUp({ ...this.env, ...env }, silentLogger, join(this.folder, "root"));
  }
  async with<T>(work: (client: Client) => Promise<T>): Promise<T> {
    const store = await openDatastore({ type: "sqlite", path: this.env.CALICO_SQLITE_PATH, isFallback: false });
    try {
      return await work(new Client(store));
    } finally {
      await store.close();
    }
  }
  get(kind: KindName, name: string): Promise<Resource> {
    return this.with((client) => client.get({ kind, name }));
  }
  [Symbol.dispose](): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}

test("only -startup creates a SQLite datastore", async () => {
  using bench = new Bench();
  const path = bench.env.CALICO_SQLITE_PATH;
  await expect(openNodeDatastore(bench.env)).rejects.toThrow(`datastore ${path} is unavailable: there is no such file`);
  expect(existsSync(path)).toBe(false);
  await bench.start();
  expect(existsSync(path)).toBe(true);
  await (await openNodeDatastore(bench.env))[Symbol.asyncDispose]();
});

test("NB-048 the node's name is written for the CNI plugin, without a line break", async () => {
  using bench = new Bench();
  expect(await bench.start()).toBe("n1");
  expect(readFileSync(bench.env.CALICO_NODENAME_FILE, "utf8")).toBe("n1");
  expect(statSync(bench.env.CALICO_NODENAME_FILE).mode & 0o777).toBe(0o644);
});

test("NB-033 NB-034 AS number and the Kubernetes node's name are recorded", async () => {
  using bench = new Bench();
  await bench.start({ AS: "1.10", CALICO_K8S_NODE_REF: "k8s-n1" });
  expect((await bench.get("Node", "n1")).spec).toMatchObject({
    bgp: { ipv4Address: "192.0.2.5/24", asNumber: 65546 },
    orchRefs: [{ nodeName: "k8s-n1", orchestrator: "k8s" }],
  });
  await expect(bench.start({ AS: "abc" })).rejects.toThrow("AS=abc");
});

test("NB-035 a second startup writes the Node only if something changed", async () => {
  using bench = new Bench();
  await bench.start();
  const before = (await bench.get("Node", "n1")).metadata.resourceVersion;
  await bench.start();
  expect((await bench.get("Node", "n1")).metadata.resourceVersion).toBe(before!);
  await bench.start({ IP: "192.0.2.6/24" });
  expect((await bench.get("Node", "n1")).metadata.resourceVersion).not.toBe(before!);
});

test("NB-035 the Node is not written if another program added fields after `interfaces`", async () => {
  using bench = new Bench();
  await bench.start({ CALICO_K8S_NODE_REF: "k8s-n1", AS: "64999" });
  await bench.with(async (client) => {
    const node = await client.get({ kind: "Node", name: "n1" });
    await client.update({ ...node, spec: { ...node.spec, ipv4VXLANTunnelAddr: "192.168.0.1" } });
  });
  const before = (await bench.get("Node", "n1")).metadata.resourceVersion;
  expect((await bench.get("Node", "n1")).spec).toHaveProperty("interfaces");
  await bench.start({ CALICO_K8S_NODE_REF: "k8s-n1", AS: "64999" });
  expect((await bench.get("Node", "n1")).metadata.resourceVersion).toBe(before!);
});

test("NB-032 an address that another Node has is rejected, unless the check is disabled", async () => {
  using bench = new Bench();
  await bench.start({ NODENAME: "first" });
  await expect(bench.start()).rejects.toThrow("Node first also has 192.0.2.5");
  await bench.start({ DISABLE_NODE_IP_CHECK: "true" });
});

test("NB-045 the cluster type is merged word by word, the cluster GUID is kept, a release version is recorded", async () => {
  using bench = new Bench();
  await bench.start({ CLUSTER_TYPE: "k8s,bgp" });
  const first = (await bench.get("ClusterInformation", "default")).spec as Record<string, unknown>;
  expect(first).toMatchObject({ clusterType: "k8s,bgp", datastoreReady: true });
  expect(first["clusterGUID"]).toMatch(/^[0-9a-f]{32}$/);
  await bench.start({ CLUSTER_TYPE: "bgp,typha" });
  expect((await bench.get("ClusterInformation", "default")).spec).toEqual({ ...first, clusterType: "k8s,bgp,typha" });
  // Only release versions go to calicoVersion, because Calico's calicoctl rejects a version that differs from its own.
  for (const version of ["v0.1.0", "v0.2.0"]) {
    await bench.with((client) => recordVersion(client, version));
    const { metadata, spec } = await bench.get("ClusterInformation", "default");
    expect(metadata.annotations).toEqual({ [VERSION_ANNOTATION]: version });
    expect(spec).toEqual({ ...first, clusterType: "k8s,bgp,typha" });
  }
  expect(releaseVersion("v3.30.1")).toBe("v3.30.1");
  expect(releaseVersion("v0.1.0")).toBeUndefined();
  expect([undefined, "v1.2.0", "v3.30.1"].map(mayRecordVersion)).toEqual([true, true, false]);
});

test("NB-046 FelixConfigurations are created, and only missing fields are added", async () => {
  using bench = new Bench();
  await bench.start();
  expect((await bench.get("FelixConfiguration", "default")).spec).toMatchObject({
    reportingInterval: "0s",
    logSeverityScreen: "Info",
  });
  expect((await bench.get("FelixConfiguration", "node.n1")).spec).toMatchObject({
    defaultEndpointToHostAction: "Return",
  });
  await bench.with(async (client) => {
    const node = await client.get({ kind: "FelixConfiguration", name: "node.n1" });
    await client.update({ ...node, spec: { ...node.spec, defaultEndpointToHostAction: "Drop" } });
  });
  await bench.start();
  expect((await bench.get("FelixConfiguration", "node.n1")).spec).toMatchObject({
    defaultEndpointToHostAction: "Drop",
  });
});

test("NB-047 default BGP and IPAM configurations are created", async () => {
  using bench = new Bench();
  await bench.start();
  expect((await bench.get("BGPConfiguration", "default")).metadata.name).toBe("default");
  expect((await bench.get("IPAMConfiguration", "default")).spec).toMatchObject({
    autoAllocateBlocks: true,
    strictAffinity: false,
  });
});

test("NB-037 pools are created once, later settings do not change them", async () => {
  using bench = new Bench();
  await bench.start({ CALICO_IPV4POOL_CIDR: "10.9.0.0/16" });
  await bench.start({ CALICO_IPV4POOL_CIDR: "10.8.0.0/16" });
  expect((await bench.get("IPPool", "default-ipv4-ippool")).spec).toMatchObject({ cidr: "10.9.0.0/16" });
});

test("NB-044 startup fails if the datastore rejects a pool", async () => {
  using bench = new Bench();
  const both = { CALICO_IPV4POOL_IPIP: "Always", CALICO_IPV4POOL_VXLAN: "Always" };
  await expect(bench.start(both)).rejects.toThrow("cannot create pool default-ipv4-ippool");
  await expect(bench.start({ CALICO_IPV4POOL_CIDR: "10.9.0.0/27" })).rejects.toThrow("cannot create pool");
});

test("NB-036 the host's directories are created for the enabled parts; startup fails if one cannot be created", async () => {
  using bench = new Bench();
  const has = (folder: string) => existsSync(join(bench.folder, "root/var", folder));
  await bench.start({ CALICO_DISABLE_FILE_LOGGING: "true", CALICO_NETWORKING_BACKEND: "vxlan" });
  expect([has("lib/calico"), has("run/calico"), has("log/calico")]).toEqual([true, false, false]);
  await bench.start();
  expect([has("run/calico"), has("log/calico")]).toEqual([true, true]);
  rmSync(join(bench.folder, "root"), { recursive: true });
  writeFileSync(join(bench.folder, "root"), "");
  await expect(bench.start()).rejects.toThrow("cannot create");
  rmSync(join(bench.folder, "root"));
  writeFileSync(join(bench.folder, "file"), "");
  const startWith = (file: string) => bench.start({ CALICO_NODENAME_FILE: join(bench.folder, file), HOSTNAME: "x" });
  await expect(startWith("file/nodename")).rejects.toThrow("cannot write the guard file");
  mkdirSync(join(bench.folder, "folder/nodename/in-the-way"), { recursive: true });
  await expect(startWith("folder/nodename")).rejects.toThrow("cannot write the node's name");
});

test("several nodes start concurrently on an empty datastore", async () => {
  using bench = new Bench();
  const names = Array.from({ length: 6 }, (_, i) => `many-${i}`);
  await Promise.all(
    names.map((name, i) =>
      bench.start({ NODENAME: name, IP: `192.0.2.${10 + i}/24`, CALICO_NODENAME_FILE: join(bench.folder, name) }),
    ),
  );
  expect(await bench.with(async (client) => (await client.list({ kind: "Node" })).items.length)).toBe(6);
  expect(await bench.with(async (client) => (await client.list({ kind: "IPPool" })).items.length)).toBe(2);
});
