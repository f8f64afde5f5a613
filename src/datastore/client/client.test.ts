import type { Database } from "bun:sqlite";
import { beforeEach, expect, test } from "bun:test";
import { type Cidr, parseCidr } from "../../lib/ip/ip.ts";
import {
  API_VERSION,
  ignoreUnreadable,
  type KindName,
  readClusterInformation,
  type Resource,
} from "../../model/index.ts";
import type { Datastore } from "../datastore.ts";
import { AlreadyExists, Conflict, NotFound, Unsupported, ValidationFailed } from "../errors.ts";
import { openSqliteInMemory } from "../sqlite/open.ts";
import { Client } from "./client.ts";
import type { AddressReleaser } from "./kind-hooks.ts";

let store: Datastore;
let client: Client;
const keeper = (): AddressReleaser & { calls: string[] } => {
  const calls: string[] = [];
  return {
    calls,
    releasePool: async (cidr) => calls.push(`pool ${cidr}`),
    releaseAddresses: async (addresses) => calls.push(`addresses ${addresses.join()}`),
    removeHost: async (host) => calls.push(`host ${host}`),
  };
};
let addresses: ReturnType<typeof keeper>;
beforeEach(async () => {
  store = await openSqliteInMemory();
  addresses = keeper();
  client = new Client(store, { addresses });
});

const make = <K extends KindName>(kind: K, name: string, spec: unknown = {}, namespace?: string): Resource<K> => ({
  apiVersion: API_VERSION,
  kind,
  metadata: namespace === undefined ? { name } : { name, namespace },
  spec,
});
const pool = (name: string, cidr: string, more: object = {}) => make("IPPool", name, { cidr, ...more });
const fault = (promise: Promise<unknown>): Promise<Error> =>
  promise.then(
    () => new Error("it succeeded"),
    (error: unknown) => error as Error,
  );
const storedNames = async (kind: KindName) =>
  (await store.list({ type: "resource", kind })).items.map(({ key }) => key.name);

test("DM-109 create sets UID and creation time, and rejects a revision, a missing name or a missing namespace", async () => {
  const created = await client.create(pool("a", "10.0.0.0/16"));
  expect(created.metadata.uid).toMatch(/^[0-9a-f-]{36}$/);
  expect(created.metadata.creationTimestamp).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
  expect(created.metadata.resourceVersion).toMatch(/^\d+$/);
  expect((await store.get({ type: "resource", kind: "IPPool", name: "a" })).value.metadata).not.toHaveProperty(
    "resourceVersion",
  );
  const wrong = [
    { input: { ...pool("b", "10.1.0.0/16"), metadata: { name: "b", resourceVersion: "3" } }, want: "resourceVersion" },
    { input: { ...pool("", "10.1.0.0/16"), metadata: { name: "", generateName: "b-" } }, want: "generateName" },
    { input: make("NetworkSet", "s"), want: "namespace is not specified on namespaced resource" },
    { input: make("IPPool", "b", { cidr: "10.1.0.0/16" }, "ns"), want: "cluster-scoped" },
    { input: pool("b", "10.1.0.0"), want: "spec.cidr" },
  ];
  for (const { input, want } of wrong) {
    const error = await fault(client.create(input));
    expect(error).toBeInstanceOf(ValidationFailed);
    expect(error.message).toContain(want);
  }
  expect(await fault(client.create(pool("a", "10.0.0.0/16")))).toBeInstanceOf(AlreadyExists);
});

test("DM-109 update needs revision, uid and creation time; a stale revision conflicts; the input is not modified", async () => {
  const created = await client.create(pool("a", "10.0.0.0/16"));
  for (const field of ["resourceVersion", "uid", "creationTimestamp"] as const) {
    const { [field]: _, ...metadata } = created.metadata;
    const error = await fault(client.update({ ...created, metadata }));
    expect(error).toBeInstanceOf(ValidationFailed);
    expect(error.message).toContain(`metadata.${field}`);
    expect(error.message).toContain("field must be set for an Update request");
  }
  const changed = { ...created, spec: { ...created.spec, natOutgoing: true } };
  const copy = structuredClone(changed);
  const updated = await client.update(changed);
  expect(changed).toEqual(copy);
  expect(updated.metadata.uid).toBe(created.metadata.uid!);
  expect(await fault(client.update(changed))).toBeInstanceOf(Conflict);
  const gone = { ...created, metadata: { ...created.metadata, name: "gone" } };
  expect(await fault(client.update(gone))).toBeInstanceOf(NotFound);
});

