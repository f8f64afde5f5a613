import { expect, test } from "bun:test";
import { NotFound } from "../../datastore/index.ts";
import { parseAddress, parseCidr } from "../../lib/ip/ip.ts";
import { describeShortage } from "./auto-assign.ts";
import { BadRequest, BlockLimitReached, NoBlockAllowed, NoPoolForNode } from "../errors.ts";
import { countOf } from "../blocks/handles.ts";
import { TestCluster } from "../testing/test-cluster.ts";

async function cluster(pool: string, blockSize?: number): Promise<TestCluster> {
  const c = new TestCluster();
  await c.pool("p", pool, blockSize === undefined ? {} : { blockSize });
  for (const host of ["n1", "n2"]) await c.node(host);
  return c;
}
const failure = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => undefined,
    (error: unknown) => error,
  );

test("CI-050 the first assignment claims a block and confirms its affinity", async () => {
  const c = await cluster("10.65.0.0/24");
  expect(await c.assign("n1", "h")).toEqual(["10.65.0.128/26"]);
  expect(c.affinities()).toEqual({ "n1 10.65.0.128/26": "confirmed" });
  expect(c.handles()).toEqual({ h: { "10.65.0.128/26": 1 } });
  const block = c.block("10.65.0.128/26");
  expect(block.affinity).toBe("host:n1");
  expect(block.attributes).toEqual([{ handleId: "h", secondary: { node: "n1" } }]);
  expect(block.sequenceNumberForAllocation["0"]).toBe(block.sequenceNumber - 1n);
});

test("CI-050 IPv6 blocks have prefix length 122; a handle can have addresses of both families", async () => {
  const c = await cluster("10.65.0.0/24");
  await c.pool("p6", "fd00::/48");
  const [four = ""] = await c.assign("n1", "h");
  const [six = ""] = await c.assign("n1", "h", { version: 6 });
  expect(four).toEndWith("/26");
  expect(six).toMatch(/^fd00:.*\/122$/);
  expect(Object.keys(c.handles()["h"] ?? {})).toHaveLength(2);
});

test("blocks are claimed in the host's order, and used in the order of their keys", async () => {
  const c = await cluster("10.65.0.0/26", 30);
  const all = [];
  for (let i = 0; i < 10; i++) all.push(...(await c.assign("n1", `c${i}`)));
  expect(all).toEqual([56, 57, 58, 59, 60, 61, 62, 63, 0, 1].map((n) => `10.65.0.${n}/30`));
  await c.ipam.releaseByHandle("c0");
  // A process without a cache starts at the first listed block.
  const { addresses } = await c.client().autoAssign({ version: 4, count: 1, host: "n1", use: "Workload" });
  expect(addresses.map(String)).toEqual(["10.65.0.2/30"]);
});

test("CI-052 addresses are borrowed when every block is claimed, until all blocks are full", async () => {
  const c = await cluster("10.65.0.0/29", 30);
  expect(await c.assign("n1", "a", { count: 2 })).toEqual(["10.65.0.4/30", "10.65.0.5/30"]);
  expect(await c.assign("n2", "b")).toEqual(["10.65.0.0/30"]);
  expect(await c.assign("n1", "c", { count: 5 })).toEqual([6, 7, 1, 2, 3].map((n) => `10.65.0.${n}/30`));
  const empty = await c.ipam.autoAssign({ version: 4, count: 1, host: "n1", use: "Workload" });
  expect(describeShortage(empty)).toBe(
    "Assigned 0 out of 1 requested IPv4 addresses; No IPs available in pools: [10.65.0.0/29]",
  );
});

test("CI-052 with strict affinity no address is borrowed; a change of the setting takes effect immediately", async () => {
  const c = await cluster("10.65.0.0/29", 30);
  await c.config({ strictAffinity: true });
  await c.assign("n2", "b");
  const short = await c.ipam.autoAssign({ version: 4, count: 5, host: "n1", handleId: "a", use: "Workload" });
  expect(short.addresses).toHaveLength(4);
  expect(short.messages).toEqual(["No more free affine blocks and strict affinity enabled"]);
  await c.config({ strictAffinity: false });
  expect(await c.assign("n1", "c")).toEqual(["10.65.0.1/30"]);
});

test("CI-053 with autoAllocateBlocks off, only blocks that were claimed explicitly are used", async () => {
  const c = await cluster("10.65.0.0/29", 30);
  await c.config({ strictAffinity: true, autoAllocateBlocks: false });
  expect(await failure(c.assign("n1", "a"))).toBeInstanceOf(NoBlockAllowed);
  await c.ipam.claimAffinity(parseCidr("10.65.0.0/30"), { type: "host", name: "n1" });
  expect(await c.assign("n1", "a", { count: 4 })).toHaveLength(4);
  expect(((await failure(c.assign("n1", "b"))) as Error).message).toStartWith("failed to find or claim a block");
});

