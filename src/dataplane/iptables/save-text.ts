// Parses the output of `iptables-save`: the chains of a table, and for each rule whether calico-ts owns it.

export interface SavedRule {
  /** The hash in the comment; undefined for rules of other programs and of old Calico versions. */
  readonly hash: string | undefined;
  readonly isOwned: boolean;
  /** The line `-A …`; empty except for owned rules in the kernel's chains. */
  readonly line: string;
}

const CHAIN = /^:(\S+)/;
const RULE = /^-A (\S+)/;
const HASH = /--comment "?cali:([a-zA-Z0-9_-]+)"?/;
/** True for names that Calico uses or used. */
const OWNED = /^(cali-|califw-|calitw-|califh-|calith-|calipi-|calipo-|felix-)/;
const JUMP_TO_OURS = /(?:-j|-g|--jump|--goto) (?:cali-|califw-|calitw-|califh-|calith-|calipi-|calipo-|felix-)/;

export const isOwnedChain = (name: string): boolean => OWNED.test(name);

/** @param oldRule matches rules of old Calico versions that have neither a hash nor a jump to an owned chain */
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
    const isOwned = hash !== undefined || JUMP_TO_OURS.test(line) || oldRule?.test(line) === true;
    rules.push({ hash, isOwned, line: isOwned && !isOwnedChain(name) ? line : "" });
  }
  return chains;
}
