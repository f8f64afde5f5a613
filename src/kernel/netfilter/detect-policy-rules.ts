// Detects whether the kernel has policy rules of an agent, Calico or calico-ts.
import { existsSync, readFileSync } from "node:fs";
import type { IpVersion } from "../../lib/ip/ip.ts";
import { findIptablesProgram, legacyTableNamesPath, runTool } from "./iptables.ts";
import type { NftRuleset } from "./nft.ts";

const TIMEOUT_MS = 10_000;
/** A chain in every iptables filter table that an agent has written. */
const CHAIN = "cali-FORWARD";
const FAMILY = { 4: "ip", 6: "ip6" } as const;

type Ruleset = Pick<NftRuleset, "tables" | "chains">;

/**
 * Returns whether an agent in nftables mode filters packets. A large table is written in parts, the base chains last and
 * together with the guard table: a table without base chains does not filter yet.
 */
export function hasNftablesPolicy(ruleset: Ruleset, version: IpVersion): boolean {
  return chainsOf(ruleset, version, "calico").some(({ base }) => base !== undefined);
}

/** Like hasNftablesPolicy, and also for agents in iptables mode with the legacy or the nft variant. */
export async function hasPolicyRules(ruleset: Ruleset, version: IpVersion): Promise<boolean> {
  try {
    if (hasNftablesPolicy(ruleset, version)) return true;
    if (chainsOf(ruleset, version, "filter").some(({ name }) => name === CHAIN)) return true;
  } catch {
    // The kernel does not support nftables.
  }
  const names = legacyTableNamesPath(version);
  const program = findIptablesProgram(version, "legacy", "save");
  // If the table does not exist, the tool would create it.
  if (program === undefined || !existsSync(names) || !readFileSync(names, "utf8").split("\n").includes("filter"))
    return false;
  return (await runTool(program, ["-t", "filter"], "", TIMEOUT_MS)).includes(`:${CHAIN} `);
}

function chainsOf(ruleset: Ruleset, version: IpVersion, name: string): ReturnType<Ruleset["chains"]> {
  const family = FAMILY[version];
  return ruleset.tables(family).some((table) => table.name === name) ? ruleset.chains({ family, name }) : [];
}
