// Tells the CNI plugin, before the nodename file lets it attach pods, that the agent of this host manages the guard table:
// the plugin then drops packets of workloads until Felix has written its rules. No error opens the host: if the rules in the
// kernel cannot be read, the plugin is told to close it, and if the guard file cannot be written, the start fails.
import type { Environment } from "../../datastore/index.ts";
import { announceGuard, guardState, hasPolicyRules, Nft, withdrawGuard } from "../../kernel/index.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import { NodeFailure } from "../failure.ts";
import { runsFelix } from "../supervisor/children.ts";

export interface Host {
  readonly nodenameFile: string;
  readonly env: Environment;
  /** Returns whether the kernel has rules of an agent without a guard table; replaced by tests. */
  readonly detectOtherAgent?: () => Promise<boolean>;
}

/** @throws NodeFailure if the guard file cannot be changed. The nodename file must then not be written: it is newer. */
export async function announceAgent(host: Host, log: Logger): Promise<void> {
  const { nodenameFile, env, detectOtherAgent = hasRulesOfOtherAgent } = host;
  const hasRules = runsFelix(env) && (await detectOrClose(detectOtherAgent, log));
  try {
    if (runsFelix(env)) announceGuard(nodenameFile, { hasRulesOfOtherAgent: hasRules });
    else withdrawGuard(nodenameFile);
  } catch (error) {
    throw new NodeFailure(`cannot write the guard file beside ${nodenameFile}: ${describeError(error)}`, {
      cause: error,
    });
  }
}

async function detectOrClose(detectOtherAgent: () => Promise<boolean>, log: Logger): Promise<boolean> {
  try {
    return await detectOtherAgent();
  } catch (error) {
    log.warn("rules in the kernel cannot be read; packets of workloads are dropped until Felix has written its rules", {
      error: describeError(error),
    });
    return false;
  }
}

/** Rules without a guard table are those of Calico or of an older version: running pods keep their connections. */
async function hasRulesOfOtherAgent(): Promise<boolean> {
  using nft = new Nft();
  return !hasGuardTable(nft) && (await hasPolicyRules(nft, 4));
}

function hasGuardTable(nft: Nft): boolean {
  try {
    return guardState(nft) !== "absent";
  } catch {
    return false; // a kernel without nf_tables
  }
}
