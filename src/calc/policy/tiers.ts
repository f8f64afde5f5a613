// Orders tiers and the policies in them, and splits an endpoint's policies into the lists of the endpoint message.
import type { Tier } from "../../model/index.ts";
import { policyId } from "../ids.ts";
import type { PolicyId, TierInfo } from "../messages.ts";
import type { IndexedPolicy } from "./active-rules.ts";

export class TierTable {
  readonly #tiers = new Map<string, Tier>();

  get size(): number {
    return this.#tiers.size;
  }
  get(name: string): Tier | undefined {
    return this.#tiers.get(name);
  }
  set(name: string, tier: Tier | undefined): void {
    if (tier === undefined) this.#tiers.delete(name);
    else this.#tiers.set(name, tier);
  }

  /** Existing tiers first, then tiers that only policies refer to; then by `order`, undefined last; then by name. */
  readonly compare = (a: string, b: string): number => {
    if (a === b) return 0;
    const tierA = this.#tiers.get(a);
    const tierB = this.#tiers.get(b);
    if ((tierA === undefined) !== (tierB === undefined)) return tierA === undefined ? 1 : -1;
    return compareOrders(tierA?.order, tierB?.order) || (a < b ? -1 : 1);
  };

  readonly comparePolicies = (a: IndexedPolicy, b: IndexedPolicy): number =>
    this.compare(a.policy.tier, b.policy.tier) ||
    compareOrders(a.policy.order, b.policy.order) ||
    (a.sortKey < b.sortKey ? -1 : a.sortKey > b.sortKey ? 1 : 0);

  /** Returns the action for traffic that no policy of the tier decides: Deny if the tier does not exist. */
  defaultAction(name: string): "Deny" | "Pass" {
    return this.#tiers.get(name)?.defaultAction ?? "Deny";
  }
}

function compareOrders(a: number | undefined, b: number | undefined): number {
  if (a === b) return 0;
  if (a === undefined) return 1;
  if (b === undefined) return -1;
  return a - b;
}

export interface EndpointTiers {
  readonly normal: readonly TierInfo[];
  readonly untracked: readonly TierInfo[];
  readonly preDnat: readonly TierInfo[];
  readonly forward: readonly TierInfo[];
}

/** @param policies sorted with `comparePolicies` */
export function splitByHook(policies: readonly IndexedPolicy[], tiers: TierTable): EndpointTiers {
  const normal = new TierList();
  const untracked = new TierList();
  const preDnat = new TierList();
  const forward = new TierList();
  for (const active of policies) {
    const { policy } = active;
    const ingress = policy.types.length === 0 || policy.types.includes("ingress");
    const egress = policy.types.length === 0 || policy.types.includes("egress");
    const id = policyId(active.key);
    if (policy.untracked === true) untracked.add(policy.tier, "Pass", id, ingress, egress);
    else if (policy.preDnat === true) preDnat.add(policy.tier, "Pass", id, ingress, false);
    else {
      const action = tiers.defaultAction(policy.tier);
      normal.add(policy.tier, action, id, ingress, egress);
      if (policy.applyOnForward === true) forward.add(policy.tier, action, id, ingress, egress);
    }
  }
  return { normal: normal.tiers, untracked: untracked.tiers, preDnat: preDnat.tiers, forward: forward.tiers };
}

interface TierInfoBuilder extends TierInfo {
  readonly ingressPolicies: PolicyId[];
  readonly egressPolicies: PolicyId[];
}

class TierList {
  readonly tiers: TierInfoBuilder[] = [];

  add(name: string, defaultAction: "Deny" | "Pass", id: PolicyId, ingress: boolean, egress: boolean): void {
    if (!ingress && !egress) return;
    let tier = this.tiers.at(-1);
    if (tier?.name !== name) this.tiers.push((tier = { name, ingressPolicies: [], egressPolicies: [], defaultAction }));
    if (ingress) tier.ingressPolicies.push(id);
    if (egress) tier.egressPolicies.push(id);
  }
}
