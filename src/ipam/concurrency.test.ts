// Runs many hosts and processes concurrently on the memory datastore; a seed determines how their operations interleave.
import { expect, test } from "bun:test";
import { Unavailable } from "../datastore/index.ts";
import { parseCidr } from "../lib/ip/ip.ts";
import { KeyedMutex } from "../lib/keyed-mutex.ts";
import { BlockNotEmpty } from "./errors.ts";
import { TestCluster } from "./testing/test-cluster.ts";
import { findViolations } from "./testing/invariants.ts";
import { Schedule } from "./testing/schedule.ts";

const SEEDS = [1, 7, 42];
const hosts = Array.from({ length: 32 }, (_, i) => `host-${i}`);

async function cluster(cidr: string): Promise<TestCluster> {
  const c = new TestCluster();
  await c.pool("p", cidr, { blockSize: 30 });
  for (const host of hosts) await c.node(host);
  return c;
}

for (const seed of SEEDS)
  test(`CI-050 32 hosts compete for 16 blocks: each gets an address, and every block has one owner (seed ${seed})`, async () => {
    const c = await cluster("10.0.0.0/26");
    const schedule = new Schedule(seed);
    const assigned: string[] = [];
    await schedule.run(
      hosts.map((host) => async () => {
        const ipam = c.client(schedule.connect(c.store));
        const request = { version: 4, count: 1, host, handleId: host, use: "Workload" } as const;
        assigned.push(...(await ipam.autoAssign(request)).addresses);
      }),
    );
    expect(new Set(assigned).size).toBe(32);
    expect(Object.values(c.affinities())).toEqual(Array(16).fill("confirmed"));
    for (const [name] of Object.entries(c.affinities())) {
      const [host = "", cidr = ""] = name.split(" ");
      expect(c.block(cidr).affinity).toBe(`host:${host}`);
    }
    expect(findViolations(c.store.snapshot())).toEqual([]);
  });

for (const seed of SEEDS)
  test(`four processes of one host assign concurrently: four addresses, at most two blocks (seed ${seed})`, async () => {
    const c = await cluster("10.0.0.0/24");
    const schedule = new Schedule(seed);
    const assigned: string[] = [];
    await schedule.run(
      [0, 1, 2, 3].map((n) => async () => {
        const ipam = c.client(schedule.connect(c.store));
        const request = { version: 4, count: 1, host: "host-0", handleId: `h${n}`, use: "Workload" } as const;
        assigned.push(...(await ipam.autoAssign(request)).addresses);
      }),
    );
    expect(new Set(assigned).size).toBe(4);
    expect(Object.keys(c.blocks()).length).toBeLessThanOrEqual(2);
    expect(new Set(Object.values(c.affinities()))).toEqual(new Set(["confirmed"]));
  });

for (const seed of SEEDS)
  test(`32 tasks that share a mutex assign and release concurrently: few repeated writes, no address twice (seed ${seed})`, async () => {
    const c = new TestCluster();
    await c.pool("p", "10.0.0.0/24", { blockSize: 26 });
    await c.node("host-0");
    await c.assign("host-0", "first");
    const schedule = new Schedule(seed);
    const connection = c.store.connect();
    let writes = 0;
    connection.before = async (operation) => {
      if (operation.name === "transact") writes++;
      await Bun.sleep(2);
    };
    const ipam = c.client(connection);
    const held = new Map<string, string>();
    const mutex = new KeyedMutex(); // as in the CNI service
    await schedule.run(
      Array.from({ length: 32 }, (_, n) => async () => {
        const request = { version: 4, count: 1, host: "host-0", handleId: `h${n}`, use: "Workload" } as const;
        for (let round = 0; round < 3; round++) {
          const [address = ""] = (await mutex.run("host-0", undefined, () => ipam.autoAssign(request))).addresses;
          expect(held.get(address)).toBeUndefined();
          held.set(address, `h${n}`);
          if (round === 2) return;
          held.delete(address);
          await ipam.releaseByHandle(`h${n}`);
        }
      }),
    );
    expect(held.size).toBe(32);
    expect(writes).toBeLessThan(32 * 5 * 2); // a release may conflict with an assignment from the same block and is repeated
    expect(findViolations(c.store.snapshot())).toEqual([]);
  });

