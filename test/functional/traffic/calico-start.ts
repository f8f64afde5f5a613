// Runs the nftables transactions that Calico's Felix sends when it starts on a node with a table of its name, according to
// its source (felix/nftables/ipsets.go, table.go) and its logs:
//
//   1. the sets: those whose names do not exist are added, of the others only the elements change;
//   2. the table: maps, base chains and chains are added if their names do not exist, each chain is flushed, every set
//      that a chain refers to is added (which fails if a set of another kind has the name), rules and map elements
//      follow, and chains and maps that are not Calico's are deleted;
//   3. all other sets of the table are deleted.
//
// If a transaction fails, Calico deletes and recreates the table, and packets are lost; this code throws instead.
import type { TestNamespace } from "../kernel/test-namespace.ts";

interface CalicoTable {
  /** `ip calico` */
  readonly name: string;
  /** By name, the type and flags: `type ipv4_addr ; flags interval ;`. */
  readonly sets: Map<string, string>;
  readonly maps: Map<string, string>;
  /** By the name of a set or map. */
  readonly elements: Map<string, string[]>;
  /** By name, the hook of a base chain, and the rules. */
  readonly chains: Map<string, { hook: string | undefined; readonly rules: string[] }>;
}

/** @param ruleset the output of `nft list ruleset` while Calico runs */
export function startCalicoNftables(space: TestNamespace, ruleset: string): void {
  const present = parseRuleset(space.run("nft", ["-s", "list", "ruleset"]));
  for (const table of parseRuleset(ruleset)) {
    const found = present.find(({ name }) => name === table.name);
    for (const transaction of transactions(table, found)) space.run("nft", ["-f", "-"], `${transaction.join("\n")}\n`);
  }
}

function transactions(wanted: CalicoTable, found: CalicoTable | undefined): string[][] {
  const table = wanted.name;
  const names = (of: "sets" | "maps" | "chains") => new Set(found?.[of].keys());
  const [sets, maps, chains] = [names("sets"), names("maps"), names("chains")];
  const element = (verb: string, owner: string, text: string) => `${verb} element ${table} ${owner} { ${text} }`;
  const changes = (owner: string) => {
    const [before, after] = [found, wanted].map((each) => new Set(each?.elements.get(owner)));
    return {
      gone: [...(before ?? [])].filter((text) => after?.has(text) !== true),
      fresh: [...(after ?? [])].filter((text) => before?.has(text) !== true),
    };
  };
  const addSet = ([name, type]: readonly [string, string]) => `add set ${table} ${name} { ${type} }`;
  const forSets = [...wanted.sets].flatMap((set) => {
    const [name] = set;
    const { gone, fresh } = changes(name);
    return [
      ...(sets.has(name) ? [] : [addSet(set)]),
      ...gone.map((text) => element("delete", name, text)),
      ...fresh.map((text) => element("add", name, text)),
    ];
  });
  const surplus = (of: ReadonlySet<string>, kept: ReadonlyMap<string, unknown>) => [...of].filter((n) => !kept.has(n));
  const oldChains = surplus(chains, wanted.chains);
  const oldMaps = surplus(maps, wanted.maps);
  const key = (text: string) => text.split(" : ")[0] ?? text;
  const forTable = [
    `add table ${table}`,
    ...[...wanted.maps]
      .filter(([name]) => !maps.has(name))
      .map(([name, type]) => `add map ${table} ${name} { ${type} }`),
    ...[...wanted.maps.keys()].flatMap((name) => changes(name).gone.map((text) => element("delete", name, key(text)))),
    ...oldMaps.map((name) => `flush map ${table} ${name}`),
    ...[...wanted.chains]
      .filter(([name]) => !chains.has(name))
      .map(([name, { hook }]) => `add chain ${table} ${name}${hook === undefined ? "" : ` { ${hook} }`}`),
    ...[...wanted.chains.keys(), ...oldChains].map((name) => `flush chain ${table} ${name}`),
    ...[...wanted.chains].flatMap(([name, { rules }]) => [
      ...[...wanted.sets].filter(([set]) => rules.some((rule) => rule.includes(`@${set} `))).map(addSet),
      ...rules.map((rule) => `add rule ${table} ${name} ${rule}`),
    ]),
    ...[...wanted.maps.keys()].flatMap((name) => changes(name).fresh.map((text) => element("add", name, text))),
    ...oldChains.map((name) => `delete chain ${table} ${name}`),
    ...oldMaps.map((name) => `delete map ${table} ${name}`),
  ];
  const oldSets = surplus(sets, wanted.sets).map((name) => `delete set ${table} ${name}`);
  return [[`add table ${table}`, ...forSets], forTable, ...(oldSets.length === 0 ? [] : [oldSets])];
}

/** Parses the output of `nft list ruleset`; elements may be on one line or on several. */
function parseRuleset(text: string): CalicoTable[] {
  const tables: CalicoTable[] = [];
  for (const [, name = "", body = ""] of text.matchAll(/^table (\S+ \S+) \{\n([^]*?)^\}/gm)) {
    if (!name.includes("calico")) continue;
    const table: CalicoTable = { name, sets: new Map(), maps: new Map(), elements: new Map(), chains: new Map() };
    for (const [, kind, object = "", inner = ""] of body.matchAll(/^\t(set|map|chain) (\S+) \{\n([^]*?)^\t\}/gm)) {
      if (kind === "chain") {
        const lines = inner.split("\n").map((line) => line.trim());
        const isHook = (line: string) => /^type \w+ hook /.test(line);
        const rules = lines.filter((line) => line !== "" && !isHook(line));
        table.chains.set(object, { hook: lines.find(isHook), rules });
        continue;
      }
      const elements = /elements = \{([^]*?)\}/.exec(inner)?.[1] ?? "";
      table.elements.set(
        object,
        elements.split(/[,\n]/).flatMap((each) => (each.trim() === "" ? [] : [each.trim()])),
      );
      const type = [...inner.matchAll(/^\t\t((?:type|flags|timeout) .*)$/gm)].map(([, line]) => `${line} ;`).join(" ");
      (kind === "set" ? table.sets : table.maps).set(object, type);
    }
    tables.push(table);
  }
  return tables;
}
