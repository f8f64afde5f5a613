// Whether an agent, Calico's or calico-ts, has policy rules in the kernel.
import { existsSync, readFileSync } from "node:fs";
import type { IpVersion } from "../lib/ip.ts";
import { findIptablesProgram, legacyTableNamesPath, runTool } from "./iptables.ts";
import type { NftRuleset } from "./nft.ts";

const TIMEOUT_MS = 10_000;
/** In every iptables filter table that an agent has written. */
const CHAIN = "cali-FORWARD";
const FAMILY = { 4: "ip", 6: "ip6" } as const;

type Ruleset = Pick<NftRuleset, "tables" | "chains">;

/**
 * Whether a table of nftables mode sees packets. A large table is written in parts, its hooks last and together with the
 * guard table: without hooks it does not count.
 */
export function hasNftablesPolicy(ruleset: Ruleset, version: IpVersion): boolean {
  return chainsOf(ruleset, version, "calico").some(({ base }) => base !== undefined);
}

/** The same for both modes and both variants of iptables. */
export async function hasPolicyRules(ruleset: Ruleset, version: IpVersion): Promise<boolean> {
  try {
    if (hasNftablesPolicy(ruleset, version)) return true;
    if (chainsOf(ruleset, version, "filter").some(({ name }) => name === CHAIN)) return true;
  } catch {
    // A kernel without nf_tables.
  }
  const names = legacyTableNamesPath(version);
  const program = findIptablesProgram(version, "legacy", "save");
  // The tool would create the table.
  if (program === undefined || !existsSync(names) || !readFileSync(names, "utf8").split("\n").includes("filter"))
    return false;
  return (await runTool(program, ["-t", "filter"], "", TIMEOUT_MS)).includes(`:${CHAIN} `);
}

function chainsOf(ruleset: Ruleset, version: IpVersion, name: string): ReturnType<Ruleset["chains"]> {
  const family = FAMILY[version];
  return ruleset.tables(family).some((table) => table.name === name) ? ruleset.chains({ family, name }) : [];
}
