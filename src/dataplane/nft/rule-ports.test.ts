import { expect, test } from "bun:test";
import type { RuleChain } from "../rules/rule.ts";
import { isSlotted, RulePorts, SlotNumbers, extractPorts } from "./rule-ports.ts";

const table = { family: "ip", name: "calico" } as const;
const policy = (...ranges: readonly { first: number; last: number }[]): RuleChain => ({
  kind: "rules",
  name: "cali-pi-one",
  rules: [
    {
      match: [{ kind: "ports", side: "destination", protocol: "tcp", ranges }],
      action: { kind: "decide", decision: "allow" },
    },
  ],
});
const one = (port: number) => ({ first: port, last: port });
const counts = (ports: RulePorts) =>
  (ports.changes().create ?? []).map(
    (change) => `${change.op}${"elements" in change ? ` ${change.elements.length}` : ""}`,
  );

test("the ports of a policy are moved to a set, and a change of ports does not change its rules", () => {
  const slots = new SlotNumbers();
  const before = extractPorts("filter-one", policy(one(80), { first: 90, last: 92 }), slots);
  const after = extractPorts("filter-one", policy(one(81)), slots);
  expect(before.chain).toEqual(after.chain);
  expect([...before.ports.values()]).toEqual([[80, 90, 91, 92]]);
  expect([...after.ports.values()]).toEqual([[81]]);
});

test("large ranges, and rules that are not from policies, keep their ports", () => {
  const slots = new SlotNumbers();
  const large = policy({ first: 1, last: 1024 });
  expect(extractPorts("filter-one", large, slots)).toEqual({ chain: large, ports: new Map() });
  const other: RuleChain = { ...policy(one(80)), rules: [{ ...policy(one(80)).rules[0], action: { kind: "accept" } }] };
  expect(extractPorts("filter-one", other, slots).chain.kind === "rules").toBe(true);
  expect(extractPorts("filter-one", other, slots).ports.size).toBe(0);
});

test("two rules never share a slot, even if their hashes are equal", () => {
  const slots = new SlotNumbers();
  const taken = new Set<number>();
  for (let i = 0; i < 100; i++) taken.add(slots.take("same chain", "same place"));
  expect(taken.size).toBe(100);
  slots.release("same chain");
  expect(taken.has(slots.take("same chain", "same place"))).toBe(true);
});

test("only the difference is written, and surplus elements are deleted", () => {
  const ports = new RulePorts(table);
  ports.setChain("a", new Map([[1, [80, 81]]]));
  ports.found(undefined);
  expect(counts(ports)).toEqual(["addSet", "addElements 2"]);
  ports.committed();
  expect(ports.hasChanges).toBe(false);
  ports.setChain("a", new Map([[1, [81, 82]]]));
  expect(counts(ports)).toEqual(["deleteElements 1", "addElements 1"]);
  ports.committed();
  const key = (slot: number, port: number) => ({ key: Uint8Array.of(slot, 0, 0, 0, port >> 8, port & 255, 0, 0) });
  ports.found([key(1, 81), key(1, 82), key(9, 443)]);
  expect(counts(ports)).toEqual(["deleteElements 1"]);
});

test("a slot that another chain took over is not removed with its first chain", () => {
  const ports = new RulePorts(table);
  ports.setChain("old", new Map([[1, [80]]]));
  ports.found(undefined);
  ports.committed();
  ports.setChain("new", new Map([[1, [443]]]));
  ports.setChain("old", undefined);
  expect(counts(ports)).toEqual(["deleteElements 1", "addElements 1"]);
});

test("isSlotted recognizes a match whose ports were moved to the set", () => {
  const { chain } = extractPorts("filter-one", policy(one(80)), new SlotNumbers());
  const match = chain.kind === "rules" ? chain.rules[0]?.match?.[0] : undefined;
  expect(match !== undefined && isSlotted(match)).toBe(true);
});
