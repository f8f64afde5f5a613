// Measures the assignment of addresses: sequentially, by 32 concurrent writers, and with an almost full pool. Uses SQLite in a
// file and a real etcd, with and without fsync. Run: bun bench/ipam.ts
import { closeSync, fdatasyncSync, mkdtempSync, openSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Datastore, openDatastore } from "../src/datastore/index.ts";
import { Ipam } from "../src/ipam/index.ts";
import { addressPlus, type Cidr, parseAddress } from "../src/lib/ip/ip.ts";
import type { KindName } from "../src/model/index.ts";
import { EtcdServer } from "../test/support/etcd-server.ts";
import { median } from "./support/percentile.ts";

const SEQUENTIAL = 600;
const WRITERS = 32;
const EACH = 20;
const BLOCKS = 4096; // of 64 addresses: a /14
const FULL = Math.floor(BLOCKS * 0.99);
const CLAIMS = 15;

interface Subject {
  readonly name: string;
  readonly open: () => Promise<Datastore>;
  /** The datastore acknowledges a write only when it is on the disk. */
  readonly waitsForDisk: boolean;
  readonly stop: () => Promise<void> | void;
}

const folder = mkdtempSync(join(tmpdir(), "bench-ipam-"));
const subjects: (() => Promise<Subject>)[] = [
  async () => ({
    name: "sqlite",
    open: () => openDatastore({ type: "sqlite", path: join(folder, "calico.db"), isFallback: false }),
    waitsForDisk: false, // the workloads do not survive a power failure either
    stop: () => {},
  }),
  () => etcd("etcd", true),
  () => etcd("etcd, no fsync", false),
];

