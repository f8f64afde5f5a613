import { expect, test } from "bun:test";
import { CollectorBench } from "../testing/collector-bench.ts";
import { Ledger } from "./ledger.ts";

async function oneBlock(bench: CollectorBench) {
  const [item] = (await bench.store.list({ type: "block" })).items;
  if (item === undefined) throw new Error("no block");
  return { cidr: item.key.cidr, block: item.value };
}

test("TC-K19 an address that was given again starts without suspicion", async () => {
  await using bench = await CollectorBench.create();
  await bench.node("n1");
  const address = await bench.assign("n1", "a");
  const ledger = new Ledger();
  const first = await oneBlock(bench);
  expect([...ledger.setBlock(first.cidr, first.block)]).toEqual(["n1"]);
  const [before] = ledger.withHandle("net.a");
  if (before === undefined) throw new Error("not tracked");
  before.suspectedAtMs = 1;
  before.isLeak = true;
  // The same block again is the same allocation.
  expect([...ledger.setBlock(first.cidr, first.block)]).toEqual([]);
  expect([...ledger.withHandle("net.a")][0]).toBe(before);
  // Released and given to the same handle: the number tells.
  await bench.ipam.release([{ address }]);
  await bench.ipam.assignAddress({
    address,
    host: "n1",
    handleId: "net.a",
    attributes: { node: "n1", namespace: "ns1", pod: "a" },
  });
  const second = await oneBlock(bench);
  ledger.setBlock(second.cidr, second.block);
  const [after] = ledger.withHandle("net.a");
  expect(after).not.toBe(before);
  expect(after).toMatchObject({ suspectedAtMs: undefined, isLeak: false });
  expect(after?.sequenceNumber).toBeGreaterThan(before.sequenceNumber ?? 0n);
});

test("TC-K19 a release by the number that was seen does not touch a newer allocation", async () => {
  await using bench = await CollectorBench.create();
  await bench.node("n1");
  const address = await bench.assign("n1", "a");
  const ledger = new Ledger();
  const { cidr, block } = await oneBlock(bench);
  ledger.setBlock(cidr, block);
  const [seen] = ledger.withHandle("net.a");
  await bench.ipam.release([{ address }]);
  await bench.ipam.assignAddress({ address, host: "n1", handleId: "net.a", attributes: {} });
  const { released, error } = await bench.ipam.release([
    { address, handleId: "net.a", sequenceNumber: seen?.sequenceNumber ?? 0n },
  ]);
  expect(released).toEqual([]);
  expect(error).toBeInstanceOf(Error);
  expect(await bench.held()).toEqual([address]);
});

test("TC-K19 hundreds of leaks go in one pass, block by block", async () => {
  await using bench = await CollectorBench.create();
  await bench.node("n1");
  for (let i = 0; i < 18; i++)
    await bench.ipam.autoAssign({
      version: 4,
      count: 16,
      host: "n1",
      use: "Workload",
      handleId: `net.${i}`,
      attributes: { node: "n1", namespace: "ns1", pod: `p${i}` },
    });
  expect(await bench.held()).toHaveLength(288);
  bench.start(1000);
  await bench.pass();
  await bench.pass(2000);
  expect(await bench.held()).toEqual([]);
  expect((await bench.store.list({ type: "ipamHandle" })).items).toEqual([]);
  expect(await bench.ipam.inconsistencies()).toEqual([]);
});

test("addresses of services are not looked at here", async () => {
  await using bench = await CollectorBench.create();
  await bench.client.create({
    apiVersion: "projectcalico.org/v3",
    kind: "IPPool",
    metadata: { name: "lb" },
    spec: { cidr: "10.66.0.0/24", blockSize: 28, allowedUses: ["LoadBalancer"], assignmentMode: "Automatic" },
  } as never);
  await bench.ipam.autoAssign({
    version: 4,
    count: 1,
    host: "load-balancer",
    use: "LoadBalancer",
    handleId: "lb-x",
    attributes: { service: "web", namespace: "ns1", type: "LoadBalancer" },
  });
  const ledger = new Ledger();
  const { cidr, block } = await oneBlock(bench);
  ledger.setBlock(cidr, block);
  expect([...ledger.withHandle("lb-x")]).toEqual([]);
  expect(ledger.nodes().size).toBe(0);
});
