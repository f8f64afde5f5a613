// Determines the chains of an endpoint's tiers: of single policies, or of groups of policies with the same selector.
import type { PolicyId, TierInfo } from "../../calc/index.ts";
import { type ChainNames, type Direction, isStaged, policyGroupName } from "../rules/names.ts";
import type { TierChains } from "../rules/endpoint-chains.ts";

export const policyKey = (id: PolicyId): string => `${id.kind}/${id.namespace}/${id.name}`;

/** A group of several enforced policies, which has its own chain. */
export interface PolicyGroup {
  readonly chain: string;
  readonly policyChains: readonly string[];
}

export interface TierPlan {
  readonly tiers: readonly TierChains[];
  readonly groups: readonly PolicyGroup[];
}

/** @param selectorOf returns the selector of a policy as canonical text */
export function planTiers(
  names: ChainNames,
  tiers: readonly TierInfo[],
  direction: Direction,
  selectorOf: (id: PolicyId) => string,
): TierPlan {
  const planned: TierChains[] = [];
  const groups: PolicyGroup[] = [];
  for (const tier of tiers) {
    const policies = direction === "ingress" ? tier.ingressPolicies : tier.egressPolicies;
    if (policies.length === 0) continue; // the tier has no policies in this direction
    const chains: string[] = [];
    for (const members of groupsOf(policies, selectorOf)) {
      const enforced = members.filter((id) => !isStaged(id));
      const policyChains = enforced.map((id) => names.policy(direction, id));
      const [first] = members;
      if (enforced.length <= 1 || first === undefined) chains.push(...policyChains);
      else {
        const chain = policyGroupName(direction, selectorOf(first), members);
        groups.push({ chain, policyChains });
        chains.push(chain);
      }
    }
    const isEnforced = policies.some((id) => !isStaged(id));
    planned.push({ name: tier.name, chains, endsInDrop: isEnforced && tier.defaultAction !== "Pass" });
  }
  return { tiers: planned, groups };
}

/** Groups consecutive policies with equal selectors. */
function groupsOf(policies: readonly PolicyId[], selectorOf: (id: PolicyId) => string): PolicyId[][] {
  const groups: PolicyId[][] = [];
  let last: string | undefined;
  for (const id of policies) {
    const selector = selectorOf(id);
    if (selector === last) groups.at(-1)?.push(id);
    else groups.push([id]);
    last = selector;
  }
  return groups;
}
