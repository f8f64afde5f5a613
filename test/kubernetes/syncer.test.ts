// Tests Felix's syncer with a real API server: all updates arrive quickly, and none is lost when the server restarts, is
// unavailable, compacts its history, or rejects the token.
import { afterAll, beforeAll, expect } from "bun:test";
import {
  createSyncer,
  type Datastore,
  openDatastore,
  type SyncerUpdate,
  type SyncStatus,
} from "../../src/datastore/index.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { keyPath } from "../../src/model/index.ts";
import { readManifest, rulesOf } from "./accounts.ts";
import { type Account, type Cluster, startCluster, suite, isAvailable } from "./cluster.ts";

/** The rules of the node's account in the manifest. */
const RIGHTS = rulesOf(readManifest("calico.yaml"), "calico-node");
const CRDS = "/apis/crd.projectcalico.org/v1";
/** Longer than a request; `OUTAGE_MS=30000` for a realistic outage. */
const OUTAGE_MS = Number(process.env["OUTAGE_MS"] ?? 14_000);

/** A sink that records its state and the updates. */
class Follower implements AsyncDisposable {
  readonly state = new Map<string, unknown>();
  readonly statuses: SyncStatus[] = [];
  readonly failures: unknown[] = [];
  readonly deleted: string[] = [];
  readonly seenAt = new Map<string, number>();
  readonly #aborter = new AbortController();
  readonly #running: Promise<void>;

  constructor(store: Datastore) {
    const syncer = createSyncer("felix", store, { onFailure: (error) => this.failures.push(error) });
    this.#running = syncer.run(
      {
        onStatus: (status) => this.statuses.push(status),
        onUpdates: (updates) => updates.forEach((update) => this.#take(update)),
      },
      this.#aborter.signal,
    );
  }
  #take({ key, value }: SyncerUpdate): void {
    const path = keyPath(key);
    this.seenAt.set(path, performance.now());
    if (value === undefined) {
      this.state.delete(path);
      this.deleted.push(path);
    } else this.state.set(path, value);
  }
  get isInSync(): boolean {
    return this.statuses.at(-1) === "in-sync";
  }
  has(text: string): boolean {
    return [...this.state.keys()].some((path) => path.includes(text));
  }
  async [Symbol.asyncDispose](): Promise<void> {
    this.#aborter.abort();
    await this.#running;
  }
}

let cluster: Cluster;
let account: Account;
let store: Datastore;
beforeAll(async () => {
  if (!isAvailable) return;
  cluster = await startCluster({ namespaces: ["ns1"], isOwn: true }); // a definition is deleted and created again
  account = await cluster.account("felix", RIGHTS);
  store = await openDatastore(account.config);
}, 600_000);
afterAll(async () => {
  await store?.close();
  await cluster?.[Symbol.asyncDispose]();
});

const pod = (name: string, ip: string) => ({
  kind: "Pod",
  metadata: { name, namespace: "ns1", labels: { app: name } },
  status: { podIPs: [{ ip }] },
  spec: { nodeName: "n1", serviceAccountName: "default", containers: [{ name: "c", image: "i" }] },
});
const pool = (name: string, cidr: string) => ({
  apiVersion: "crd.projectcalico.org/v1",
  kind: "IPPool",
  metadata: { name },
  spec: { cidr },
});
const policy = (name: string) => ({
  metadata: { name, namespace: "ns1" },
  spec: { podSelector: { matchLabels: { app: "a" } }, policyTypes: ["Ingress"] },
});
const POLICIES = "/apis/networking.k8s.io/v1/namespaces/ns1/networkpolicies";
const PODS = "/api/v1/namespaces/ns1/pods";

