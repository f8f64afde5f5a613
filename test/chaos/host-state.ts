// Reads the state of a host's kernel in a comparable form: without counters and handles, and sorted where the kernel guarantees
// no order.
import type { Lab } from "../../src/lab/lab.ts";

export type HostState = Readonly<Record<string, readonly string[]>>;

export function stateOf(lab: Lab, node: string): HostState {
  const host = lab.host(node);
  const lines = (command: readonly string[]) =>
    host
      .run(command)
      .stdout.split("\n")
      .map((line) => line.trim())
      .filter((line) => line !== "");
  const routes = (family: string) =>
    lines(["ip", family, "route", "show", "table", "all"])
      .filter((line) => !line.includes(" fe80::") && !line.startsWith("fe80::") && !line.startsWith("multicast"))
      .map((line) => line.replace(/ (?:linkdown|dead|pref medium)/g, "").replace(/ expires \S+/, ""))
      .sort();
  const filter: HostState =
    lab.options.dataplane === "nft"
      ? { nft: ruleset(host.run(["nft", "-j", "-s", "list", "ruleset"]).stdout) }
      : {
          iptables: saved(lines(["iptables-save"])),
          ip6tables: saved(lines(["ip6tables-save"])),
          legacy: saved(lines(["iptables-legacy-save"])),
          legacy6: saved(lines(["ip6tables-legacy-save"])),
          ipset: lines(["ipset", "save"]).sort(),
        };
  return { ...filter, routes: routes("-4"), routes6: routes("-6") };
}

/** Returns the first lines in which two states differ. */
export function difference(want: HostState, got: HostState): string[] {
  return Object.keys({ ...want, ...got }).flatMap((part) => {
    const [before, after] = [want[part] ?? [], got[part] ?? []];
    if (before.length === after.length && before.every((line, i) => line === after[i])) return [];
    const removed = before.filter((line) => !after.includes(line)).map((line) => `${part} - ${line}`);
    const added = after.filter((line) => !before.includes(line)).map((line) => `${part} + ${line}`);
    return removed.length + added.length === 0 ? [`${part}: different order`] : [...removed, ...added].slice(0, 10);
  });
}

/** Rules keep their order within their chain; everything else is sorted. */
function ruleset(text: string): string[] {
  const { nftables } = JSON.parse(text) as { nftables: readonly Record<string, Record<string, unknown>>[] };
  const counts = new Map<string, number>();
  return nftables
    .flatMap((object) => Object.entries(object))
    .filter(([type]) => type !== "metainfo")
    .map(([type, { elem, ...object }]) => {
      const rest = Object.fromEntries(Object.entries(object).filter(([field]) => field !== "handle"));
      const chain = `${String(rest["table"])} ${String(rest["chain"])}`;
      const place = type === "rule" ? (counts.get(chain) ?? 0) : 0;
      if (type === "rule") counts.set(chain, place + 1);
      const elements = Array.isArray(elem) ? { elem: elem.map((e) => JSON.stringify(e)).sort() } : {};
      return `${type} ${place} ${JSON.stringify({ ...rest, ...elements })}`;
    })
    .sort();
}

/** iptables-save without comments and packet counts; chains may be listed in any order, rules may not. */
function saved(lines: readonly string[]): string[] {
  const rules = lines.filter((line) => !line.startsWith("#") && !line.startsWith(":"));
  const chains = lines.filter((line) => line.startsWith(":")).map((line) => line.replace(/\[.*\]/, ""));
  return [...chains.sort(), ...rules];
}
