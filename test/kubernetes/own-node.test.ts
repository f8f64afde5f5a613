// Tests what root on one node can write with the tokens there: calico-node's, which the kubelet has bound to the pod, and
// the CNI plugin's, which is bound to the node. Uses the roles and admission policies of the manifests on a real API server.
// rbac.test.ts tests that these permissions are sufficient for calico-node and the plugin.
import { afterAll, beforeAll, expect } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { requestToken } from "../../src/cni/kubernetes/token-refresh.ts";
import {
  type Datastore,
  type KubeApi,
  type KubeObject,
  openDatastore,
  openKubeApi,
} from "../../src/datastore/index.ts";
import { Ipam } from "../../src/ipam/index.ts";
import type { Cidr, IpAddress } from "../../src/lib/ip/ip.ts";
import { silentLogger } from "../../src/lib/log/log.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { startUp } from "../../src/node/startup/startup.ts";
import { type AccountName, type Accounts, installAccounts } from "./accounts.ts";
import { type Cluster, configOf, isAvailable, startCluster, suite } from "./cluster.ts";

type Node = "n1" | "n2";
const CALICO = "/apis/crd.projectcalico.org/v1";
const MERGE = "application/merge-patch+json";
const VM = "k8s-pod-network.vmi.ns1.vm1";

const folder = mkdtempSync(join(tmpdir(), "own-node-"));
let cluster: Cluster;
let accounts: Accounts;
const on = new Map<Node, Accounts>();
const opened: { close(): unknown }[] = [];