suite("DM-123 DM-105 DM-106 objects of every kind arrive, and deletions too", async () => {
  await using follower = new Follower(store);
  await eventually(() => follower.isInSync, 10_000);
  expect(follower.has("/calico/v1/policy/profile/kns.ns1/rules")).toBe(true);
  await cluster.put("/api/v1/nodes", { metadata: { name: "n1" }, status: {} });
  await cluster.apply(pod("p1", "10.65.0.1"));
  await cluster.put(POLICIES, policy("np1"));
  await cluster.put(`${CRDS}/ippools`, pool("pool1", "10.65.0.0/16"));
  await cluster.put(`${CRDS}/globalnetworkpolicies`, {
    apiVersion: "crd.projectcalico.org/v1",
    kind: "GlobalNetworkPolicy",
    metadata: { name: "gnp1" },
    spec: { selector: "all()", types: ["Ingress"] },
  });
  await cluster.put("/api/v1/namespaces/ns1/services", {
    metadata: { name: "svc1" },
    spec: { ports: [{ port: 80 }], clusterIP: "10.96.0.10" },
  });
  await cluster.put("/apis/discovery.k8s.io/v1/namespaces/ns1/endpointslices", {
    metadata: { name: "svc1-a", labels: { "kubernetes.io/service-name": "svc1" } },
    addressType: "IPv4",
    endpoints: [{ addresses: ["10.65.0.1"] }],
    ports: [{ port: 80 }],
  });
  const wanted = [
    "/calico/v1/host/n1/workload/k8s/ns1%2fp1/endpoint/eth0",
    "/calico/v1/policy/KubernetesNetworkPolicy/ns1/np1",
    "/calico/v1/policy/GlobalNetworkPolicy//gnp1",
    "/calico/v1/ipam/v4/pool/10.65.0.0-16",
    "/calico/resources/v3/projectcalico.org/nodes/n1",
    "kubernetesservice/ns1/svc1",
    "kubernetesendpointslices/ns1/svc1-a",
  ];
  await eventually(() => wanted.every((path) => follower.has(path)), 5000).catch(() => {
    throw new Error(`missing: ${wanted.filter((path) => !follower.has(path)).join(", ")}`);
  });
  await cluster.delete(`${PODS}/p1`);
  await cluster.delete(`${POLICIES}/np1`);
  await cluster.delete(`${CRDS}/globalnetworkpolicies/gnp1`);
  await cluster.delete(`${CRDS}/ippools/pool1`);
  await eventually(() => wanted.slice(0, 4).every((path) => !follower.has(path)), 5000);
  expect(follower.failures).toEqual([]);
});

suite("DM-070 Felix receives the profile and policy of a service account and a policy with names of maximum length", async () => {
  const [account, name] = ["a".repeat(120), "p".repeat(253)];
  await using follower = new Follower(store);
  await eventually(() => follower.isInSync, 10_000);
  await cluster.put("/api/v1/namespaces/ns1/serviceaccounts", { metadata: { name: account } });
  await cluster.put(POLICIES, policy(name));
  const { spec, ...rest } = pod("long-account", "10.65.0.7");
  const long = { ...rest, spec: { ...spec, serviceAccountName: account } };
  await cluster.apply(long);
  await eventually(
    () =>
      follower.has(`/calico/v1/policy/profile/ksa.ns1.${account}/labels`) &&
      follower.has(`/calico/v1/policy/KubernetesNetworkPolicy/ns1/${name}`) &&
      follower.has("ns1%2flong-account"),
    10_000,
  );
  await cluster.delete(`${PODS}/long-account`);
  await cluster.delete(`${POLICIES}/${name}`);
  expect(follower.failures).toEqual([]);
}, 30_000);

suite("99 of 100 changes arrive within 100 ms", async () => {
  await using follower = new Follower(store);
  await eventually(() => follower.isInSync, 10_000);
  const delays: number[] = [];
  for (let i = 0; i < 100; i++) {
    await cluster.put(POLICIES, policy(`quick-${i}`));
    const answered = performance.now();
    const path = `/calico/v1/policy/KubernetesNetworkPolicy/ns1/quick-${i}`;
    await eventually(() => follower.seenAt.has(path), 5000);
    delays.push((follower.seenAt.get(path) ?? Number.NaN) - answered);
  }
  await cluster.api.json({ method: "DELETE", path: POLICIES });
  delays.sort((a, b) => a - b);
  expect(delays[98]).toBeLessThan(100);
}, 60_000);

suite("DM-103 profiles are derived from namespaces and service accounts, each with its own part of the revision", async () => {
  const profiles = { type: "resource", kind: "Profile" } as const;
  const { revision } = await store.list(profiles);
  expect(revision).toMatch(/^\d+\/\d+$/);
  await cluster.put("/api/v1/namespaces", { metadata: { name: "late", labels: { team: "x" } } });
  await cluster.put("/api/v1/namespaces/late/serviceaccounts", { metadata: { name: "robot" } });
  const aborter = new AbortController();
  const seen: string[] = [];
  const revisions: string[] = [];
  const watch = await store.watch(profiles, { after: revision, signal: aborter.signal });
  for await (const events of watch) {
    for (const event of events) {
      if (event.revision !== undefined) revisions.push(event.revision);
      if (event.type === "added") seen.push(`${event.item.key.name} ${event.item.revision}`);
    }
    if (seen.length >= 2) break;
  }
  aborter.abort();
  expect(seen.sort()).toEqual([
    expect.stringMatching(/^kns\.late \d+\/$/) as unknown as string,
    expect.stringMatching(/^ksa\.late\.robot \/\d+$/) as unknown as string,
  ]);
  for (const revision of revisions) expect(revision).toMatch(/^\d+\/\d+$/);
  for (const [after, kind] of [
    ["17", "ValidationFailed"],
    ["1/2/3", "ValidationFailed"],
  ] as const)
    expect(await store.watch(profiles, { after, signal: aborter.signal }).catch((e: Error) => e.name)).toBe(kind);
});

