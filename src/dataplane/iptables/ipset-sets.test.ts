import { expect, test } from "bun:test";
import { type IpsetChange, IpsetError, type IpsetStore, type IpsetType, NetlinkError } from "../../kernel/index.ts";
import { createLogger } from "../../lib/log/log.ts";
import { IpsetSets } from "./ipset-sets.ts";

interface Held {
  readonly type: IpsetType;
  readonly maxElements: number;
  readonly members: Set<string>;
}

/** What the kernel keeps, refusing what it refuses. */
class MemoryIpsets implements Pick<IpsetStore, "names" | "list" | "apply"> {
  sets = new Map<string, Held>();
  readonly used = new Set<string>();
  /** Members that no set can hold. */
  readonly impossible = new Set<string>();
  lists: string[] = [];
  changes = 0;
  names(): string[] {
    return [...this.sets.keys()];
  }
  list(name: string) {
    this.lists.push(name);
    const set = this.sets.get(name);
    return set === undefined ? undefined : ({ ...set, name, family: 4, members: [...set.members] } as never);
  }
  /** As the kernel: what follows a refused change is done nevertheless. */
  apply(changes: readonly IpsetChange[]): void {
    const rejected: IpsetChange[] = [];
    for (const change of changes)
      if (change.op === "add" && change.members.some((member) => this.impossible.has(member))) rejected.push(change);
      else this.#one(change);
    const [first, ...others] = rejected.map((change) => new IpsetError(change, "E4353", undefined));
    if (first !== undefined) throw new IpsetError(first.change, first.errno, undefined, others);
  }
  #one(change: IpsetChange): void {
    this.changes++;
    const held = (name: string) => {
      const set = this.sets.get(name);
      if (set === undefined) throw new NetlinkError(`${change.op} ${name}`, "ENOENT");
      return set;
    };
    if (change.op === "create") {
      const { name, type, maxElements } = change.set;
      this.sets.set(name, { type, maxElements: maxElements ?? 65536, members: new Set() });
    } else if (change.op === "destroy") {
      held(change.name);
      if (this.used.has(change.name)) throw new NetlinkError(`destroy ${change.name}`, "EBUSY");
      this.sets.delete(change.name);
    } else if (change.op === "swap") {
      const [a, b] = [held(change.name), held(change.with)];
      this.sets.set(change.name, b).set(change.with, a);
    } else if (change.op === "add") for (const member of change.members) held(change.name).members.add(member);
    else if (change.op === "delete") for (const member of change.members) held(change.name).members.delete(member);
  }
}

function open(store = new MemoryIpsets(), retryMs = 60_000) {
  const lines: string[] = [];
  const logger = createLogger({
    level: "info",
    write: ({ message, fields }) => lines.push(`${message} ${JSON.stringify(fields)}`),
  });
  const renamed: string[] = [];
  const rejectedIds = new Set<string>();
  const sets: IpsetSets = new IpsetSets({
    version: 4,
    store: store as unknown as IpsetStore,
    maxElements: 1000,
    logger,
    onRename: (id) => renamed.push(sets.kernelName(id)),
    onSetRejected: (id, isRejected) => (isRejected ? rejectedIds.add(id) : rejectedIds.delete(id)),
    retryMs,
    findUsers: async (name) => [`iptables-legacy -t filter -A INPUT -m set --match-set ${name} src -j DROP`],
  });
  const round = async () => {
    await sets.apply(new AbortController().signal);
    return sets.applyDeletions(new AbortController().signal);
  };
  return { store, sets, round, lines, renamed, rejectedIds };
}
const members = (store: MemoryIpsets, name: string) => [...(store.sets.get(name)?.members ?? ["absent"])].sort();

test("FD-093 the first read is a full one: sets are kept, corrected or replaced, surplus sets are deleted, other sets stay", async () => {
  const store = new MemoryIpsets();
  const set = (type: IpsetType, maxElements: number, ...of: string[]) => ({ type, maxElements, members: new Set(of) });
  store.sets = new Map([
    ["cali40s:same", set("hash:ip", 1000, "10.0.0.1")],
    ["cali40s:stale", set("hash:ip", 1000, "10.0.0.1", "10.0.0.9")],
    ["cali40s:small", set("hash:ip", 10, "10.0.0.1")],
    ["cali40s:old", set("hash:ip", 1000)],
    ["cali4t7", set("hash:ip", 1000)],
    ["felix-all-ipam-pools", set("hash:net", 1000)],
    ["cali60s:other-family", set("hash:ip", 1000)],
    ["docker", set("hash:ip", 1000, "10.9.9.9")],
  ]);
  const { sets, round } = open(store);
  for (const id of ["s:same", "s:stale", "s:small"]) sets.replace(id, "ip", ["10.0.0.1"]);
  await round();
  expect([...store.sets.keys()].sort()).toEqual([
    "cali40s:same",
    "cali40s:small",
    "cali40s:stale",
    "cali60s:other-family",
    "docker",
  ]);
  for (const id of ["same", "stale", "small"]) expect(members(store, `cali40s:${id}`)).toEqual(["10.0.0.1"]);
  expect(store.sets.get("cali40s:small")?.maxElements).toBe(1000);
  // Nothing to do is nothing done.
  const before = store.changes;
  await round();
  expect(store.changes).toBe(before);
});

