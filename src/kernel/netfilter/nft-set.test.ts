import { expect, test } from "bun:test";
import type { Cidr } from "../../lib/ip/ip.ts";
import { portSet, prefix } from "./nft-match.ts";
import {
  concatenate,
  interfaceNameBytes,
  keyLength,
  keyTypeId,
  prefixElements,
  prefixRange,
  rangeElements,
} from "./nft-set.ts";

test("a prefix is the range from its first to its last address", () => {
  const { first, last } = prefixRange("10.64.0.0/10" as Cidr);
  expect([[...first], [...last]]).toEqual([
    [10, 64, 0, 0],
    [10, 127, 255, 255],
  ]);
});

test("a range has an end element with the key after it, except at the last address of the family", () => {
  expect(prefixElements("10.255.0.0/16" as Cidr).map((e) => [[...e.key], e.isEnd === true])).toEqual([
    [[10, 255, 0, 0], false],
    [[11, 0, 0, 0], true],
  ]);
  expect(prefixElements("255.0.0.0/8" as Cidr)).toHaveLength(1);
  expect(rangeElements(Uint8Array.of(0), Uint8Array.of(255))).toHaveLength(1);
});

test("a concatenation pads every field to four bytes", () => {
  expect([...concatenate(Uint8Array.of(1, 2, 3, 4), Uint8Array.of(6), Uint8Array.of(0, 80))]).toEqual([
    1, 2, 3, 4, 6, 0, 0, 0, 0, 80, 0, 0,
  ]);
  expect(keyLength(["ipv4_addr", "inet_proto", "inet_service"])).toBe(12);
  expect(keyLength(["inet_service"])).toBe(2);
  expect(keyTypeId(["ipv4_addr", "inet_proto", "inet_service"])).toBe(0x730d);
});

test("adjacent and overlapping ports are merged into one range", () => {
  const set = portSet([
    { first: 5, last: 9 },
    { first: 1, last: 1 },
    { first: 8, last: 20 },
    { first: 2, last: 2 },
  ]);
  expect(Array.from(set.elements, (e) => [...e.key])).toEqual([
    [0, 1],
    [0, 3],
    [0, 5],
    [0, 21],
  ]);
  expect(
    portSet([
      { first: 80, last: 80 },
      { first: 80, last: 80 },
    ]).elements,
  ).toHaveLength(1);
});

test("an interface name that is too long is rejected", () => {
  expect(interfaceNameBytes("cali0123456789a")).toHaveLength(16);
  expect(() => interfaceNameBytes("cali0123456789ab")).toThrow("longer than 15 bytes");
});

test("a prefix of whole bytes needs no mask", () => {
  expect(prefix("source", "10.0.0.0/8" as Cidr).map((e) => e.kind)).toEqual(["payload", "cmp"]);
  expect(prefix("source", "10.0.0.0/9" as Cidr).map((e) => e.kind)).toEqual(["payload", "bitwise", "cmp"]);
  expect(prefix("source", "0.0.0.0/0" as Cidr).map((e) => e.kind)).toEqual(["payload", "bitwise", "cmp"]);
});

test("many single ports are encoded as intervals, because the kernel's bitmap set is quadratic", () => {
  const single = (count: number) => portSet(Array.from({ length: count }, (_, i) => ({ first: 2 * i, last: 2 * i })));
  expect(single(100).type.interval).toBeUndefined();
  const many = single(30_000);
  expect(many.type.interval).toBe(true);
  expect(many.elements.length).toBe(60_000);
});
