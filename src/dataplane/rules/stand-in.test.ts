import { expect, test } from "bun:test";
import { accept, chain, drop, inInterface, protocolIs, type Rule } from "./rule.ts";
import { mayBeLeftOut, neededFor, withStandIns } from "./stand-in.ts";

const logged = (decision: "allow" | "deny"): Rule => ({
  match: [inInterface("cali1"), protocolIs("tcp")],
  action: { kind: "decide", decision, nflog: { group: 1, prefix: "p" } },
});

test("a refused rule of a policy is blamed on flow logs when it records flows", () => {
  expect(neededFor(logged("deny"))).toContain("flow logs");
  expect(neededFor({ action: { kind: "decide", decision: "deny" } })).toBeUndefined();
});

test("without what lets pass nothing is written, for what stops everything of the interface is stopped", () => {
  expect([logged("allow"), logged("deny"), { action: accept }].map((rule) => mayBeLeftOut(rule, "filter"))).toEqual([
    true,
    false,
    true,
  ]);
  const closed = withStandIns(chain("c", [logged("allow"), logged("deny")]), "filter", () => true);
  expect(closed.rules.map(({ action }) => action)).toEqual([undefined, drop]);
  expect(closed.rules[1]?.match).toEqual([inInterface("cali1")]);
});