test("CI-054 at the request's block limit, the error lists the addresses assigned so far and nothing is borrowed", async () => {
  const c = await cluster("10.65.0.0/27", 30);
  const request = { version: 4, count: 9, host: "n1", handleId: "h", use: "Workload", maxBlocks: 2 } as const;
  const error = await failure(c.ipam.autoAssign(request));
  expect(error).toBeInstanceOf(BlockLimitReached);
  expect((error as BlockLimitReached).assigned).toHaveLength(8);
  expect(c.handles()["h"]).toEqual({ "10.65.0.8/30": 4, "10.65.0.12/30": 4 });
});

test("CI-055 the smaller of the cluster's and the request's block limit applies; the default is 20", async () => {
  const c = await cluster("10.65.0.0/24", 30);
  await c.config({ strictAffinity: true, maxBlocksPerHost: 3 });
  const blocksOf = async (count: number, maxBlocks?: number) => {
    const request = { version: 4, count, host: "n1", use: "Workload" } as const;
    const error = await failure(c.ipam.autoAssign({ ...request, ...(maxBlocks && { maxBlocks }) }));
    expect(error).toBeInstanceOf(BlockLimitReached);
    return Object.keys(c.affinities()).length;
  };
  expect(await blocksOf(100, 1)).toBe(1);
  expect(await blocksOf(100)).toBe(3);
  expect(await blocksOf(100, 7)).toBe(3);
  await c.config({});
  expect(await blocksOf(100)).toBe(20);
  await c.config({ strictAffinity: true, maxBlocksPerHost: 30 });
  expect(await c.assign("n1", "incremented", { count: 8 })).toHaveLength(8);
});

test("CI-056 a node that a pool no longer selects gets no new addresses and releases its empty blocks", async () => {
  const c = await cluster("10.65.0.0/24");
  await c.pool("q", "10.66.0.0/24");
  await c.assign("n1", "a", { pools: ["10.66.0.0/24"] });
  await c.assign("n1", "b", { pools: ["10.65.0.0/24"] });
  await c.ipam.releaseByHandle("b");
  expect(Object.keys(c.affinities())).toHaveLength(2);
  await c.pool("p", "10.65.0.0/24", { nodeSelector: "has(nope)" });
  await c.assign("n1", "c");
  expect(Object.keys(c.affinities())).toEqual([expect.stringContaining("n1 10.66.")]);
  await c.pool("q", "10.66.0.0/24", { nodeSelector: "has(nope)" });
  expect(await failure(c.assign("n1", "d"))).toBeInstanceOf(NoPoolForNode);
  await c.ipam.releaseByHandle("a");
  await c.ipam.releaseByHandle("c");
  expect(c.blocks()).toEqual({});
  expect(c.affinities()).toEqual({});
});

test("CI-058 a pool that no longer allows a use rejects requests for it, but the host keeps its blocks", async () => {
  const c = await cluster("10.65.0.0/24");
  await c.assign("n1", "a");
  await c.ipam.releaseByHandle("a");
  await c.pool("p", "10.65.0.0/24", { allowedUses: ["Tunnel"] });
  const request = { version: 4, count: 1, host: "n1", use: "Workload" } as const;
  await expect(c.ipam.autoAssign(request)).rejects.toThrow("no pools match the required use (Workload)");
  expect(Object.keys(c.affinities())).toHaveLength(1);
  await expect(c.ipam.autoAssign({ ...request, use: "" as "Workload" })).rejects.toThrow(BadRequest);
});

test("CI-061 reserved addresses and blocks are not assigned, also if the reservation is large", async () => {
  const c = await cluster("10.65.0.0/28", 30);
  await c.resource("IPReservation", "r", { reservedCIDRs: ["10.65.0.0/30", "10.65.0.5", "bad", "10.65.0.12/31"] });
  const { addresses, messages } = await c.ipam.autoAssign({ version: 4, count: 16, host: "n1", use: "Workload" });
  expect(addresses.map((a) => a.split("/")[0]).sort()).toEqual(
    [10, 11, 14, 15, 4, 6, 7, 8, 9].map((n) => `10.65.0.${n}`),
  );
  expect(messages).toHaveLength(1);
  expect(c.blocks()).not.toHaveProperty(["10.65.0.0/30"]);

  await c.pool("p6", "fd00::/48");
  await c.resource("IPReservation", "r6", { reservedCIDRs: ["fd00::/49", "fd00:0:0:8000::/50"] });
  const [six = ""] = await c.assign("n1", "six", { version: 6 });
  expect(six).toMatch(/^fd00:0:0:[c-f]/);
});

