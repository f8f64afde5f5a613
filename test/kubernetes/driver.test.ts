// Tests how Calico's objects are stored in Kubernetes: they must be the same as Calico's.
import { afterAll, beforeAll, expect } from "bun:test";
import { Client, type Datastore, type Entry, migratePolicyNames, openDatastore } from "../../src/datastore/index.ts";
import type { KubeObject } from "../../src/datastore/kubernetes/api-client.ts";
import { affinityName, hostnameHash } from "../../src/datastore/kubernetes/ipam-resources.ts";
import { parseCidr } from "../../src/lib/ip/ip.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import {
  API_VERSION,
  type BlockAffinityKey,
  type BlockKey,
  convertUid,
  type IpamHandleKey,
  type KindName,
  type Resource,
  type ResourceKey,
} from "../../src/model/index.ts";
import { EventLog } from "../contract/contract.ts";
import { type Cluster, isAvailable, startCluster, suite } from "./cluster.ts";

const V1 = "/apis/crd.projectcalico.org/v1";
type Custom = KubeObject & { readonly spec: Record<string, unknown>; readonly status?: unknown };

let cluster: Cluster;
let store: Datastore;
let client: Client;
beforeAll(async () => {
  if (!isAvailable) return;
  cluster = await startCluster({ namespaces: ["ns1"] });
  store = await openDatastore(cluster.config);
  client = new Client(store);
  await cluster.put("/api/v1/nodes", { metadata: { name: "n1", labels: { rack: "r1" } } });
}, 600_000);
afterAll(async () => {
  await store?.close();
  await cluster?.[Symbol.asyncDispose]();
});

const make = (kind: KindName, metadata: Resource["metadata"], spec: unknown = {}): Resource => ({
  apiVersion: API_VERSION,
  kind,
  metadata,
  spec,
});
const fault = (promise: Promise<unknown>): Promise<Error> =>
  promise.then(
    () => new Error("it succeeded"),
    (error: unknown) => error as Error,
  );
const raw = (path: string) => cluster.api.get<Custom>(`${V1}/${path}`);
const pod = (name: string) => ({
  metadata: { name, namespace: "ns1" },
  spec: { nodeName: "n1", containers: [{ name: "c", image: "i" }] },
});
const endpointKey = (podName: string): ResourceKey => ({
  type: "resource",
  kind: "WorkloadEndpoint",
  namespace: "ns1",
  name: `n1-k8s-${podName}-eth0`,
});
const endpoint = (podName: string, spec: object, uid?: string): Entry<ResourceKey> => ({
  key: endpointKey(podName),
  value: make(
    "WorkloadEndpoint",
    { name: `n1-k8s-${podName}-eth0`, namespace: "ns1", uid },
    { orchestrator: "k8s", node: "n1", pod: podName, endpoint: "eth0", interfaceName: "cali1", ...spec },
  ),
});

suite("DM-104 a policy with the name of a converted Kubernetes policy is rejected; policies have plain revisions", async () => {
  const policy = make("NetworkPolicy", { name: "knp.default.web", namespace: "ns1" });
  const key = { type: "resource", kind: "NetworkPolicy", namespace: "ns1", name: "knp.default.web" } as const;
  const refused = "is not supported on NetworkPolicy(ns1/knp.default.web): change the Kubernetes NetworkPolicy instead";
  const writes: readonly (() => Promise<unknown>)[] = [
    () => store.create({ key, value: policy }),
    () => store.update({ key, value: policy, revision: "1" }),
    () => store.apply({ key, value: policy }),
    () => store.delete(key),
    () => client.create(policy),
  ];
  for (const write of writes) expect((await fault(write())).message).toContain(refused);
  await cluster.put("/apis/networking.k8s.io/v1/namespaces/ns1/networkpolicies", {
    metadata: { name: "web", namespace: "ns1" },
    spec: { podSelector: {} },
  });
  const { items, revision } = await store.list({ type: "resource", kind: "NetworkPolicy" });
  expect(items.map((item) => item.key.name)).not.toContain("knp.default.web");
  expect(revision).toMatch(/^\d+$/);
  const kubernetes = await store.list({ type: "resource", kind: "KubernetesNetworkPolicy" });
  expect(kubernetes.items.map((item) => item.key.name)).toContain("web");
  expect(kubernetes.revision).toMatch(/^\d+$/);
});

