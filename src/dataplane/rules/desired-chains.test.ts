import { expect, test } from "bun:test";
import { DesiredChains } from "./desired-chains.ts";
import { accept, chain, drop, inSet, jump, protocolIs, type Rule } from "./rule.ts";

const deny: Rule = { match: [protocolIs("tcp"), inSet("source", "s:x")], action: drop };

function open() {
  const changed: string[] = [];
  const needChanged: string[] = [];
  const chains = new DesiredChains({
    kernelName: (tableName, name) => `${tableName}-${name}`,
    onContentChange: (name) => changed.push(name),
    onNeedChange: (name) => needChanged.push(name),
  });
  const programmed = (name: string) => {
    const found = chains.programmed(name);
    return found?.kind === "rules" ? found.rules : undefined;
  };
  return { chains, programmed, changed: () => changed.splice(0), needChanged: () => needChanged.splice(0) };
}

test("a chain is needed while a hook, or a chain that is needed, leads to it", () => {
  const { chains, changed, needChanged } = open();
  chains.set("filter", chain("outer", [{ action: jump("inner") }]));
  chains.set("filter", chain("inner", [{ action: accept }]));
  expect(changed()).toEqual(["filter-outer", "filter-inner"]);
  expect(needChanged()).toEqual([]);
  chains.hold("filter-outer");
  expect(needChanged()).toEqual(["filter-outer", "filter-inner"]);
  expect(["filter-outer", "filter-inner", "filter-other"].map((name) => chains.isNeeded(name))).toEqual([
    ...[true, true, false],
  ]);
  chains.set("filter", chain("outer", []));
  expect(needChanged()).toEqual(["filter-inner"]);
  expect(chains.remove("filter-outer")).toBe(true);
  expect(chains.isNeeded("filter-outer")).toBe(false); // held, but without content
  expect(chains.remove("filter-outer")).toBe(false);
});

test("a forced chain is needed although nothing leads to it", () => {
  const { chains } = open();
  chains.set("filter", { ...chain("forced", []), isForced: true });
  chains.set("filter", { ...chain("forced", [{ action: accept }]), isForced: true });
  expect(chains.isNeeded("filter-forced")).toBe(true);
  chains.set("filter", chain("forced", []));
  expect(chains.isNeeded("filter-forced")).toBe(false);
});

test("a rejected rule is replaced by one fallback after the other, until the chain changes", () => {
  const { chains, programmed, changed } = open();
  chains.set("filter", chain("c", [{ action: accept }, deny]));
  changed();
  const position = { chain: "filter-c", index: 1 };
  const fallbacks = chains.fallbacksFor(position);
  for (const [level, fallback] of fallbacks.entries()) {
    expect(chains.nextLevel(position)).toBe(level);
    expect(chains.useNextFallback(position)).toBe(true);
    expect(programmed("filter-c")).toEqual([{ action: accept }, fallback]);
    expect(chains.ruleAt(position)).toEqual({ rule: deny, fallback });
    expect(changed()).toEqual(["filter-c"]);
  }
  expect(chains.useNextFallback(position)).toBe(false);
  expect(chains.activeFallbacks()).toEqual([{ ...position, level: fallbacks.length - 1 }]);
  chains.set("filter", chain("c", [deny]));
  expect(chains.hasFallbacks).toBe(false);
  expect(programmed("filter-c")).toEqual([deny]);
});

test("all rules that use a rejected set are replaced, until the set is accepted", () => {
  const { chains, programmed, changed } = open();
  chains.set("filter", chain("user", [deny]));
  chains.set("filter", chain("other", [{ match: [inSet("source", "s:y")], action: drop }]));
  changed();
  chains.addRejectedSet("s:x");
  expect(changed()).toEqual(["filter-user"]);
  expect(programmed("filter-user")?.[0]?.match).toEqual([protocolIs("tcp")]);
  chains.deleteRejectedSet("s:x");
  expect(changed()).toEqual(["filter-user"]);
  expect(programmed("filter-user")).toEqual([deny]);
  chains.addRejectedSet("s:x");
  chains.clearRejectedSets();
  expect(programmed("filter-user")).toEqual([deny]);
  expect(chains.hasFallbacks).toBe(false);
});

test("a chain to which a fallback leads is needed as long as the fallback is active", () => {
  const { chains } = open();
  const ifRejected = { chain: "fallback", effect: "" };
  chains.set("filter", chain("c", [{ ...deny, ifRejected }]));
  chains.set("filter", chain("fallback", []));
  chains.hold("filter-c");
  expect(chains.isNeeded("filter-fallback")).toBe(false);
  chains.useFallbacks([{ chain: "filter-c", index: 0, level: 0 }]);
  expect(chains.isNeeded("filter-fallback")).toBe(true);
  expect([...chains.targetsOf("filter-c")]).toEqual(["filter-fallback"]);
  chains.clearRuleFallbacks();
  expect(chains.isNeeded("filter-fallback")).toBe(false);
});
