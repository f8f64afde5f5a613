import { expect, test } from "bun:test";
import type { RuleBody } from "../../kernel/index.ts";
import { chain, type Rule } from "../rules/rule.ts";
import { prepareChain, SharedBodies } from "./prepared-chain.ts";
import { SlotNumbers } from "./rule-ports.ts";

const allow: Rule = { action: { kind: "decide", decision: "allow" }, annotations: ["note=x"] };
const deny: Rule = { action: { kind: "decide", decision: "deny" }, annotations: ["note=x"] };
const body = (comment: string): RuleBody[] => [{ expressions: [], comment }];

test("rules with one mark share an encoding only if they say the same", () => {
  const shared = new SharedBodies();
  for (let i = 0; i < 4; i++) shared.expect("mark");
  const first = shared.get("mark", allow, () => body("allow"));
  expect(shared.get("mark", deny, () => body("deny"))).toEqual(body("deny"));
  // A copy of the rule, and one that differs in what stands in for it, are the same to the kernel.
  expect(shared.get("mark", structuredClone(allow), () => body("again"))).toBe(first);
  expect(shared.get("mark", { ...allow, ifRefused: "close" }, () => body("again"))).toBe(first);
});

test("a rule's mark is 128 bits of SHA-256 over what it says, and nothing else", () => {
  const marks = (...rules: readonly Rule[]) => prepareChain("c", chain("c", rules), new SlotNumbers()).ruleMarks;
  const [first = "", second, third] = marks(allow, deny, { ...allow, ifRefused: "close" });
  expect(first).toMatch(/^[\w-]{22}$/);
  expect(second).not.toBe(first);
  expect(third).toBe(first);
  const sha = new Bun.CryptoHasher("sha256").update(`2 ${JSON.stringify(allow)}`).digest();
  expect(Buffer.from(first, "base64url")).toEqual(Buffer.from(sha).subarray(0, 16));
});
