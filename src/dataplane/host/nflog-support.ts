// Checks once at start whether the kernel supports NFLOG, if flow logs are on. A kernel without NFLOG would reject every rule
// of every policy.
import { IptablesError, type IptablesStore, NftError, type NftRuleset } from "../../kernel/index.ts";
import type { IpVersion } from "../../lib/ip/ip.ts";
import type { Logger } from "../../lib/log/log.ts";
import { actionText, type IptablesFeatures } from "../iptables/rule-text.ts";
import type { RulesKernel } from "../rule-backend.ts";
import type { RejectedItem } from "../rules/fallback/rejection-log.ts";

const NFLOG = { group: 1, prefix: "calico-probe" } as const;

/** Returns the kernel's error; undefined if NFLOG is supported, or the check failed for another reason. */
export async function findNflogError(rules: RulesKernel, versions: readonly IpVersion[]): Promise<string | undefined> {
  for (const version of versions) {
    const reason =
      rules.backend === "nftables"
        ? testNftables(rules.ruleset, version)
        : await testIptables(rules.iptables(version), rules.features);
    if (reason !== undefined) return reason;
  }
  return undefined;
}

function testNftables(ruleset: Pick<NftRuleset, "dryRun">, version: IpVersion): string | undefined {
  const table = { family: version === 4 ? "ip" : "ip6", name: `calico-probe-${process.pid}` } as const;
  try {
    ruleset.dryRun([
      { op: "addTable", table },
      { op: "addChain", table, chain: "probe" },
      { op: "appendRule", table, chain: "probe", rule: { expressions: [{ kind: "nflog", ...NFLOG }] } },
    ]);
    return undefined;
  } catch (error) {
    if (error instanceof NftError) return error.change?.op === "appendRule" ? error.message : undefined;
    throw error;
  }
}

const PROBE = "cali-probe";

/** iptables has no dry run. The rule is written for a moment to a chain that no packet reaches. */
async function testIptables(store: IptablesStore, features: IptablesFeatures): Promise<string | undefined> {
  const restore = (...lines: readonly string[]) => store.restore(`*filter\n${lines.join("\n")}\nCOMMIT\n`);
  const rule = (text: string) => restore(`:${PROBE} - -`, `-A ${PROBE} ${text}`);
  try {
    await rule("--jump RETURN");
    try {
      await rule(actionText({ kind: "nflog", ...NFLOG }, features));
      return undefined;
    } catch (error) {
      return error instanceof IptablesError && !error.isTransient ? error.message : undefined;
    } finally {
      await restore(`:${PROBE} - -`);
      await restore(`--delete-chain ${PROBE}`);
    }
  } catch {
    return undefined; // iptables does not work at all; the first round reports why
  }
}

const NEEDS = "nfnetlink_log, and nft_log or (iptables) xt_NFLOG";

export function logMissingNflog(logger: Logger, reason: string): void {
  logger.warn("kernel does not support NFLOG; flow logs are disabled", {
    needs: NEEDS,
    fix: "load the modules and restart calico-node, or unset FlowLogsGoldmaneServer and FlowLogsLocalReporter",
    error: reason,
  });
}

export const describeMissingNflog = (reason: string): RejectedItem => ({
  kind: "feature",
  where: "flow logs",
  setting: `FlowLogsGoldmaneServer, FlowLogsLocalReporter (${NEEDS})`,
  instead: "rules are programmed without flow logs",
  error: reason,
});