suite("DM-093 DM-095 an object keeps its name; other metadata is stored in one annotation and read from it", async () => {
  const labels = { site: "east", "projectcalico.org/tier": "x" };
  const annotations = { note: "first" };
  const created = await client.create(make("GlobalNetworkSet", { name: "s1", labels, annotations }, { nets: [] }));
  const { metadata } = await raw("globalnetworksets/s1");
  expect(metadata.labels).toEqual({ "projectcalico.org/tier": "x" });
  const { "projectcalico.org/metadata": hidden, ...others } = metadata.annotations ?? {};
  expect(others).toEqual({});
  const { creationTimestamp, ...rest } = JSON.parse(hidden ?? "") as Record<string, unknown>;
  expect(creationTimestamp).toBe(created.metadata.creationTimestamp ?? "");
  expect(rest).toEqual({ labels, annotations });
  expect(created.metadata).toMatchObject({ name: "s1", labels, annotations });
  expect(created.metadata.annotations).not.toHaveProperty("projectcalico.org/metadata");
  expect(created.metadata.uid).toBe(convertUid(metadata.uid ?? ""));
  const updated = await client.update({ ...created, metadata: { ...created.metadata, labels: { site: "west" } } });
  expect(updated.metadata).toMatchObject({ labels: { site: "west" }, uid: created.metadata.uid! });
});

suite("DM-094 labels and annotations of the object itself, as kubectl and older releases write them, are read", async () => {
  await cluster.put(`${V1}/globalnetworksets`, {
    apiVersion: "crd.projectcalico.org/v1",
    kind: "GlobalNetworkSet",
    metadata: {
      name: "s2",
      labels: { a: "object", b: "object" },
      annotations: { c: "object", "projectcalico.org/metadata": '{"labels":{"b":"hidden"}}' },
    },
    spec: { nets: ["10.0.0.0/8"] },
  });
  const { metadata, spec } = await client.get({ kind: "GlobalNetworkSet", name: "s2" });
  expect(metadata.labels).toEqual({ a: "object", b: "hidden" });
  expect(metadata.annotations).toEqual({ c: "object" });
  expect(metadata.creationTimestamp).toMatch(/^20/); // the object's own
  expect(spec).toEqual({ nets: ["10.0.0.0/8"] });
});

suite("DM-079 the UID of an owner of a Calico kind is converted in both directions", async () => {
  const owner = await client.get({ kind: "GlobalNetworkSet", name: "s2" });
  const reference = { apiVersion: API_VERSION, kind: "GlobalNetworkSet", name: "s2", uid: owner.metadata.uid! };
  const foreign = { apiVersion: "v1", kind: "Node", name: "n1", uid: "30316465-6365-4463-ad63-3564622d3638" };
  const created = await client.create(
    make("HostEndpoint", { name: "h1", ownerReferences: [reference, foreign] }, { node: "n1", interfaceName: "eth0" }),
  );
  expect(created.metadata.ownerReferences).toEqual([reference, foreign]);
  const uid = (await raw("globalnetworksets/s2")).metadata.uid;
  expect((await raw("hostendpoints/h1")).metadata.ownerReferences).toEqual([{ ...reference, uid }, foreign]);
});

suite("DM-045 DM-043 policies are stored under the user's name; one stored as default.<name> is found by that name", async () => {
  const spec = { selector: "all()", types: ["Ingress"] };
  await client.ensureInitialized();
  await client.create(make("GlobalNetworkPolicy", { name: "plain" }, spec));
  expect((await raw("globalnetworkpolicies/plain")).metadata.annotations?.["projectcalico.org/metadata"]).toContain(
    '"name":"plain"',
  );
  await cluster.put(`${V1}/globalnetworkpolicies`, {
    apiVersion: "crd.projectcalico.org/v1",
    kind: "GlobalNetworkPolicy",
    metadata: { name: "default.old" },
    spec,
  });
  const old = await client.get({ kind: "GlobalNetworkPolicy", name: "old" });
  expect(old.metadata.name).toBe("old");
  await client.update({ ...old, spec: { ...old.spec, order: 5 } });
  expect((await raw("globalnetworkpolicies/default.old")).spec["order"]).toBe(5);
  const names = (await client.list({ kind: "GlobalNetworkPolicy" })).items.map(({ metadata }) => metadata.name);
  expect(names.sort()).toEqual(["old", "plain"]);
  await client.delete({ kind: "GlobalNetworkPolicy", name: "old" });
  expect((await client.list({ kind: "GlobalNetworkPolicy" })).items).toHaveLength(1);
});

