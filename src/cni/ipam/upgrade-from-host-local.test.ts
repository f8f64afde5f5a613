import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "bun:test";
import { type Datastore, type KubeApi, openSqliteInMemory } from "../../datastore/index.ts";
import { silentLogger } from "../../lib/log/log.ts";
import { API_VERSION, type KindName, type Resource } from "../../model/index.ts";
import { main, upgradeFromHostLocal } from "./upgrade-from-host-local.ts";

async function seed(): Promise<Datastore> {
  const store = await openSqliteInMemory();
  const put = (kind: KindName, name: string, spec: object) =>
    store.apply({
      key: { type: "resource", kind, name },
      value: { apiVersion: API_VERSION, kind, metadata: { name }, spec } as Resource,
    });
  await put("ClusterInformation", "default", { datastoreReady: true });
  await put("Node", "n1", {});
  await put("IPPool", "p", { cidr: "10.244.0.0/16", blockSize: 26 });
  return store;
}

/** A node with one running pod, whose address is 10.244.1.5. */
const api = {
  get: async () => ({ metadata: { name: "n1" }, spec: { podCIDR: "10.244.1.0/24" } }),
  list: async () => ({
    items: [{ metadata: { name: "p1", namespace: "ns1" }, status: { podIP: "10.244.1.5" } }],
    metadata: {},
  }),
} as unknown as KubeApi;

async function allocations(store: Datastore): Promise<Record<string, string>> {
  const { items } = await store.list({ type: "block" });
  const found: Record<string, string> = {};
  for (const { value } of items)
    for (const [ordinal, index] of value.allocations.entries())
      if (index !== null) found[`${value.cidr}+${ordinal}`] = value.attributes[index]?.handleId ?? "";
  return found;
}

async function inFolder(body: (folder: string, reservations: string, plugins: string) => Promise<void>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "upgrade-"));
  const [reservations, plugins] = [join(folder, "k8s-pod-network"), join(folder, "bin")];
  mkdirSync(plugins);
  for (const name of ["calico", "host-local", "portmap"]) writeFileSync(join(plugins, name), "");
  try {
    await body(folder, reservations, plugins);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test("CI-082 addresses in use and the tunnel address are moved to IPAM, stale ones are dropped, and the datastore is ready again", () =>
  inFolder(async (_folder, reservations, plugins) => {
    mkdirSync(reservations);
    writeFileSync(join(reservations, "10.244.1.5"), "cid5\r\neth0");
    writeFileSync(join(reservations, "10.244.1.9"), "cid9");
    writeFileSync(join(reservations, "last_reserved_ip.0"), "10.244.1.9");
    writeFileSync(join(reservations, "lock"), "");
    const store = await seed();
    const options = { node: "n1", store, api, log: silentLogger, reservations, plugins, runningPluginsMs: 1 };
    await upgradeFromHostLocal(options);
    expect(await allocations(store)).toEqual({
      "10.244.1.0/26+1": "ipip-tunnel-addr-n1",
      "10.244.1.0/26+5": "k8s-pod-network.cid5",
    });
    expect([
      existsSync(reservations),
      existsSync(join(plugins, "calico")),
      existsSync(join(plugins, "portmap")),
    ]).toEqual([false, false, true]);
    const info = await store.get({ type: "resource", kind: "ClusterInformation", name: "default" });
    expect(info.value.spec).toEqual({ datastoreReady: true });
    await upgradeFromHostLocal(options); // no reservations are left
  }));

test("CI-082 an interrupted run is completed by the next run", () =>
  inFolder(async (_folder, reservations, plugins) => {
    mkdirSync(reservations);
    writeFileSync(join(reservations, "10.244.1.5"), "cid5");
    const store = await seed();
    const options = { node: "n1", store, api, log: silentLogger, reservations, plugins, runningPluginsMs: 1 };
    const failing = { ...api, list: () => Promise.reject(new Error("cut")) } as unknown as KubeApi;
    await expect(upgradeFromHostLocal({ ...options, api: failing })).rejects.toThrow("cut");
    const info = async () =>
      (await store.get({ type: "resource", kind: "ClusterInformation", name: "default" })).value.spec;
    expect(await info()).toEqual({ datastoreReady: false });
    await upgradeFromHostLocal(options);
    expect(await info()).toEqual({ datastoreReady: true });
    expect(Object.values(await allocations(store))).toContain("k8s-pod-network.cid5");
  }));

test("CI-082 an empty directory is removed, and the plugins stay", () =>
  inFolder(async (_folder, reservations, plugins) => {
    mkdirSync(reservations);
    await upgradeFromHostLocal({ node: "n1", store: await seed(), api, log: silentLogger, reservations, plugins });
    expect([existsSync(reservations), existsSync(join(plugins, "calico"))]).toEqual([false, true]);
  }));

test("CI-082 without a node name or access to the API, the program fails", async () => {
  expect(await main({})).toBe(1);
  expect(await main({ KUBERNETES_NODE_NAME: "n1", KUBECONFIG: "/nowhere/kubeconfig" })).toBe(1);
});
