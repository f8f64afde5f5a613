import { expect, test } from "bun:test";
import { parseAddress } from "../../lib/ip/ip.ts";
import {
  AddressTaken,
  InCooldown,
  NotAssigned,
  NotInPool,
  BlockOwnedByOther,
  StaleRelease,
  UnknownHandle,
  UseNotAllowed,
} from "../errors.ts";
import type { ExpectedPod } from "../blocks/expected-pod.ts";
import { TestCluster } from "../testing/test-cluster.ts";

async function cluster(): Promise<TestCluster> {
  const c = new TestCluster();
  await c.pool("p", "10.65.0.0/29", { blockSize: 30 });
  for (const host of ["n1", "n2"]) await c.node(host);
  return c;
}
const address = parseAddress("10.65.0.4");

test("CI-062 a specified address is assigned once, regardless of selectors, assignment mode and reservations", async () => {
  const c = await cluster();
  await c.pool("p", "10.65.0.0/29", { blockSize: 30, nodeSelector: "has(nope)", assignmentMode: "Manual" });
  await c.resource("IPReservation", "r", { reservedCIDRs: ["10.65.0.0/24"] });
  await c.assignAddress("n1", "h", "10.65.0.4");
  expect(c.affinities()).toEqual({ "n1 10.65.0.4/30": "confirmed" });
  expect(c.handles()).toEqual({ h: { "10.65.0.4/30": 1 } });
  await expect(c.assignAddress("n1", "other", "10.65.0.4")).rejects.toThrow(AddressTaken);
  await expect(c.assignAddress("n1", "other", "10.65.0.4")).rejects.toThrow("resource already exists: 10.65.0.4");
  await expect(c.assignAddress("n1", "h", "10.99.0.1")).rejects.toThrow(NotInPool);
  await c.assignAddress("n2", "g", "10.65.0.5"); // from a block of n1
  await c.config({ strictAffinity: true });
  await expect(c.assignAddress("n2", "g", "10.65.0.6")).rejects.toThrow(BlockOwnedByOther);
});

test("CI-059 a specified address must be in a pool that allows its use", async () => {
  const c = await cluster();
  const request = { address, host: "n1", handleId: "h" };
  await expect(c.ipam.assignAddress({ ...request, use: "LoadBalancer" })).rejects.toThrow(UseNotAllowed);
  await c.ipam.assignAddress({ ...request, use: "Tunnel" });
});

test("CI-062 a specified address is not assigned from a disabled pool", async () => {
  const c = await cluster();
  await c.pool("p", "10.65.0.0/29", { blockSize: 30, disabled: true });
  await expect(c.assignAddress("n1", "h", "10.65.0.4")).rejects.toThrow(NotInPool);
});

test("CI-063 release by handle frees all its addresses and deletes the handle", async () => {
  const c = await cluster();
  await c.assign("n1", "same");
  await c.assign("n1", "other");
  await c.assign("n1", "same", { count: 3 });
  const freed = await c.ipam.releaseByHandle("same");
  expect(freed.map(String)).toEqual(["10.65.0.4", "10.65.0.6", "10.65.0.7", "10.65.0.0"]);
  expect(c.block("10.65.0.4/30").unallocated).toEqual([0, 2, 3]);
  expect(c.handles()).toEqual({ other: { "10.65.0.4/30": 1 } });
  await expect(c.ipam.releaseByHandle("same")).rejects.toThrow(UnknownHandle);
});

test("CI-063 release by address lowers the handle's count, and deletes the handle with its last address", async () => {
  const c = await cluster();
  await c.assign("n1", "h", { count: 2 });
  expect(await c.release("10.65.0.4", "10.65.0.4", "10.65.0.7", "9.9.9.9")).toEqual({
    released: [parseAddress("10.65.0.4")],
    notAllocated: [parseAddress("9.9.9.9"), parseAddress("10.65.0.7")],
  });
  expect(c.handles()).toEqual({ h: { "10.65.0.4/30": 1 } });
  await c.release("10.65.0.5");
  expect(c.handles()).toEqual({});
  expect(c.block("10.65.0.4/30").sequenceNumberForAllocation).toEqual({});
});

