import { expect, test } from "bun:test";
import { TestCluster } from "./testing/test-cluster.ts";

test("CI-071 missing settings have their defaults, and reading writes nothing", async () => {
  const c = new TestCluster();
  expect(await c.ipam.config()).toEqual({ strictAffinity: false, autoAllocateBlocks: true, maxBlocksPerHost: 0 });
  expect(c.store.snapshot()).toEqual([]);
});

test("CI-071 a change keeps the other settings, and setting the current value writes nothing", async () => {
  const c = new TestCluster();
  await c.ipam.configure({ strictAffinity: true });
  await c.ipam.configure({ maxBlocksPerHost: 5 });
  const [before] = c.store.snapshot();
  await c.ipam.configure({ strictAffinity: true });
  expect(c.store.snapshot()).toEqual([before!]);
  expect(await c.ipam.config()).toMatchObject({ strictAffinity: true, autoAllocateBlocks: true, maxBlocksPerHost: 5 });
});

test("CI-071 stored settings that contradict each other may be set again unchanged", async () => {
  const c = new TestCluster();
  const value = { strictAffinity: false, autoAllocateBlocks: true, maxBlocksPerHost: 1 };
  await c.store.create({ key: { type: "ipamConfig" }, value });
  expect(await c.ipam.configure({ strictAffinity: false })).toMatchObject(value);
  await expect(c.ipam.configure({ maxBlocksPerHost: 2 })).rejects.toThrow("requires StrictAffinity");
});

const rejected = [
  {
    name: "neither StrictAffinity nor AutoAllocateBlocks",
    change: { autoAllocateBlocks: false },
    why: "AutoAllocateBlocks",
  },
  { name: "a limit without strict affinity", change: { maxBlocksPerHost: 3 }, why: "requires StrictAffinity" },
  { name: "a negative limit", change: { maxBlocksPerHost: -1 }, why: "negative" },
  { name: "a cooldown over 20 minutes", change: { ipCooldownSeconds: 1201 }, why: "0 to 1200" },
];
for (const { name, change, why } of rejected)
  test(`CI-071 rejected: ${name}`, async () => {
    const c = new TestCluster();
    await expect(c.ipam.configure(change)).rejects.toThrow(why);
    expect(c.store.snapshot()).toEqual([]);
  });
