// Tests the garbage collection of 10,000 addresses, 500 of which are leaked: those are released, and no address of an
// existing pod. Uses a real API server and a real etcd. Pods are written directly into the API server's etcd, which takes
// seconds instead of minutes.
import { afterAll, beforeAll, expect } from "bun:test";
import { Client, type Datastore, openDatastore } from "../../src/datastore/index.ts";
import { readAllocations } from "../../src/ipam/index.ts";
import { newBlock, takeFree } from "../../src/ipam/blocks/block.ts";
import type { Cidr } from "../../src/lib/ip/ip.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import type { Block } from "../../src/model/index.ts";
import { EtcdServer } from "../support/etcd-server.ts";
import { type Cluster, isAvailable, startCluster, suite } from "./cluster.ts";
import { ControllersRun } from "./controllers-run.ts";

const NODES = 40;
const BLOCKS_PER_NODE = 4;
const PER_BLOCK = 63; // one of 64 addresses is free
const TOTAL = 10_000;
const LEAKED = 500;

let cluster: Cluster;
let etcd: EtcdServer;
let store: Datastore;
beforeAll(async () => {
  if (!isAvailable) return;
  cluster = await startCluster({ namespaces: ["ns1"] });
  etcd = await EtcdServer.start();
  store = await openDatastore(etcd.config);
}, 600_000);
afterAll(async () => {
  await store?.close();
  await etcd?.[Symbol.asyncDispose]();
  await cluster?.[Symbol.asyncDispose]();
});

/** Runs at most this many at the same time. */
async function inParallel<T>(items: readonly T[], width: number, work: (item: T) => Promise<unknown>): Promise<void> {
  let next = 0;
  await Promise.all(
    Array.from({ length: width }, async () => {
      for (let i = next++; i < items.length; i = next++) await work(items[i] as T);
    }),
  );
}

interface Assignment {
  readonly address: string;
  readonly pod: string;
  readonly node: string;
  readonly handleId: string;
  readonly isLeaked: boolean;
}

/** Fills blocks with addresses of pods; every twentieth pod does not exist. */
function fill(): { readonly blocks: ReadonlyMap<Cidr, Block>; readonly assigned: readonly Assignment[] } {
  const blocks = new Map<Cidr, Block>();
  const assigned: Assignment[] = [];
  for (let n = 0; n < NODES; n++)
    for (let b = 0; b < BLOCKS_PER_NODE; b++) {
      const cidr = `10.65.${n}.${b * 64}/26` as Cidr;
      let block = newBlock(cidr, { type: "host", name: `n${n}` }, Date.now());
      for (let i = 0; i < PER_BLOCK && assigned.length < TOTAL; i++) {
        const pod = `pod-${assigned.length}`;
        const handleId = `k8s-pod-network.${pod}`;
        const attributes = { node: `n${n}`, namespace: "ns1", pod };
        block = takeFree(block, 1, { handleId, attributes }).block;
        const isLeaked = assigned.length % (TOTAL / LEAKED) === 7;
        assigned.push({ address: `10.65.${n}.${b * 64 + i}`, pod, node: `n${n}`, handleId, isLeaked });
      }
      blocks.set(cidr, block);
    }
  return { blocks, assigned };
}

function podsFor(assigned: readonly Assignment[]): Map<string, object> {
  const pods = new Map<string, object>();
  for (const { address, pod, node, isLeaked } of assigned) {
    if (isLeaked) continue;
    pods.set(`pods/ns1/${pod}`, {
      kind: "Pod",
      apiVersion: "v1",
      metadata: { name: pod, namespace: "ns1", uid: crypto.randomUUID(), creationTimestamp: "2026-01-01T00:00:00Z" },
      spec: { nodeName: node, containers: [{ name: "c", image: "i" }], restartPolicy: "Always", dnsPolicy: "Default" },
      status: { phase: "Running", podIP: address, podIPs: [{ ip: address }] },
    });
  }
  return pods;
}

suite("TC-K17 TC-K19 of 10,000 addresses the 500 leaked ones are released, and no other", async () => {
  const client = new Client(store);
  await client.ensureInitialized();
  const { blocks, assigned } = fill();
  expect([assigned.length, assigned.filter(({ isLeaked }) => isLeaked).length]).toEqual([TOTAL, LEAKED]);
  const make = (kind: string, name: string, spec: object) =>
    client.create({ apiVersion: "projectcalico.org/v3", kind, metadata: { name }, spec } as never);
  await make("IPPool", "p4", { cidr: "10.65.0.0/16", blockSize: 26 });
  const grace = { controllers: { node: { leakGracePeriod: "1s" } }, prometheusMetricsPort: 0 };
  await make("KubeControllersConfiguration", "default", grace);
  const names = Array.from({ length: NODES }, (_, n) => `n${n}`);
  await inParallel(names, 8, async (name) => {
    await make("Node", name, { orchRefs: [{ orchestrator: "k8s", nodeName: name }] });
    await cluster.put("/api/v1/nodes", { metadata: { name } });
  });
  await inParallel([...blocks], 8, async ([cidr, value]) => {
    const host = /^host:(.*)$/.exec(value.affinity ?? "")?.[1] ?? "";
    await store.create({ key: { type: "block", cidr }, value });
    const key = { type: "blockAffinity", affinityType: "host", host, cidr } as const;
    await store.create({ key, value: { state: "confirmed" } as never });
  });
  const cidrs = [...blocks.keys()];
  const handles = assigned.map(({ handleId }, i) => {
    const block = cidrs[Math.floor(i / PER_BLOCK)] ?? "";
    const value = { handleId, block: { [block]: 1 }, deleted: false } as never;
    return { op: "create", entry: { key: { type: "ipamHandle", handleId }, value } } as const;
  });
  for (let i = 0; i < handles.length; i += 100) await store.transact?.(handles.slice(i, i + 100));
  await cluster.plant(podsFor(assigned));
  expect((await cluster.api.list("/api/v1/pods")).items).toHaveLength(TOTAL - LEAKED);

  const started = performance.now();
  await using program = new ControllersRun({
    DATASTORE_TYPE: "etcdv3",
    ETCD_ENDPOINTS: etcd.url,
    KUBECONFIG: cluster.server.kubeconfig,
    ENABLED_CONTROLLERS: "node",
  });
  const left = async () => new Set((await readAllocations(store)).map(({ address }) => address as string));
  const releasedCount = () => program.lines.filter((line) => line.includes("released an unused address")).length;
  await eventually(() => releasedCount() >= LEAKED, 90_000);
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  console.log(`collection: 500 of 10,000 addresses released ${seconds} s after start (grace 1 s)`);
  await Bun.sleep(2500); // two more full checks
  const held = await left();
  expect(assigned.filter(({ address, isLeaked }) => isLeaked === held.has(address))).toEqual([]);
  expect((await store.list({ type: "ipamHandle" })).items).toHaveLength(TOTAL - LEAKED);
  expect(releasedCount()).toBe(LEAKED);
}, 300_000);