test("an address is released for a pod only if its attributes name this pod", async () => {
  const c = await cluster();
  const pod = { namespace: "ns1", pod: "a" };
  const assign = (text: string, attributes?: Record<string, string>) =>
    c.ipam.assignAddress({ host: "n1", handleId: text, address: parseAddress(text), attributes });
  await assign("10.65.0.4", { node: "n1", namespace: "ns1", pod: "a" });
  await assign("10.65.0.5", { node: "n1", namespace: "ns2", pod: "a" });
  await assign("10.65.0.6", { node: "n1", type: "vxlanTunnelAddress" });
  await assign("10.65.0.7");
  const outcome = async (text: string, expectedPod: ExpectedPod) => {
    const { error } = await c.ipam.release([{ address: parseAddress(text), expectedPod }]);
    const byHandle = c.ipam.releaseByHandleWith(text, { expectedPod }).then(() => "released");
    return [error, await byHandle.catch((reason: unknown) => reason)];
  };
  for (const text of ["10.65.0.5", "10.65.0.6", "10.65.0.7"])
    expect(await outcome(text, pod)).toEqual([expect.any(StaleRelease), expect.any(StaleRelease)]);
  for (const text of ["10.65.0.5", "10.65.0.6"])
    expect(await outcome(text, { ...pod, acceptNoAttributes: true })).toEqual([
      expect.any(StaleRelease),
      expect.any(StaleRelease),
    ]);
  expect(Object.keys(c.handles())).toHaveLength(4);
  // The allocations of one block are released together or not at all.
  const both = ["10.65.0.4", "10.65.0.5"].map((text) => ({ address: parseAddress(text), expectedPod: pod }));
  expect(await c.ipam.release(both)).toMatchObject({ released: [], error: expect.any(StaleRelease) });
  expect(await c.ipam.release(both.slice(0, 1))).toMatchObject({ released: [parseAddress("10.65.0.4")] });
  const expectedPod = { ...pod, acceptNoAttributes: true };
  expect(await c.ipam.releaseByHandleWith("10.65.0.7", { expectedPod })).toMatchObject({
    released: [parseAddress("10.65.0.7")],
  });
  expect(Object.keys(c.handles()).sort()).toEqual(["10.65.0.5", "10.65.0.6"]);
});

test("CI-063 addresses released together are reused in ascending order, regardless of the order in the request", async () => {
  const c = await cluster();
  const assigned = await c.assign("n1", "h", { count: 4 });
  const addresses = assigned.map((cidr) => cidr.replace(/\/.*/, ""));
  await c.release(...[3, 0, 2].map((i) => addresses[i]!));
  expect(Object.values(c.blocks())[0]!.unallocated).toEqual([0, 2, 3]);
});

test("CI-063 a release of free addresses writes nothing", async () => {
  const c = await cluster();
  await c.assign("n1", "h");
  const before = c.block("10.65.0.4/30").sequenceNumber;
  await c.release("10.65.0.6");
  expect(c.block("10.65.0.4/30").sequenceNumber).toBe(before);
});

test("CI-063 many addresses in many blocks are released in one call", async () => {
  const c = new TestCluster();
  await c.pool("p", "10.65.0.0/24", { blockSize: 30 });
  await c.node("n1");
  await c.config({ strictAffinity: true, maxBlocksPerHost: 64 });
  const assigned = await c.assign("n1", "h", { count: 100 });
  const { released } = await c.release(...assigned.map((cidr) => cidr.split("/")[0] ?? ""));
  expect(released).toHaveLength(100);
  expect(c.handles()).toEqual({});
});