suite("TC-C43 a policy with an invalid name in its annotation does not block the renaming of others", async () => {
  const path = `${V1}/namespaces/ns1/networkpolicies`;
  const policy = (name: string, annotations: object) => ({
    apiVersion: "crd.projectcalico.org/v1",
    kind: "NetworkPolicy",
    metadata: { name, namespace: "ns1", annotations },
    spec: { selector: "all()", types: ["Ingress"] },
  });
  await cluster.put(path, policy("default.bad", { "projectcalico.org/metadata": '{"name":"A/B"}' }));
  await cluster.put(path, policy("default.good", {}));
  const { moved, failures } = await migratePolicyNames(store);
  expect(moved).toBe(1);
  expect(failures.map(({ policy: name, error }) => [name, error.name])).toEqual([
    [expect.stringContaining("default.bad"), "ValidationFailed"],
  ]);
  const { items } = await store.list({ type: "resource", kind: "NetworkPolicy", namespace: "ns1" });
  expect(items.map(({ key }) => key.name).sort()).toEqual(["default.bad", "good"]);
  const { exitCode, stderr } = await cluster.calicoctl(["datastore", "migrate-policy-names"]);
  expect({ exitCode, stderr }).toEqual({
    exitCode: 1,
    stderr: expect.stringContaining("default.bad) was not renamed"),
  });
  for (const name of ["default.bad", "good"]) await cluster.delete(`${path}/${name}`);
});

suite("DM-098 a list of several pages is complete; a name is selected by the server", async () => {
  const names = Array.from({ length: 620 }, (_, i) => `page-${String(i).padStart(4, "0")}`);
  const body = (name: string) => ({
    apiVersion: "crd.projectcalico.org/v1",
    kind: "GlobalNetworkSet",
    metadata: { name, uid: crypto.randomUUID(), creationTimestamp: "2026-01-01T00:00:00Z" },
    spec: { nets: [] },
  });
  const folder = "crd.projectcalico.org/globalnetworksets";
  await cluster.plant(new Map(names.map((name) => [`${folder}/${name}`, body(name)])));
  const sets = { type: "resource", kind: "GlobalNetworkSet" } as const;
  const { items, revision } = await store.list(sets);
  expect(items.filter(({ key }) => key.name.startsWith("page-")).map(({ key }) => key.name)).toEqual(names);
  const one = await store.list({ ...sets, name: "page-0007" });
  expect(one.items).toHaveLength(1);
  const none = await store.list({ ...sets, name: "page-9999" });
  expect(none.items).toEqual([]);
  expect(Number(none.revision)).toBeGreaterThanOrEqual(Number(revision));
});

suite("DM-110 status and spec are written separately", async () => {
  const spec = { node: "n1", classes: ["BGP"], updatePeriodSeconds: 10 };
  const created = await client.create(make("CalicoNodeStatus", { name: "st" }, spec));
  const status = { lastUpdated: "2026-01-02T03:04:05Z" };
  const changed = { ...created, status, spec: { ...spec, updatePeriodSeconds: 99 } } as Resource;
  const written = await client.updateStatus(changed);
  expect(written.spec).toMatchObject({ updatePeriodSeconds: 10 });
  expect(written.status).toMatchObject(status);
  const again = await client.update({ ...written, spec: { ...spec, updatePeriodSeconds: 20 } } as Resource);
  expect(again).toMatchObject({ spec: { updatePeriodSeconds: 20 }, status });
});

