// Transactions are atomic, errors identify the rejected change, and dumps contain handles, comments and members.
import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import { hasErrno } from "../../../src/kernel/sys/kernel-error.ts";
import * as m from "../../../src/kernel/netfilter/nft-match.ts";
import { Nft, NftError } from "../../../src/kernel/netfilter/nft.ts";
import type { NftChange } from "../../../src/kernel/netfilter/nft-change.ts";
import {
  addressElement,
  interfaceNameBytes,
  keyTypeId,
  prefixElements,
  serviceBytes,
} from "../../../src/kernel/netfilter/nft-set.ts";
import { addressBytes, type Cidr, type IpAddress, parseCidr } from "../../../src/lib/ip/ip.ts";
import { TestNamespace } from "./test-namespace.ts";

const table = { family: "ip", name: "t" } as const;
const rule = (comment: string) => ({ expressions: [m.counter], comment });

let namespace: TestNamespace;
let nft: Nft;
beforeAll(() => {
  namespace = new TestNamespace("nfttx");
  nft = namespace.enter(() => new Nft());
});
afterAll(() => {
  nft[Symbol.dispose]();
  namespace[Symbol.dispose]();
});
beforeEach(() =>
  nft.commit([
    { op: "destroyTable", table },
    { op: "addTable", table },
    { op: "addChain", table, chain: "c" },
  ]),
);

const rejectionOf = (changes: readonly NftChange[]): NftError => {
  try {
    nft.commit(changes);
  } catch (error) {
    if (error instanceof NftError) return error;
    throw error;
  }
  throw new Error("the kernel accepted the transaction");
};

test("a rejected transaction changes nothing, and the error identifies the change", () => {
  const error = rejectionOf([
    { op: "addChain", table, chain: "d" },
    { op: "appendRule", table, chain: "c", rule: { expressions: [m.jump("missing")], comment: "bad" } },
    { op: "addChain", table, chain: "e" },
  ]);
  expect(error.errno).toBe("ENOENT");
  expect(error.change).toMatchObject({ op: "appendRule", chain: "c" });
  expect(error.message).toBe('add rule ip t c [verdict] "bad": ENOENT');
  expect(nft.chains(table).map((chain) => chain.name)).toEqual(["c"]);
});

test("a dry run is rejected like a commit, and changes nothing", () => {
  const generation = nft.generation();
  const changes: NftChange[] = [
    { op: "addChain", table, chain: "d" },
    { op: "appendRule", table, chain: "d", rule: rule("tried") },
  ];
  nft.dryRun(changes);
  expect(() => nft.dryRun([...changes, { op: "deleteChain", table, chain: "missing" }])).toThrow("missing: ENOENT");
  expect(nft.chains(table).map((chain) => chain.name)).toEqual(["c"]);
  expect(nft.generation()).toBe(generation);
});

test("a chain that a rule refers to cannot be deleted", () => {
  nft.commit([
    { op: "addChain", table, chain: "d" },
    { op: "appendRule", table, chain: "c", rule: { expressions: [m.jump("d")] } },
  ]);
  expect(rejectionOf([{ op: "deleteChain", table, chain: "d" }]).message).toBe("delete chain ip t d: EBUSY");
});

test("a loop of jumps is rejected", () => {
  const error = rejectionOf([
    { op: "addChain", table, chain: "d" },
    { op: "addChain", table, chain: "base", base: { type: "filter", hook: "input", priority: 0, policy: "accept" } },
    { op: "appendRule", table, chain: "base", rule: { expressions: [m.jump("c")] } },
    { op: "appendRule", table, chain: "c", rule: { expressions: [m.jump("d")] } },
    { op: "appendRule", table, chain: "d", rule: { expressions: [m.jump("c")] } },
  ]);
  expect(["ELOOP", "EMLINK"]).toContain(error.errno);
});

test("rules are listed in order with handle, comment and jump targets", () => {
  nft.commit([
    { op: "addChain", table, chain: "d" },
    { op: "appendRule", table, chain: "c", rule: rule("one") },
    { op: "appendRule", table, chain: "c", rule: { expressions: [m.counter, m.jump("d")], comment: "cali:two" } },
    { op: "appendRule", table, chain: "c", rule: { expressions: [m.accept] } },
  ]);
  const rules = nft.rules(table, { chain: "c", withTargets: true });
  expect(rules.map((r) => [r.comment, r.targets])).toEqual([
    ["one", []],
    ["cali:two", ["d"]],
    [undefined, []],
  ]);
  const [one] = rules;
  nft.commit([{ op: "deleteRule", table, chain: "c", handle: one!.handle }]);
  expect(nft.rules(table).map((r) => r.comment)).toEqual(["cali:two", undefined]);
  nft.commit([{ op: "flushChain", table, chain: "c" }]);
  expect(nft.rules(table)).toEqual([]);
});

