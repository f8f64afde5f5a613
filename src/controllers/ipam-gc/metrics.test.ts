import { expect, test } from "bun:test";
import { eventually } from "../../lib/testing/eventually.ts";
import { CollectorFixture, MINUTE, resource } from "../testing/collector-fixture.ts";

const GRACE = 15 * MINUTE;
const rows = (fixture: CollectorFixture, name: string) =>
  fixture.registry
    .render()
    .split("\n")
    .filter((line) => line.startsWith(`${name}{`))
    .map((line) => line.slice(name.length));

async function cluster(): Promise<CollectorFixture> {
  const fixture = await CollectorFixture.create();
  await fixture.node("n1");
  await fixture.node("n2");
  const used = await fixture.assign("n1", "used");
  fixture.pod("used", "n1", used);
  await fixture.assign("n1", "leaked");
  // n2 uses an address from a block of n1.
  const [block = ""] = await fixture.blocksOf("n1");
  const borrowed = block.replace(/\d+\/28$/, (last) => String(Number.parseInt(last, 10) + 9));
  const attributes = { node: "n2", namespace: "ns1", pod: "guest" };
  await fixture.ipam.assignAddress({ address: borrowed as never, host: "n2", handleId: "net.guest", attributes });
  fixture.pod("guest", "n2", borrowed);
  return fixture;
}

test("TC-K23 reports addresses, borrowed addresses and blocks of each node", async () => {
  await using fixture = await cluster();
  fixture.start(GRACE);
  await fixture.scan();
  expect(rows(fixture, "ipam_allocations_per_node").sort()).toEqual(['{node="n1"} 2', '{node="n2"} 1']);
  expect(rows(fixture, "ipam_allocations_borrowed_per_node")).toEqual(['{node="n2"} 1']);
  expect(rows(fixture, "ipam_blocks_per_node")).toEqual(['{node="n1"} 1']);
});

test("TC-K24 reports the same by pool, and reserved, suspect and released addresses", async () => {
  await using fixture = await cluster();
  await fixture.client.create(
    resource("IPReservation", "r", { reservedCIDRs: ["10.65.255.0/30", "10.65.255.1/32", "10.1.0.0/16"] }),
  );
  fixture.start(GRACE);
  await fixture.scan();
  expect(rows(fixture, "ipam_allocations_in_use").sort()).toEqual([
    '{ippool="p4",node="n1"} 2',
    '{ippool="p4",node="n2"} 1',
  ]);
  expect(rows(fixture, "ipam_allocations_borrowed").sort()).toEqual([
    '{ippool="p4",node="n1"} 0',
    '{ippool="p4",node="n2"} 1',
  ]);
  expect(rows(fixture, "ipam_blocks")).toEqual(['{ippool="p4",node="n1"} 1']);
  expect(rows(fixture, "ipam_ippool_size")).toEqual(['{ippool="p4"} 65536']);
  expect(rows(fixture, "ipam_ippool_reserved")).toEqual(['{ippool="p4"} 4']);
  expect(rows(fixture, "ipam_allocations_gc_candidates")).toEqual(['{ippool="p4",node="n1"} 1']);
  expect(rows(fixture, "ipam_allocations_gc_reclamations")).toEqual([]);
  await fixture.scan(2 * GRACE);
  expect(rows(fixture, "ipam_allocations_gc_reclamations")).toEqual(['{ippool="p4",node="n1"} 1']);
  const none = '{ippool="p4",node="n1"} 0'; // when the cache has received the block
  await eventually(() => Bun.deepEquals(rows(fixture, "ipam_allocations_gc_candidates"), [none]));
});

test("TC-K24 addresses without a pool, a node or a block affinity have their own labels", async () => {
  await using fixture = await CollectorFixture.create();
  await fixture.node("n1");
  await fixture.pool("old", "10.70.0.0/24");
  const owner = { type: "host", name: "n1" } as const;
  await fixture.ipam.claimAffinity("10.70.0.0/28" as never, owner);
  await fixture.ipam.assignAddress({
    address: "10.70.0.1" as never,
    host: "n1",
    handleId: "net.a",
    attributes: { namespace: "ns1", pod: "a" },
  });
  await fixture.ipam.releaseHostAffinities(owner, { mustBeEmpty: false });
  await fixture.store.delete({ type: "resource", kind: "IPPool", name: "old" });
  fixture.start(undefined);
  await fixture.scan();
  expect(rows(fixture, "ipam_blocks")).toEqual(['{ippool="no_ippool",node="no_affinity"} 1']);
  expect(rows(fixture, "ipam_allocations_in_use")).toEqual(['{ippool="no_ippool",node="unknown_node"} 1']);
});