test("FD-094 in later reads a missing set is restored at once, and members are compared within a time budget", async () => {
  const { store, sets, round } = open();
  sets.replace("s:a", "ip", ["10.0.0.1", "10.0.0.2"]);
  sets.replace("s:b", "ip", ["10.0.0.3"]);
  await round();
  store.sets.delete("cali40s:a");
  store.sets.get("cali40s:b")?.members.add("10.6.6.6");
  await round();
  expect(members(store, "cali40s:a")).toEqual(["absent"]); // not read yet
  store.lists = [];
  sets.queueResync();
  await round();
  expect(members(store, "cali40s:a")).toEqual(["10.0.0.1", "10.0.0.2"]);
  expect(members(store, "cali40s:b")).toEqual(["10.0.0.3"]);
  expect(store.lists).toEqual(["cali40s:b"]); // what was missing need not be read
});

test("FD-095 unused sets are deleted a few at a time; a set in use is tried again at growing intervals", async () => {
  const { store, sets, round, lines } = open();
  for (let i = 0; i < 25; i++) sets.replace(`s:${i}`, "ip", []);
  await round();
  store.used.add("cali40s:3");
  for (let i = 0; i < 25; i++) sets.remove(`s:${i}`);
  const rounds: [left: number, againInMs: number | undefined][] = [];
  const go = async () => {
    const { againInMs } = await round();
    rounds.push([store.sets.size, againInMs]);
  };
  for (let i = 0; i < 5; i++) await go();
  expect(rounds.splice(0)).toEqual([
    [16, 100],
    [6, 100],
    [1, 100],
    [1, 200],
    [1, 400],
  ]);
  expect(lines.filter((line) => line.includes("deleting an unused IP set failed"))).toHaveLength(1);
  store.used.clear();
  await go();
  expect(rounds).toEqual([[0, undefined]]);
});

test("if rules use a set of another type, the desired set has an alternate name until the other one can be deleted", async () => {
  const store = new MemoryIpsets();
  store.sets = new Map([["cali40s:one", { type: "hash:ip", maxElements: 1000, members: new Set(["10.9.9.9"]) }]]);
  store.used.add("cali40s:one");
  const { sets, round, lines, renamed } = open(store);
  sets.replace("s:one", "net", ["10.0.0.0/8"]);
  await round();
  expect(sets.kernelName("s:one")).toBe("cali4ts:one");
  expect(members(store, "cali4ts:one")).toEqual(["10.0.0.0/8"]);
  expect(renamed).toEqual(["cali4ts:one"]);
  expect(lines.join("\n")).toContain("rules use an IP set of another type");
  // Changes are written to the alternate set, and the rules that use the other set are logged once.
  sets.change("s:one", ["10.1.0.0/16", "11.0.0.0/8"], ["10.0.0.0/8"]);
  for (let i = 0; i < 6; i++) await round();
  expect(members(store, "cali4ts:one")).toEqual(["10.1.0.0/16", "11.0.0.0/8"]);
  const logged = lines.filter((line) => line.includes("rules of other programs use"));
  expect(logged).toHaveLength(1);
  expect(logged[0]).toContain("-A INPUT -m set --match-set cali40s:one");
  sets.queueResync();
  await round();
  expect(sets.kernelName("s:one")).toBe("cali4ts:one");
  // The rule is deleted: the set is created with its own name. The alternate set is deleted when no rule uses it.
  store.used.delete("cali40s:one");
  store.used.add("cali4ts:one");
  expect(await round()).toEqual({ againInMs: 0 });
  expect(renamed).toEqual(["cali4ts:one", "cali40s:one"]);
  await round();
  expect(members(store, "cali40s:one")).toEqual(["10.1.0.0/16", "11.0.0.0/8"]);
  store.used.clear();
  await round();
  expect([...store.sets.keys()]).toEqual(["cali40s:one"]);
  expect(store.sets.get("cali40s:one")?.type).toBe("hash:net");
});

test("a set with an alternate name that is no longer desired is deleted, and so is the set of another type", async () => {
  const store = new MemoryIpsets();
  store.sets = new Map([["cali40s:one", { type: "hash:ip", maxElements: 1000, members: new Set() }]]);
  store.used.add("cali40s:one");
  const { sets, round } = open(store);
  sets.replace("s:one", "net", ["10.0.0.0/8"]);
  await round();
  sets.remove("s:one");
  store.used.clear();
  await round();
  expect(store.sets.size).toBe(0);
});