const cidr = parseCidr("10.65.0.0/30");
const block = (): Entry<BlockKey> => ({
  key: { type: "block", cidr },
  value: {
    cidr,
    affinity: "host:n1",
    allocations: [0, null, null, null],
    unallocated: [1, 2, 3],
    attributes: [{ handleId: "h.1", secondary: { node: "n1" } }],
    deleted: false,
    sequenceNumber: 2n ** 62n + 1n,
    sequenceNumberForAllocation: { 0: 2n ** 61n + 3n },
  },
});

suite("DM-100 IPAM objects are named by their CIDR or ID, and numbers above 2^53 are exact", async () => {
  const written = await store.create(block());
  expect(await store.get(block().key)).toEqual(written);
  expect(written.value).toMatchObject(block().value);
  const { spec } = await cluster.api.json<Custom>({
    method: "GET",
    path: `${V1}/ipamblocks/10-65-0-0-30`,
    lossless: true,
  });
  expect(spec["sequenceNumber"]).toBe(2n ** 62n + 1n);
  const handle: IpamHandleKey = { type: "ipamHandle", handleId: "K8s-Net.ABC" };
  await store.create({ key: handle, value: { handleId: "K8s-Net.ABC", block: { [cidr]: 1 }, deleted: false } });
  expect((await raw("ipamhandles/k8s-net.abc")).spec).toMatchObject({ handleID: "K8s-Net.ABC" });
  expect((await store.get(handle)).key.handleId).toBe("K8s-Net.ABC");
  const host = "h".repeat(250);
  const long: BlockAffinityKey = { type: "blockAffinity", affinityType: "host", host, cidr };
  expect(affinityName(long)).toHaveLength(252);
  await store.create({ key: long, value: { state: "confirmed", deleted: false } });
  expect((await store.get(long)).value.state).toBe("confirmed");
  for (const key of [handle, long]) await store.delete(key);
  expect(hostnameHash("node-a")).toBe("PY3TQE2E3XMTETLM2MJO3UITKPFB27YUJ4T4E5XGPEJON3SM4QAA");
});

suite("DM-100 a delete marks and deletes the object; the next reader completes an interrupted one", async () => {
  const found = await store.get(block().key);
  await using log = await EventLog.open(store, { type: "block" }, (await store.list({ type: "block" })).revision);
  await store.delete(block().key, { revision: found.revision });
  expect((await fault(store.get(block().key))).name).toBe("NotFound");
  await store.create(block());
  // Its writer marked it and was killed.
  const path = `${V1}/ipamblocks/10-65-0-0-30`;
  const patch = {
    method: "PATCH",
    contentType: "application/merge-patch+json",
    body: { spec: { deleted: true } },
  } as const;
  await cluster.api.json({ ...patch, path });
  expect((await store.list({ type: "block" })).items).toEqual([]);
  expect((await fault(store.get(block().key))).name).toBe("NotFound");
  expect((await fault(cluster.api.get(path))).name).toBe("KubeStatusError");
  await store.create(block());
  await cluster.api.json({ ...patch, path });
  await store.create(block()); // although the marked one exists
  await store.delete(block().key);
  await log.until(10);
  const types = log.events.map(({ type }) => type);
  expect(types.filter((type) => type === "added")).toHaveLength(3);
  expect(types.at(-1)).toBe("deleted");
});

suite("DM-101 affinities have labels and are found by them; those of older releases without labels are found too", async () => {
  const key: BlockAffinityKey = { type: "blockAffinity", affinityType: "host", host: "n1", cidr };
  const written = await store.create({ key, value: { state: "confirmed", deleted: false } });
  const object = await raw("blockaffinities/n1-10-65-0-0-30");
  expect(object.metadata.labels).toEqual({
    "projectcalico.org/hostname-hash": hostnameHash("n1"),
    "projectcalico.org/affinity-type": "host",
    "projectcalico.org/ip-version": "4",
  });
  expect(object.spec).toEqual({ cidr: "10.65.0.0/30", node: "n1", state: "confirmed", deleted: "false" });
  for (const [node, name] of [
    ["n1", "n1-10-65-0-4-30"],
    ["n2", "n2-10-65-0-8-30"],
  ])
    await cluster.put(`${V1}/blockaffinities`, {
      apiVersion: "crd.projectcalico.org/v1",
      kind: "BlockAffinity",
      metadata: { name },
      spec: { cidr: node === "n1" ? "10.65.0.4/30" : "10.65.0.8/30", node, state: "confirmed", deleted: "false" },
    });
  const mine = await store.list({ type: "blockAffinity", host: "n1" });
  expect(mine.items.map((item) => String(item.key.cidr)).sort()).toEqual(["10.65.0.0/30", "10.65.0.4/30"]);
  await using log = await EventLog.open(store, { type: "blockAffinity", host: "n1" }, mine.revision);
  await store.delete(key, { revision: written.revision });
  await log.until(1);
  expect(log.events[0]).toMatchObject({ type: "deleted", key });
  expect((await store.list({ type: "blockAffinity" })).items).toHaveLength(2);
});

