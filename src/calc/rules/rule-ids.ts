// A rule's name follows from what it says and from the rules before it: each hash takes in the one before.
import { ProtoWriter } from "../../lib/protobuf.ts";
import type { ProtoRule } from "../messages.ts";
import { writeRule } from "../wire/rule.ts";

/** Sixteen characters. */
const ID_BYTES = 12;
const writer = new ProtoWriter(); // scratch space: used and copied within one call

/**
 * Gives the rules their names.
 * @param rules just made, nobody else's yet
 * @param seed tells apart equal rules of different owners and directions
 */
export function nameRules(rules: readonly ProtoRule[], seed: string): readonly ProtoRule[] {
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