beforeAll(async () => {
  if (!isAvailable) return;
  // Admission policies stay in effect shortly after they are deleted, so they cannot be used on the shared server.
  cluster = await startCluster({ isOwn: true, namespaces: ["ns1"] });
  for (const node of ["n1", "n2"] as const) {
    await cluster.put("/api/v1/nodes", { metadata: { name: node } });
    await cluster.put("/api/v1/namespaces/ns1/pods", {
      metadata: { name: `on-${node}` },
      spec: { nodeName: node, containers: [{ name: "c", image: "i" }] },
    });
  }
  accounts = await installAccounts(cluster, "calico-typha.yaml", { withAdmission: true });
  for (const [i, node] of (["n1", "n2"] as const).entries()) {
    on.set(node, await accounts.on(node));
    const env = {
      DATASTORE_TYPE: "kubernetes",
      KUBECONFIG: kubeconfig("calico-node", node),
      NODENAME: node,
      CALICO_NODENAME_FILE: join(folder, node),
      IP: `192.0.2.${i + 1}/24`,
      CALICO_IPV4POOL_CIDR: "10.65.0.0/16",
    };
    await startUp(env, silentLogger, join(folder, "root"));
  }
}, 600_000);
afterAll(async () => {
  for (const each of opened) await each.close();
  await cluster?.[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
});

function kubeconfig(account: AccountName, node: Node): string {
  const path = on.get(node)?.kubeconfig(account);
  if (path === undefined) throw new Error(`no accounts on ${node}`);
  return path;
}
async function api(account: AccountName, node: Node): Promise<KubeApi> {
  const own = await openKubeApi(configOf(kubeconfig(account, node)), {});
  opened.push(own);
  return own;
}
async function store(account: AccountName, node: Node): Promise<Datastore> {
  const own = await openDatastore(configOf(kubeconfig(account, node)));
  opened.push(own);
  return own;
}
const ipam = async (account: AccountName, node: Node): Promise<Ipam> =>
  new Ipam({ datastore: await store(account, node), log: silentLogger });

type Request = Parameters<KubeApi["json"]>[0];
/** Returns "allowed", or the API server's reason. */
const attempt = (own: KubeApi, request: Request): Promise<string> =>
  own.json(request).then(
    () => "allowed",
    (error: Error) => error.message,
  );
const calico = (kind: string, name: string, spec: object) => ({
  apiVersion: "crd.projectcalico.org/v1",
  kind,
  metadata: { name },
  spec,
});

suite("a node's token cannot change settings, pools or tiers of the cluster", async () => {
  const existing = [
    ["felixconfigurations/default", { policySyncPathPrefix: "/x" }],
    ["bgpconfigurations/default", { nodeToNodeMeshEnabled: false }],
    ["clusterinformations/default", { datastoreReady: false }],
    ["ipamconfigs/default", { strictAffinity: true }],
    ["ippools/default-ipv4-ippool", { disabled: true }],
    ["tiers/default", { defaultAction: "Pass" }],
  ] as const;
  for (const account of ["calico-node", "calico-cni-plugin", "calico-typha"] as const) {
    const own = await api(account, "n1");
    for (const [path, spec] of existing) {
      const object = await cluster.api.get<KubeObject>(`${CALICO}/${path}`);
      const requests: Request[] = [
        { method: "PUT", path: `${CALICO}/${path}`, body: { ...object, spec } },
        { method: "PATCH", path: `${CALICO}/${path}`, body: { spec }, contentType: MERGE },
        { method: "DELETE", path: `${CALICO}/${path}` },
      ];
      for (const request of requests)
        expect({ account, path, method: request.method, answer: await attempt(own, request) }).toEqual({
          account,
          path,
          method: request.method,
          answer: expect.stringContaining("is forbidden"),
        });
      expect(await cluster.api.get<KubeObject>(`${CALICO}/${path}`)).toEqual(object);
    }
  }
}, 60_000);

suite("a node's token can create only what the first node of a cluster creates", async () => {
  const own = await api("calico-node", "n1");
  for (const path of ["felixconfigurations", "bgpconfigurations", "ippools"])
    for (const { metadata } of (await cluster.api.list(`${CALICO}/${path}`)).items)
      await cluster.delete(`${CALICO}/${path}/${metadata.name}`);
  const create = (plural: string, kind: string, name: string, spec: object) =>
    attempt(own, { method: "POST", path: `${CALICO}/${plural}`, body: calico(kind, name, spec) });
  const refused: readonly (readonly [string, string, string, object])[] = [
    ["felixconfigurations", "FelixConfiguration", "node.n2", { reportingInterval: "0s" }],
    ["felixconfigurations", "FelixConfiguration", "default", { defaultEndpointToHostAction: "Accept" }],
    ["bgpconfigurations", "BGPConfiguration", "node.n2", {}],
    ["bgpconfigurations", "BGPConfiguration", "default", { nodeToNodeMeshEnabled: false }],
    ["ippools", "IPPool", "another", { cidr: "10.0.0.0/8" }],
    ["tiers", "Tier", "first", { order: 1 }],
    ["clusterinformations", "ClusterInformation", "another", { datastoreReady: false }],
  ];
  for (const [plural, kind, name, spec] of refused)
    expect({ kind, name, answer: await create(plural, kind, name, spec) }).toEqual({
      kind,
      name,
      answer: expect.stringContaining("the account of a node creates"),
    });
  expect(await create("felixconfigurations", "FelixConfiguration", "default", { reportingInterval: "0s" })).toBe(
    "allowed",
  );
  expect(await create("bgpconfigurations", "BGPConfiguration", "default", {})).toBe("allowed");
  expect(await create("ippools", "IPPool", "default-ipv4-ippool", { cidr: "10.65.0.0/16", blockSize: 26 })).toBe(
    "allowed",
  );
}, 60_000);

suite("a node's token can write the status of only its own Node and pods", async () => {
  const patch = (path: string, annotation: string): Request => ({
    method: "PATCH",
    path: `${path}/status`,
    body: { metadata: { annotations: { [annotation]: "x" } } },
    contentType: MERGE,
  });
  const ofNode = "projectcalico.org/test";
  const ofPod = "cni.projectcalico.org/containerID";
  const node = await api("calico-node", "n1");
  expect(await attempt(node, patch("/api/v1/nodes/n1", ofNode))).toBe("allowed");
  expect(await attempt(node, patch("/api/v1/nodes/n2", ofNode))).toContain("status of this node and of its pods only");
  for (const account of ["calico-node", "calico-cni-plugin"] as const) {
    const own = await api(account, "n1");
    expect(await attempt(own, patch("/api/v1/namespaces/ns1/pods/on-n1", ofPod))).toBe("allowed");
    expect(await attempt(own, patch("/api/v1/namespaces/ns1/pods/on-n2", ofPod))).toContain(
      "status of this node and of its pods only",
    );
  }
}, 60_000);

suite("a node's token cannot change labels, finalizers, owners or foreign annotations of its Node and pods", async () => {
  const owner = { apiVersion: "v1", kind: "Node", name: "n2", uid: "3d7e8b7e-0000-4000-8000-000000000000" };
  const pod = "/api/v1/namespaces/ns1/pods/on-n1";
  // What others have written must not be removed either.
  const given = { labels: { app: "shop" }, annotations: { "example.org/note": "a" } };
  for (const path of ["/api/v1/nodes/n1", pod])
    await cluster.api.json({ method: "PATCH", path, body: { metadata: given }, contentType: MERGE });
  const changes = [
    { labels: { "node-restriction.kubernetes.io/secure": "true" } },
    { labels: { app: "bank" } },
    { labels: { app: null } },
    { finalizers: ["example.org/keep"] },
    { annotations: { "example.org/note": "b" } },
    { annotations: { "example.org/note": null } },
    { annotations: { "example.org/other": "x" } },
  ];
  const ofPod = [
    { annotations: { "cni.projectcalico.org/floatingIPs": '["10.0.0.1"]' } },
    { annotations: { "projectcalico.org/test": "x" } },
  ];
  for (const [account, path, refused] of [
    // The API server itself ignores owners in a request for a pod's status.
    ["calico-node", "/api/v1/nodes/n1", [...changes, { ownerReferences: [owner] }]],
    ["calico-node", pod, [...changes, ...ofPod]],
    ["calico-cni-plugin", pod, [...changes, ...ofPod]],
  ] as const) {
    const own = await api(account, "n1");
    const before = await cluster.api.get<KubeObject>(path);
    for (const metadata of refused) {
      const request: Request = { method: "PATCH", path: `${path}/status`, body: { metadata }, contentType: MERGE };
      expect({ account, path, metadata, answer: await attempt(own, request) }).toEqual({
        account,
        path,
        metadata,
        answer: expect.stringContaining("the account of a node changes"),
      });
    }
    expect((await cluster.api.get<KubeObject>(path)).metadata).toEqual(before.metadata);
  }
}, 60_000);

suite("a node's token can write affinities and node statuses of only its own node", async () => {
  const own = await api("calico-node", "n1");
  const affinity = (name: string, node: Node): Request => ({
    method: "POST",
    path: `${CALICO}/blockaffinities`,
    body: calico("BlockAffinity", name, {
      state: "pending",
      node,
      type: "host",
      cidr: "10.65.9.0/26",
      deleted: "false",
    }),
  });
  expect(await attempt(own, affinity("n1-10-65-9-0-26", "n1"))).toBe("allowed");
  expect(await attempt(own, affinity("n2-10-65-9-0-26", "n2"))).toContain("resources of this node only");
  await cluster.api.json(affinity("n2-10-65-9-0-26", "n2"));
  const foreign = `${CALICO}/blockaffinities/n2-10-65-9-0-26`;
  const change = (path: string, spec: object): Request => ({
    method: "PATCH",
    path,
    body: { spec },
    contentType: MERGE,
  });
  const put = async (path: string, spec: object): Promise<Request> => {
    const object = await cluster.api.get<KubeObject & { spec: object }>(path);
    return { method: "PUT", path, body: { ...object, spec: { ...object.spec, ...spec } } };
  };
  for (const spec of [{ state: "pendingDeletion" }, { node: "n1" }, { deleted: "true" }])
    expect(await attempt(own, await put(foreign, spec))).toContain("resources of this node only");
  expect(await attempt(own, await put(`${CALICO}/blockaffinities/n1-10-65-9-0-26`, { node: "n2" }))).toContain(
    "this node only",
  );
  expect(await attempt(own, { method: "DELETE", path: foreign })).toContain("resources of this node only");
  // Any node may delete an object that its owner has marked as deleted.
  await cluster.api.json(change(foreign, { deleted: "true" }));
  expect(await attempt(own, { method: "DELETE", path: foreign })).toBe("allowed");

  for (const node of ["n1", "n2"])
    await cluster.put(
      `${CALICO}/caliconodestatuses`,
      calico("CalicoNodeStatus", `ask-${node}`, { node, classes: ["BGP"], updatePeriodSeconds: 0 }),
    );
  for (const [name, answer] of [
    ["ask-n1", "allowed"],
    ["ask-n2", expect.stringContaining("resources of this node only")],
  ] as const) {
    const path = `${CALICO}/caliconodestatuses/${name}`;
    const object = await cluster.api.get<KubeObject>(path);
    const body = { ...object, status: { lastUpdated: "2026-01-01T00:00:00Z" } };
    expect({ name, answer: await attempt(own, { method: "PUT", path: `${path}/status`, body }) }).toEqual({
      name,
      answer,
    });
  }
}, 60_000);

interface BlockObject extends KubeObject {
  readonly spec: {
    readonly cidr: string;
    readonly affinity?: string;
    readonly allocations: readonly (number | null)[];
    readonly unallocated: readonly number[];
    readonly attributes: readonly { readonly handle_id: string }[];
  };
}

suite("a node's token can borrow and release addresses of another node's block, and change no other address", async () => {
  const [first, second] = [await ipam("calico-cni-plugin", "n1"), await ipam("calico-cni-plugin", "n2")];
  const assign = (own: Ipam, node: Node, handleId: string) =>
    own.autoAssign({
      version: 4,
      count: 1,
      host: node,
      handleId,
      attributes: { node, pod: "p", namespace: "ns1" },
      use: "Workload",
    });
  const [held = ""] = (await assign(second, "n2", "k8s-pod-network.victim")).addresses;
  const victim = held.split("/")[0] as IpAddress;
  const blocks = async () => (await cluster.api.list<BlockObject>(`${CALICO}/ipamblocks`)).items;
  const name = (await blocks()).find(({ spec }) => spec.affinity === "host:n2")?.metadata.name ?? "";
  const path = `${CALICO}/ipamblocks/${name}`;
  const block = () => cluster.api.get<BlockObject>(path);
  const before = await block();

  // Borrowed from the block of n2, and returned.
  const borrowed = victim.replace(/\d+$/, (last) => String(Number(last) + 5)) as IpAddress;
  await first.assignAddress({
    address: borrowed,
    host: "n1",
    handleId: "k8s-pod-network.borrower",
    attributes: { node: "n1" },
  });
  expect((await block()).spec.attributes.map(({ handle_id: id }) => id)).toContain("k8s-pod-network.borrower");
  // n2 cannot release what n1 has borrowed, although the block is its own.
  await expect(second.releaseByHandle("k8s-pod-network.borrower")).rejects.toThrow("addresses of this node only");
  await first.releaseByHandle("k8s-pod-network.borrower");
  expect((await block()).spec.allocations).toEqual(before.spec.allocations);

  // The victim's address: by handle, by address, and by writing the block.
  await expect(first.releaseByHandle("k8s-pod-network.victim")).rejects.toThrow("addresses of this node only");
  expect(String((await first.release([{ address: victim }])).error)).toContain("addresses of this node only");
  const own = await api("calico-node", "n1");
  const { spec } = await block();
  const free = spec.allocations.map(() => null);
  const put = async (changed: object) =>
    attempt(own, { method: "PUT", path, body: { ...(await block()), spec: { ...spec, ...changed } } });
  const ordinals = spec.allocations.map((_, i) => i);
  const thief = { handle_id: "k8s-pod-network.thief", secondary: { node: "n1" } };
  expect(await put({ allocations: free, attributes: [], unallocated: ordinals })).toContain(
    "addresses of this node only",
  );
  expect(await put({ attributes: [thief] })).toContain("addresses of this node only");
  expect(await put({ attributes: spec.attributes.map((entry) => ({ ...entry, handle_id: "other" })) })).toContain(
    "addresses of this node only",
  );
  expect(await put({ allocations: [...spec.allocations.slice(1), null] })).toContain("addresses of this node only");
  expect(await put({ affinity: "host:n1" })).toContain("blocks for this node only");
  expect(await put({ affinity: undefined })).toContain("blocks for this node only");
  expect(await put({ deleted: true })).toContain("blocks for this node only");
  expect(await put({ unallocated: ordinals })).toContain("only free addresses");
  expect(await put({ cidr: "10.65.77.0/26" })).toContain("keeps its prefix");
  expect(await attempt(own, { method: "DELETE", path })).toContain("blocks for this node only");
  const made = (affinity: string, attributes: readonly object[]) =>
    attempt(own, {
      method: "POST",
      path: `${CALICO}/ipamblocks`,
      body: {
        ...calico("IPAMBlock", "10-65-200-0-26", {
          ...spec,
          cidr: "10.65.200.0/26",
          affinity,
          allocations: spec.allocations.map((_, i) => (i > 0 || attributes.length === 0 ? null : 0)),
          unallocated: ordinals.slice(1),
          attributes,
        }),
      },
    });
  expect(await made("host:n2", [])).toContain("blocks for this node only");
  expect(await made("host:n1", [{ handle_id: "h", secondary: { node: "n2" } }])).toContain(
    "addresses of this node only",
  );
  expect((await block()).spec).toEqual(spec);

  // Its own addresses and block.
  await assign(first, "n1", "k8s-pod-network.own");
  await first.releaseByHandle("k8s-pod-network.own");
  await first.releaseHostAffinities({ type: "host", name: "n1" }, { mustBeEmpty: true });
  expect((await blocks()).map((each) => each.spec.affinity)).toEqual(["host:n2"]);
}, 60_000);

suite("a node's token can create blocks only with the prefix, name and size that their pool requires", async () => {
  await cluster.put(`${CALICO}/ippools`, calico("IPPool", "six", { cidr: "FD00:65:0::/48", blockSize: 122 }));
  await cluster.put(`${CALICO}/ippools`, calico("IPPool", "odd", { cidr: "10.97.32.0/19", blockSize: 28 }));
  const own = await api("calico-node", "n1");
  const create = (cidr: string, size: number, name = cidr.replace(/[.:/]/g, "-").toLowerCase()) =>
    attempt(own, {
      method: "POST",
      path: `${CALICO}/ipamblocks?dryRun=All`,
      body: calico("IPAMBlock", name, {
        cidr,
        affinity: "host:n1",
        strictAffinity: false,
        allocations: Array.from({ length: size }, () => null),
        unallocated: Array.from({ length: size }, (_, i) => i),
        attributes: [],
        deleted: false,
      }),
    });
  // New pools take effect with a short delay.
  await eventually(async () => (await create("10.97.63.0/26", 64)) !== "allowed", 30_000, "the pools are in force");
  await eventually(async () => (await create("fd00:65::/123", 32)) !== "allowed", 30_000, "the pools are in force");
  const allowed: readonly (readonly [cidr: string, size: number])[] = [
    ["10.65.77.64/26", 64],
    ["10.97.63.240/28", 16],
    ["10.97.64.0/26", 64], // in no pool
    ["fd00:65::/122", 64],
    ["fd00:65::1:0:0:40/122", 64],
    ["fd00:65:0:1::/122", 64],
    ["fd00:65:0:1:2:3:4:5c0/122", 64],
    ["0:1::/122", 64],
  ];
  for (const [cidr, size] of allowed)
    expect({ cidr, answer: await create(cidr, size) }).toEqual({ cidr, answer: "allowed" });
  const shape = "a block has the name of its prefix, and an allocation for each of its addresses";
  const sizeOf = (pool: string) => `the block does not have the size of blocks in pool ${pool}`;
  const refused: readonly (readonly [answer: string, cidr: string, size: number, name?: string])[] = [
    [sizeOf("default-ipv4-ippool"), "10.65.1.1/32", 1],
    [sizeOf("default-ipv4-ippool"), "10.65.0.0/20", 4096],
    [sizeOf("odd"), "10.97.32.0/29", 8],
    [sizeOf("six"), "fd00:65::1/128", 1],
    [sizeOf("six"), "fd00:65::/116", 4096],
    [shape, "10.97.128.0/17", 1],
    [shape, "128.0.0.0/1", 1],
    [shape, "10.65.77.64/26", 1],
    [shape, "10.65.77.64/26", 65],
    [shape, "10.65.77.65/26", 64],
    [shape, "10.65.077.64/26", 64],
    [shape, "10.65.77.64/26", 64, "10-65-99-0-26"],
    [shape, "10.65.77/26", 64],
    [shape, "fd00:65::1/122", 64],
    [shape, "fd00:65:0::/122", 64],
    [shape, "fd00:0065::/122", 64],
    [shape, "FD00:65::/122", 64],
    [shape, "fd00:65::1:0:0:0/122", 64],
    [shape, "fd00:65:0:0:0:0:0:0/122", 64],
    [shape, "64:ff9b::10.65.0.0/122", 64],
  ];
  for (const [answer, cidr, size, name] of refused)
    expect({ cidr, size, name, answer: await create(cidr, size, name) }).toEqual({
      cidr,
      size,
      name,
      answer: expect.stringContaining(answer),
    });
  // The blocks that calico-ts itself creates.
  for (const pool of ["fd00:65::/48", "10.97.32.0/19"] as Cidr[]) {
    const writer = await ipam("calico-cni-plugin", "n1");
    const handleId = `k8s-pod-network.${pool.length}`;
    const { addresses } = await writer.autoAssign({
      version: pool.includes(":") ? 6 : 4,
      count: 1,
      host: "n1",
      handleId,
      attributes: { node: "n1" },
      use: "Workload",
      pools: [pool],
    });
    expect({ pool, count: addresses.length }).toEqual({ pool, count: 1 });
    await writer.releaseByHandle(handleId);
  }
  for (const name of ["six", "odd"]) await cluster.delete(`${CALICO}/ippools/${name}`);
}, 60_000);

suite("a node without permission to take over another node's empty block borrows from it", async () => {
  const cidr = "10.98.0.0/26" as Cidr;
  await cluster.put(`${CALICO}/ippools`, calico("IPPool", "one-block", { cidr, blockSize: 26 }));
  const assign = async (node: Node, handleId: string, nowMs: () => number) => {
    const own = new Ipam({ datastore: await store("calico-cni-plugin", node), log: silentLogger, nowMs });
    const { addresses } = await own.autoAssign({
      version: 4,
      count: 1,
      host: node,
      handleId,
      attributes: { node },
      use: "Workload",
      pools: [cidr],
    });
    return { own, addresses };
  };
  const { own: second } = await assign("n2", "k8s-pod-network.gone", Date.now);
  await second.releaseByHandle("k8s-pod-network.gone");
  const inTwoMinutes = () => Date.now() + 120_000; // the block has been idle for long enough then
  const { own: first, addresses } = await assign("n1", "k8s-pod-network.starved", inTwoMinutes);
  expect(addresses).toEqual([expect.stringContaining("10.98.0.")]);
  const block = await cluster.api.get<BlockObject>(`${CALICO}/ipamblocks/10-98-0-0-26`);
  expect(block.spec.affinity).toBe("host:n2");
  await first.releaseByHandle("k8s-pod-network.starved");
  await cluster.delete(`${CALICO}/ippools/one-block`);
}, 60_000);

suite("the address of a virtual machine can move to another node only with the machine", async () => {
  const [first, second] = [await ipam("calico-node", "n1"), await ipam("calico-node", "n2")];
  const attributes = (node: Node) => ({ node, pod: `virt-launcher-${node}`, namespace: "ns1" });
  const { addresses } = await first.autoAssign({
    version: 4,
    count: 1,
    host: "n1",
    handleId: VM,
    attributes: attributes("n1"),
    use: "Workload",
  });
  expect(addresses.length).toBe(1);
  await second.updateOwnerAttributes(VM, (owners) => ({ ...owners, alternate: attributes("n2") }));
  await second.updateOwnerAttributes(VM, () => ({ active: attributes("n2"), alternate: attributes("n1") }));
  await first.updateOwnerAttributes(VM, (owners) => ({ ...owners, alternate: undefined }));
  await expect(first.releaseByHandle(VM)).rejects.toThrow("addresses of this node only");
  await second.releaseByHandle(VM);
}, 60_000);

suite("the largest block, with an allocation for every address, can be evaluated", async () => {
  const size = 4096;
  const node = (i: number) => (i % 2 === 0 ? "n1" : "n2");
  const attributes = Array.from({ length: size }, (_, i) => ({
    handle_id: `k8s-pod-network.${i.toString(16).padStart(64, "0")}`,
    secondary: {
      node: node(i),
      pod: `deployment-with-a-long-name-${i}`,
      namespace: "namespace",
      timestamp: "2026-01-01 00:00:00.000000000 +0000 UTC",
    },
  }));
  await cluster.put(`${CALICO}/ippools`, calico("IPPool", "large", { cidr: "10.99.0.0/16", blockSize: 20 }));
  await cluster.put(
    `${CALICO}/ipamblocks`,
    calico("IPAMBlock", "10-99-16-0-20", {
      cidr: "10.99.16.0/20",
      affinity: "host:n2",
      allocations: Array.from({ length: size }, (_, i) => i),
      unallocated: [],
      attributes,
      sequenceNumber: 1,
      sequenceNumberForAllocation: {},
      strictAffinity: false,
      deleted: false,
    }),
  );
  const own = await ipam("calico-cni-plugin", "n1");
  const release = (address: string) => own.release([{ address: address as IpAddress }]);
  expect(await release("10.99.16.0")).toEqual({ released: ["10.99.16.0" as IpAddress], notAllocated: [] });
  expect(String((await release("10.99.16.1")).error)).toContain("addresses of this node only");
  const left = await cluster.api.get<BlockObject>(`${CALICO}/ipamblocks/10-99-16-0-20`);
  expect(left.spec.allocations.slice(0, 2)).toEqual([null, expect.any(Number)]);
}, 60_000);

suite("a token that is not bound to a node cannot write data of a node", async () => {
  for (const account of ["calico-node", "calico-cni-plugin"] as const) {
    const own = await openKubeApi(configOf(accounts.kubeconfig(account)), {});
    opened.push(own);
    const patch: Request = {
      method: "PATCH",
      path: "/api/v1/namespaces/ns1/pods/on-n1/status",
      body: { metadata: { labels: {} } },
      contentType: MERGE,
    };
    expect({ account, answer: await attempt(own, patch) }).toEqual({
      account,
      answer: expect.stringContaining("the token names no node"),
    });
    const handle: Request = {
      method: "POST",
      path: `${CALICO}/ipamhandles`,
      body: calico("IPAMHandle", "h", { handleID: "h", block: {} }),
    };
    expect({ account, answer: await attempt(own, handle) }).toEqual({
      account,
      answer: expect.stringContaining("the token names no node"),
    });
  }
}, 60_000);

suite("CI-079 calico-node requests the plugin's token for its own node only, and the token is bound to it", async () => {
  const own = await api("calico-node", "n1");
  expect(await requestToken({ NODENAME: "n2" }, silentLogger, own).catch((error: Error) => error.message)).toContain(
    "tokens for this node only",
  );
  const request = (spec: object): Promise<string> =>
    attempt(own, {
      method: "POST",
      path: "/api/v1/namespaces/kube-system/serviceaccounts/calico-cni-plugin/token",
      body: { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", spec },
    });
  // Kubernetes 1.30 cannot bind a token to a node.
  expect(await request({ expirationSeconds: 86_400 })).toBe("allowed");
  expect(await request({ expirationSeconds: 86_401 })).toContain("at most a day");
  expect(await request({ boundObjectRef: { apiVersion: "v1", kind: "Secret", name: "s" } })).toContain(
    "tokens for this node only",
  );
  const issued = await requestToken({ NODENAME: "n1" }, silentLogger, own);
  const review = await cluster.api.json<{ status: { user: { extra: Record<string, string[]> } } }>({
    method: "POST",
    path: "/apis/authentication.k8s.io/v1/tokenreviews",
    body: { apiVersion: "authentication.k8s.io/v1", kind: "TokenReview", spec: { token: issued?.token } },
  });
  expect(review.status.user.extra["authentication.kubernetes.io/node-name"]).toEqual(["n1"]);
}, 60_000);
