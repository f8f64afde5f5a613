// Checks whether established connections can be offloaded to a flowtable.
import type { Logger } from "../../lib/log/log.ts";
import { hasFlowOffload } from "../nft/probe.ts";
import type { DataplaneParameters } from "../parameters.ts";
import type { RulesKernel } from "../rule-backend.ts";

/** True if flow offload is configured and supported. Logs a warning if it is not supported. */
export function canOffload(
  parameters: Pick<DataplaneParameters, "NFTablesFlowTableOffload">,
  rules: RulesKernel,
  logger: Logger,
): boolean {
  if (parameters.NFTablesFlowTableOffload !== "All") return false;
  if (rules.backend === "nftables" && hasFlowOffload(rules.ruleset)) return true;
  const missing = rules.backend === "nftables" ? "nf_flow_table and nft_flow_offload in the kernel" : "nftables mode";
  logger.warn("NFTablesFlowTableOffload is not supported; established connections are not offloaded", {
    needs: missing,
  });
  return false;
}
