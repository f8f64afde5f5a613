// The short cut of established flows through a flowtable: asked for before a rule needs it.
import type { Logger } from "../lib/log.ts";
import { hasFlowOffload } from "./nft/probe.ts";
import type { DataplaneParameters } from "./parameters.ts";
import type { RulesKernel } from "./rule-planes.ts";

/** Whether established flows can take the short cut, if they shall. */
export function canOffload(
  parameters: Pick<DataplaneParameters, "NFTablesFlowTableOffload">,
  rules: RulesKernel,
  logger: Logger,
): boolean {
  if (parameters.NFTablesFlowTableOffload !== "All") return false;
  if (rules.backend === "nftables" && hasFlowOffload(rules.ruleset)) return true;
  const missing = rules.backend === "nftables" ? "nf_flow_table and nft_flow_offload in the kernel" : "nftables mode";
  logger.warn("NFTablesFlowTableOffload has no effect: established flows pass all rules", { needs: missing });
  return false;
}