test("DM-109 apply creates, then updates, and keeps UID and creation time", async () => {
  const first = await client.apply(pool("a", "10.0.0.0/16"));
  const second = await client.apply(pool("a", "10.0.0.0/16", { natOutgoing: true }));
  expect(second.metadata.uid).toBe(first.metadata.uid!);
  expect(second.spec.natOutgoing).toBe(true);
  const stale = { ...pool("a", "10.0.0.0/16"), metadata: { name: "a", resourceVersion: "1" } };
  expect(await fault(client.apply(stale))).toBeInstanceOf(Conflict);
});

test("DM-109 replace keeps the stored UID and creation time and sets the given labels, spec and annotations", async () => {
  const labelled = (labels: Record<string, string> | undefined, annotations: Record<string, string> | undefined) => {
    const given = { ...(labels && { labels }), ...(annotations && { annotations }) };
    return { ...pool("a", "10.0.0.0/16"), metadata: { name: "a", ...given } };
  };
  const first = await client.create(labelled({ a: "1" }, { b: "2" }));
  const second = await client.replace({
    ...labelled({ c: "3" }, undefined),
    spec: { cidr: "10.0.0.0/16", ipipMode: "Always" },
  });
  const { uid, creationTimestamp } = first.metadata;
  expect(second.metadata).toMatchObject({ uid, creationTimestamp, labels: { c: "3" } });
  expect(second.metadata).not.toHaveProperty("annotations");
  expect(second.spec.ipipMode).toBe("Always");
  expect(await fault(client.replace(pool("gone", "10.1.0.0/16")))).toBeInstanceOf(NotFound);
});

test("DM-109 replace retries after a concurrent write, unless a revision was given", async () => {
  const created = await client.create(pool("a", "10.0.0.0/16"));
  const { update } = store;
  let others = 2;
  store.update = async (entry, options) => {
    if (others-- > 0) {
      const { revision: _, ...current } = await store.get({ type: "resource", kind: "IPPool", name: "a" });
      await store.apply(current);
    }
    return update.call(store, entry, options) as never;
  };
  const replaced = await client.replace(pool("a", "10.0.0.0/16", { natOutgoing: true }));
  expect(replaced.spec.natOutgoing).toBe(true);
  expect(others).toBeLessThan(0);
  others = 1;
  const { resourceVersion = "" } = replaced.metadata;
  const pinned = { ...pool("a", "10.0.0.0/16"), metadata: { name: "a", resourceVersion } };
  expect(await fault(client.replace(pinned))).toBeInstanceOf(Conflict);
  expect(created.metadata.uid).toBe(replaced.metadata.uid!);
});

test("initializesBeforeWrite creates ClusterInformation before the first write, not before a delete", async () => {
  const initializing = new Client(store, { initializesBeforeWrite: true });
  await fault(initializing.delete({ kind: "IPPool", name: "a" }));
  expect(await storedNames("ClusterInformation")).toEqual([]);
  await initializing.create(pool("a", "10.0.0.0/16"));
  expect(await storedNames("ClusterInformation")).toEqual(["default"]);
  await client.delete({ kind: "ClusterInformation", name: "default" });
  await initializing.replace(pool("a", "10.0.0.0/16", { natOutgoing: true }));
  expect(await storedNames("ClusterInformation")).toEqual([]); // once per client
});

