import { expect, test } from "bun:test";
import { parseAddress, parseCidr } from "../../lib/ip/ip.ts";
import type { Block } from "../../model/index.ts";
import {
  addressAt,
  allocationAt,
  releaseOrdinals,
  freeExpiredCooldowns,
  countByHandle,
  isEmpty,
  newBlock,
  ordinalOf,
  takeFree,
  takeOrdinal,
  WINDOWS_RESERVED_HANDLE,
} from "./block.ts";

const NOW = 1_767_225_600_000;
const fresh = (): Block => newBlock(parseCidr("10.0.0.0/30"), { type: "host", name: "n1" }, NOW);
const atOnce = { cooldownSeconds: 0, nowMs: NOW };

test("CI-049 a new block is free, and its sequence number is the time in nanoseconds", () => {
  expect(fresh()).toEqual({
    cidr: parseCidr("10.0.0.0/30"),
    affinity: "host:n1",
    affinityClaimTime: "2026-01-01T00:00:00Z",
    allocations: [null, null, null, null],
    unallocated: [0, 1, 2, 3],
    attributes: [],
    sequenceNumber: BigInt(NOW) * 1_000_000n,
    sequenceNumberForAllocation: {},
    deleted: false,
  });
});

test("CI-049 free addresses are a queue: a released address is reused last", () => {
  let block = fresh();
  const assigned: number[] = [];
  for (let i = 0; i < 9; i++) {
    const taken = takeFree(block, 1, { handleId: `h${i}` });
    assigned.push(...taken.ordinals);
    block = releaseOrdinals(taken.block, taken.ordinals, atOnce);
  }
  expect(assigned).toEqual([0, 1, 2, 3, 0, 1, 2, 3, 0]);
});

test("CI-049 addresses with the same handle and attributes share one entry", () => {
  const allocation = { handleId: "h", attributes: { node: "n1" } };
  const { block } = takeFree(takeFree(fresh(), 2, allocation).block, 1, allocation);
  expect(block.allocations).toEqual([0, 0, 0, null]);
  expect(block.attributes).toEqual([{ handleId: "h", secondary: { node: "n1" } }]);
  const freed = releaseOrdinals(takeFree(block, 1, { handleId: "other" }).block, [0, 1, 2], atOnce);
  expect(freed.allocations).toEqual([null, null, null, 0]);
  expect(freed.attributes).toEqual([{ handleId: "other" }]);
});

test("CI-049 an allocation stores the sequence number that its block had before", () => {
  const { block } = takeFree(fresh(), 1, { handleId: "h" });
  expect(block.sequenceNumberForAllocation).toEqual({ 0: block.sequenceNumber });
  expect(releaseOrdinals(block, [0], atOnce).sequenceNumberForAllocation).toEqual({});
});

test("CI-061 reserved addresses are skipped and keep their position in the queue", () => {
  const reserved = parseAddress("10.0.0.1");
  const taken = takeFree(fresh(), 2, { handleId: "h" }, (address) => address === reserved);
  expect(taken.ordinals).toEqual([0, 2]);
  expect(taken.block.unallocated).toEqual([1, 3]);
});

test("an address that is allocated, or queued twice, is not assigned again", () => {
  const { block } = takeFree(fresh(), 1, { handleId: "first" });
  const taken = takeFree({ ...block, unallocated: [0, 1, 1, 2, 3] }, 4, { handleId: "second" });
  expect(taken.ordinals).toEqual([1, 2, 3]);
  expect(taken.block.allocations).toEqual([0, 1, 1, 1]);
  expect(taken.block.unallocated).toEqual([]);
});

test("CI-062 a specified address is removed from any position in the queue", () => {
  const block = takeOrdinal(fresh(), 2, { handleId: "h" });
  expect(block.unallocated).toEqual([0, 1, 3]);
  expect(allocationAt(block, 2)).toEqual({ handleId: "h" });
  expect(allocationAt(block, 1)).toBeUndefined();
});

test("CI-063 handle IDs are compared up to a carriage return", () => {
  const block = takeOrdinal(fresh(), 0, { handleId: "net.c\rgarbage" });
  expect(countByHandle(block, "net.c")).toBe(1);
  expect(countByHandle(block, "net.d")).toBe(0);
});

test("CI-065 a released address is not free before its cooldown ends", () => {
  const cooldown = { cooldownSeconds: 30, nowMs: NOW };
  let block = takeFree(fresh(), 4, { handleId: "h" }).block;
  block = releaseOrdinals(block, [1], cooldown);
  block = releaseOrdinals(block, [2], { ...cooldown, nowMs: NOW + 20_000 });
  expect(block.unallocated).toEqual([]);
  expect(allocationAt(block, 1)).toEqual({ releasedAt: new Date(NOW).toISOString() });
  expect(isEmpty(block)).toBe(false);

  expect(freeExpiredCooldowns(block, 30, NOW + 29_999)).toBe(block);
  const first = freeExpiredCooldowns(block, 30, NOW + 30_000);
  expect(first.unallocated).toEqual([1]);
  expect(first.sequenceNumberForAllocation).not.toHaveProperty("1");
  expect(first.attributes).toEqual([{ handleId: "h" }, { releasedAt: new Date(NOW + 20_000).toISOString() }]);
  expect(freeExpiredCooldowns(first, 30, NOW + 50_000).unallocated).toEqual([1, 2]);
  expect(freeExpiredCooldowns(block, 0, NOW + 20_000).unallocated).toEqual([1, 2]);
});

test("CI-067 a host can reserve addresses at both ends of its blocks", () => {
  const reserved = { startOfBlock: 3, endOfBlock: 1, handleId: WINDOWS_RESERVED_HANDLE, note: "windows host rsvd" };
  const block = newBlock(parseCidr("10.0.0.0/29"), { type: "host", name: "w" }, NOW, reserved);
  expect(block.unallocated).toEqual([3, 4, 5, 6]);
  expect(countByHandle(block, WINDOWS_RESERVED_HANDLE)).toBe(4);
  expect(isEmpty(block)).toBe(true);
  expect(isEmpty(takeFree(block, 1, { handleId: "h" }).block)).toBe(false);
});

test("addresses and ordinals are converted in both families", () => {
  for (const cidr of ["10.0.0.0/26", "fd00::40/122"]) {
    const block = newBlock(parseCidr(cidr), { type: "host", name: "n" }, NOW);
    for (const ordinal of [0, 17, 63]) expect(ordinalOf(block, addressAt(block, ordinal))).toBe(ordinal);
  }
});