try {
  for (const start of subjects) {
    const subject = await start();
    try {
      await measure(subject);
    } finally {
      await subject.stop();
    }
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}

async function measure(subject: Subject): Promise<void> {
  const store = await subject.open();
  await resource(store, "IPPool", "small", { cidr: "10.128.0.0/16" });
  for (let i = 0; i < WRITERS; i++) await resource(store, "Node", `n${i}`, {});
  const ipam = new Ipam({ datastore: store });
  const assign = async (host: string, handleId: string, pool: string) => {
    const request = { host, handleId, attributes: { node: host }, use: "Workload", version: 4, count: 1 } as const;
    const { addresses } = await ipam.autoAssign({ ...request, pools: [pool as Cidr] });
    if (addresses.length !== 1) throw new Error(`no address for ${handleId}`);
    return addresses[0] ?? "";
  };

  for (let i = 0; i < 20; i++) await assign("n0", `warm-${i}`, "10.128.0.0/16");
  const waits = diskWaits(100); // the share of the disk, before and after
  const assigned = await times(SEQUENTIAL, (i) => assign("n0", `seq-${i}`, "10.128.0.0/16"));
  const released = await times(SEQUENTIAL, (i) => ipam.releaseByHandle(`seq-${i}`));
  waits.push(...diskWaits(100));
  report(subject, `assign, sequential, ${SEQUENTIAL}`, rate(assigned), assigned);
  report(subject, `release, sequential, ${SEQUENTIAL}`, rate(released), released);
  const [ours, disk] = [median(assigned), median(waits)];
  const rest = `an assignment takes ${(ours / disk).toFixed(1)} × that${subject.waitsForDisk ? `; without it ${(ours - disk).toFixed(2)} ms` : ""}`;
  report(subject, `one write of 4 KB to the same disk, with fdatasync (${rest})`, rate(waits), waits);

  for (const [what, hostOf] of [
    ["32 hosts", (w: number) => `n${w}`],
    ["one host", () => "n0"],
  ] as const) {
    const latencies: number[] = [];
    const seen = new Set<string>();
    const started = performance.now();
    await Promise.all(
      Array.from({ length: WRITERS }, async (_, w) => {
        for (let i = 0; i < EACH; i++) {
          const begun = performance.now();
          seen.add(await assign(hostOf(w), `${what}-${w}-${i}`, "10.128.0.0/16"));
          latencies.push(performance.now() - begun);
        }
      }),
    );
    const seconds = (performance.now() - started) / 1000;
    if (seen.size !== WRITERS * EACH) throw new Error(`${WRITERS * EACH - seen.size} addresses were assigned twice`);
    report(subject, `assign, ${WRITERS} writers, ${what}`, (WRITERS * EACH) / seconds, latencies);
  }

  await resource(store, "IPPool", "big", { cidr: "10.0.0.0/14" });
  await fill(store, FULL, 0);
  const claimed = await times(CLAIMS, (i) => assign(`n${i}`, `claim-${i}`, "10.0.0.0/14"));
  report(subject, `first address of a host, ${BLOCKS} blocks, 99 % claimed`, rate(claimed), claimed);
  await fill(store, BLOCKS, FULL);
  const borrowed = await times(CLAIMS, (i) => assign(`n${i + CLAIMS}`, `borrow-${i}`, "10.0.0.0/14"));
  report(subject, `address of another host's block, all claimed, 99 % of addresses taken`, rate(borrowed), borrowed);
  await store.close();
}

/** Creates blocks of other hosts, which are full except for one address in every second block. */
async function fill(store: Datastore, to: number, from: number): Promise<void> {
  const base = parseAddress("10.0.0.0");
  const indices = Array.from({ length: to - from }, (_, i) => from + i);
  for (let i = 0; i < indices.length; i += 64)
    await Promise.all(
      indices.slice(i, i + 64).map(async (index) => {
        const cidr = `${addressPlus(base, index * 64)}/26` as Cidr;
        const host = `filler-${index % 500}`;
        const free = index % 2 === 0 ? [63] : [];
        const used = 64 - free.length;
        const key = { type: "blockAffinity", affinityType: "host", host, cidr } as const;
        try {
          await store.create({ key, value: { state: "confirmed", deleted: false } });
          await store.create({
            key: { type: "block", cidr },
            value: {
              cidr,
              affinity: `host:${host}`,
              allocations: Array.from({ length: 64 }, (_, n) => (n < used ? n : null)),
              unallocated: free,
              attributes: Array.from({ length: used }, (_, n) => ({
                handleId: `k8s-pod-network.${index}-${n}-0123456789abcdef0123456789abcdef`,
                secondary: {
                  node: host,
                  namespace: "default",
                  pod: `pod-${index}-${n}`,
                  timestamp: "2026-01-01 00:00:00 +0000 UTC",
                },
              })),
              sequenceNumber: BigInt(Date.now()) * 1_000_000n,
              sequenceNumberForAllocation: {},
              deleted: false,
            },
          });
        } catch {
          // A host of the measurement has already claimed this block.
        }
      }),
    );
}

async function times(count: number, work: (i: number) => Promise<unknown>): Promise<number[]> {
  const result: number[] = [];
  for (let i = 0; i < count; i++) {
    const started = performance.now();
    await work(i);
    result.push(performance.now() - started);
  }
  return result;
}

/** Returns the milliseconds of single writes with fdatasync, which etcd calls for each write. */
function diskWaits(count: number): number[] {
  const file = openSync(join(folder, "disk-wait"), "w");
  const bytes = Buffer.alloc(4096, 1);
  try {
    return Array.from({ length: count }, () => {
      const started = performance.now();
      writeSync(file, bytes);
      fdatasyncSync(file);
      return performance.now() - started;
    });
  } finally {
    closeSync(file);
  }
}

function rate(latencies: readonly number[]): number {
  return (1000 * latencies.length) / latencies.reduce((a, b) => a + b, 0);
}

function report(subject: Subject, what: string, perSecond: number, latencies: readonly number[]): void {
  const sorted = [...latencies].sort((a, b) => a - b);
  const at = (share: number) =>
    (sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0).toFixed(2);
  console.log(
    `${subject.name.padEnd(15)} ${what.padEnd(66)} ${perSecond.toFixed(0).padStart(6)}/s   p50 ${at(0.5)} ms   p95 ${at(0.95)} ms`,
  );
}

async function resource(store: Datastore, kind: KindName, name: string, spec: unknown): Promise<void> {
  const value = { apiVersion: "projectcalico.org/v3", kind, metadata: { name }, spec };
  await store.apply({ key: { type: "resource", kind, name }, value });
}

async function etcd(name: string, waitsForDisk: boolean): Promise<Subject> {
  const server = await EtcdServer.start({ waitsForDisk, flags: ["--snapshot-count", "100000"] });
  return {
    name,
    open: () => openDatastore(server.config),
    waitsForDisk,
    stop: () => server[Symbol.asyncDispose](),
  };
}