test("CI-068 an empty block of another host is taken over one minute after it was claimed; a block in use is not", async () => {
  const c = await cluster("10.65.0.0/29", 30);
  await c.config({ strictAffinity: true });
  await c.assign("n2", "old", { count: 8 });
  for (const n of [4, 5, 6, 7]) await c.release(`10.65.0.${n}`);
  expect(await c.assign("n1", "a")).toEqual([]);
  c.nowMs += 59_000;
  expect(await c.assign("n1", "a")).toEqual([]);
  c.nowMs += 2_000;
  expect(await c.assign("n1", "a", { count: 5 })).toEqual([4, 5, 6, 7].map((n) => `10.65.0.${n}/30`));
  expect(c.affinities()).toEqual({ "n1 10.65.0.4/30": "confirmed", "n2 10.65.0.0/30": "confirmed" });
});

test("CI-076 blocks of load balancer addresses have a virtual owner, so no Node is needed", async () => {
  const c = await cluster("10.65.0.0/24");
  await c.pool("lb", "10.90.0.0/26", { allowedUses: ["LoadBalancer"] });
  const { addresses } = await c.ipam.autoAssign({ version: 4, count: 1, host: "x", use: "LoadBalancer" });
  expect(addresses).toHaveLength(1);
  expect(c.affinities()).toEqual({ "load-balancer 10.90.0.0/26": "confirmed" });
  expect(c.block("10.90.0.0/26").affinity).toBe("virtual:load-balancer");
});

test("a host without a Node resource gets no address", async () =>
  expect(await failure((await cluster("10.65.0.0/24")).assign("ghost", "h"))).toBeInstanceOf(NotFound));

test("an unfinished claim of the host is completed; the affinity of a lost claim is deleted", async () => {
  const c = await cluster("10.65.0.0/24");
  const affinity = (host: string, cidr: string, state: "pending") =>
    c.store.create({
      key: { type: "blockAffinity", affinityType: "host", host, cidr: parseCidr(cidr) },
      value: { state, deleted: false },
    });
  await c.assign("n2", "other"); // owns 10.65.0.64/26
  await affinity("n1", "10.65.0.64/26", "pending");
  await affinity("n1", "10.65.0.192/26", "pending");
  expect((await c.assign("n1", "h", { count: 65 })).at(-1)).toBe("10.65.0.128/26");
  expect(c.affinities()).toEqual({
    "n1 10.65.0.128/26": "confirmed",
    "n1 10.65.0.192/26": "confirmed",
    "n2 10.65.0.64/26": "confirmed",
  });
});

test("CI-060 after a pool was re-created with another block size, blocks of the old size are not used", async () => {
  const c = await cluster("10.65.0.0/28", 30);
  await c.assign("n1", "a");
  await c.pool("p", "10.65.0.0/28", { blockSize: 29 });
  const assigned = await c.assign("n2", "b", { count: 16 });
  expect(new Set(assigned).size).toBe(assigned.length);
});

test("an assignment returns the handle's address count, including both families and earlier assignments", async () => {
  const c = await cluster("10.65.0.0/24");
  await c.pool("p6", "fd00::/48");
  for (const [i, isStepwise] of [false, true].entries()) {
    const ipam = c.client(c.store.connect(isStepwise));
    const request = { count: 1, host: "n1", use: "Workload", handleId: `h${i}` } as const;
    const counted = async (version: 4 | 6) => {
      const { handle } = await ipam.autoAssign({ ...request, version });
      return handle && countOf(handle.value);
    };
    expect([await counted(4), await counted(6), await counted(4)]).toEqual([1, 2, 3]);
    expect(await ipam.assignAddress({ ...request, address: parseAddress(`10.65.0.${i + 30}`) })).toBe(4);
    expect((await ipam.autoAssign({ version: 4, count: 1, host: "n1", use: "Workload" })).handle).toBeUndefined();
  }
});

test("a pool that a request names many times is searched once", async () => {
  const c = await cluster("10.65.0.0/29", 30);
  await c.assign("n1", "all", { count: 8 });
  let operations = 0;
  c.store.before = () => void operations++;
  const pool = parseCidr("10.65.0.0/29");
  const request = { version: 4, count: 1, host: "n1", handleId: "more", use: "Workload" } as const;
  await c.ipam.autoAssign({ ...request, pools: [pool] });
  const once = operations;
  operations = 0;
  const { addresses } = await c.ipam.autoAssign({ ...request, pools: Array.from({ length: 1000 }, () => pool) });
  expect([addresses, operations]).toEqual([[], once]);
});

test("a host claims no more blocks for named addresses than its limit", async () => {
  const c = await cluster("10.65.0.0/26", 30);
  await c.config({ strictAffinity: true, maxBlocksPerHost: 3 });
  const assign = (block: number) => c.assignAddress("n1", `h${block}`, `10.65.0.${block * 4 + 1}`);
  for (const block of [0, 1, 2]) {
    await assign(block);
    await c.ipam.releaseByHandle(`h${block}`);
  }
  expect(await failure(assign(3))).toBeInstanceOf(BlockLimitReached);
  await assign(2); // the block is the host's already
  expect(Object.keys(c.affinities())).toHaveLength(3);
  expect(await c.assign("n2", "other")).toHaveLength(1);
});
