import { expect, test } from "bun:test";
import { parseAddress } from "../../lib/ip/ip.ts";
import { BadRequest, HandleLimitReached, NotAssigned, StaleRelease } from "../errors.ts";
import type { OwnerAttributes } from "./owner-attributes.ts";
import { TestCluster } from "../testing/test-cluster.ts";

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

test("CI-077 a machine gets one address per family, also if a crash left the handle's count too high", async () => {
  const c = await machine();
  await expect(c.ipam.autoAssign(request)).rejects.toThrow(HandleLimitReached);
  await c.ipam.assignAddress({ address, host: "n1", handleId: request.handleId, maxPerHandle: 1 }); // the handle already has it
  await c.release("10.65.0.0");
  await c.store.create({
    key: { type: "ipamHandle", handleId: request.handleId },
    value: { handleId: request.handleId, block: { "10.65.0.0/30": 7 }, deleted: false },
  });
  expect((await c.ipam.autoAssign(request)).addresses).toHaveLength(1);
  expect(c.handles()).toEqual({ [request.handleId]: { "10.65.0.0/30": 1 } });
});

test("CI-077 source and target pod of a migration are recorded separately and swapped in one write", async () => {
  const c = await machine();
  const change = { address, handleId: "net.vmi.ns.vm" };
  await c.ipam.setOwnerAttributes({ ...change, alternate: target, expectAlternate: null });
  expect(await c.ipam.allocationOf(address)).toMatchObject({ attributes: source, alternateAttributes: target });
  await c.ipam.setOwnerAttributes({ ...change, active: target, alternate: null, expectAlternate: target });
  const moved = await c.ipam.allocationOf(address);
  expect(moved.attributes).toEqual(target);
  expect(moved.alternateAttributes).toBeUndefined();
  await c.ipam.setOwnerAttributes({ ...change, active: null, expectActive: target });
  expect((await c.ipam.allocationOf(address)).attributes).toEqual({});
});

test("CI-077 a change with a wrong expected owner, handle or address is rejected", async () => {
  const c = await machine();
  const change = { address, handleId: "net.vmi.ns.vm", active: target };
  await expect(c.ipam.setOwnerAttributes({ ...change, expectActive: target })).rejects.toThrow(StaleRelease);
  await expect(c.ipam.setOwnerAttributes({ ...change, expectAlternate: source })).rejects.toThrow(StaleRelease);
  await expect(c.ipam.setOwnerAttributes({ ...change, handleId: "x" })).rejects.toThrow(StaleRelease);
  await expect(c.ipam.setOwnerAttributes({ ...change, address: parseAddress("10.65.0.1") })).rejects.toThrow(
    NotAssigned,
  );
  await expect(c.ipam.setOwnerAttributes({ address, handleId: "net.vmi.ns.vm" })).rejects.toThrow(BadRequest);
  expect((await c.ipam.allocationOf(address)).attributes).toEqual(source);
});

test("CI-077 if the owner of one address changes, other addresses that shared its entry keep theirs", async () => {
  const c = await machine();
  await c.assign("n1", "pair", { count: 2 });
  await c.ipam.setOwnerAttributes({ address: parseAddress("10.65.0.1"), handleId: "pair", active: target });
  expect((await c.ipam.allocationOf(parseAddress("10.65.0.1"))).attributes).toEqual(target);
  expect((await c.ipam.allocationOf(parseAddress("10.65.0.2"))).attributes).toEqual({ node: "n1" });
});

test("CI-077 the owners of all addresses of a handle are changed and returned", async () => {
  const c = await machine();
  await c.pool("p6", "fd00:65::/126", { blockSize: 126 });
  await c.ipam.autoAssign({ ...request, version: 6, attributes: source });
  await c.assign("n1", "another");
  const change = (owners: OwnerAttributes): OwnerAttributes => ({ ...owners, alternate: target });
  const owned = await c.ipam.updateOwnerAttributes("net.vmi.ns.vm", change);
  expect(owned.map(({ address }) => String(address))).toEqual(["10.65.0.0", "fd00:65::"]);
  expect(owned[1]).toMatchObject({ active: source, alternate: target });
  for (const { address } of owned)
    expect(await c.ipam.allocationOf(address)).toMatchObject({ attributes: source, alternateAttributes: target });
  expect(await c.ipam.allocationOf(parseAddress("10.65.0.1"))).toMatchObject({ attributes: { node: "n1" } });
  const before = c.block("10.65.0.0/30").sequenceNumber;
  expect(await c.ipam.updateOwnerAttributes("net.vmi.ns.vm", change)).toEqual(owned); // nothing to write
  expect(c.block("10.65.0.0/30").sequenceNumber).toBe(before);
  expect(await c.ipam.updateOwnerAttributes("net.vmi.ns.nobody", change)).toEqual([]);
});

test("CI-077 missing owners are not stored, and requireNoOwner rejects the release of an address with an owner", async () => {
  const c = await machine();
  const release = () => c.ipam.release([{ address, handleId: request.handleId, requireNoOwner: true }]);
  expect((await release()).error).toBeInstanceOf(StaleRelease);
  await c.ipam.updateOwnerAttributes(request.handleId, () => ({ active: {}, alternate: target }));
  expect((await release()).error).toBeInstanceOf(StaleRelease);
  await c.ipam.setOwnerAttributes({ address, handleId: request.handleId, active: {}, alternate: {} });
  expect(c.block("10.65.0.0/30").attributes).toEqual([{ handleId: request.handleId }]);
  expect((await release()).released).toEqual([address]);
});

for (const name of ["without transactions", "in one transaction"])
  test(`CI-077 two concurrent changes of owners are both applied (${name})`, async () => {
    const c = await machine();
    if (name === "without transactions") Object.defineProperty(c.store, "transact", { value: undefined });
    let other: Promise<unknown> | undefined;
    await c.ipam.updateOwnerAttributes(request.handleId, (owners) => {
      other ??= c.client().updateOwnerAttributes(request.handleId, (now) => ({ ...now, alternate: target }));
      return { ...owners, active: { ...source, node: "n2" } };
    });
    await other;
    expect(await c.ipam.allocationOf(address)).toMatchObject({
      attributes: { ...source, node: "n2" },
      alternateAttributes: target,
    });
  });
