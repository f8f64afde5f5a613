// Converts the rules of active policies and profiles to rules over IP sets, and decides which IP sets exist.
//
// Matching the selectors of a large policy with a large cluster takes seconds. `settle` therefore does the work in steps,
// each for one set or one policy:
//
// 1. Count the members of the sets that the policy uses: their selectors are matched, but nothing is stored.
// 2. If the namespace of the policy uses too many sets or members (namespace-usage.ts), the policy denies everything.
// 3. Otherwise fill the sets. Then emit the policy, and remove the sets that are no longer used.
import type { Policy, PolicyKey, ProfileRules, Rule } from "../../model/index.ts";
import type { IpSetSpec } from "../ipsets/ip-set.ts";
import type { IpSetId, ProtoPolicy, ProtoProfile, ProtoRule } from "../messages.ts";
import { type ConversionContext, convertRule } from "./convert.ts";
import { type LimitState, NamespaceUsage } from "./namespace-usage.ts";
import { assignRuleIds } from "./rule-ids.ts";

export interface RuleScannerListener {
  /** The members of the set are to be counted. */
  onIpSetUsed(set: IpSetSpec): void;
  onIpSetUnused(set: IpSetSpec): void;
  /** The set is to be filled. It is used already. */
  onIpSetActive(set: IpSetSpec): void;
  onIpSetInactive(set: IpSetSpec): void;
  /** The policy needs too many IP sets. It denies everything. */
  onPolicyTooLarge(key: PolicyKey): void;
  /** The policies of the namespace deny everything, unless the state is "within-limits". */
  onNamespaceLimit(namespace: string, state: LimitState): void;
  onPolicyActive(key: PolicyKey, policy: ProtoPolicy): void;
  onPolicyInactive(key: PolicyKey): void;
  onProfileActive(name: string, profile: ProtoProfile): void;
  onProfileInactive(name: string): void;
}

/**
 * The kernel finds a set by comparing all names, so the time to create N sets grows with N². ipset also supports at most
 * 65,534 sets: one policy with 65,000 selectors would leave no sets for the other policies of the node.
 */
const MAX_SETS_PER_POLICY = 1000;

class TooManySets extends Error {
  override readonly name = "TooManySets";
}

const DENY: Rule = { action: "deny", source: {}, destination: {} };

type Sets = Map<IpSetId, IpSetSpec>;
const NO_SETS: Sets = new Map();

interface UsedSet {
  readonly spec: IpSetSpec;
  /** The number of policies and profiles for which the set is counted. */
  users: number;
  /** The number of policies and profiles for which the set is filled. */
  fillers: number;
}

/** A policy or profile with its converted rules. */
interface RuleOwner {
  readonly namespace: NamespaceUsage | undefined;
  /** The sets that its rules use. */
  readonly sets: Sets;
  /** The sets that are counted and filled for it: `sets` itself or NO_SETS, except while work is left for `settle`. */
  counted: Sets;
  filled: Sets;
  /** Whether the members of its sets are part of the namespace's usage. */
  isUsageKnown: boolean;
  readonly emit: (isOverLimit: boolean) => void;
}

interface ConvertedRules {
  readonly inbound: ProtoRule[];
  readonly outbound: ProtoRule[];
}

export class RuleScanner {
  readonly #listener: RuleScannerListener;
  readonly #memberCount: (id: IpSetId) => number;
  readonly #sets = new Map<IpSetId, UsedSet>();
  readonly #owners = new Map<string, RuleOwner>();
  readonly #namespaces = new Map<string, NamespaceUsage>();
  // Work that is left for `settle`.
  readonly #unsettledOwners = new Set<string>();
  readonly #unsettledNamespaces = new Set<NamespaceUsage>();
  readonly #resizedSets = new Set<IpSetId>();
  readonly #unusedSets = new Set<UsedSet>();

  /** @param memberCount the number of members of a used set; 0 for any other */
  constructor(listener: RuleScannerListener, memberCount: (id: IpSetId) => number) {
    this.#listener = listener;
    this.#memberCount = memberCount;
  }

  /** The number of sets that rules use. */
  get setCount(): number {
    return this.#sets.size;
  }