test("DM-108 errors have their own types and Calico's messages", async () => {
  const { revision } = await store.list({ type: "resource", kind: "IPPool" });
  expect((await fault(client.get({ kind: "IPPool", name: "x" }))).message).toBe("resource does not exist: IPPool(x)");
  await client.create(make("NetworkSet", "s", { nets: [] }, "prod"));
  expect((await fault(client.create(make("NetworkSet", "s", { nets: [] }, "prod")))).message).toBe(
    "resource already exists: NetworkSet(prod/s)",
  );
  const conflict = client.delete({ kind: "NetworkSet", name: "s", namespace: "prod" }, { revision });
  expect((await fault(conflict)).message).toBe("update conflict: NetworkSet(prod/s)");
  expect(new Unsupported("update", "Profile(p)", "no").message).toBe(
    "operation update is not supported on Profile(p): no",
  );
  expect(new ValidationFailed([{ field: "spec.a", value: 1, reason: "r" }]).message).toBe(
    "error with field spec.a = '1' (r)",
  );
  expect(
    new ValidationFailed([
      { field: "a", reason: "r" },
      { field: "b", reason: "s" },
    ]).message,
  ).toBe("error with the following fields:\n-  a (r)\n-  b (s)");
  expect(new ValidationFailed([]).message).toBe("unknown validation error");
});

test("DM-110 an update of the spec keeps the status, and the status can be updated", async () => {
  const created = await client.create(
    make("CalicoNodeStatus", "s", { node: "n1", classes: ["BGP"], updatePeriodSeconds: 10 }),
  );
  const withStatus = await client.updateStatus({ ...created, status: { lastUpdated: "2026-01-02T03:04:05Z" } });
  const { status: _, ...plain } = withStatus;
  const updated = await client.update({
    ...plain,
    spec: { ...(plain.spec as object), updatePeriodSeconds: 20 },
  } as Resource);
  expect(updated.status).toMatchObject({ lastUpdated: "2026-01-02T03:04:05Z" });
});

test("DM-111 an overlapping pool is rejected with the name of the other pool", async () => {
  await client.create(pool("old", "10.0.0.0/8"));
  const error = await fault(client.create(pool("new", "10.1.0.0/16")));
  expect(error).toBeInstanceOf(ValidationFailed);
  expect(error.message).toContain("IPPool(new) CIDR overlaps with IPPool(old) CIDR 10.0.0.0/8");
  await client.create(pool("six", "fd00::/48"));
  await client.create(pool("new", "10.1.0.0/16"), { unsafe: true });
});

test("DM-111 a pool is rejected with the name of a block of another size in its range", async () => {
  const cidr = parseCidr("10.0.0.64/27");
  const block = { cidr, allocations: [], unallocated: [], attributes: [], deleted: false };
  const sequences = { sequenceNumber: 0n, sequenceNumberForAllocation: {} };
  await store.create({ key: { type: "block", cidr }, value: { ...block, ...sequences } });
  expect((await fault(client.create(pool("a", "10.0.0.0/16")))).message).toContain("contains block 10.0.0.64/27");
  await client.create(pool("a", "10.0.0.0/16", { blockSize: 27 }));
});

test("DM-111 a pool's CIDR and block size cannot change; another spelling of the same CIDR is accepted", async () => {
  const created = await client.create(pool("six", "fd00:0:0::/48"));
  const change = (spec: object) => client.update({ ...created, spec: { ...created.spec, ...spec } } as Resource);
  expect((await fault(change({ cidr: "fd01::/48" }))).message).toContain("cannot be changed");
  expect((await fault(change({ blockSize: 123 }))).message).toContain("cannot be changed");
  expect((await change({ cidr: "fd00:0000:0000::/48", natOutgoing: true })).spec).toMatchObject({ cidr: "fd00::/48" });
});

test("DM-111 deleting a pool disables it, waits for assignments in flight, releases its blocks, then deletes it", async () => {
  const created = await client.create(pool("a", "10.0.0.0/16"));
  const seen: boolean[] = [];
  addresses.releasePool = async (cidr: Cidr) => {
    seen.push(((await client.get({ kind: "IPPool", name: "a" })).spec.disabled ?? false) as boolean);
    return addresses.calls.push(cidr);
  };
  expect(await fault(client.delete({ kind: "IPPool", name: "a" }, { revision: "1" }))).toBeInstanceOf(Conflict);
  const started = performance.now();
  await client.delete({ kind: "IPPool", name: "a" }, { revision: created.metadata.resourceVersion });
  expect(performance.now() - started).toBeGreaterThan(450);
  expect(seen).toEqual([true]);
  expect(addresses.calls).toEqual(["10.0.0.0/16"]);
  expect(await storedNames("IPPool")).toEqual([]);
});

