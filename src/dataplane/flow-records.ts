// Whether rules can record flows on this kernel. Asked once, at the start, where flow logs are on: a kernel without NFLOG
// would refuse every rule of every policy for it.
import { IptablesError, type IptablesStore, NftError, type NftRuleset } from "../kernel/index.ts";
import type { IpVersion } from "../lib/ip.ts";
import type { Logger } from "../lib/log.ts";
import { actionText, type IptablesFeatures } from "./iptables/text.ts";
import type { RulesKernel } from "./rule-planes.ts";
import type { Refused } from "./rules/refused.ts";

const RECORD = { group: 1, prefix: "calico-probe" } as const;

/** The kernel's words when it cannot; nothing when it can, or could not be asked: then each rule shows. */
export async function whyNoRecords(rules: RulesKernel, versions: readonly IpVersion[]): Promise<string | undefined> {
  for (const version of versions) {
    const reason =
      rules.backend === "nftables"
        ? tryNftables(rules.ruleset, version)
        : await tryIptables(rules.iptables(version), rules.features);
    if (reason !== undefined) return reason;
  }
  return undefined;
}

function tryNftables(ruleset: Pick<NftRuleset, "tryOut">, version: IpVersion): string | undefined {
  const table = { family: version === 4 ? "ip" : "ip6", name: `calico-probe-${process.pid}` } as const;
  try {
    ruleset.tryOut([
      { op: "addTable", table },
      { op: "addChain", table, chain: "probe" },
      { op: "appendRule", table, chain: "probe", rule: { expressions: [{ kind: "nflog", ...RECORD }] } },
    ]);
    return undefined;
  } catch (error) {
    if (error instanceof NftError) return error.change?.op === "appendRule" ? error.message : undefined;
    throw error;
  }
}

const PROBE = "cali-probe";

/** iptables has no trial: the rule stands for a moment in a chain that no packet sees. */
async function tryIptables(store: IptablesStore, features: IptablesFeatures): Promise<string | undefined> {
  const restore = (...lines: readonly string[]) => store.restore(`*filter\n${lines.join("\n")}\nCOMMIT\n`);
  const rule = (text: string) => restore(`:${PROBE} - -`, `-A ${PROBE} ${text}`);
  try {
    await rule("--jump RETURN");
    try {
      await rule(actionText({ kind: "nflog", ...RECORD }, features));
      return undefined;
    } catch (error) {
      return error instanceof IptablesError && !error.isPassing ? error.message : undefined;
    } finally {
      await restore(`:${PROBE} - -`);
      await restore(`--delete-chain ${PROBE}`);
    }
  } catch {
    return undefined; // it takes nothing now: the first round says why
  }
}

const NEEDS = "nfnetlink_log, and nft_log or (iptables) xt_NFLOG";

/** One line for the log. */
export function tellNoRecords(logger: Logger, reason: string): void {
  logger.warn("flow logs have no effect here: the kernel cannot record flows (NFLOG); rules are written without", {
    needs: NEEDS,
    fix: "load the modules and start the agent again, or unset FlowLogsGoldmaneServer and FlowLogsLocalReporter",
    error: reason,
  });
}

export const noRecords = (reason: string): Refused => ({
  kind: "feature",
  where: "flow logs",
  setting: `FlowLogsGoldmaneServer, FlowLogsLocalReporter (${NEEDS})`,
  instead: "rules are written without the record",
  error: reason,
});
