// Selectors of the policies in use: consecutive policies with one selector share a chain, so endpoints must know when
// one changes.
import type { PolicyId, TierInfo } from "../../calc/index.ts";
import type { Manager, ManagerMessage } from "../manager.ts";
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

  /** What changed since the last round stays known during this one. */
  resolve(): void {
    this.#recent = new Set(this.#changed);
    this.#changed.clear();
  }

  readonly of = (id: PolicyId): string => this.#selectors.get(policyKey(id)) ?? "";

  get hasChanges(): boolean {
    return this.#recent.size > 0;
  }

  /** Whether a policy of these tiers has a new selector in this round. */
  touches(tiers: readonly TierInfo[]): boolean {
    return tiers.some((tier) =>
      [...tier.ingressPolicies, ...tier.egressPolicies].some((id) => this.#recent.has(policyKey(id))),
    );
  }
}