  /** @param id identifies the policy among all others */
  setPolicy(id: string, key: PolicyKey, policy: Policy): void {
    const sets = new Map<IpSetId, IpSetSpec>();
    // Kept only until it is emitted: few policies are emitted again without a change, but there may be thousands of them.
    let converted: ConvertedRules | undefined = this.#convertPolicy(key, policy, sets);
    this.#setOwner(`policy ${id}`, policy.namespace, sets, (isOverLimit) => {
      const { inbound, outbound } = isOverLimit
        ? this.#denyAll(policy)
        : (converted ?? this.#convertPolicy(key, policy, new Map()));
      converted = undefined;
      this.#listener.onPolicyActive(key, {
        inboundRules: assignRuleIds(inbound, `pol-in-default/${key.name}`),
        outboundRules: assignRuleIds(outbound, `pol-out-default/${key.name}`),
        untracked: policy.untracked ?? false,
        preDnat: policy.preDnat ?? false,
        namespace: policy.namespace ?? "",
        originalSelector: policy.selector.canonical,
        performanceHints: policy.performanceHints ?? [],
        tier: policy.tier,
      });
    });
  }

  deletePolicy(id: string, key: PolicyKey): void {
    this.#deleteOwner(`policy ${id}`, () => this.#listener.onPolicyInactive(key));
  }

  setProfile(name: string, profile: ProfileRules): void {
    const sets = new Map<IpSetId, IpSetSpec>();
    const proto: ProtoProfile = {
      inboundRules: assignRuleIds(this.#convert(profile.inboundRules, sets), `prof-in-${name}`),
      outboundRules: assignRuleIds(this.#convert(profile.outboundRules, sets), `prof-out-${name}`),
    };
    this.#setOwner(`profile ${name}`, undefined, sets, () => this.#listener.onProfileActive(name, proto));
  }

  deleteProfile(name: string): void {
    this.#deleteOwner(`profile ${name}`, () => this.#listener.onProfileInactive(name));
  }

  /** Must be called when the number of members of a used set has changed. */
  onMemberCount(id: IpSetId): void {
    this.#resizedSets.add(id);
  }

  /**
   * Does the work that the other methods left, step by step.
   * @param isTimeUp called after each step
   * @returns false if the time was up and work is left
   */
  settle(isTimeUp: () => boolean = () => false): boolean {
    while (this.#step()) if (isTimeUp()) return false;
    return true;
  }

  /** Namespaces whose usage may have changed although no rule did. */
  #collectResized(): void {
    if (this.#resizedSets.size === 0) return;
    for (const namespace of this.#namespaces.values())
      if (this.#resizedSets.values().some((id) => namespace.uses(id))) this.#unsettledNamespaces.add(namespace);
    this.#resizedSets.clear();
  }

  /** Returns false if nothing is left to do. */
  #step(): boolean {
    if (this.#unsettledOwners.size === 0) this.#collectResized();
    for (const namespace of this.#unsettledNamespaces) {
      this.#unsettledNamespaces.delete(namespace);
      this.#updateNamespace(namespace);
      return true;
    }
    for (const id of this.#unsettledOwners) {
      const owner = this.#owners.get(id);
      if (owner === undefined || this.#settleOwner(owner)) this.#unsettledOwners.delete(id);
      return true;
    }
    for (const set of this.#unusedSets) {
      this.#unusedSets.delete(set);
      if (set.users > 0) return true;
      this.#sets.delete(set.spec.id);
      this.#listener.onIpSetUnused(set.spec);
      return true;
    }
    return false;
  }

  /** Does one step for a policy or profile. Returns true if it was the last one. */
  #settleOwner(owner: RuleOwner): boolean {
    const state = owner.namespace?.state ?? "within-limits";
    const toCount = state === "too-many-sets" ? NO_SETS : owner.sets;
    for (const [id, spec] of toCount)
      if (!owner.counted.has(id)) {
        this.#count(owner, id, spec);
        return false;
      }
    if (owner.namespace !== undefined && !owner.isUsageKnown) {
      owner.isUsageKnown = true;
      this.#unsettledNamespaces.add(owner.namespace);
      return false;
    }
    const toFill = state === "within-limits" ? owner.sets : NO_SETS;
    for (const [id, spec] of toFill)
      if (!owner.filled.has(id)) {
        this.#fill(owner, id, spec);
        return false;
      }
    owner.emit(state !== "within-limits");
    this.#release(owner, { toCount, toFill });
    return true;
  }

  #updateNamespace(namespace: NamespaceUsage): void {
    if (!namespace.update(this.#memberCount)) return;
    this.#listener.onNamespaceLimit(namespace.name, namespace.state);
    for (const id of namespace.policies) this.#unsettle(id);
  }

  #unsettle(id: string): void {
    const owner = this.#owners.get(id);
    if (owner === undefined) return;
    // Copied, because `settle` changes them step by step.
    owner.counted = new Map(owner.counted);
    owner.filled = new Map(owner.filled);
    this.#unsettledOwners.add(id);
  }

  #setOwner(id: string, namespaceName: string | undefined, sets: Sets, emit: RuleOwner["emit"]): void {
    const before = this.#owners.get(id);
    const namespace = namespaceName === undefined ? undefined : this.#namespace(namespaceName);
    namespace?.policies.add(id);
    namespace?.use(sets);
    if (before !== undefined) this.#leaveNamespace(id, before, namespace);
    const { counted = NO_SETS, filled = NO_SETS } = before ?? {};
    this.#owners.set(id, { namespace, sets, counted, filled, isUsageKnown: false, emit });
    if (namespace !== undefined) this.#unsettledNamespaces.add(namespace);
    this.#unsettle(id);
  }

  #deleteOwner(id: string, emit: () => void): void {
    emit();
    const owner = this.#owners.get(id);
    if (owner === undefined) return;
    this.#owners.delete(id);
    this.#leaveNamespace(id, owner, undefined);
    this.#release(owner, { toCount: NO_SETS, toFill: NO_SETS });
  }

  #leaveNamespace(id: string, { namespace, sets }: RuleOwner, next: NamespaceUsage | undefined): void {
    if (namespace === undefined) return;
    namespace.release(sets);
    this.#unsettledNamespaces.add(namespace);
    if (namespace === next) return;
    namespace.policies.delete(id);
    if (namespace.policies.size === 0) this.#namespaces.delete(namespace.name);
  }

  #namespace(name: string): NamespaceUsage {
    let namespace = this.#namespaces.get(name);
    if (namespace === undefined) this.#namespaces.set(name, (namespace = new NamespaceUsage(name)));
    return namespace;
  }

  #count(owner: RuleOwner, id: IpSetId, spec: IpSetSpec): void {
    const known = this.#sets.get(id);
    const set = known ?? { spec, users: 0, fillers: 0 };
    set.users++;
    // Thousands of policies may use the same set, so they share its definition.
    owner.sets.set(id, set.spec);
    owner.counted.set(id, set.spec);
    if (known === undefined) {
      this.#sets.set(id, set);
      this.#listener.onIpSetUsed(spec);
    }
  }

  #fill(owner: RuleOwner, id: IpSetId, spec: IpSetSpec): void {
    owner.filled.set(id, spec);
    const set = this.#sets.get(id);
    if (set !== undefined && ++set.fillers === 1) this.#listener.onIpSetActive(spec);
  }

  /** Releases the sets that the owner no longer needs. */
  #release(owner: RuleOwner, { toCount, toFill }: { readonly toCount: Sets; readonly toFill: Sets }): void {
    for (const [id, spec] of owner.filled) {
      if (toFill.has(id)) continue;
      const set = this.#sets.get(id);
      if (set !== undefined && --set.fillers === 0) this.#listener.onIpSetInactive(spec);
    }
    owner.filled = toFill;
    for (const id of owner.counted.keys()) {
      if (toCount.has(id)) continue;
      const set = this.#sets.get(id);
      if (set !== undefined && --set.users === 0) this.#unusedSets.add(set);
    }
    owner.counted = toCount;
  }

  #convertPolicy(key: PolicyKey, policy: Policy, used: Map<IpSetId, IpSetSpec>): ConvertedRules {
    try {
      return { inbound: this.#convert(policy.inboundRules, used), outbound: this.#convert(policy.outboundRules, used) };
    } catch (error) {
      if (!(error instanceof TooManySets)) throw error;
      used.clear();
      this.#listener.onPolicyTooLarge(key);
      return this.#denyAll(policy);
    }
  }

  #denyAll({ inboundRules, outboundRules }: Policy): ConvertedRules {
    const deny = (rules: readonly Rule[]) => this.#convert(rules.length === 0 ? [] : [DENY], new Map());
    return { inbound: deny(inboundRules), outbound: deny(outboundRules) };
  }

  #convert(rules: readonly Rule[], used: Map<IpSetId, IpSetSpec>): ProtoRule[] {
    const context: ConversionContext = {
      use: (set) => {
        used.set(set.id, set);
        if (used.size > MAX_SETS_PER_POLICY) throw new TooManySets();
        return set.id;
      },
    };
    return rules.map((rule) => convertRule(rule, context));
  }
}
