// Assigns rule IDs. As in Calico, the ID of a rule is a hash of its content and of the previous rule's hash, so it depends
// on all preceding rules of the same list.
import { ProtoWriter } from "../../lib/encoding/protobuf.ts";
import type { ProtoRule } from "../messages.ts";
import { writeRule } from "../wire/rule.ts";

/** 16 characters in base64. */
const ID_BYTES = 12;
const writer = new ProtoWriter(); // reused; its content is valid only within one call

/**
 * Sets the `ruleId` of each rule, in place.
 * @param rules not yet shared with other code
 * @param seed start of the hash chain; different for each owner and direction
 */
export function assignRuleIds(rules: readonly ProtoRule[], seed: string): readonly ProtoRule[] {
  if (rules.length === 0) return [];
  let hash: Uint8Array = Bun.CryptoHasher.hash("sha224", seed);
  for (const rule of rules as { -readonly [K in keyof ProtoRule]: ProtoRule[K] }[]) {
    writer.reset();
    writer.raw(hash);
    writeRule(writer, rule);
    hash = Bun.CryptoHasher.hash("sha224", writer.view());
    rule.ruleId = Buffer.from(hash.buffer, hash.byteOffset, ID_BYTES).toString("base64url");
  }
  return rules;
}