test("DM-112 a pool's encapsulation is copied to FelixConfiguration only if the option is set", async () => {
  await client.create(pool("a", "10.0.0.0/16", { ipipMode: "Always" }));
  expect(await storedNames("FelixConfiguration")).toEqual([]);
  const telling = new Client(store, { encapsulationInFelixConfiguration: true });
  await telling.create(pool("b", "10.1.0.0/16", { vxlanMode: "CrossSubnet" }));
  await telling.create(pool("c", "10.2.0.0/16"));
  const spec = async (): Promise<object> => (await client.get({ kind: "FelixConfiguration", name: "default" })).spec;
  expect(await spec()).toEqual({ vxlanEnabled: true });
  await store.apply({
    key: { type: "resource", kind: "FelixConfiguration", name: "default" },
    value: make("FelixConfiguration", "default", { ipipEnabled: false }),
  });
  await telling.create(pool("d", "10.3.0.0/16", { ipipMode: "Always" }));
  expect(await spec()).toEqual({ ipipEnabled: false });
});

test("DM-113 deleting a node deletes what belongs to it, and nothing else", async () => {
  const endpoint = (node: string, ip: string) =>
    make(
      "WorkloadEndpoint",
      "",
      { orchestrator: "k8s", node, pod: "p", endpoint: "eth0", interfaceName: "cali1", ipNetworks: [ip] },
      "ns",
    );
  for (const name of ["n1", "n1-2"]) {
    await client.create(
      make("Node", name, {
        bgp: { ipv4Address: "10.0.0.1/24", ipv4IPIPTunnelAddr: "10.9.0.1" },
        ipv4VXLANTunnelAddr: "10.9.0.2",
      }),
    );
    await client.create(endpoint(name, name === "n1" ? "10.65.0.1/32" : "10.65.0.2/32"));
    await client.create(make("BGPPeer", `peer-${name}`, { node: name, peerIP: "10.0.0.9", asNumber: 64512 }));
    await client.create(make("HostEndpoint", `hep-${name}`, { node: name, interfaceName: "eth0" }));
    await client.create(make("FelixConfiguration", `node.${name}`));
    await client.create(make("BGPConfiguration", `node.${name}`));
  }
  await client.create(make("BGPPeer", "global", { peerIP: "10.0.0.9", asNumber: 64512 }));
  await client.delete({ kind: "Node", name: "n1" });
  expect(addresses.calls).toEqual(["addresses 10.65.0.1,10.9.0.1,10.9.0.2", "host n1"]);
  expect(await storedNames("Node")).toEqual(["n1-2"]);
  expect(await storedNames("WorkloadEndpoint")).toEqual(["n1--2-k8s-p-eth0"]);
  expect(await storedNames("BGPPeer")).toEqual(["global", "peer-n1-2"]);
  expect(await storedNames("HostEndpoint")).toEqual(["hep-n1-2"]);
  expect(await storedNames("FelixConfiguration")).toEqual(["node.n1-2"]);
  expect(await storedNames("BGPConfiguration")).toEqual(["node.n1-2"]);
});

test("DM-113 deleting a missing node deletes what remains of it, and reports NotFound", async () => {
  await client.create(make("HostEndpoint", "hep", { node: "n1", interfaceName: "eth0" }));
  expect(await fault(client.delete({ kind: "Node", name: "n1" }))).toBeInstanceOf(NotFound);
  expect(addresses.calls).toEqual(["host n1"]);
  expect(await storedNames("HostEndpoint")).toEqual([]);
});

test("DM-114 a workload endpoint's name is computed from its fields, and its labels are set", async () => {
  const spec = { orchestrator: "k8s", node: "node-1", pod: "pod-a", endpoint: "eth0", interfaceName: "cali1" };
  const input = make("WorkloadEndpoint", "", spec, "ns1");
  const labels = { app: "a", "projectcalico.org/namespace": "elsewhere" };
  const created = await client.create({ ...input, metadata: { ...input.metadata, labels } });
  expect(created.metadata.name).toBe("node--1-k8s-pod--a-eth0");
  expect(created.metadata.labels).toEqual({
    app: "a",
    "projectcalico.org/namespace": "ns1",
    "projectcalico.org/orchestrator": "k8s",
  });
  const misnamed = await fault(client.create(make("WorkloadEndpoint", "mine", spec, "ns1")));
  expect(misnamed).toBeInstanceOf(ValidationFailed);
  expect(misnamed.message).toContain("node--1-k8s-pod--a-eth0");
  expect((await fault(client.create(make("WorkloadEndpoint", "", { orchestrator: "k8s" }, "ns1")))).message).toContain(
    "spec.node",
  );
});

