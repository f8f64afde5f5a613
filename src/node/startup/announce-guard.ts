// Writes the guard file, which makes the CNI plugin drop packets of workloads until Felix has written its rules. It is
// written before the nodename file, which allows the plugin to attach pods. Errors fail closed: if the kernel's rules cannot
// be read, the plugin drops packets; if the guard file cannot be written, startup fails.
import type { Environment } from "../../datastore/index.ts";
import { writeGuardFileAtStart, guardState, hasPolicyRules, Nft, withdrawGuard } from "../../kernel/index.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import { FatalNodeError } from "../failure.ts";
import { runsFelix } from "../supervisor/children.ts";

export interface Host {
  readonly nodenameFile: string;
  readonly env: Environment;
  /** Whether the kernel has rules of an agent without a guard table; replaced by tests. */
  readonly detectOtherAgent?: () => Promise<boolean>;
}

/** @throws FatalNodeError if the guard file cannot be changed. The nodename file must then not be written: it is newer. */
export async function announceAgent(host: Host, log: Logger): Promise<void> {
  const { nodenameFile, env, detectOtherAgent = hasRulesOfOtherAgent } = host;
  const hasRules = runsFelix(env) && (await detectOrAssumeNone(detectOtherAgent, log));
  try {
    if (runsFelix(env)) writeGuardFileAtStart(nodenameFile, { hasRulesOfOtherAgent: hasRules });
    else withdrawGuard(nodenameFile);
  } catch (error) {
    throw new FatalNodeError(`cannot write the guard file next to ${nodenameFile}: ${describeError(error)}`, {
      cause: error,
    });
  }
}

async function detectOrAssumeNone(detectOtherAgent: () => Promise<boolean>, log: Logger): Promise<boolean> {
  try {
    return await detectOtherAgent();
  } catch (error) {
    log.warn("cannot read the kernel's rules; packets of workloads are dropped until Felix has written its rules", {
      error: describeError(error),
    });
    return false;
  }
}

/** Policy rules without a guard table belong to Calico or an older calico-ts. The plugin then does not drop packets, so running pods keep their connections. */
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
