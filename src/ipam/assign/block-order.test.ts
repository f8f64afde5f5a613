import { expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { parseCidr } from "../../lib/ip/ip.ts";
import { BlockOrder } from "./block-order.ts";
import { fnv32, GoRandom } from "./go-random.ts";

const noSeed = () => 0;

test("GoRandom returns the well-known first numbers of seed 1", () => {
  const random = new GoRandom(1);
  const int63 = () => random.uint64() & ((1n << 63n) - 1n);
  expect([int63(), int63(), int63()]).toEqual([5577006791947779410n, 8674665223082153551n, 6129484611666145821n]);
});

test("fnv32 is FNV-1", () => {
  expect(fnv32("")).toBe(0x811c9dc5);
  expect(fnv32("a")).toBe(0x050c5d7e);
});

test("CI-051 the first block depends only on the host's name", () => {
  const pool = { cidr: parseCidr("10.65.0.0/16"), blockSize: 26 };
  const first = (host: string) => new BlockOrder(pool, host, noSeed).at(0n);
  expect<string>(first("n1")).toBe("10.65.40.128/26");
  expect<string>(first("node-b")).toBe("10.65.218.64/26");
  expect(first("n1")).toBe(first("n1"));
});

const recorded = join(import.meta.dir, "../../../../shared/golden/ipam/first-block/by-host.json");
test.skipIf(!existsSync(recorded))("CI-051 every recorded host starts at the recorded block", () => {
  const { pools } = JSON.parse(readFileSync(recorded, "utf8")) as {
    pools: { pool: string; blockSize: number; hosts: Record<string, { block: string }> }[];
  };
  let seen = 0;
  for (const { pool, blockSize, hosts } of pools)
    for (const [host, { block }] of Object.entries(hosts)) {
      expect<string>(new BlockOrder({ cidr: parseCidr(pool), blockSize }, host, noSeed).at(0n)).toBe(block);
      seen++;
    }
  expect(seen).toBeGreaterThan(50);
});

test("the order is ascending, wraps around, and contains each block once", () => {
  const order = new BlockOrder({ cidr: parseCidr("fd00::/116"), blockSize: 122 }, "worker-1", noSeed);
  const blocks = [...order];
  expect(new Set(blocks).size).toBe(64);
  const wrap = blocks.findIndex((block) => block === "fd00::/122");
  expect([...blocks.slice(wrap), ...blocks.slice(0, wrap)].slice(0, 3).map(String)).toEqual([
    "fd00::/122",
    "fd00::40/122",
    "fd00::80/122",
  ]);
});

test("positionOf is the inverse of at, in pools of any size", () =>
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 80 }), fc.string(), fc.bigInt(0n, 1n << 90n), (bits, host, n) => {
      const order = new BlockOrder({ cidr: parseCidr(`fd00::/${122 - bits}`), blockSize: 122 }, host, noSeed);
      const position = n % order.count;
      expect(order.positionOf(order.at(position))).toBe(position);
    }),
  ));
