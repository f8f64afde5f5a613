// Every rule of ours begins with a comment that names its content and its place: a hash over the chain's name, all
// rules before it, and itself. Reading the hashes back tells whether a chain is as we wrote it.
import { createHash } from "node:crypto";

const HASH_LENGTH = 16;

/** The hash of each rule text of the chain, in order. */
export function ruleHashes(chainName: string, texts: readonly string[]): string[] {
  let state: Buffer = createHash("sha224").update(chainName).digest();
  return texts.map((text) => {
    const line = text === "" ? `-A ${chainName} HASH` : `-A ${chainName} HASH ${text}`;
    state = createHash("sha224").update(state).update(line).digest();
    return state.toString("base64url").slice(0, HASH_LENGTH);
  });
}

/** Rules kept at the end of a kernel chain are hashed as if their chain had this name. */
export const appendsName = (chainName: string): string => `${chainName}*appends*`;

export const hashComment = (hash: string): string => `-m comment --comment "cali:${hash}"`;
