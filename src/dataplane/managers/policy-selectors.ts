// Keeps the selectors of active policies. Consecutive policies with the same selector share a chain, so the chains of endpoints
// must be updated when a selector changes.
import type { PolicyId, TierInfo } from "../../calc/index.ts";
import type { Manager, ManagerMessage } from "../loop/manager.ts";
import { policyKey } from "./tier-chains.ts";

export class PolicySelectors implements Manager {
  readonly name = "policy selectors";
  readonly #selectors = new Map<string, string>();
  readonly #changed = new Set<string>();
  #recent: ReadonlySet<string> = new Set();

  onUpdate(message: ManagerMessage): void {
    if (message.type === "activePolicyUpdate") {
      const key = policyKey(message.id);
      if (this.#selectors.get(key) === message.policy.originalSelector) return;
      this.#selectors.set(key, message.policy.originalSelector);
      this.#changed.add(key);
    } else if (message.type === "activePolicyRemove") this.#selectors.delete(policyKey(message.id));
  }

  /** Makes the changes since the last round available during this round. */
  resolve(): void {
    this.#recent = new Set(this.#changed);
    this.#changed.clear();
  }

  readonly of = (id: PolicyId): string => this.#selectors.get(policyKey(id)) ?? "";

  get hasChanges(): boolean {
    return this.#recent.size > 0;
  }

  /** True if the selector of a policy in these tiers changed in this round. */
  touches(tiers: readonly TierInfo[]): boolean {
    return tiers.some((tier) =>
      [...tier.ingressPolicies, ...tier.egressPolicies].some((id) => this.#recent.has(policyKey(id))),
    );
  }
}
