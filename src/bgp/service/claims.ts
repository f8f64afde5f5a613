// A node may have pods in a block that BIRD does not know yet: the address is given, the pod wired, and only then this
// service hears of the claim. Until it does, such addresses are told one by one, as borrowed ones are. To take them back
// and tell the block in one step would leave the neighbours without a way for a moment, since BIRD sends what it takes back
// first. So the block is told beside its addresses, and then they are withheld. (The way back has two steps by itself: a
// block that is given up is `pendingDeletion` before it is gone.)
import { type IpVersion, ipVersion } from "../../lib/ip/ip.ts";
import { announcement } from "../bird/filters.ts";
import type { BgpPlan } from "../plan-types.ts";

/** The plan to put in force before this one; undefined when no block is new. */
export function withNewBlocksBeside(
  plan: BgpPlan,
  family: IpVersion,
  inForce: string | undefined,
): BgpPlan | undefined {
  if (inForce === undefined) return undefined; // no BIRD has told anything yet
  const isKnown = ({ block }: BgpPlan["aggregation"][number]): boolean =>
    ipVersion(block) !== family || inForce.includes(announcement(block));
  const aggregation = plan.aggregation.filter(isKnown);
  return aggregation.length === plan.aggregation.length ? undefined : { ...plan, aggregation };
}