test("a commit for an outdated generation is rejected", () => {
  const generation = nft.generation();
  namespace.run("nft", ["add", "table", "ip", "foreign"]);
  expect(nft.generation()).not.toBe(generation);
  expect(() => nft.commit([{ op: "addChain", table, chain: "late" }], { generation })).toThrow(/ERESTART/);
  expect(nft.chains(table).map((chain) => chain.name)).toEqual(["c"]);
  nft.commit([{ op: "addChain", table, chain: "late" }], { generation: nft.generation() });
  expect(nft.chains(table)).toHaveLength(2);
  expect(nft.tables("ip").map((t) => t.name)).toContain("foreign");
});

test("elements of every kind of set are read back", () => {
  const ends = prefixElements("10.0.0.0/8" as Cidr);
  nft.commit([
    { op: "addSet", table, set: "nets", type: { key: ["ipv4_addr"], interval: true } },
    { op: "addElements", table, set: "nets", elements: ends },
    { op: "addSet", table, set: "flows", type: { key: ["ipv4_addr", "inet_service"], interval: true } },
    {
      op: "addElements",
      table,
      set: "flows",
      elements: [
        {
          key: Uint8Array.of(10, 0, 0, 0, ...serviceBytes(80), 0, 0),
          lastKey: Uint8Array.of(10, 0, 0, 255, ...serviceBytes(90), 0, 0),
        },
      ],
    },
    { op: "addSet", table, set: "single", type: { key: ["ipv4_addr"] } },
    { op: "addElements", table, set: "single", elements: [addressElement("192.0.2.1" as IpAddress)] },
    { op: "addSet", table, set: "map", type: { key: ["ifname"], value: "verdict" } },
    {
      op: "addElements",
      table,
      set: "map",
      elements: [{ key: interfaceNameBytes("cali1"), value: { kind: "goto", chain: "c" } }],
    },
  ]);
  expect(nft.sets(table).map((set) => [set.name, set.keyType])).toEqual([
    ["nets", keyTypeId(["ipv4_addr"])],
    ["flows", keyTypeId(["ipv4_addr", "inet_service"])],
    ["single", keyTypeId(["ipv4_addr"])],
    ["map", keyTypeId(["ifname"])],
  ]);
  const nets = nft.elements(table, "nets").filter((e) => !(e.isEnd === true && e.key.every((b) => b === 0)));
  expect(nets.map((e) => [[...e.key], e.isEnd === true]).sort()).toEqual(
    ends.map((e) => [[...e.key], e.isEnd === true]).sort(),
  );
  const [flow] = nft.elements(table, "flows");
  expect([[...flow!.key], [...flow!.lastKey!]]).toEqual([
    [10, 0, 0, 0, 0, 80, 0, 0],
    [10, 0, 0, 255, 0, 90, 0, 0],
  ]);
  expect(nft.elements(table, "single").map(({ key }) => [...key])).toEqual([[192, 0, 2, 1]]);
  expect(nft.elements(table, "map")[0]!.value).toEqual({ kind: "goto", chain: "c" });
  nft.commit([{ op: "deleteElements", table, set: "nets", elements: ends }]);
  expect(nft.elements(table, "nets").filter((e) => e.isEnd !== true)).toEqual([]);
});

test("a hundred thousand elements are added and deleted in one transaction each", () => {
  const elements = Array.from({ length: 100_000 }, (_, i) => ({
    key: addressBytes(`10.${(i >> 16) & 255}.${(i >> 8) & 255}.${i & 255}` as IpAddress),
  }));
  nft.commit([
    { op: "addSet", table, set: "many", type: { key: ["ipv4_addr"] } },
    { op: "addElements", table, set: "many", elements },
  ]);
  expect(nft.elements(table, "many")).toHaveLength(100_000);
  nft.commit([{ op: "deleteElements", table, set: "many", elements: elements.slice(1) }]);
  expect(nft.elements(table, "many")).toHaveLength(1);
});

test("overlapping prefixes of one set are rejected, and the error contains the set", () => {
  const error = rejectionOf([
    { op: "addSet", table, set: "nets", type: { key: ["ipv4_addr"], interval: true } },
    { op: "addElements", table, set: "nets", elements: prefixElements(parseCidr("10.0.0.0/8")) },
    { op: "addElements", table, set: "nets", elements: prefixElements(parseCidr("10.1.0.0/16")) },
  ]);
  expect(hasErrno(error, "EEXIST", "ENOTEMPTY")).toBe(true);
  expect(error.request).toBe("add 2 elements to ip t nets");
});

test("the chains and rules of a table do not include those of other tables", () => {
  const other = { family: "ip", name: "other" } as const;
  nft.commit([
    { op: "addTable", table: other },
    { op: "addChain", table: other, chain: "x" },
    { op: "appendRule", table: other, chain: "x", rule: rule("theirs") },
  ]);
  expect(nft.chains(table).map((chain) => chain.name)).toEqual(["c"]);
  expect(nft.rules(table)).toEqual([]);
  nft.commit([{ op: "deleteTable", table: other }]);
  expect(nft.tables().some((t) => t.name === "other")).toBe(false);
});

test("base chains are listed with hook, priority and policy", () => {
  const base = { type: "filter", hook: "forward", priority: -150, policy: "drop" } as const;
  nft.commit([{ op: "addChain", table, chain: "b", base }]);
  expect(nft.chains(table).find((chain) => chain.name === "b")?.base).toEqual(base);
});
