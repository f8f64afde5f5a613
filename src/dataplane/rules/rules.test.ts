import { expect, test } from "bun:test";
import { ChainGraph } from "./chain-graph.ts";
import { MemberDelta } from "./member-delta.ts";
import { allocateMarks, EndpointMarks, scatterBits } from "./marks.ts";
import { ChainNames, IPTABLES_CHAIN_LENGTH, limitName, policyGroupName, setName } from "./names.ts";
import { familyMembers } from "./set-members.ts";

const names = new ChainNames(IPTABLES_CHAIN_LENGTH);

test("FD-021 a short name is unchanged, a longer one ends in a hash", () => {
  expect(names.endpoint("toHost", "*")).toBe("cali-th-any-interface-at-all");
  expect(names.endpoint("toHostForward", "*")).toBe("cali-thfw-_Nqh4HyA73udmyanQI");
  const id = { kind: "NetworkPolicy", namespace: "default", name: "a-rather-long-policy-name" } as const;
  expect(names.policy("ingress", id)).toBe("cali-pi-_vR3nsvYK_tt9JxON6hx");
  expect(limitName("cali-pi-", "", 28)).toBe("cali-pi-_");
  // Exactly full and beginning like a hash: hashed, so that the two cannot be confused.
  expect(limitName("cali-pi-", `_${"x".repeat(19)}`, 28)).not.toContain("xxx");
});

test("FD-091 the name of a set is its id, truncated to the limit of ipset", () => {
  expect(setName(4, "s:5y5I3VdRZfDU01O--xXAPx2yxCQQqMf0M6IWug")).toBe("cali40s:5y5I3VdRZfDU01O--xXAPx2");
  expect(familyMembers("net", 4, ["0.0.0.0/0", "::/0", "10.0.0.0/8"])).toEqual(
    new Set(["0.0.0.0/1", "128.0.0.0/1", "10.0.0.0/8"]),
  );
});

test("FD-076 a group is named by selector, direction and members", () => {
  const gnp = (name: string) => ({ kind: "GlobalNetworkPolicy", namespace: "", name }) as const;
  expect(policyGroupName("ingress", "all()", [gnp("a"), gnp("b")])).toBe("cali-gi-js-B7zioflPRrAki3OCu");
});

test("FD-036 mark bits are allocated from the mask, lowest first, and too few are an error", () => {
  const marks = allocateMarks(0xffff0000, { withWireguard: false });
  expect(marks).toMatchObject({ accept: 0x10000, pass: 0x20000, drop: 0x40000, scratch0: 0x80000, scratch1: 0x100000 });
  expect(marks.endpoint).toBe(0xffe00000);
  expect(marks.all).toBe(0x1b0000);
  const withWireguard = allocateMarks(0xffff0000, { withWireguard: true });
  expect([withWireguard.wireguard, withWireguard.endpoint]).toEqual([0x200000, 0xffc00000]);
  expect(() => allocateMarks(0xf, { withWireguard: false })).toThrow("no bit left for scratch 1");
});

test("FD-037 every endpoint has its own mark, as long as there are enough bits", () => {
  const marks = allocateMarks(0xff000000, { withWireguard: false }); // three bits: six endpoints
  const endpoints = new EndpointMarks(marks);
  const given = ["a", "b", "c", "d", "e", "f"].map((name) => endpoints.get(name));
  expect(new Set(given).size).toBe(6);
  for (const mark of given) expect((mark ?? 0) & ~marks.endpoint).toBe(0);
  expect(given).not.toContain(marks.nonCalicoEndpoint);
  expect(endpoints.get("g")).toBeUndefined();
  expect(endpoints.get("a")).toBe(given[0]);
  endpoints.release("b");
  expect(endpoints.get("g")).toBe(given[1]);
  expect(scatterBits(0b101, 0xe0)).toBe(0xa0);
});

test("FD-022 only chains to which a hook leads, over any number of jumps, are needed", () => {
  const changed: string[] = [];
  const graph = new ChainGraph((name) => changed.push(name));
  graph.set("policy", new Set());
  graph.set("endpoint", new Set(["policy"]));
  graph.set("dispatch", new Set(["endpoint"]));
  expect(graph.isNeeded("policy")).toBe(false);
  graph.hold("dispatch");
  expect(["dispatch", "endpoint", "policy"].map((name) => graph.isNeeded(name))).toEqual([true, true, true]);
  graph.set("other", new Set(["policy"]));
  graph.hold("other");
  graph.set("dispatch", new Set());
  expect([graph.isNeeded("endpoint"), graph.isNeeded("policy")]).toEqual([false, true]);
  graph.release("other");
  expect(graph.isNeeded("policy")).toBe(false);
});

test("FD-023 a held chain is needed even if no chain leads to it, and FD-022 the order of calls does not matter", () => {
  const graph = new ChainGraph(() => {});
  graph.hold("forced");
  graph.set("forced", new Set(["below"]));
  graph.set("below", new Set());
  expect([graph.isNeeded("forced"), graph.isNeeded("below")]).toEqual([true, true]);
  graph.delete("forced");
  expect([graph.isNeeded("forced"), graph.isNeeded("below")]).toEqual([true, false]); // needed, but without content
});

test("FD-092 a member that is added and removed again causes no difference", () => {
  const delta = new MemberDelta();
  delta.replace(new Set(["a", "b"]));
  delta.written();
  delta.add("c");
  delta.delete("c");
  delta.delete("a");
  delta.add("a");
  expect(delta.isEmpty).toBe(true);
  delta.found(new Set(["b", "x"]));
  expect([[...delta.missing], [...delta.surplus]]).toEqual([["a"], ["x"]]);
});
