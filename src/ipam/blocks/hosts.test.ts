import { expect, test } from "bun:test";
import { parseCidr } from "../../lib/ip/ip.ts";
import { BlockNotEmpty, BlockTooSmall, NotInPool } from "../errors.ts";
import { TestCluster } from "../testing/test-cluster.ts";

const n1 = { type: "host", name: "n1" } as const;
const n2 = { type: "host", name: "n2" } as const;
const pool = parseCidr("10.65.0.0/28");

async function cluster(): Promise<TestCluster> {
  const c = new TestCluster();
  await c.pool("p", pool, { blockSize: 30 });
  for (const host of ["n1", "n2"]) await c.node(host);
  return c;
}

test("CI-066 all blocks of a prefix are claimed, and those of other owners are reported", async () => {
  const c = await cluster();
  await c.assign("n2", "h"); // 10.65.0.4/30
  const result = await c.ipam.claimAffinity(pool, n1);
  expect(result.claimed).toHaveLength(3);
  expect(result.failed.map(String)).toEqual(
    Object.keys(c.affinities())
      .filter((a) => a.startsWith("n2"))
      .map((a) => a.slice(3)),
  );
  expect((await c.ipam.claimAffinity(pool, n1)).claimed).toHaveLength(3); // again: the same
  await expect(c.ipam.claimAffinity(parseCidr("10.99.0.0/24"), n1)).rejects.toThrow(NotInPool);
  await expect(c.ipam.claimAffinity(parseCidr("10.65.0.0/31"), n1)).rejects.toThrow(BlockTooSmall);
  await c.pool("off", "10.66.0.0/28", { blockSize: 30, disabled: true });
  await expect(c.ipam.claimAffinity(parseCidr("10.66.0.0/30"), n1)).rejects.toThrow(NotInPool);
});

test("CI-066 releasing a prefix keeps blocks in use, or fails if they must be empty", async () => {
  const c = await cluster();
  const [assigned = ""] = await c.assign("n1", "h");
  const block = parseCidr(assigned);
  await c.ipam.claimAffinity(pool, n1);
  await expect(c.ipam.releaseAffinity(pool, n1, { mustBeEmpty: true })).rejects.toThrow(BlockNotEmpty);
  expect(Object.keys(c.affinities())).toEqual([`n1 ${block}`]);
  await c.ipam.releaseAffinity(pool, n2, { mustBeEmpty: false }); // n2 owns none of them: no effect
  expect(await c.ipam.releaseBlockAffinity(block, n1, { mustBeEmpty: false })).toBe(true);
  expect(await c.ipam.releaseBlockAffinity(block, n1, { mustBeEmpty: false })).toBe(false);
  expect(c.affinities()).toEqual({});
  expect(c.block(block).affinity).toBeUndefined();
  await c.ipam.releaseByHandle("h"); // the block is then empty and has no owner: it is deleted
  expect(c.blocks()).toEqual({});
});

test("CI-066 after a host was removed, only its allocated addresses remain", async () => {
  const c = await cluster();
  await c.assign("n1", "h", { count: 2 });
  await c.ipam.claimAffinity(pool, n1);
  await c.store.create({ key: { type: "ipamHost", host: "n1" }, value: {} });
  await c.store.delete({ type: "resource", kind: "IPPool", name: "p" });
  await c.ipam.removeHost("n1");
  expect(c.affinities()).toEqual({});
  expect(Object.values(c.blocks()).map((block) => block.affinity)).toEqual([undefined]);
  expect(c.store.snapshot().some(({ key }) => key.type === "ipamHost")).toBe(false);
  await c.ipam.removeHost("never-there");
});

test("CI-066 releasing a pool releases the blocks of all owners in this pool only", async () => {
  const c = await cluster();
  await c.pool("q", "10.66.0.0/28", { blockSize: 30 });
  await c.assign("n1", "a", { pools: [pool] });
  await c.assign("n2", "b", { pools: [pool] });
  await c.assign("n2", "c", { pools: ["10.66.0.0/28"] });
  await c.ipam.releasePoolAffinities(pool);
  expect(Object.keys(c.affinities())).toEqual([expect.stringContaining("n2 10.66.")]);
  expect(Object.keys(c.blocks())).toHaveLength(3);
});