test("DM-115 concurrent initializations create ClusterInformation once; later ones are merged", async () => {
  await Promise.all([1, 2, 3].map(() => client.ensureInitialized({ version: "v1", clusterType: "k8s,bgp" })));
  const first = await client.get({ kind: "ClusterInformation", name: "default" });
  expect(first.spec).toMatchObject({ clusterType: "k8s,bgp", calicoVersion: "v1", datastoreReady: true });
  expect(readClusterInformation(first, ignoreUnreadable).clusterGuid).toMatch(/^[0-9a-f]{32}$/);
  const locked = await client.update({ ...first, spec: { ...first.spec, datastoreReady: false } });
  await client.ensureInitialized({ version: "v2", clusterType: "bgp,lab" });
  const second = await client.get({ kind: "ClusterInformation", name: "default" });
  expect(second.spec).toEqual({ ...locked.spec, clusterType: "k8s,bgp,lab", calicoVersion: "v2" });
  await client.ensureInitialized({ version: "v3", clusterType: "more", createOnly: true });
  await client.ensureInitialized({ version: "v2" });
  expect((await client.get({ kind: "ClusterInformation", name: "default" })).metadata.resourceVersion).toBe(
    second.metadata.resourceVersion!,
  );
});

test("DM-115 creating a node initializes the cluster", async () => {
  await client.create(make("Node", "n1"));
  expect(await storedNames("ClusterInformation")).toEqual(["default"]);
});

test("DM-116 the built-in tiers are created, and existing ones are not changed", async () => {
  await client.ensureInitialized();
  const tiers = (await client.list({ kind: "Tier" })).items;
  expect(tiers.map((tier) => [tier.metadata.name, tier.spec.order, tier.spec.defaultAction])).toEqual([
    ["default", 1000000, "Deny"],
    ["kube-admin", 1000, "Pass"],
    ["kube-baseline", 10000000, "Pass"],
  ]);
  await client.ensureInitialized();
  expect((await client.list({ kind: "Tier" })).items).toEqual(tiers);
});

test("a policy's tier must exist, and only an empty tier can be deleted", async () => {
  const policy = make("GlobalNetworkPolicy", "deny", { tier: "ops", types: ["Ingress"] });
  expect(await fault(client.create(policy))).toBeInstanceOf(NotFound);
  await client.create(make("Tier", "ops", { order: 10 }));
  const created = await client.create(policy);
  expect(created.metadata.labels).toEqual({ "projectcalico.org/tier": "ops" });
  const refusal = await fault(client.delete({ kind: "Tier", name: "ops" }));
  expect(refusal).toBeInstanceOf(Unsupported);
  expect(refusal.message).toContain("Cannot delete a non-empty tier");
  await client.delete({ kind: "GlobalNetworkPolicy", name: "deny" });
  await client.delete({ kind: "Tier", name: "ops" });
  await client.ensureInitialized();
  expect(await fault(client.delete({ kind: "Tier", name: "default" }))).toBeInstanceOf(Unsupported);
});

test("DM-092 a policy that its user named default.x is not the policy x", async () => {
  const named = { kind: "GlobalNetworkPolicy", name: "default.x" } as const;
  const plain = { kind: "GlobalNetworkPolicy", name: "x" } as const;
  await client.create(make("GlobalNetworkPolicy", "default.x", { order: 1 }));
  expect(await fault(client.get(plain))).toBeInstanceOf(NotFound);
  expect(await fault(client.delete(plain))).toBeInstanceOf(NotFound);
  await client.apply(make("GlobalNetworkPolicy", "x", { order: 2 }));
  expect((await client.get(named)).spec).toMatchObject({ order: 1 });
  expect((await client.get(plain)).spec).toMatchObject({ order: 2 });
  await client.delete(plain);
  expect(await storedNames("GlobalNetworkPolicy")).toEqual(["default.x"]);
});

