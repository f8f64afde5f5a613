// Tests IPAM on a real API server: its custom resources, two-step deletion, and labels.
import { afterAll, beforeAll, beforeEach, expect } from "bun:test";
import { Conflict, type Datastore, NotFound, openDatastore } from "../../src/datastore/index.ts";
import type { KubeObject } from "../../src/datastore/kubernetes/api-client.ts";
import { Ipam, UnknownHandle } from "../../src/ipam/index.ts";
import { type Cluster, isAvailable, startCluster, suite } from "./cluster.ts";

const V1 = "/apis/crd.projectcalico.org/v1";
let cluster: Cluster;
let store: Datastore;
let ipam: Ipam;
type Custom = KubeObject & { readonly spec: Record<string, unknown> };

beforeAll(async () => {
  if (!isAvailable) return;
  cluster = await startCluster();
  store = await openDatastore({ ...cluster.config, clientQps: 10_000, clientBurst: 10_000 });
  ipam = new Ipam({ datastore: store });
  for (const name of ["n1", "n2", "n3"])
    await cluster.api.json({ method: "POST", path: "/api/v1/nodes", body: { metadata: { name } } });
}, 600_000);
afterAll(async () => {
  await store?.close();
  await cluster?.[Symbol.asyncDispose]();
});
beforeEach(async () => {
  if (!isAvailable) return;
  await cluster.clear();
  const spec = { cidr: "10.65.0.0/28", blockSize: 30 };
  const value = { apiVersion: "projectcalico.org/v3", kind: "IPPool" as const, metadata: { name: "p" }, spec };
  await store.create({ key: { type: "resource", kind: "IPPool", name: "p" }, value });
});

const list = async (plural: string) => (await cluster.api.list<Custom>(`${V1}/${plural}`)).items;
const assign = (host: string, handleId: string, count = 1) =>
  ipam.autoAssign({ version: 4, count, host, handleId, attributes: { node: host }, use: "Workload" });

suite("CI-073 blocks, affinities and handles are named by CIDR and ID, and contain the exact values", async () => {
  await assign("n1", "Net1.C0");
  const [block] = await list("ipamblocks");
  expect(block?.metadata.name).toMatch(/^10-65-0-\d+-30$/);
  expect(block?.spec).toMatchObject({ affinity: "host:n1", allocations: [0, null, null, null], strictAffinity: false });
  const [affinity] = await list("blockaffinities");
  expect(affinity?.metadata.name).toBe(`n1-${block?.metadata.name}`);
  expect(affinity?.spec).toMatchObject({ node: "n1", state: "confirmed", deleted: "false" });
  const [handle] = await list("ipamhandles");
  expect(handle?.metadata.name).toBe("net1.c0");
  expect(handle?.spec["handleID"]).toBe("Net1.C0");
  expect((await ipam.releaseByHandle("Net1.C0")).length).toBe(1);
  expect(await list("ipamhandles")).toEqual([]);
});

suite("CI-073 numbers above 2^53 are stored exactly", async () => {
  await assign("n1", "h");
  const [block] = (await store.list({ type: "block" })).items;
  const number = block?.value.sequenceNumber ?? 0n;
  expect(number).toBeGreaterThan(2n ** 53n);
  expect(block?.value.sequenceNumberForAllocation["0"]).toBe(number - 1n);
});

suite("CI-073 an object that is marked as deleted is not found, and the read deletes it", async () => {
  await assign("n1", "h");
  const [handle] = await list("ipamhandles");
  const path = `${V1}/ipamhandles/${handle?.metadata.name}`;
  await cluster.api.json({ method: "PUT", path, body: { ...handle, spec: { ...handle?.spec, deleted: true } } });
  await expect(ipam.addressesOfHandle("h")).rejects.toThrow(UnknownHandle);
  expect(await list("ipamhandles")).toEqual([]);
});

suite("CI-073 a delete with the UID of another object of the same name is rejected", async () => {
  await assign("n1", "h");
  const key = { type: "ipamHandle", handleId: "h" } as const;
  const { revision } = await store.get(key);
  const other = "00000000-0000-4000-8000-000000000000";
  const error = await store.delete(key, { revision, uid: other }).then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error instanceof Conflict || error instanceof NotFound).toBe(true);
  expect((await store.get(key)).value.block).not.toEqual({});
});

suite("CI-074 NB-022 affinities have labels; those without get them, and are found before that too", async () => {
  await assign("n1", "h");
  const [affinity] = await list("blockaffinities");
  const labels = {
    "projectcalico.org/affinity-type": "host",
    "projectcalico.org/hostname-hash": expect.stringMatching(/^[A-Z2-7]{52}$/i),
    "projectcalico.org/ip-version": "4",
  };
  const shown = () => list("blockaffinities").then(([a]) => a?.metadata.labels);
  expect(await shown()).toEqual(labels);
  const { labels: _, ...bare } = affinity?.metadata ?? { name: "" };
  const path = `${V1}/blockaffinities/${affinity?.metadata.name}`;
  await cluster.api.json({ method: "PUT", path, body: { ...affinity, metadata: { ...bare, labels: {} } } });
  expect(await shown()).not.toEqual(labels);
  expect((await assign("n1", "again")).addresses).toHaveLength(1);
  expect(await list("ipamblocks")).toHaveLength(1); // the host used its existing block
  await ipam.upgradeHost({ type: "host", name: "n1" });
  expect(await shown()).toEqual(labels);
});

suite("CI-073 three hosts race for four blocks through the API server", async () => {
  const clients = ["n1", "n2", "n3"].flatMap((host) => [0, 1, 2, 3, 4].map((n) => ({ host, handle: `${host}-${n}` })));
  const given = await Promise.all(
    clients.map(({ host, handle }) =>
      new Ipam({ datastore: store }).autoAssign({ version: 4, count: 1, host, handleId: handle, use: "Workload" }),
    ),
  );
  const addresses = given.flatMap((result) => result.addresses);
  expect(new Set(addresses).size).toBe(addresses.length);
  expect(addresses.length).toBe(15);
  expect((await ipam.inconsistencies()).filter(({ kind }) => kind !== "unknown-node")).toEqual([]);
  for (const { handle } of clients) await ipam.releaseByHandle(handle);
  for (const host of ["n1", "n2", "n3"]) await ipam.removeHost(host);
  for (const plural of ["ipamblocks", "blockaffinities", "ipamhandles"]) expect(await list(plural)).toEqual([]);
});
