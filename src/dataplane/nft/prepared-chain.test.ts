import { expect, test } from "bun:test";
import type { RuleBody } from "../../kernel/index.ts";
import { chain, type Rule } from "../rules/rule.ts";
import { prepareChain, SharedRuleEncodings } from "./prepared-chain.ts";
import { SlotNumbers } from "./rule-ports.ts";

const allow: Rule = { action: { kind: "decide", decision: "allow" }, annotations: ["note=x"] };
const deny: Rule = { action: { kind: "decide", decision: "deny" }, annotations: ["note=x"] };
const body = (comment: string): RuleBody[] => [{ expressions: [], comment }];

test("rules with the same mark share an encoding only if their content is equal", () => {
  const shared = new SharedRuleEncodings();
  for (let i = 0; i < 4; i++) shared.expect("mark");
  const first = shared.get("mark", allow, () => body("allow"));
  expect(shared.get("mark", deny, () => body("deny"))).toEqual(body("deny"));
  // A copy, and a rule with another fallback, are programmed in the same way.
  expect(shared.get("mark", structuredClone(allow), () => body("again"))).toBe(first);
  expect(shared.get("mark", { ...allow, ifRejected: "drop" }, () => body("again"))).toBe(first);
});

test("the mark of a rule is 128 bits of SHA-256 over its programmed content", () => {
  const marks = (...rules: readonly Rule[]) => prepareChain("c", chain("c", rules), new SlotNumbers()).ruleMarks;
  const [first = "", second, third] = marks(allow, deny, { ...allow, ifRejected: "drop" });
  expect(first).toMatch(/^[\w-]{22}$/);
  expect(second).not.toBe(first);
  expect(third).toBe(first);
  const sha = new Bun.CryptoHasher("sha256").update(`2 ${JSON.stringify(allow)}`).digest();
  expect(Buffer.from(first, "base64url")).toEqual(Buffer.from(sha).subarray(0, 16));
});
