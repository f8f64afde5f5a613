import { expect, test } from "bun:test";
import { TestCluster } from "../testing/test-cluster.ts";

async function cluster(): Promise<TestCluster> {
  const c = new TestCluster();
  await c.pool("a", "10.1.0.0/28", { blockSize: 29 });
  await c.pool("b", "fd00::/48");
  await c.node("n1");
  for (const n of [0, 1, 2]) await c.assignAddress("n1", `h${n}`, `10.1.0.${n}`);
  return c;
}

test("CI-069 capacity, used and available addresses of pools and blocks of any size are reported", async () => {
  const { pools, orphans } = await (await cluster()).ipam.utilization();
  expect(pools.map(({ name, capacity, inUse, available }) => [name, capacity, inUse, available])).toEqual([
    ["a", 16n, 3n, 13n],
    ["b", 1n << 80n, 0n, 1n << 80n],
  ]);
  expect(pools[0]?.blocks).toMatchObject([{ cidr: "10.1.0.0/29", capacity: 8n, inUse: 3n, available: 5n }]);
  expect(orphans).toEqual([]);
});

test("CI-069 pools are selected by name or CIDR; blocks without a pool are orphans", async () => {
  const c = await cluster();
  expect((await c.ipam.utilization(["b"])).pools.map(({ name }) => name)).toEqual(["b"]);
  expect((await c.ipam.utilization(["10.1.0.0/28"])).pools.map(({ name }) => name)).toEqual(["a"]);
  await c.store.delete({ type: "resource", kind: "IPPool", name: "a" });
  expect((await c.ipam.utilization()).orphans).toMatchObject([{ cidr: "10.1.0.0/29", inUse: 3n }]);
});

test("CI-070 reserved addresses are counted separately; an address that is reserved and used is subtracted once", async () => {
  const c = await cluster();
  await c.resource("IPReservation", "r", { reservedCIDRs: ["10.1.0.0/30", "10.1.0.2/31", "10.1.0.12/30"] });
  const [a] = (await c.ipam.utilization(["a"])).pools;
  expect(a).toMatchObject({ capacity: 16n, inUse: 3n, reserved: 8n, available: 8n });
  expect(a?.blocks).toMatchObject([{ capacity: 8n, inUse: 3n, reserved: 4n, available: 4n }]);
});
