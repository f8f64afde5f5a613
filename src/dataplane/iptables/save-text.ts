// What `iptables-save` tells about a table: chains, and for each rule whether it is ours.

export interface SavedRule {
  /** Ours: the hash of its comment; a rule of ours from long ago has none. */
  readonly hash: string | undefined;
  readonly isOurs: boolean;
  /** The line as saved, `-A …`; kept for our rules in the kernel's chains only. */
  readonly line: string;
}

const CHAIN = /^:(\S+)/;
const RULE = /^-A (\S+)/;
const HASH = /--comment "?cali:([a-zA-Z0-9_-]+)"?/;
/** Chains that are ours by name, the historic ones included. */
const OWNED = /^(cali-|califw-|calitw-|califh-|calith-|calipi-|calipo-|felix-)/;
const JUMP_TO_OURS = /(?:-j|-g|--jump|--goto) (?:cali-|califw-|calitw-|califh-|calith-|calipi-|calipo-|felix-)/;

export const isOwnedChain = (name: string): boolean => OWNED.test(name);

/** @param oldRule rules of old versions that no jump gives away */
export function parseSave(text: string, oldRule?: RegExp): Map<string, SavedRule[]> {
  const chains = new Map<string, SavedRule[]>();
  for (const line of text.split("\n")) {
    const declared = CHAIN.exec(line)?.[1];
    if (declared !== undefined) {
      if (!chains.has(declared)) chains.set(declared, []);
      continue;
    }
    const name = RULE.exec(line)?.[1];
    if (name === undefined) continue;
    let rules = chains.get(name);
    if (rules === undefined) chains.set(name, (rules = []));
    const hash = HASH.exec(line)?.[1];
    const isOurs = hash !== undefined || JUMP_TO_OURS.test(line) || oldRule?.test(line) === true;
    rules.push({ hash, isOurs, line: isOurs && !isOwnedChain(name) ? line : "" });
  }
  return chains;
}
