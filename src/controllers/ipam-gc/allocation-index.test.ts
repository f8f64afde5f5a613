import { expect, test } from "bun:test";
import { CollectorFixture } from "../testing/collector-fixture.ts";
import { AllocationIndex } from "./allocation-index.ts";

async function oneBlock(fixture: CollectorFixture) {
  const [item] = (await fixture.store.list({ type: "block" })).items;
  if (item === undefined) throw new Error("no block");
  return { cidr: item.key.cidr, block: item.value };
}

test("TC-K19 an address that was assigned again is not a suspect", async () => {
  await using fixture = await CollectorFixture.create();
  await fixture.node("n1");
  const address = await fixture.assign("n1", "a");
  const index = new AllocationIndex();
  const first = await oneBlock(fixture);
  expect([...index.setBlock(first.cidr, first.block)]).toEqual(["n1"]);
  const [before] = index.withHandle("net.a");
  if (before === undefined) throw new Error("not tracked");
  before.suspectedAtMs = 1;
  before.isLeak = true;
  // The same block again is the same allocation.
  expect([...index.setBlock(first.cidr, first.block)]).toEqual([]);
  expect([...index.withHandle("net.a")][0]).toBe(before);
  // Released and assigned to the same handle again: the sequence number differs.
  await fixture.ipam.release([{ address }]);
  await fixture.ipam.assignAddress({
    address,
    host: "n1",
    handleId: "net.a",
    attributes: { node: "n1", namespace: "ns1", pod: "a" },
  });
  const second = await oneBlock(fixture);
  index.setBlock(second.cidr, second.block);
  const [after] = index.withHandle("net.a");
  expect(after).not.toBe(before);
  expect(after).toMatchObject({ suspectedAtMs: undefined, isLeak: false });
  expect(after?.sequenceNumber).toBeGreaterThan(before.sequenceNumber ?? 0n);
});

test("TC-K19 a release with an old sequence number does not change a newer allocation", async () => {
  await using fixture = await CollectorFixture.create();
  await fixture.node("n1");
  const address = await fixture.assign("n1", "a");
  const index = new AllocationIndex();
  const { cidr, block } = await oneBlock(fixture);
  index.setBlock(cidr, block);
  const [seen] = index.withHandle("net.a");
  await fixture.ipam.release([{ address }]);
  await fixture.ipam.assignAddress({ address, host: "n1", handleId: "net.a", attributes: {} });
  const { released, error } = await fixture.ipam.release([
    { address, handleId: "net.a", sequenceNumber: seen?.sequenceNumber ?? 0n },
  ]);
  expect(released).toEqual([]);
  expect(error).toBeInstanceOf(Error);
  expect(await fixture.allocated()).toEqual([address]);
});

test("TC-K19 hundreds of leaks are released in one scan", async () => {
  await using fixture = await CollectorFixture.create();
  await fixture.node("n1");
  for (let i = 0; i < 18; i++)
    await fixture.ipam.autoAssign({
      version: 4,
      count: 16,
      host: "n1",
      use: "Workload",
      handleId: `net.${i}`,
      attributes: { node: "n1", namespace: "ns1", pod: `p${i}` },
    });
  expect(await fixture.allocated()).toHaveLength(288);
  fixture.start(1000);
  await fixture.scan();
  await fixture.scan(2000);
  expect(await fixture.allocated()).toEqual([]);
  expect((await fixture.store.list({ type: "ipamHandle" })).items).toEqual([]);
  expect(await fixture.ipam.inconsistencies()).toEqual([]);
});

test("addresses of services are ignored", async () => {
  await using fixture = await CollectorFixture.create();
  await fixture.client.create({
    apiVersion: "projectcalico.org/v3",
    kind: "IPPool",
    metadata: { name: "lb" },
    spec: { cidr: "10.66.0.0/24", blockSize: 28, allowedUses: ["LoadBalancer"], assignmentMode: "Automatic" },
  } as never);
  await fixture.ipam.autoAssign({
    version: 4,
    count: 1,
    host: "load-balancer",
    use: "LoadBalancer",
    handleId: "lb-x",
    attributes: { service: "web", namespace: "ns1", type: "LoadBalancer" },
  });
  const index = new AllocationIndex();
  const { cidr, block } = await oneBlock(fixture);
  index.setBlock(cidr, block);
  expect([...index.withHandle("lb-x")]).toEqual([]);
  expect(index.nodes().size).toBe(0);
});