test("CI-065 CI-066 releasing a pool deletes blocks whose cooldowns have all expired", async () => {
  const c = await cluster();
  await c.config({ ipCooldownSeconds: 3 });
  for (const host of ["n1", "n2"]) await c.assign(host, host);
  for (const host of ["n1", "n2"]) await c.ipam.releaseByHandle(host);
  c.nowMs += 2999;
  await expect(c.ipam.releaseHostAffinities(n1, { mustBeEmpty: true })).rejects.toThrow(BlockNotEmpty);
  c.nowMs += 1;
  await c.ipam.releaseHostAffinities(n1, { mustBeEmpty: true });
  expect(Object.keys(c.blocks())).toHaveLength(1);
  await c.ipam.releasePoolAffinities(pool);
  expect([c.affinities(), c.blocks()]).toEqual([{}, {}]);
});

test("CI-065 CI-066 a block that was released during cooldowns is deleted when they have expired", async () => {
  const c = await cluster();
  await c.config({ ipCooldownSeconds: 3 });
  await c.assign("n1", "h");
  await c.ipam.releaseByHandle("h");
  await c.ipam.releasePoolAffinities(pool);
  expect(Object.values(c.blocks()).map((block) => block.affinity)).toEqual([undefined]);
  c.nowMs += 3000;
  expect(await c.ipam.collectExpiredCooldowns()).toHaveLength(1);
  expect(c.blocks()).toEqual({});
});

test("CI-068 a new block stores the time of its claim, and is not taken over within a minute", async () => {
  const c = await cluster();
  await c.ipam.claimAffinity(pool, n1);
  const times = Object.values(c.blocks()).map((block) => block.affinityClaimTime);
  expect(times).toEqual(times.map(() => "2026-01-01T00:00:00Z"));
  await c.ipam.releasePoolAffinities(pool);
  c.nowMs += 59_999;
  await c.ipam.claimAffinity(pool, n1);
  expect(Object.values(c.blocks())[0]?.affinityClaimTime).toBe("2026-01-01T00:00:59Z");
  c.nowMs += 59_000;
  expect((await c.assign("n2", "early"))[0]).toBeDefined(); // borrowed
  expect(Object.keys(c.affinities()).filter((name) => name.startsWith("n2"))).toEqual([]);
  c.nowMs += 2000;
  await c.assign("n2", "late");
  expect(Object.keys(c.affinities()).filter((name) => name.startsWith("n2"))).toHaveLength(1);
});

test("CI-066 a host and a virtual owner of the same name are different owners", async () => {
  const c = await cluster();
  await c.ipam.claimAffinity(parseCidr("10.65.0.0/30"), { type: "virtual", name: "n1" });
  await c.ipam.claimAffinity(parseCidr("10.65.0.4/30"), n1);
  await c.ipam.removeHost("n1");
  expect(Object.values(c.blocks()).map((block) => block.affinity)).toEqual(["virtual:n1"]);
});

test("CI-067 ensureBlock claims one block, with the addresses that the host reserves", async () => {
  const c = await cluster();
  const hostReserved = { startOfBlock: 1, endOfBlock: 1, handleId: "windows-reserved-ipam-handle", note: "kept" };
  const request = { version: 4, host: "n1", use: "Workload", hostReserved } as const;
  const block = await c.ipam.ensureBlock(request);
  expect(await c.ipam.ensureBlock(request)).toBe(block);
  expect(c.block(block ?? "").unallocated).toEqual([1, 2]);
  expect(await c.assign("n1", "h", { count: 2 })).toHaveLength(2);
  // A block has four addresses, all of which would be reserved: the pool cannot be used.
  const greedy = { ...request, hostReserved: { ...hostReserved, startOfBlock: 3 } };
  await expect(c.ipam.ensureBlock(greedy)).rejects.toThrow("cannot find a qualified ippool");
});
