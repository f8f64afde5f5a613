// IP sets over netlink, compared with the output of ipset(8).
import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import { IpsetError, type IpsetType, Ipsets } from "../../../src/kernel/index.ts";
import { TestNamespace } from "./test-namespace.ts";

let namespace: TestNamespace;
let ipsets: Ipsets;
beforeAll(() => {
  namespace = new TestNamespace("ipset");
  ipsets = namespace.enter(() => new Ipsets());
});
afterAll(() => {
  ipsets[Symbol.dispose]();
  namespace[Symbol.dispose]();
});
beforeEach(() => {
  namespace.run("ipset", ["destroy"]);
});

const saved = (): string[] =>
  namespace
    .run("ipset", ["save"])
    .trim()
    .split("\n")
    .map((line) => line.replace(/ (hashsize|bucketsize|initval) \S+/g, "").trimEnd())
    .sort();

const cases: readonly { type: IpsetType; family: 4 | 6; members: string[]; lines: string[] }[] = [
  { type: "hash:ip", family: 4, members: ["10.0.0.1", "127.0.0.0"], lines: ["10.0.0.1", "127.0.0.0"] },
  { type: "hash:ip", family: 6, members: ["fd00::1"], lines: ["fd00::1"] },
  { type: "hash:net", family: 4, members: ["10.0.0.0/8", "192.0.2.1/32"], lines: ["10.0.0.0/8", "192.0.2.1"] },
  { type: "hash:net", family: 6, members: ["8000::/1", "fd00::1/128"], lines: ["8000::/1", "fd00::1"] },
  {
    type: "hash:ip,port",
    family: 4,
    members: ["10.0.0.1,tcp:80", "10.0.0.1,udp:53", "10.0.0.2,sctp:9"],
    lines: ["10.0.0.1,tcp:80", "10.0.0.1,udp:53", "10.0.0.2,sctp:9"],
  },
  { type: "hash:ip,port", family: 6, members: ["fd00::1,tcp:80"], lines: ["fd00::1,tcp:80"] },
  { type: "hash:net,port", family: 4, members: ["10.0.0.0/24,tcp:80"], lines: ["10.0.0.0/24,tcp:80"] },
];
for (const { type, family, members, lines } of cases)
  test(`${type} for IPv${family} is saved by the tool, and read back`, () => {
    ipsets.apply([
      { op: "create", set: { name: "cali40x", type, family, maxElements: 1048576 } },
      { op: "add", name: "cali40x", type, members },
      { op: "add", name: "cali40x", type, members: members.slice(0, 1) },
    ]);
    const inet = family === 4 ? "inet" : "inet6";
    expect(saved()).toEqual(
      [`create cali40x ${type} family ${inet} maxelem 1048576`, ...lines.map((line) => `add cali40x ${line}`)].sort(),
    );
    const listed = ipsets.list("cali40x");
    expect([...listed!.members].sort()).toEqual([...members].sort());
    expect(listed).toMatchObject({ type, family, maxElements: 1048576 });
    ipsets.apply([{ op: "delete", name: "cali40x", type, members: [...members, members[0]!] }]);
    expect(ipsets.list("cali40x")!.members).toEqual([]);
  });

test("a set is replaced by filling another one and swapping them", () => {
  const type = "hash:ip";
  const set = (name: string) => ({ op: "create", set: { name, type, family: 4, maxElements: 100 } }) as const;
  ipsets.apply([set("live"), { op: "add", name: "live", type, members: ["10.0.0.1"] }]);
  ipsets.apply([
    set("next"),
    { op: "add", name: "next", type, members: ["10.0.0.2"] },
    { op: "swap", name: "live", with: "next" },
    { op: "destroy", name: "next" },
  ]);
  expect(ipsets.list("live")!.members).toEqual(["10.0.0.2"]);
  expect(ipsets.names()).toEqual(["live"]);
  ipsets.apply([{ op: "flush", name: "live" }]);
  expect(ipsets.list("live")!.members).toEqual([]);
});

test("a set of another program with a timeout is listed with it", () => {
  namespace.run("ipset", ["create", "short", "hash:ip", "timeout", "600"]);
  namespace.run("ipset", ["add", "short", "10.0.0.1", "timeout", "30"]);
  expect(ipsets.list("short")).toMatchObject({ timeoutSeconds: 600, members: ["10.0.0.1"] });
});

const failure = (body: () => void): IpsetError => {
  try {
    body();
  } catch (error) {
    if (error instanceof IpsetError) return error;
    throw error;
  }
  throw new Error("the kernel accepted the change");
};

test("an error contains the rejected change and its reason", () => {
  ipsets.apply([{ op: "create", set: { name: "one", type: "hash:ip", family: 4, maxElements: 1 } }]);
  const type = "hash:ip";
  // The kernel counts by regions of its hash table, so the limit is not exact.
  const members = Array.from({ length: 5000 }, (_, i) => `10.0.${i >> 8}.${i & 255}`);
  expect(failure(() => ipsets.apply([{ op: "add", name: "one", type, members }])).message).toContain(
    "add 5000 members to IP set one: E4352 (the set is full",
  );
  expect(failure(() => ipsets.apply([{ op: "destroy", name: "none" }])).message).toBe("destroy IP set none: ENOENT");
  namespace.run("iptables-legacy", ["-A", "INPUT", "-m", "set", "--match-set", "one", "src", "-j", "ACCEPT"]);
  const busy = failure(() => ipsets.apply([{ op: "destroy", name: "one" }]));
  expect(busy.message).toBe("destroy IP set one: E4100 (the set is used by a rule)");
  namespace.run("iptables-legacy", ["-F"]);
});

test("a member with a wrong format is rejected before anything is sent to the kernel", () => {
  const set = { op: "create", set: { name: "s", type: "hash:ip,port", family: 4, maxElements: 9 } } as const;
  for (const member of ["10.0.0.1", "10.0.0.1,tcp", "10.0.0.1,tcp:70000", "10.0.0.1,what:1"])
    expect(() => ipsets.apply([set, { op: "add", name: "s", type: "hash:ip,port", members: [member] }])).toThrow(
      "is not a valid member of a hash:ip,port set",
    );
  expect(ipsets.names()).toEqual([]);
});

test("the list of a missing set is undefined", () => {
  expect(ipsets.list("none")).toBeUndefined();
});

test("a hundred thousand members are added and read back", () => {
  const members = Array.from({ length: 100_000 }, (_, i) => `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}/32`);
  ipsets.apply([
    { op: "create", set: { name: "many", type: "hash:net", family: 4, maxElements: 1048576 } },
    { op: "add", name: "many", type: "hash:net", members },
  ]);
  expect(new Set(ipsets.list("many")!.members)).toEqual(new Set(members));
});
