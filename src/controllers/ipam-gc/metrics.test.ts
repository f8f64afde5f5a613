import { expect, test } from "bun:test";
import { eventually } from "../../lib/testing/eventually.ts";
import { CollectorBench, MINUTE, resource } from "../testing/collector-bench.ts";

const GRACE = 15 * MINUTE;
const rows = (bench: CollectorBench, name: string) =>
  bench.registry
    .render()
    .split("\n")
    .filter((line) => line.startsWith(`${name}{`))
    .map((line) => line.slice(name.length));

async function cluster(): Promise<CollectorBench> {
  const bench = await CollectorBench.create();
  await bench.node("n1");
  await bench.node("n2");
  const used = await bench.assign("n1", "used");
  bench.pod("used", "n1", used);
  await bench.assign("n1", "leaked");
  // n2 uses an address out of n1's block.
  const [block = ""] = await bench.blocksOf("n1");
  const borrowed = block.replace(/\d+\/28$/, (last) => String(Number.parseInt(last, 10) + 9));
  const attributes = { node: "n2", namespace: "ns1", pod: "guest" };
  await bench.ipam.assignAddress({ address: borrowed as never, host: "n2", handleId: "net.guest", attributes });
  bench.pod("guest", "n2", borrowed);
  return bench;
}

test("TC-K23 what each node holds, borrows and owns", async () => {
  await using bench = await cluster();
  bench.start(GRACE);
  await bench.pass();
  expect(rows(bench, "ipam_allocations_per_node").sort()).toEqual(['{node="n1"} 2', '{node="n2"} 1']);
  expect(rows(bench, "ipam_allocations_borrowed_per_node")).toEqual(['{node="n2"} 1']);
  expect(rows(bench, "ipam_blocks_per_node")).toEqual(['{node="n1"} 1']);
});

test("TC-K24 the same by pool, what is reserved, what is suspected and what was given back", async () => {
  await using bench = await cluster();
  await bench.client.create(
    resource("IPReservation", "r", { reservedCIDRs: ["10.65.255.0/30", "10.65.255.1/32", "10.1.0.0/16"] }),
  );
  bench.start(GRACE);
  await bench.pass();
  expect(rows(bench, "ipam_allocations_in_use").sort()).toEqual([
    '{ippool="p4",node="n1"} 2',
    '{ippool="p4",node="n2"} 1',
  ]);
  expect(rows(bench, "ipam_allocations_borrowed").sort()).toEqual([
    '{ippool="p4",node="n1"} 0',
    '{ippool="p4",node="n2"} 1',
  ]);
  expect(rows(bench, "ipam_blocks")).toEqual(['{ippool="p4",node="n1"} 1']);
  expect(rows(bench, "ipam_ippool_size")).toEqual(['{ippool="p4"} 65536']);
  expect(rows(bench, "ipam_ippool_reserved")).toEqual(['{ippool="p4"} 4']);
  expect(rows(bench, "ipam_allocations_gc_candidates")).toEqual(['{ippool="p4",node="n1"} 1']);
  expect(rows(bench, "ipam_allocations_gc_reclamations")).toEqual([]);
  await bench.pass(2 * GRACE);
  expect(rows(bench, "ipam_allocations_gc_reclamations")).toEqual(['{ippool="p4",node="n1"} 1']);
  const none = '{ippool="p4",node="n1"} 0'; // as soon as the block comes back through the feed
  await eventually(() => Bun.deepEquals(rows(bench, "ipam_allocations_gc_candidates"), [none]));
});

test("TC-K24 what lies outside every pool, belongs to no node, or to no block of anybody has its own labels", async () => {
  await using bench = await CollectorBench.create();
  await bench.node("n1");
  await bench.pool("old", "10.70.0.0/24");
  const owner = { type: "host", name: "n1" } as const;
  await bench.ipam.claimAffinity("10.70.0.0/28" as never, owner);
  await bench.ipam.assignAddress({
    address: "10.70.0.1" as never,
    host: "n1",
    handleId: "net.a",
    attributes: { namespace: "ns1", pod: "a" },
  });
  await bench.ipam.releaseHostAffinities(owner, { mustBeEmpty: false });
  await bench.store.delete({ type: "resource", kind: "IPPool", name: "old" });
  bench.start(undefined);
  await bench.pass();
  expect(rows(bench, "ipam_blocks")).toEqual(['{ippool="no_ippool",node="no_affinity"} 1']);
  expect(rows(bench, "ipam_allocations_in_use")).toEqual(['{ippool="no_ippool",node="unknown_node"} 1']);
});
