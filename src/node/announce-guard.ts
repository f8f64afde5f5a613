// Tells the CNI plugin, before the nodename file lets it attach pods, that the agent of this host manages the guard table:
// the plugin then drops packets of workloads until Felix has written its rules.
import type { Environment } from "../datastore/index.ts";
import { announceGuard, guardForm, hasPolicyRules, Nft, withdrawGuard } from "../kernel/index.ts";
import { describeError, type Logger } from "../lib/log.ts";
import { runsFelix } from "./children.ts";

export async function announceAgent(nodenameFile: string, env: Environment, log: Logger): Promise<void> {
  try {
    if (!runsFelix(env)) return withdrawGuard(nodenameFile);
    using nft = new Nft();
    // Rules without a guard table are those of Calico or of an older version: running pods keep their connections.
    const hasRulesOfOtherAgent = !hasGuardTable(nft) && (await hasPolicyRules(nft, 4));
    announceGuard(nodenameFile, { hasRulesOfOtherAgent });
  } catch (error) {
    log.warn("guard file could not be written: pods are open until Felix has started", { error: describeError(error) });
  }
}

function hasGuardTable(nft: Nft): boolean {
  try {
    return guardForm(nft) !== "absent";
  } catch {
    return false; // a kernel without nf_tables
  }
}