suite("DM-102 a write of an endpoint sets annotations of its pod; its deletion empties them", async () => {
  const created = await cluster.put<KubeObject>("/api/v1/namespaces/ns1/pods", pod("p1"));
  const uid = created.metadata.uid!;
  const spec = { ipNetworks: ["10.65.0.1/32", "fd00:65::1/128"], containerID: "c1" };
  const written = await store.create(endpoint("p1", spec, uid));
  expect(written.value.spec).toMatchObject({ ipNetworks: ["10.65.0.1/32", "fd00:65::1/128"], containerID: "c1" });
  const noted = await cluster.api.get<KubeObject>("/api/v1/namespaces/ns1/pods/p1");
  expect(noted.metadata.annotations).toEqual({
    "cni.projectcalico.org/podIP": "10.65.0.1/32",
    "cni.projectcalico.org/podIPs": "10.65.0.1/32,fd00:65::1/128",
    "cni.projectcalico.org/containerID": "c1",
  });
  const conditions = (object: KubeObject) =>
    ((object as { status?: { conditions?: object[] } }).status?.conditions ?? []).filter(
      (each) => "type" in each && each.type === "cni.projectcalico.org/AddressesAssigned",
    );
  expect(conditions(noted)).toMatchObject([{ status: "True", reason: "c1", message: "10.65.0.1/32,fd00:65::1/128" }]);
  // Without an address there is nothing to write; a pod with another UID is not written.
  expect((await store.update({ ...endpoint("p1", {}), revision: written.revision })).revision).toBe(written.revision);
  const stale = convertUid(uid);
  expect((await fault(store.update({ ...endpoint("p1", spec, stale), revision: "1" }))).name).toBe("NotFound");
  expect((await fault(store.delete(endpointKey("p1"), { uid: stale }))).name).toBe("NotFound");
  await store.delete(endpointKey("p1"), { uid });
  const emptied = await cluster.api.get<KubeObject>("/api/v1/namespaces/ns1/pods/p1");
  expect(emptied.metadata.annotations).toMatchObject({
    "cni.projectcalico.org/podIP": "",
    "cni.projectcalico.org/podIPs": "",
  });
  expect(conditions(emptied)).toMatchObject([{ status: "False" }]);
  expect(conditions(emptied)[0]).not.toHaveProperty("reason");
  expect((await fault(store.create(endpoint("p9", spec)))).name).toBe("NotFound");
  // On another node it is another endpoint; a malformed name refers to no pod.
  expect((await fault(store.get({ ...endpointKey("p1"), name: "n2-k8s-p1-eth0" }))).name).toBe("NotFound");
  expect((await fault(store.get({ ...endpointKey("p1"), name: "p1" }))).message).toContain("malformed");
  const list = await store.list({ type: "resource", kind: "WorkloadEndpoint", namePrefix: "n1-k8s-" });
  expect(list.items.map(({ key }) => key.name)).toEqual(["n1-k8s-p1-eth0"]);
});

suite("DM-102 users cannot write endpoints in Kubernetes", async () => {
  const { value } = endpoint("p1", { ipNetworks: ["10.65.0.1/32"] });
  const refusal = await fault(client.create(value));
  expect(refusal.message).toStartWith("operation Create is not supported on WorkloadEndpoint(ns1/n1-k8s-p1-eth0)");
  const existing = await client.get({ kind: "WorkloadEndpoint", namespace: "ns1", name: "n1-k8s-p1-eth0" });
  for (const attempt of [
    () => client.update(existing),
    () => client.delete({ kind: "WorkloadEndpoint", namespace: "ns1", name: "n1-k8s-p1-eth0" }),
    () => client.create(make("Node", { name: "n9" })),
    () => client.delete({ kind: "Node", name: "n1" }),
    () => client.create(make("Profile", { name: "p" })),
  ])
    expect((await fault(attempt())).name).toBe("Unsupported");
});

