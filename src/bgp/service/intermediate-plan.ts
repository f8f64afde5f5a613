// Computes the plan that is applied before a plan with new blocks.
//
// Pods of a new block can start before the BGP service receives the block affinity. Until then, their addresses are announced
// one by one, like borrowed addresses. BIRD sends withdrawals before announcements, so replacing the addresses by the block in
// one step would leave peers without a route for a moment. Therefore the block is first announced in addition to the
// addresses; then the addresses are withdrawn. (Releasing a block needs no such step: its affinity is `pendingDeletion` before
// it is deleted.)
import { type IpVersion, ipVersion } from "../../lib/ip/ip.ts";
import { announcement } from "../bird/filters.ts";
import type { BgpPlan } from "../plan-types.ts";

/** Returns undefined if `plan` has no new blocks. */
export function intermediatePlan(plan: BgpPlan, family: IpVersion, installed: string | undefined): BgpPlan | undefined {
  if (installed === undefined) return undefined; // nothing has been announced yet
  const isKnown = ({ block }: BgpPlan["aggregation"][number]): boolean =>
    ipVersion(block) !== family || installed.includes(announcement(block));
  const aggregation = plan.aggregation.filter(isKnown);
  return aggregation.length === plan.aggregation.length ? undefined : { ...plan, aggregation };
}