test("the size of a set is increased if it has more members than configured, at once and as it grows", async () => {
  const { store, sets, round, lines } = open();
  const addresses = (count: number) => Array.from({ length: count }, (_, i) => `10.0.${i >> 8}.${i & 255}`);
  sets.replace("s:big", "ip", addresses(1500));
  sets.replace("s:growing", "ip", addresses(999));
  await round();
  expect(store.sets.get("cali40s:big")?.maxElements).toBe(2048);
  expect(store.sets.get("cali40s:growing")?.maxElements).toBe(1000);
  sets.change("s:growing", ["10.9.0.1"], []);
  await round();
  expect(store.sets.get("cali40s:growing")?.maxElements).toBe(1000);
  sets.change("s:growing", ["10.9.0.2", "10.9.0.3"], []);
  await round();
  expect(store.sets.get("cali40s:growing")?.maxElements).toBe(1024);
  expect(members(store, "cali40s:growing")).toHaveLength(1002);
  expect(lines.filter((line) => line.includes("more members than MaxIpsetSize")).length).toBeGreaterThan(1);
  await round();
  expect([...store.sets.keys()].sort()).toEqual(["cali40s:big", "cali40s:growing"]);
});

test("a set keeps its increased size when it has fewer members again; a set that another program recreated is replaced", async () => {
  const { store, sets, round, lines } = open();
  const nets = (count: number) => Array.from({ length: count }, (_, i) => `10.1.${i >> 8}.${i & 255}/32`);
  sets.replace("s:one", "net", nets(1100));
  await round();
  sets.change("s:one", [], nets(1100).slice(3));
  await round();
  const looks = async () => {
    const start = lines.length;
    for (let i = 0; i < 2; i++) {
      sets.queueResync();
      await round();
    }
    return lines.slice(start).filter((line) => line.includes("another program changed"));
  };
  const before = store.changes;
  expect(await looks()).toEqual([]);
  expect(store.changes).toBe(before);
  expect(store.sets.get("cali40s:one")?.maxElements).toBe(2048);
  store.sets.set("cali40s:one", { type: "hash:net", maxElements: 64, members: new Set(nets(3)) });
  expect(await looks()).toHaveLength(1);
  expect(store.sets.get("cali40s:one")?.maxElements).toBe(1000);
  expect(members(store, "cali40s:one")).toEqual(nets(3));
});

test("rejected sets are logged once and listed, and all other sets are written", async () => {
  const { store, sets, round, lines, rejectedIds } = open();
  for (const member of ["10.0.0.66", "10.0.0.67"]) store.impossible.add(member);
  sets.replace("s:good", "ip", ["10.0.0.1"]);
  sets.replace("s:bad", "ip", ["10.0.0.66"]);
  sets.replace("s:worse", "ip", ["10.0.0.67"]);
  sets.replace("s:last", "ip", ["10.0.0.2"]);
  await round();
  expect([...rejectedIds]).toEqual(["s:bad", "s:worse"]);
  expect(members(store, "cali40s:good")).toEqual(["10.0.0.1"]);
  expect(members(store, "cali40s:last")).toEqual(["10.0.0.2"]);
  expect(sets.rejected()).toMatchObject([
    { kind: "set", where: "ipset cali40s:bad", error: expect.stringContaining("add 10.0.0.66 to IP set cali40s:bad") },
    { kind: "set", where: "ipset cali40s:worse" },
  ]);
  const listed = sets.rejected();
  sets.change("s:good", ["10.0.0.3"], []);
  await round();
  expect(members(store, "cali40s:good")).toEqual(["10.0.0.1", "10.0.0.3"]);
  expect(sets.rejected()[0]).toBe(listed[0]!); // the same object, so a caller can detect that nothing changed
  expect(lines.filter((line) => line.includes("kernel rejected an IP set"))).toHaveLength(2);
  // A changed set is tried at once; a removed set is no longer listed.
  sets.change("s:bad", ["10.0.0.5"], ["10.0.0.66"]);
  await round();
  expect([...rejectedIds]).toEqual(["s:worse"]);
  expect(members(store, "cali40s:bad")).toEqual(["10.0.0.5"]);
  sets.remove("s:worse");
  await round();
  expect([...rejectedIds]).toEqual([]);
  expect(sets.rejected()).toEqual([]);
  expect(lines.join("\n")).toContain("kernel accepts all IP sets again");
  expect([...store.sets.keys()].sort()).toEqual(["cali40s:bad", "cali40s:good", "cali40s:last"]);
});

test("a rejected set is tried again alone, and a partly filled set is never swapped in", async () => {
  const { store, sets, round, rejectedIds } = open(undefined, 0);
  sets.replace("s:one", "ip", ["10.0.0.1", "10.0.0.2"]);
  await round();
  store.sets.set("cali40s:one", { type: "hash:ip", maxElements: 64, members: new Set(["10.0.0.1"]) });
  store.impossible.add("10.0.0.2");
  sets.queueResync();
  await round();
  expect([...rejectedIds]).toEqual(["s:one"]);
  expect(store.sets.get("cali40s:one")?.maxElements).toBe(64);
  expect(members(store, "cali40s:one")).toEqual(["10.0.0.1"]);
  store.impossible.clear();
  await round();
  expect([...rejectedIds]).toEqual([]);
  expect(members(store, "cali40s:one")).toEqual(["10.0.0.1", "10.0.0.2"]);
});
