// Transactions are whole or nothing, refusals name the change, dumps give back handles, comments and members.
import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import { hasErrno } from "../../../src/kernel/netlink-error.ts";
import * as m from "../../../src/kernel/nft-match.ts";
import { Nft, NftError } from "../../../src/kernel/nft.ts";
import type { NftChange } from "../../../src/kernel/nft-change.ts";
import { addressElement, interfaceNameBytes, prefixElements, serviceBytes } from "../../../src/kernel/nft-set.ts";
import { addressBytes, type Cidr, type IpAddress, parseCidr } from "../../../src/lib/ip.ts";
import { TestNamespace } from "./namespace.ts";

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
    { op: "deleteTableIfThere", table },
    { op: "addTable", table },
    { op: "addChain", table, chain: "c" },
  ]),
);

const refused = (changes: readonly NftChange[]): NftError => {
  try {
    nft.commit(changes);
  } catch (error) {
    if (error instanceof NftError) return error;
    throw error;
  }
  throw new Error("the kernel took it");
};

test("a refused transaction changes nothing and names the change", () => {
  const error = refused([
    { op: "addChain", table, chain: "d" },
    { op: "appendRule", table, chain: "c", rule: { expressions: [m.jump("missing")], comment: "bad" } },
    { op: "addChain", table, chain: "e" },
  ]);
  expect(error.errno).toBe("ENOENT");
  expect(error.change).toMatchObject({ op: "appendRule", chain: "c" });
  expect(error.message).toBe('add rule ip t c [verdict] "bad": ENOENT');
  expect(nft.chains(table).map((chain) => chain.name)).toEqual(["c"]);
});

test("what is only tried out is refused like a transaction, and changes nothing", () => {
  const generation = nft.generation();
  const changes: NftChange[] = [
    { op: "addChain", table, chain: "d" },
    { op: "appendRule", table, chain: "d", rule: rule("tried") },
  ];
  nft.tryOut(changes);
  expect(() => nft.tryOut([...changes, { op: "deleteChain", table, chain: "missing" }])).toThrow("missing: ENOENT");
  expect(nft.chains(table).map((chain) => chain.name)).toEqual(["c"]);
  expect(nft.generation()).toBe(generation);
});

test("a chain that is still referred to is not deleted", () => {
  nft.commit([
    { op: "addChain", table, chain: "d" },
    { op: "appendRule", table, chain: "c", rule: { expressions: [m.jump("d")] } },
  ]);
  expect(refused([{ op: "deleteChain", table, chain: "d" }]).message).toBe("delete chain ip t d: EBUSY");
});

test("a loop of jumps is refused", () => {
  const error = refused([
    { op: "addChain", table, chain: "d" },
    { op: "addChain", table, chain: "base", base: { type: "filter", hook: "input", priority: 0, policy: "accept" } },
    { op: "appendRule", table, chain: "base", rule: { expressions: [m.jump("c")] } },
    { op: "appendRule", table, chain: "c", rule: { expressions: [m.jump("d")] } },
    { op: "appendRule", table, chain: "d", rule: { expressions: [m.jump("c")] } },
  ]);
  expect(["ELOOP", "EMLINK"]).toContain(error.errno);
});

test("rules come back in order with handle, comment and the chains they lead to", () => {
  nft.commit([
    { op: "addChain", table, chain: "d" },
    { op: "appendRule", table, chain: "c", rule: rule("one") },
    { op: "appendRule", table, chain: "c", rule: { expressions: [m.counter, m.jump("d")], comment: "cali:two" } },
    { op: "insertRule", table, chain: "c", rule: { expressions: [m.accept] } },
  ]);
  const rules = nft.rules(table, { chain: "c", withTargets: true });
  expect(rules.map((r) => [r.comment, r.targets])).toEqual([
    [undefined, []],
    ["one", []],
    ["cali:two", ["d"]],
  ]);
  const [, one, two] = rules;
  nft.commit([
    { op: "deleteRule", table, chain: "c", handle: one!.handle },
    { op: "replaceRule", table, chain: "c", handle: two!.handle, rule: rule("new") },
    { op: "insertRule", table, chain: "c", before: two!.handle, rule: rule("before") },
  ]);
  expect(nft.rules(table).map((r) => r.comment)).toEqual([undefined, "before", "new"]);
  nft.commit([{ op: "flushChain", table, chain: "c" }]);
  expect(nft.rules(table)).toEqual([]);
});

test("a commit that insists on a generation is refused after someone else's change", () => {
  const generation = nft.generation();
  namespace.run("nft", ["add", "table", "ip", "foreign"]);
  expect(nft.generation()).not.toBe(generation);
  expect(() => nft.commit([{ op: "addChain", table, chain: "late" }], { generation })).toThrow(/ERESTART/);
  expect(nft.chains(table).map((chain) => chain.name)).toEqual(["c"]);
  nft.commit([{ op: "addChain", table, chain: "late" }], { generation: nft.generation() });
  expect(nft.chains(table)).toHaveLength(2);
  expect(nft.tables("ip").map((t) => t.name)).toContain("foreign");
});

test("members of every kind of set survive the round trip", () => {
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
    { op: "addSet", table, set: "short", type: { key: ["ipv4_addr"], timeoutMs: 3_600_000 } },
    {
      op: "addElements",
      table,
      set: "short",
      elements: [{ ...addressElement("192.0.2.1" as IpAddress), timeoutMs: 600_000 }],
    },
    { op: "addSet", table, set: "map", type: { key: ["ifname"], value: "verdict" } },
    {
      op: "addElements",
      table,
      set: "map",
      elements: [{ key: interfaceNameBytes("cali1"), value: { kind: "goto", chain: "c" } }],
    },
  ]);
  expect(nft.sets(table).map((set) => [set.name, set.keyLength])).toEqual([
    ["nets", 4],
    ["flows", 8],
    ["short", 4],
    ["map", 16],
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
  const [short] = nft.elements(table, "short");
  expect(short!.timeoutMs).toBe(600_000);
  expect(short!.expiresInMs).toBeGreaterThan(590_000);
  expect(nft.elements(table, "map")[0]!.value).toEqual({ kind: "goto", chain: "c" });
  nft.commit([{ op: "deleteElements", table, set: "nets", elements: ends }]);
  expect(nft.elements(table, "nets").filter((e) => e.isEnd !== true)).toEqual([]);
});

test("a hundred thousand members go in, come back and leave in one transaction each", () => {
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

test("overlapping prefixes of one set are refused by name", () => {
  const error = refused([
    { op: "addSet", table, set: "nets", type: { key: ["ipv4_addr"], interval: true } },
    { op: "addElements", table, set: "nets", elements: prefixElements(parseCidr("10.0.0.0/8")) },
    { op: "addElements", table, set: "nets", elements: prefixElements(parseCidr("10.1.0.0/16")) },
  ]);
  expect(hasErrno(error, "EEXIST", "ENOTEMPTY")).toBe(true);
  expect(error.request).toBe("add 2 elements to ip t nets");
});

test("a table is only its own chains, whatever other tables hold", () => {
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

test("base chains come back with hook, priority and policy", () => {
  const base = { type: "filter", hook: "forward", priority: -150, policy: "drop" } as const;
  nft.commit([{ op: "addChain", table, chain: "b", base }]);
  expect(nft.chains(table).find((chain) => chain.name === "b")?.base).toEqual(base);
});