suite("DM-099 after a restart with a compacted history, only the differences arrive", async () => {
  await cluster.apply(pod("before", "10.65.0.2"));
  await cluster.apply(pod("stays", "10.65.0.3"));
  await using follower = new Follower(store);
  await eventually(() => follower.isInSync && follower.has("ns1%2fstays"), 10_000);
  await cluster.compact();
  await cluster.delete(`${PODS}/before`);
  await cluster.apply(pod("after", "10.65.0.4"));
  await eventually(() => follower.has("ns1%2fafter") && !follower.has("ns1%2fbefore"), 20_000);
  expect(follower.deleted.filter((path) => path.includes("stays"))).toEqual([]);
  expect(follower.statuses).toEqual(["wait-for-ready", "resync", "in-sync"]);
}, 60_000);

suite("during an outage the state is kept, and afterwards the changes arrive", async () => {
  await using follower = new Follower(store);
  await eventually(() => follower.isInSync && follower.has("ns1%2fstays"), 10_000);
  const size = follower.state.size;
  cluster.server.freeze();
  await Bun.sleep(OUTAGE_MS / 2); // half of the time the server hangs, half of the time it is stopped
  cluster.server.thaw();
  await cluster.server.stop();
  await Bun.sleep(OUTAGE_MS / 2);
  expect(follower.state.size).toBe(size);
  expect(follower.isInSync).toBe(true);
  await cluster.server.start();
  await cluster.apply(pod("later", "10.65.0.5"));
  await eventually(() => follower.has("ns1%2flater"), 20_000);
  expect(follower.deleted).toEqual([]);
}, 120_000);

suite("a revoked token is read again from its file", async () => {
  await using follower = new Follower(store);
  await eventually(() => follower.isInSync, 10_000);
  await account.revoke();
  await account.renew();
  await cluster.compact(); // all connections must authenticate again
  await cluster.apply(pod("renewed", "10.65.0.6"));
  await eventually(() => follower.has("ns1%2frenewed"), 20_000);
  expect((await store.list({ type: "resource", kind: "IPPool" })).items).toEqual([]);
}, 60_000);

suite("DM-107 DM-117 a syncer without permission to list reports it, and retries until it has the permission", async () => {
  const stranger = await cluster.account("stranger", []);
  await using theirs = {
    store: await openDatastore(stranger.config),
    [Symbol.asyncDispose]: () => theirs.store.close(),
  };
  const refused = await theirs.store.list({ type: "resource", kind: "IPPool" }).catch((error: Error) => error);
  expect(refused).toHaveProperty("name", "Unauthorized");
  expect(String(refused)).toContain("ippools");
  await using follower = new Follower(theirs.store);
  await eventually(() => follower.failures.length > 10, 10_000);
  expect(follower.isInSync).toBe(false);
  await cluster.account("stranger", RIGHTS);
  await eventually(() => follower.isInSync, 20_000);
}, 60_000);

suite("DM-120 a Calico kind that is not installed yet is polled; another missing kind counts as empty", async () => {
  const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/networksets.crd.projectcalico.org";
  const definition = await cluster.api.get<{ metadata: { name: string }; spec: object }>(definitions);
  await cluster.delete(definitions);
  const sets = { type: "resource", kind: "NetworkSet" } as const;
  await eventually(async () => {
    const error = await store.list(sets).catch((e: Error & { isOptional?: boolean }) => e);
    return error instanceof Error && error.name === "NotServed" && error.isOptional === false;
  }, 10_000);
  await using follower = new Follower(store);
  await eventually(() => follower.isInSync, 10_000);
  const body = { apiVersion: "apiextensions.k8s.io/v1", kind: "CustomResourceDefinition" };
  await cluster.put("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {
    ...body,
    metadata: { name: definition.metadata.name },
    spec: definition.spec,
  });
  await eventually(async () => (await store.list(sets).catch(() => undefined)) !== undefined, 10_000);
  await cluster.put(`${CRDS}/namespaces/ns1/networksets`, {
    apiVersion: "crd.projectcalico.org/v1",
    kind: "NetworkSet",
    metadata: { name: "set1" },
    spec: { nets: ["10.0.0.0/8"] },
  });
  await eventually(() => follower.has("/calico/v1/netset/ns1%2fset1"), 15_000);
}, 60_000);
