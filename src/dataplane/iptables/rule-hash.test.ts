import { expect, test } from "bun:test";
import { goto, jump, type RuleChain } from "../rules/rule.ts";
import { filterHooks } from "../rules/filter-chains.ts";
import { chainText, plainConfig } from "../rules/testing.ts";
import { appendsName, hashComment, ruleHashes } from "./rule-hash.ts";

const config = plainConfig();
const hashesOf = (name: string, rules: RuleChain["rules"], seed = name): string[] =>
  ruleHashes(seed, chainText({ kind: "rules", name, rules }, "filter", config));

test("FD-020 the hashes are equal to those of Calico for the same rules", () => {
  expect(hashesOf("PREROUTING", [{ action: jump("cali-PREROUTING") }])).toEqual(["6gwbT8clXdHdC1b1"]);
  const forward = filterHooks(config).append.get("FORWARD") ?? [];
  expect(hashesOf("FORWARD", forward, appendsName("FORWARD"))).toEqual(["S93hcgKJrXEqnTfs", "mp77cMpurHhyjLrM"]);
  const unknown = { action: { kind: "drop" }, comments: ["Unknown interface"] } as const;
  expect(hashesOf("cali-from-wl-dispatch", [unknown])).toEqual(["zTj6P0TIgYvgz-md"]);
});

test("FD-020 the hash of a rule depends on its chain, position and all previous rules, and not on later rules", () => {
  const [a, b, c] = ["a", "b", "c"].map((target) => ({ action: jump(target) }));
  if (a === undefined || b === undefined || c === undefined) throw new Error("three rules");
  const before = hashesOf("cali-x", [a, b, c]);
  expect(new Set(before).size).toBe(3);
  expect(hashesOf("cali-y", [a, b, c]).some((hash) => before.includes(hash))).toBe(false);
  const changed = hashesOf("cali-x", [a, { action: goto("b") }, c]);
  expect([changed[0] === before[0], changed[1] === before[1], changed[2] === before[2]]).toEqual([true, false, false]);
  expect(hashesOf("cali-x", [a, a])[1]).not.toBe(before[0]); // the same rule again is another
  expect(hashComment(before[0] ?? "")).toMatch(/^-m comment --comment "cali:[\w-]{16}"$/);
});
