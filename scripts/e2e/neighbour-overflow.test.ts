import { expect, test } from "bun:test";
import { NeighbourOverflowMonitor, parseNeighbourCounters } from "./neighbour-overflow.ts";

const FILE = `entries  allocs   res_failed forced_gc_runs unresolved_discards table_fulls
00000006 0000c191 000007c4   000113ce       00000040            0000000a
00000006 0000e636 00000001   00000001       00000001            00000010
`;

test("counters of all CPUs are summed", () => {
  expect(parseNeighbourCounters(FILE)).toEqual({
    table_fulls: 26,
    forced_gc_runs: 0x113cf,
    unresolved_discards: 0x41,
    res_failed: 0x7c5,
  });
});

test("a lost packet is compared with the times at which the table was full", () => {
  let fulls = 3;
  const watch = new NeighbourOverflowMonitor(() => [
    { table_fulls: fulls, forced_gc_runs: 0, unresolved_discards: 0, res_failed: 0 },
  ]);
  watch.sample(1000);
  fulls += 7;
  watch.sample(1020);
  watch.sample(5000);
  expect(watch.overflows).toEqual([{ afterMs: 1000, atMs: 1020, count: 7 }]);
  expect(watch.wasFull(900, 200)).toBe(true);
  expect(watch.wasFull(1010, 200)).toBe(true);
  expect(watch.wasFull(500, 200)).toBe(false);
  expect(watch.wasFull(1100, 200)).toBe(false);
  expect(watch.describe()).toContain("table_fulls +7");
});
