// Computes the hash in the comment of each rule, exactly as Calico does. It covers the name of the chain, all previous rules
// and the rule itself, so the hashes show whether a chain is unchanged.
import { createHash } from "node:crypto";

const HASH_LENGTH = 16;

/** Returns the hashes of the rules of a chain, in order. */
export function ruleHashes(chainName: string, texts: readonly string[]): string[] {
  let state: Buffer = createHash("sha224").update(chainName).digest();
  return texts.map((text) => {
    const line = text === "" ? `-A ${chainName} HASH` : `-A ${chainName} HASH ${text}`;
    state = createHash("sha224").update(state).update(line).digest();
    return state.toString("base64url").slice(0, HASH_LENGTH);
  });
}

/** The chain name in hashes of rules that are appended to a kernel chain. */
export const appendsName = (chainName: string): string => `${chainName}*appends*`;

export const hashComment = (hash: string): string => `-m comment --comment "cali:${hash}"`;
