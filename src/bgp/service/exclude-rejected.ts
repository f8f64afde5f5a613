// Removes the filters and sessions that BIRD rejects from a plan, so that one invalid object does not block all later changes.
// It checks each of them separately. A session whose filter is removed is removed too, because routes would pass unfiltered.
import type { IpVersion } from "../../lib/ip/ip.ts";
import { birdConfiguration, type RenderInputs } from "../bird/configuration.ts";
import type { BgpPlan, PlannedPeer } from "../plan-types.ts";
import type { Problem } from "../state.ts";

/** Returns BIRD's error for a configuration, or undefined if it is valid. */
export type CheckConfiguration = (text: string) => Promise<string | undefined>;

export interface ReducedPlan {
  readonly plan: BgpPlan;
  /** The removed objects, with BIRD's errors. */
  readonly problems: readonly Problem[];
}

/** Returns undefined if neither a filter nor a session causes the rejection. */
export async function excludeRejected(
  plan: BgpPlan,
  family: IpVersion,
  inputs: RenderInputs,
  check: CheckConfiguration,
): Promise<ReducedPlan | undefined> {
  const checkPlan = (part: Partial<BgpPlan>) => check(birdConfiguration({ ...plan, ...part }, family, inputs));
  if ((await checkPlan({ peers: [], bgpFilters: [] })) !== undefined) return undefined;
  const problems: Problem[] = [];
  const rejectedFunctions = new Set<string>();
  for (const filter of plan.bgpFilters.filter((each) => each.family === family)) {
    const reason = await checkPlan({ peers: [], bgpFilters: [filter] });
    if (reason === undefined) continue;
    rejectedFunctions.add(filter.function);
    problems.push({ object: `BGPFilter(${filter.name})`, problem: `BIRD rejects ${filter.function}: ${reason}` });
  }
  const bgpFilters = plan.bgpFilters.filter((filter) => !rejectedFunctions.has(filter.function));
  const rejectedPeers = new Set<PlannedPeer>();
  for (const peer of plan.peers.filter((each) => each.family === family)) {
    const rejectedCall = [...peer.importFilters, ...peer.exportFilters].find((call) =>
      rejectedFunctions.has(call.function),
    );
    const reason =
      rejectedCall === undefined
        ? await checkPlan({ peers: [peer], bgpFilters })
        : `BIRD rejects its filter ${rejectedCall.function}`;
    if (reason === undefined) continue;
    rejectedPeers.add(peer);
    problems.push({ object: peer.because, problem: `session with ${peer.neighbor} left out: ${reason}` });
  }
  if (problems.length === 0) return undefined;
  return { plan: { ...plan, bgpFilters, peers: plan.peers.filter((peer) => !rejectedPeers.has(peer)) }, problems };
}