suite("DM-076 DM-077 a write of a node changes only annotations; labels of Kubernetes are kept", async () => {
  const node = await client.get({ kind: "Node", name: "n1" });
  const metadata = { ...node.metadata, labels: { ...node.metadata.labels, mine: "1" } };
  const spec = { ...node.spec, bgp: { ipv4Address: "10.0.0.1/24", asNumber: 65001 } };
  const updated = await client.update({ ...node, metadata, spec } as Resource);
  expect(updated.metadata.labels).toMatchObject({ rack: "r1", mine: "1" });
  const { metadata: kubernetes } = await cluster.api.get<KubeObject>("/api/v1/nodes/n1");
  expect(kubernetes.labels).toEqual({ rack: "r1" });
  expect(kubernetes.annotations).toEqual({
    "projectcalico.org/IPv4Address": "10.0.0.1/24",
    "projectcalico.org/ASNumber": "65001",
    "projectcalico.org/labels": '{"mine":"1"}',
  });
  expect((await fault(client.update({ ...node, spec } as Resource))).name).toBe("Conflict");
});

suite("DM-060 a pod that cannot be converted is left out of lists and counts as deleted in a watch", async () => {
  const complaints: string[] = [];
  await using watched = await opened({ onUnreadable: (error) => complaints.push(error.message) });
  const endpoints = { type: "resource", kind: "WorkloadEndpoint" } as const;
  await using log = await EventLog.open(watched.store, endpoints, (await watched.store.list(endpoints)).revision);
  const body = { metadata: { annotations: { "cni.projectcalico.org/allowedSourcePrefixes": "not json" } } };
  const contentType = "application/merge-patch+json";
  await cluster.api.json({ method: "PATCH", path: "/api/v1/namespaces/ns1/pods/p1", body, contentType });
  await log.until(1);
  const [event] = log.events;
  expect(event).toMatchObject({ type: "error", error: { name: "UnreadableEntry", key: endpointKey("p1") } });
  expect((await watched.store.list(endpoints)).items).toEqual([]);
  expect(complaints).toHaveLength(1);
  await cluster.delete("/api/v1/namespaces/ns1/pods/p1");
  await eventually(() => log.events.some(({ type }) => type === "deleted"), 5000);
  expect(log.events.at(-1)).toMatchObject({ type: "deleted", key: endpointKey("p1") });
});

async function opened(options: Parameters<typeof openDatastore>[1]) {
  const own = await openDatastore(cluster.config, options);
  return { store: own, [Symbol.asyncDispose]: () => own.close() };
}

suite("DM-107 errors of the server are converted to typed errors", async () => {
  const invalid = await fault(
    store.create({
      key: { type: "resource", kind: "IPPool", name: "bad" },
      value: make("IPPool", { name: "bad" }, { cidr: "10.0.0.0/16", ipipMode: "Sometimes" }),
    }),
  );
  expect(invalid.name).toBe("ValidationFailed");
  expect(invalid.message).toContain("spec.ipipMode");
  const nowhere = make("NetworkSet", { name: "x", namespace: "nowhere" }, { nets: [] });
  expect((await fault(client.create(nowhere))).name).toBe("NotFound");
  const created = await client.create(make("GlobalNetworkSet", { name: "twice" }, { nets: [] }));
  await client.delete({ kind: "GlobalNetworkSet", name: "twice" });
  await client.create(make("GlobalNetworkSet", { name: "twice" }, { nets: [] }));
  // The same name, but another object than the one that was read.
  expect((await fault(client.update(created))).name).toBeOneOf(["NotFound", "Conflict"]);
});

suite("DM-078 with addresses from the nodes' pod CIDRs, IPAM objects are unsupported", async () => {
  const own = await openDatastore({ ...cluster.config, usePodCidr: true });
  expect((await fault(own.list({ type: "block" }))).name).toBe("Unsupported");
  await own.close();
});