test("CI-066 four concurrent claims of the same blocks for one host succeed, and so do four concurrent releases", async () => {
  const c = await cluster("10.0.0.0/26");
  const owner = { type: "host", name: "host-0" } as const;
  const schedule = new Schedule(3);
  const cidr = parseCidr("10.0.0.0/26");
  await schedule.run(
    [0, 1, 2, 3].map(() => async () => {
      expect((await c.client(schedule.connect(c.store)).claimAffinity(cidr, owner)).claimed).toHaveLength(16);
    }),
  );
  expect(Object.values(c.affinities())).toEqual(Array(16).fill("confirmed"));
  await schedule.run(
    [0, 1, 2, 3].map(
      () => () => c.client(schedule.connect(c.store)).releaseAffinity(cidr, owner, { mustBeEmpty: true }),
    ),
  );
  expect(c.affinities()).toEqual({});
  expect(c.blocks()).toEqual({});
});

test("CI-050 if the affinity of a lost claim cannot be deleted, an address is still assigned; the next assignment deletes it", async () => {
  const c = await cluster("10.0.0.0/29");
  const [theirs = ""] = await c.assign("host-1", "x");
  // Host 0 has a stale affinity for that block, which cannot be deleted at first.
  const stale = parseCidr(theirs);
  await c.store.create({
    key: { type: "blockAffinity", affinityType: "host", host: "host-0", cidr: stale },
    value: { state: "pending", deleted: false },
  });
  const broken = c.store.connect();
  broken.before = (operation) => {
    if (operation.name === "delete") throw new Unavailable("etcd", "test");
  };
  const request = { version: 4, count: 1, host: "host-0", handleId: "h", use: "Workload" } as const;
  expect((await c.client(broken).autoAssign(request)).addresses).toHaveLength(1);
  expect(c.affinities()[`host-0 ${stale}`]).toBe("pending");
  await c.assign("host-0", "again", { count: 5 });
  expect(c.affinities()).not.toHaveProperty([`host-0 ${stale}`]);
});

test("CI-066 an address assigned while its block is being released keeps the block", async () => {
  const c = await cluster("10.0.0.0/30");
  await c.assign("host-0", "x");
  await c.ipam.releaseByHandle("x");
  const racing = c.store.connect();
  racing.before = async (operation) => {
    if (operation.name !== "delete") return;
    racing.before = () => {};
    await c.assignAddress("host-1", "late", "10.0.0.2");
  };
  const owner = { type: "host", name: "host-0" } as const;
  await expect(c.client(racing).releaseHostAffinities(owner, { mustBeEmpty: true })).rejects.toThrow(BlockNotEmpty);
  expect(c.block("10.0.0.0/30").affinity).toBe("host:host-0");
  expect(c.affinities()).toEqual({ "host-0 10.0.0.0/30": "pendingDeletion" });
  await c.assign("host-0", "next");
  expect(c.affinities()).toEqual({ "host-0 10.0.0.0/30": "confirmed" });
});

test("after a datastore failure at any write, everything that was allocated can be released", async () => {
  for (let failAt = 1; failAt < 12; failAt++) {
    const c = await cluster("10.0.0.0/29");
    let writes = 0;
    const broken = c.store.connect();
    broken.before = (operation) => {
      if (operation.name !== "get" && operation.name !== "list" && ++writes >= failAt)
        throw new Unavailable("etcd", "test");
    };
    const request = { version: 4, count: 2, host: "host-0", handleId: "h", use: "Workload" } as const;
    await c
      .client(broken)
      .autoAssign(request)
      .catch(() => {});
    await c.ipam.releaseByHandle("h").catch(() => {});
    expect(c.handles()).toEqual({});
    expect(Object.values(c.blocks()).flatMap((block) => block.attributes)).toEqual([]);
  }
});
