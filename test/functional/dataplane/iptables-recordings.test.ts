// Sends recorded messages to the dataplane and compares the tables and sets of iptables mode with the recordings, rule by rule,
// including their hashes.
import { afterAll, expect, test } from "bun:test";
import { IpsetSets } from "../../../src/dataplane/iptables/ipset-sets.ts";
import { IptablesTable } from "../../../src/dataplane/iptables/iptables-table.ts";
import { ALL_FEATURES } from "../../../src/dataplane/iptables/rule-text.ts";
import { createRuleManagers } from "../../../src/dataplane/rule-managers.ts";
import type { RuleTables } from "../../../src/dataplane/rules/rule-table.ts";
import { TABLE_NAMES } from "../../../src/dataplane/rules/rule.ts";
import { Iptables, Ipsets } from "../../../src/kernel/index.ts";
import { silentLogger } from "../../../src/lib/log/log.ts";
import { TestNamespace } from "../kernel/test-namespace.ts";
import { recordedInterfaces, recordedMessages, recordedStates, stateFile } from "./recordings.ts";
import { parameter, recordedRules } from "./settings.ts";

/** States in which calico-ts differs intentionally. */
const DIFFERENT: Readonly<Record<string, string>> = {
  "match-combined-blocks": "a third match block does not inherit the second one's verdict",
  "hep-wildcard": "the agent's health port stays open on the loopback",
};

/** The parity IDs that each state covers. */
const PROVES: Readonly<Record<string, string>> = {
  "empty-node": "FD-020 FD-040 FD-045 FD-046 FD-057 FD-058 FD-059 FD-060 FD-075",
  "source-spoofing": "FD-041 FD-042",
  "vxlan-always": "FD-043 FD-051 FD-052 FD-055",
  "ipip-always": "FD-049 FD-055",
  "dscp-spec": "FD-047",
  "istio-ambient": "FD-048",
  openstack: "FD-053 FD-061",
  "floating-ip": "FD-054",
  "service-loop-drop": "FD-062",
  "hep-named-profile": "FD-064 FD-110",
  "hep-wildcard": "FD-111",
  "hep-donottrack": "FD-112",
  "hep-prednat": "FD-112",
  "wl-three-profiles": "FD-070 FD-071 FD-074",
  "tiers-pass-and-drop": "FD-072 FD-086 FD-090",
  "staged-policy": "FD-073",
  "qos-controls": "FD-078",
  "match-protocol": "FD-080",
  "match-combined-blocks": "FD-081",
  "match-ports": "FD-081",
  "match-named-ports": "FD-082",
  "match-services": "FD-083",
  "policy-mixed-families": "FD-084",
  "match-nets": "FD-085",
  "match-http-and-metadata": "FD-088 FD-089",
  "netset-small-and-overlap": "FD-091",
};

type Chains = Map<string, string[]>;
function parseTables(text: string, base?: Map<string, Chains>): Map<string, Chains> {
  const tables = new Map<string, Chains>();
  let table = "";
  let chains: Chains = new Map();
  for (const line of text.split("\n")) {
    if (line.startsWith("*")) {
      table = line.slice(1);
      chains = new Map();
      tables.set(table, chains);
    } else if (line.startsWith("=")) chains.set(line.slice(1), base?.get(table)?.get(line.slice(1)) ?? []);
    else if (line.startsWith(":")) chains.set(line.slice(1).split(" ")[0] ?? "", []);
    else if (line.startsWith("-A")) chains.get(line.split(" ")[1] ?? "")?.push(line.trimEnd());
  }
  return tables;
}
const flatten = (tables: Map<string, Chains>): string[] =>
  [...tables].flatMap(([table, chains]) =>
    [...chains].flatMap(([name, rules]) => [`${table} ${name}`, ...rules.map((rule) => `${table} ${rule}`)]),
  );
const HASH = / -m comment --comment "cali:[\w-]{16}"/;