test("DM-092 policies stored under an older name are read, updated and deleted under that name", async () => {
  const metadata = { name: "default.web", namespace: "ns", uid: "u", creationTimestamp: "2020-01-01T00:00:00Z" };
  const text = JSON.stringify({
    kind: "NetworkPolicy",
    apiVersion: API_VERSION,
    metadata,
    spec: { types: ["Ingress"] },
  });
  let db: Database | undefined;
  store = await openSqliteInMemory({ onOpen: (opened) => (db = opened) });
  client = new Client(store);
  const path = "/calico/resources/v3/projectcalico.org/networkpolicies/ns/default.web";
  db?.query("INSERT INTO version VALUES (2, ?, 0, ?)").run(path, text);
  db?.query("INSERT INTO entry VALUES (?, 2, NULL)").run(path);
  const name = { kind: "NetworkPolicy", namespace: "ns", name: "web" } as const;
  const read = await client.get(name);
  expect(read.metadata.name).toBe("web");
  expect(read.metadata.labels).toEqual({ "projectcalico.org/tier": "default" });
  expect((await client.list({ kind: "NetworkPolicy", name: "web" })).items).toHaveLength(1);
  expect(await fault(client.create(make("NetworkPolicy", "web", {}, "ns")))).toBeInstanceOf(AlreadyExists);
  await client.update({ ...read, spec: { ...read.spec, order: 5 } });
  expect(await storedNames("NetworkPolicy")).toEqual(["default.web"]);
  await client.delete(name);
  expect(await storedNames("NetworkPolicy")).toEqual([]);
  await client.create(make("NetworkPolicy", "web", {}, "ns"));
  expect(await storedNames("NetworkPolicy")).toEqual(["web"]);
});

test("a BGPPeer may refer only to existing filters", async () => {
  const peer = make("BGPPeer", "p", { peerIP: "10.0.0.1", asNumber: 64512, filters: ["in", "out"] });
  expect((await fault(client.create(peer))).message).toContain("BGPFilter(s) not found: in, out");
  for (const name of ["in", "out"]) await client.create(make("BGPFilter", name));
  const created = await client.create(peer);
  const missing = { ...created, spec: { ...created.spec, filters: ["gone"] } } as Resource;
  expect((await fault(client.update(missing))).message).toContain("gone");
});

test("DM-016 the built-in profile always exists and cannot be changed", async () => {
  const name = { kind: "Profile", name: "projectcalico-default-allow" } as const;
  const profile = await client.get(name);
  expect(profile.spec).toEqual({ ingress: [{ action: "Allow" }], egress: [{ action: "Allow" }] });
  expect((await client.list({ kind: "Profile" })).items).toEqual([profile]);
  expect(await fault(client.create(make("Profile", name.name)))).toBeInstanceOf(AlreadyExists);
  expect(await fault(client.delete(name))).toBeInstanceOf(Unsupported);
  const marked = { ...profile, metadata: { ...profile.metadata, uid: "u", creationTimestamp: "2020-01-01T00:00:00Z" } };
  for (const change of [client.update(marked), client.apply(profile), client.replace(profile)]) {
    const error = await fault(change);
    expect(error).toBeInstanceOf(Unsupported);
    expect(error.message).toContain("Profile(projectcalico-default-allow): it is built in and cannot be changed");
  }
});

test("a watch yields resources with their revisions", async () => {
  const aborter = new AbortController();
  const created = await client.create(pool("a", "10.0.0.0/16"));
  const events = client.watch({ kind: "IPPool" }, { signal: aborter.signal });
  const first = (await events.next()).value!;
  expect(first[0]).toEqual({ type: "added", resource: created, revision: created.metadata.resourceVersion! });
  await store.delete({ type: "resource", kind: "IPPool", name: "a" });
  expect((await events.next()).value![0]).toMatchObject({ type: "deleted", name: { kind: "IPPool", name: "a" } });
  aborter.abort();
  expect((await events.next()).done).toBe(true);
});
