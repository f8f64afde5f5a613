// When BIRD refuses a configuration, something in it is worse than we knew. Rather than stay with the old one for ever,
// find the filters and sessions that BIRD does not take, one by one, and leave them out. A session whose filter is gone
// goes too: without it more would pass than was meant.
import type { IpVersion } from "../../lib/ip/ip.ts";
import { birdConfiguration, type RenderInputs } from "../bird/configuration.ts";
import type { BgpPlan, PlannedPeer } from "../plan-types.ts";
import type { Problem } from "../state.ts";

/** Says what is wrong with a text, or undefined. */
export type Judge = (text: string) => Promise<string | undefined>;

export interface Salvaged {
  readonly plan: BgpPlan;
  /** What was left out, and what BIRD said of it. */
  readonly problems: readonly Problem[];
}

/** Undefined when it is neither: then nothing can be saved. */
export async function salvage(
  plan: BgpPlan,
  family: IpVersion,
  inputs: RenderInputs,
  judge: Judge,
): Promise<Salvaged | undefined> {
  const judgePlan = (part: Partial<BgpPlan>) => judge(birdConfiguration({ ...plan, ...part }, family, inputs));
  if ((await judgePlan({ peers: [], bgpFilters: [] })) !== undefined) return undefined;
  const problems: Problem[] = [];
  const badFunctions = new Set<string>();
  for (const filter of plan.bgpFilters.filter((each) => each.family === family)) {
    const reason = await judgePlan({ peers: [], bgpFilters: [filter] });
    if (reason === undefined) continue;
    badFunctions.add(filter.function);
    problems.push({ object: `BGPFilter(${filter.name})`, problem: `BIRD refuses ${filter.function}: ${reason}` });
  }
  const bgpFilters = plan.bgpFilters.filter((filter) => !badFunctions.has(filter.function));
  const badPeers = new Set<PlannedPeer>();
  for (const peer of plan.peers.filter((each) => each.family === family)) {
    const lost = [...peer.importFilters, ...peer.exportFilters].find((call) => badFunctions.has(call.function));
    const reason =
      lost === undefined ? await judgePlan({ peers: [peer], bgpFilters }) : `its filter ${lost.function} is refused`;
    if (reason === undefined) continue;
    badPeers.add(peer);
    problems.push({ object: peer.because, problem: `no session with ${peer.neighbor}: ${reason}` });
  }
  if (problems.length === 0) return undefined;
  return { plan: { ...plan, bgpFilters, peers: plan.peers.filter((peer) => !badPeers.has(peer)) }, problems };
}