function parseSets(text: string, base?: Map<string, string[]>): Map<string, string[]> {
  const sets = new Map<string, string[]>();
  for (const raw of text.split("\n")) {
    const line = raw.replace(/ (hashsize|bucketsize|initval) \S+/g, "").trimEnd();
    if (line.startsWith("=")) sets.set(line.slice(1), base?.get(line.slice(1)) ?? []);
    const [verb, name = "", ...rest] = line.split(" ");
    if (verb === "create") sets.set(name, [`create ${rest.join(" ")}`]);
    else if (verb === "add") sets.get(name)?.push(rest.join(" "));
  }
  return sets;
}
const flattenSets = (sets: Map<string, string[]>): string[] =>
  [...sets]
    .flatMap(([name, members]) => members.map((member) => `${name} ${member}`))
    .filter((line) => !/this-host fe80/.test(line)) // link-local addresses of devices that were created during the recording
    .sort();

let hashes = 0;
let equalHashes = 0;
afterAll(() => {
  if (hashes > 0) console.log(`rule hashes equal: ${equalHashes} of ${hashes}`);
});

for (const state of recordedStates()) {
  const want = stateFile(state, "iptables-save");
  if (want === undefined) continue;
  test(`${PROVES[state] ?? "recorded state"} ${state}: chains, rules and sets are as recorded`, async () => {
    using namespace = new TestNamespace("dpipt");
    const messages = recordedMessages(state);
    const versions = parameter(messages, "Ipv6Support") === "false" ? ([4] as const) : ([4, 6] as const);
    const config = recordedRules(messages);
    using ipsets = namespace.enter(() => new Ipsets());
    const tables: IptablesTable[] = [];
    const sets: IpsetSets[] = [];
    const families = versions.map((version) => {
      const store = new Iptables({ family: version, variant: "legacy" });
      const inside = {
        family: version,
        variant: "legacy",
        save: (...args: Parameters<typeof store.save>) => namespace.enter(() => store.save(...args)),
        restore: (...args: Parameters<typeof store.restore>) => namespace.enter(() => store.restore(...args)),
      } as const;
      const byLayer = Object.fromEntries(
        TABLE_NAMES.map((tableName) => {
          const table = new IptablesTable({
            tableName,
            store: inside,
            context: { config, version, tableName, features: ALL_FEATURES },
            insertMode: "insert",
            logger: silentLogger,
            postWriteMs: 5000,
            refreshMs: 180_000,
          });
          tables.push(table);
          return [tableName, table];
        }),
      ) as unknown as RuleTables;
      const set = new IpsetSets({ version, store: ipsets, maxElements: 1048576, logger: silentLogger });
      sets.push(set);
      return { version, tables: byLayer, sets: set };
    });
    const { managers } = createRuleManagers({
      config,
      families,
      chainNameLimit: 28,
      hostname: "node-a",
      externalNodes: [],
      floatingIps: parameter(messages, "FloatingIPs") === "Enabled",
      logger: silentLogger,
    });
    for (const message of [...recordedInterfaces(messages), ...messages])
      for (const manager of managers) manager.onUpdate(message);
    const { signal } = new AbortController();
    for (const manager of managers) manager.resolve?.();
    for (const manager of managers) await manager.apply?.(signal);
    for (const set of sets) await set.apply(signal);
    for (const table of tables) await table.apply(signal);

    for (const [file, command] of [
      ["iptables-save", "iptables-legacy-save"],
      ["ip6tables-save", "ip6tables-legacy-save"],
    ] as const) {
      const recorded = stateFile(state, file);
      if (recorded === undefined) continue;
      const base = parseTables(stateFile("empty-node", file) ?? "");
      const desired = flatten(parseTables(recorded, base)).sort();
      const got = flatten(parseTables(namespace.run(command, []).replace(/ \[\d+:\d+\]/g, ""))).sort();
      const seen = new Set(got);
      for (const line of desired)
        if (HASH.test(line)) {
          hashes++;
          if (seen.has(line)) equalHashes++;
        }
      const bare = (lines: string[]) => lines.map((line) => line.replace(HASH, "")).sort();
      if (DIFFERENT[state] === undefined) expect(bare(got)).toEqual(bare(desired));
    }
    const recordedSets = stateFile(state, "ipset-save");
    if (recordedSets !== undefined) {
      const base = parseSets(stateFile("empty-node", "ipset-save") ?? "");
      const desired = flattenSets(parseSets(recordedSets, base));
      expect(flattenSets(parseSets(namespace.run("ipset", ["save"])))).toEqual(desired);
    }
  });
}
