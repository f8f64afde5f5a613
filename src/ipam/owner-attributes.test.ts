import { expect, test } from "bun:test";
import { parseAddress } from "../lib/ip.ts";
import { BadRequest, HandleLimitReached, NotAssigned, StaleRelease } from "./errors.ts";
import { TestCluster } from "./testing/bench.ts";

const address = parseAddress("10.65.0.0");
const source = { pod: "virt-launcher-1", "vmi-name": "vm" };
const target = { pod: "virt-launcher-2", "vmi-name": "vm" };

const request = {
  host: "n1",
  handleId: "net.vmi.ns.vm",
  use: "Workload",
  version: 4,
  count: 1,
  maxPerHandle: 1,
} as const;

async function machine(): Promise<TestCluster> {
  const c = new TestCluster();
  await c.pool("p", "10.65.0.0/30", { blockSize: 30 });
  await c.node("n1");
  await c.ipam.autoAssign({ ...request, attributes: source });
  return c;
}

test("CI-077 a machine's address is given once per family, also when a crash left the count too high", async () => {
  const c = await machine();
  await expect(c.ipam.autoAssign(request)).rejects.toThrow(HandleLimitReached);
  await c.ipam.assignAddress({ address, host: "n1", handleId: request.handleId, maxPerHandle: 1 }); // held already
  await c.release("10.65.0.0");
  await c.store.create({
    key: { type: "ipamHandle", handleId: request.handleId },
    value: { handleId: request.handleId, block: { "10.65.0.0/30": 7 }, deleted: false },
  });
  expect((await c.ipam.autoAssign(request)).addresses).toHaveLength(1);
  expect(c.handles()).toEqual({ [request.handleId]: { "10.65.0.0/30": 1 } });
});

test("CI-077 source and target of a move are recorded apart and swapped in one write", async () => {
  const c = await machine();
  const change = { address, handleId: "net.vmi.ns.vm" };
  await c.ipam.setOwners({ ...change, alternate: target, expectAlternate: null });
  expect(await c.ipam.allocationOf(address)).toMatchObject({ attributes: source, alternateAttributes: target });
  await c.ipam.setOwners({ ...change, active: target, alternate: null, expectAlternate: target });
  const moved = await c.ipam.allocationOf(address);
  expect(moved.attributes).toEqual(target);
  expect(moved.alternateAttributes).toBeUndefined();
  await c.ipam.setOwners({ ...change, active: null, expectActive: target });
  expect((await c.ipam.allocationOf(address)).attributes).toEqual({});
});

test("CI-077 a change under a wrong expectation, handle or address is refused", async () => {
  const c = await machine();
  const change = { address, handleId: "net.vmi.ns.vm", active: target };
  await expect(c.ipam.setOwners({ ...change, expectActive: target })).rejects.toThrow(StaleRelease);
  await expect(c.ipam.setOwners({ ...change, expectAlternate: source })).rejects.toThrow(StaleRelease);
  await expect(c.ipam.setOwners({ ...change, handleId: "x" })).rejects.toThrow(StaleRelease);
  await expect(c.ipam.setOwners({ ...change, address: parseAddress("10.65.0.1") })).rejects.toThrow(NotAssigned);
  await expect(c.ipam.setOwners({ address, handleId: "net.vmi.ns.vm" })).rejects.toThrow(BadRequest);
  expect((await c.ipam.allocationOf(address)).attributes).toEqual(source);
});

test("CI-077 addresses that share an entry part when one changes its owner", async () => {
  const c = await machine();
  await c.assign("n1", "pair", { count: 2 });
  await c.ipam.setOwners({ address: parseAddress("10.65.0.1"), handleId: "pair", active: target });
  expect((await c.ipam.allocationOf(parseAddress("10.65.0.1"))).attributes).toEqual(target);
  expect((await c.ipam.allocationOf(parseAddress("10.65.0.2"))).attributes).toEqual({ node: "n1" });
});