test("CI-063 addresses of a deleted or disabled pool can be released", async () => {
  const c = await cluster();
  await c.assign("n1", "h", { count: 2 });
  await c.pool("p", "10.65.0.0/29", { blockSize: 30, disabled: true });
  expect((await c.release("10.65.0.4")).released).toHaveLength(1);
  await c.store.delete({ type: "resource", kind: "IPPool", name: "p" });
  expect((await c.release("10.65.0.5")).released).toHaveLength(1);
});

test("CI-064 if a sequence number or handle is wrong, no address of its block is released", async () => {
  const c = await cluster();
  await c.assign("n1", "h", { count: 2 });
  const { sequenceNumber } = await c.ipam.allocationOf(address);
  const seen = sequenceNumber ?? 0n;
  const next = parseAddress("10.65.0.5");
  const wrong = await c.ipam.release([{ address, handleId: "x" }, { address: next }]);
  expect(wrong.error).toBeInstanceOf(StaleRelease);
  expect(wrong.released).toEqual([]);
  expect((await c.ipam.allocationOf(next)).handleId).toBe("h");

  await c.ipam.release([{ address, handleId: "h", sequenceNumber: seen }]);
  await c.assignAddress("n1", "new", "10.65.0.4");
  const stale = await c.ipam.release([{ address, sequenceNumber: seen }]);
  expect((stale.error as StaleRelease).reason).toBe("BadSequenceNumber");
  expect((await c.ipam.allocationOf(address)).sequenceNumber).toBe(seen + 2n);
});

test("CI-064 a re-created block has higher sequence numbers than the old one", async () => {
  const c = await cluster();
  await c.assign("n1", "h");
  const old = (await c.ipam.allocationOf(address)).sequenceNumber ?? 0n;
  await c.ipam.releaseByHandle("h");
  await c.ipam.removeHost("n1");
  c.nowMs += 1;
  await c.assign("n1", "h");
  expect((await c.ipam.allocationOf(address)).sequenceNumber ?? 0n).toBeGreaterThan(old);
  expect((await c.ipam.release([{ address, sequenceNumber: old }])).error).toBeInstanceOf(StaleRelease);
});

test("CI-065 a released address is not assigned before its cooldown ends", async () => {
  const c = await cluster();
  await c.config({ ipCooldownSeconds: 30 });
  await c.assign("n1", "h", { count: 8 });
  await c.ipam.releaseByHandle("h");
  expect(c.handles()).toEqual({});
  expect(await c.assign("n1", "a")).toEqual([]);
  await expect(c.assignAddress("n1", "a", "10.65.0.4")).rejects.toThrow("cooldown");
  await expect(c.ipam.allocationOf(address)).rejects.toThrow(InCooldown);
  expect((await c.release("10.65.0.4")).notAllocated).toHaveLength(1);
  expect((await c.ipam.utilization()).pools[0]?.inUse).toBe(8n);
  c.nowMs += 30_000;
  expect(await c.assign("n1", "a")).toHaveLength(1);
  expect(await c.ipam.collectExpiredCooldowns()).toHaveLength(1);
  expect((await c.ipam.utilization()).pools[0]?.inUse).toBe(1n);
  expect(await c.ipam.collectExpiredCooldowns()).toEqual([]);
});

test("queries return the addresses of a handle and the allocation of an address", async () => {
  const c = await cluster();
  await c.assign("n1", "h", { count: 5 });
  expect((await c.ipam.addressesOfHandle("h")).map(String)).toEqual([4, 5, 6, 7, 0].map((n) => `10.65.0.${n}`));
  await expect(c.ipam.addressesOfHandle("nobody")).rejects.toThrow(UnknownHandle);
  expect(await c.ipam.allocationOf(address)).toMatchObject({ handleId: "h", attributes: { node: "n1" } });
  await expect(c.ipam.allocationOf(parseAddress("10.65.0.3"))).rejects.toThrow(NotAssigned);
});
