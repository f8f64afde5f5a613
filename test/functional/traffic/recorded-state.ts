// Restores the kernel state of a node that Calico programmed, from the recordings, with the tools that Calico uses.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Backend } from "../dataplane/host.ts";
import { FELIX, stateFile } from "../dataplane/recordings.ts";
import type { TestNamespace } from "../kernel/test-namespace.ts";
import { startCalicoNftables } from "./calico-start.ts";

/** In a recording, chains and sets that are equal to those of an empty node are one line; their text is in this recording. */
const EMPTY = "empty-node";

/** Returns all keys that Calico read. */
export function recordedKeys(state: string): Readonly<Record<string, unknown>> {
  const common = JSON.parse(readFileSync(join(FELIX, "common-etcd.json"), "utf8")) as Record<string, unknown>;
  return { ...common, ...(JSON.parse(need(state, "etcd.json")) as Record<string, unknown>) };
}

export function loadCalicoState(space: TestNamespace, state: string, mode: Backend): void {
  for (const line of need(state, "ip-route").trim().split("\n")) {
    const words = line.replace(/^unicast /, "").split(" ");
    const family = line.includes("::") ? "-6" : "-4";
    if (line !== "") space.run("ip", [family, "route", "replace", ...words]);
  }
  writeCalicoRules(space, state, mode);
}

/** Writes only the rules, on top of the existing ones, with the operations that Calico sends when it starts. */
export function writeCalicoRules(space: TestNamespace, state: string, mode: Backend): void {
  if (mode === "nftables") {
    startCalicoNftables(space, wholeNft(need(state, "nft-ruleset"), need(EMPTY, "nft-ruleset")));
    return;
  }
  space.run("ipset", ["restore", "-exist"], wholeSets(need(state, "ipset-save"), need(EMPTY, "ipset-save")));
  for (const tool of ["iptables", "ip6tables"]) {
    if (tool === "ip6tables" && !hasIpv6(state)) continue;
    const rules = wholeIptables(need(state, `${tool}-save`), need(EMPTY, `${tool}-save`));
    space.run(`${tool}-${mode}-restore`, [], rules);
  }
}

/** Whether Calico was configured for IPv6. */
export const hasIpv6 = (state: string): boolean => stateFile(state, "ip6tables-save") !== undefined;

function need(state: string, file: string): string {
  const text = stateFile(state, file);
  if (text === undefined) throw new Error(`the recording ${state} has no ${file}`);
  return text;
}

function wholeIptables(text: string, empty: string): string {
  const chains = new Map<string, { declaration: string; rules: string[] }>();
  let table = "";
  for (const line of empty.split("\n")) {
    if (line.startsWith("*")) table = line;
    else if (line.startsWith(":")) chains.set(`${table} ${nameOf(line)}`, { declaration: line, rules: [] });
    else if (line.startsWith("-A ")) chains.get(`${table} ${line.split(" ")[1]}`)?.rules.push(line);
  }
  const result: string[] = [];
  let rules: string[] = [];
  for (const line of text.split("\n")) {
    if (line.startsWith("*")) {
      table = line;
      rules = [];
      result.push(line);
    } else if (line.startsWith("=")) {
      const chain = chains.get(`${table} ${line.slice(1)}`);
      if (chain === undefined) throw new Error(`no chain ${line.slice(1)} in ${EMPTY}`);
      result.push(chain.declaration);
      rules.push(...chain.rules);
    } else if (line === "COMMIT") result.push(...rules, line);
    else if (line.startsWith("-A ")) rules.push(line);
    else result.push(line);
  }
  // iptables-restore requires counters after `:name policy`.
  return `${result.map((line) => (line.startsWith(":") ? `${line} [0:0]` : line)).join("\n")}\n`;
}
const nameOf = (declaration: string): string => declaration.slice(1).split(" ")[0] ?? "";

function wholeSets(text: string, empty: string): string {
  const sets = new Map<string, string[]>();
  for (const line of empty.split("\n")) {
    const name = line.split(" ")[1];
    if (name === undefined) continue;
    const lines = sets.get(name);
    if (lines === undefined) sets.set(name, [line]);
    else lines.push(line);
  }
  const lines = text.split("\n").flatMap((line) => (line.startsWith("=") ? (sets.get(line.slice(1)) ?? []) : [line]));
  return `${lines.join("\n")}\n`;
}

function wholeNft(text: string, empty: string): string {
  const blocks = new Map<string, string>();
  let table = "";
  let current: { key: string; lines: string[] } | undefined;
  for (const line of empty.split("\n")) {
    if (line.startsWith("table ")) table = line;
    const opened = /^\t(chain|set|map) (\S+) \{$/.exec(line);
    if (opened !== null) current = { key: `${table} ${opened[1]} ${opened[2]}`, lines: [] };
    current?.lines.push(line);
    if (line === "\t}" && current !== undefined) {
      blocks.set(current.key, current.lines.join("\n"));
      current = undefined;
    }
  }
  const whole = text.split("\n").map((line) => {
    if (line.startsWith("table ")) table = line;
    if (!line.startsWith("\t= ")) return line;
    const block = blocks.get(`${table} ${line.slice(3)}`);
    if (block === undefined) throw new Error(`no ${line.slice(3)} of ${table} in ${EMPTY}`);
    return block;
  });
  // In the recordings, elements are sorted, one per line, without commas.
  return whole.join("\n").replace(/elements = \{\n([^}]*)\}/g, (_, elements: string) => {
    const list = elements.split("\n").filter((line) => line.trim() !== "");
    return `elements = { ${list.map((line) => line.trim().replace(/,$/, "")).join(", ")} }`;
  });
}
