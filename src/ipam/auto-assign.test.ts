import { expect, test } from "bun:test";
import { TestCluster } from "./testing/bench.ts";

async function cluster(pool: string, blockSize?: number): Promise<TestCluster> {
  const c = new TestCluster();
  await c.pool("p", pool, blockSize === undefined ? {} : { blockSize });
  await c.node("n1");
  await c.node("n2");
  return c;
}

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

test("CI-052 borrowing begins when every block is claimed, and ends when all are full", async () => {
  const c = await cluster("10.65.0.0/29", 30);
  expect(await c.assign("n1", "a", { count: 2 })).toEqual(["10.65.0.4/30", "10.65.0.5/30"]);
  expect(await c.assign("n2", "b")).toEqual(["10.65.0.0/30"]);
  expect(await c.assign("n1", "c", { count: 5 })).toEqual([6, 7, 1, 2, 3].map((n) => `10.65.0.${n}/30`));
  const empty = await c.ipam.autoAssign({ version: 4, count: 1, host: "n1", use: "Workload" });
  expect(empty).toEqual({
    version: 4,
    requested: 1,
    addresses: [],
    messages: ["No IPs available in pools: [10.65.0.0/29]"],
  });
});

test("CI-063 release by handle frees everything and removes the handle", async () => {
  const c = await cluster("10.65.0.0/24");
  await c.assign("n1", "same");
  await c.assign("n1", "same");
  await c.assign("n1", "other");
  expect((await c.ipam.releaseByHandle("same")).map(String)).toEqual(["10.65.0.128", "10.65.0.129"]);
  const block = c.block("10.65.0.128/26");
  expect(block.unallocated.slice(-2)).toEqual([0, 1]);
  expect(block.allocations.slice(0, 3)).toEqual([null, null, 0]);
  expect(c.handles()).toEqual({ other: { "10.65.0.128/26": 1 } });
});
