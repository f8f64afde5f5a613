// Parses the output of `nft list table` and `iptables-legacy-save` into the chains of other programs than Calico. The kernel
// evaluates all tables of a hook, and a drop in one of them is final, regardless of Calico's own rules.

/** A base chain, with the rules of all chains that are reached from it. */
export interface FilterChain {
  /** The location for the operator: `table inet fw, chain in`, or `filter FORWARD`. */
  readonly where: string;
  readonly tool: "nft" | "iptables-legacy";
  readonly family: "ip" | "ip6" | "inet";
  readonly table: string;
  readonly name: string;
  readonly hook: string;
  readonly drops: boolean;
  readonly rules: readonly FilterRule[];
  /** The chain jumps to Calico's chains, which decide before the policy of this chain applies. */
  readonly entersCalico: boolean;
}

export interface FilterRule {
  /** One line of the tool's output. */
  readonly text: string;
  readonly verdict: "accept" | "drop" | undefined;
  /** The rule has no condition. */
  readonly isBare: boolean;
  /** The rule is in the base chain itself, not in a chain that it jumps to. */
  readonly isDirect: boolean;
}

interface Chain {
  readonly rules: string[];
  hook?: string;
  policy?: string;
}

/** Chains of Calico and kube-proxy, which do not drop packets of pods by mistake. */
const KNOWN = /^(cali-|KUBE-)/;
const MAX_DEPTH = 8;

/** @param text the output of `nft list table FAMILY TABLE` */
export function parseNftTable(family: FilterChain["family"], table: string, text: string): readonly FilterChain[] {
  const chains = new Map<string, Chain>();
  let current: Chain | undefined;
  for (const line of text.split("\n").map((each) => each.trim())) {
    const opened = /^(\w+) (\S+) \{$/.exec(line);
    const base = /^type \S+ hook (\w+) .*?(?:policy (\w+);)?$/.exec(line);
    if (opened !== null) {
      current = opened[1] === "chain" ? { rules: [] } : undefined;
      if (current !== undefined) chains.set(opened[2] ?? "", current);
    } else if (line === "}") current = undefined;
    else if (current !== undefined && base !== null) Object.assign(current, { hook: base[1], policy: base[2] });
    else if (current !== undefined && line !== "") current.rules.push(line);
  }
  return baseChains(chains, { tool: "nft", family, table });
}

/** @param text the output of `iptables-legacy-save` */
export function parseLegacySave(family: "ip" | "ip6", text: string): readonly FilterChain[] {
  return text.split(/^\*/m).flatMap((part) => {
    const [table = "", ...lines] = part.split("\n");
    const chains = new Map<string, Chain>();
    for (const line of lines) {
      const [, name = "", policy = ""] = /^:(\S+) (\S+)/.exec(line) ?? [];
      const [, chain = "", rule = ""] = /^-A (\S+) ?(.*)/s.exec(line) ?? [];
      if (name !== "") chains.set(name, { rules: [], ...(policy === "-" ? {} : { hook: name.toLowerCase(), policy }) });
      if (chain !== "") chains.get(chain)?.rules.push(rule);
    }
    return baseChains(chains, { tool: "iptables-legacy", family, table });
  });
}

function baseChains(
  chains: ReadonlyMap<string, Chain>,
  table: Pick<FilterChain, "tool" | "family" | "table">,
): readonly FilterChain[] {
  return [...chains].flatMap(([name, { hook, policy, rules }]) => {
    if (hook === undefined) return [];
    const all = rulesFrom(chains, name, 0, new Set());
    return [
      {
        ...table,
        where: table.tool === "nft" ? `table ${table.family} ${table.table}, chain ${name}` : `${table.table} ${name}`,
        name,
        hook,
        drops: /^drop$/i.test(policy ?? ""),
        rules: all,
        entersCalico: rules.some((rule) => /(^|\s)(jump|goto|-j|-g) cali-/.test(rule)),
      },
    ];
  });
}

function rulesFrom(
  chains: ReadonlyMap<string, Chain>,
  name: string,
  depth: number,
  seen: Set<string>,
): readonly FilterRule[] {
  if (depth > MAX_DEPTH || seen.has(name) || KNOWN.test(name)) return [];
  seen.add(name);
  return (chains.get(name)?.rules ?? []).flatMap((text) => {
    const target = /(?:^|\s)(?:jump|goto|-j|-g) ([^\s}]+)$/.exec(plain(text))?.[1];
    const below = target === undefined ? [] : rulesFrom(chains, target, depth + 1, seen);
    return [ruleOf(text, depth === 0), ...below];
  });
}

function ruleOf(text: string, isDirect: boolean): FilterRule {
  const rule = plain(text);
  const verdict = /\b(drop|reject)\b/i.test(rule) ? "drop" : /\baccept\b/i.test(rule) ? "accept" : undefined;
  return { text, verdict, isDirect, isBare: /^(-j )?(drop|reject.*|accept)$/i.test(rule) };
}

/** Removes the parts of a rule that are not conditions: counters, comments, handles. */
const plain = (text: string): string =>
  text
    .replaceAll(/counter packets \d+ bytes \d+/g, "")
    .replaceAll(/(-m comment --)?\bcomment ("[^"]*"|\S+)/g, "")
    .replaceAll(/# handle \d+/g, "")
    .replaceAll(/\s+/g, " ")
    .trim();
