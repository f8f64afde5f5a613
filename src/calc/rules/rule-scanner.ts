// Converts the rules of active policies and profiles to rules over IP sets, and decides which IP sets exist.
//
// Matching the selectors of a large policy with a large cluster takes seconds. The work is therefore done in steps:
//
// 1. Count the members of the sets that the policy uses: their selectors are matched, but nothing is stored.
// 2. If the namespace of the policy exceeds a limit (namespace-usage.ts), the policy denies everything, or is restricted.
// 3. Otherwise fill the sets. Then emit the policy, and release the sets that it no longer uses.
//
// Until then, the dataplane keeps the version of the policy that was emitted before, and its sets. Namespaces take turns, so
// that a policy that takes long, or is edited all the time, delays no policy of another namespace.
import type { Policy, PolicyKey, ProfileRules, Rule } from "../../model/index.ts";
import type { IpSetSpec } from "../ipsets/ip-set.ts";
import type { IpSetId, ProtoPolicy, ProtoProfile, ProtoRule } from "../messages.ts";
import { type ConversionContext, convertRule } from "./convert.ts";
import { type LimitState, type MemberCounts, NamespaceUsage } from "./namespace-usage.ts";
import { convertRestrictedRule } from "./restrict-rule.ts";
import { assignRuleIds } from "./rule-ids.ts";

export interface RuleScannerListener {
  /** The members of the set are to be counted. */
  onIpSetUsed(set: IpSetSpec): void;
  onIpSetUnused(set: IpSetSpec): void;
  /** Does one step of counting. Returns true if all members are counted. */
  countStep(set: IpSetSpec): boolean;
  /** The set is to be filled. Its members are counted. */
  onIpSetActive(set: IpSetSpec): void;
  onIpSetInactive(set: IpSetSpec): void;
  /** Does one step of filling. Returns true if the set is complete. */
  fillStep(set: IpSetSpec): boolean;
  /** The policy needs too many IP sets. It denies everything. */
  onPolicyTooLarge(key: PolicyKey): void;
  /** The policies of the namespace deny everything, or are restricted, unless the state is "within-limits". */
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
  readonly ruleCount: number;
  /** The sets that are counted and filled for it: `sets` itself or NO_SETS, except while it is not settled. */
  counted: Sets;
  filled: Sets;
  /** The sets that the version in the dataplane uses. They are counted and filled, too. */
  emitted: Sets;
  /** Whether this version was emitted. */
  isSettled: boolean;
  /** The steps until then; undefined before the first one. */
  steps: Iterator<void> | undefined;
  /** Whether the members of its sets are part of the namespace's usage. */
  isUsageKnown: boolean;
  /** The sets that its rules use in state "too-many-foreign-members". */
  readonly restrictedSets: () => Sets;
  readonly emit: (state: LimitState) => void;
}

interface ConvertedRules {
  readonly inbound: ProtoRule[];
  readonly outbound: ProtoRule[];
}

export class RuleScanner {
  readonly #listener: RuleScannerListener;
  readonly #memberCounts: MemberCounts;
  readonly #sets = new Map<IpSetId, UsedSet>();
  readonly #owners = new Map<string, RuleOwner>();
  readonly #namespaces = new Map<string, NamespaceUsage>();
  /** Deleted policies and profiles. The dataplane keeps them until no endpoint refers to them. */
  readonly #deleted = new Map<string, { readonly owner: RuleOwner; readonly emit: () => void }>();
  // Work that is left for `step`.
  /** Unsettled policies by namespace. A profile, or a policy without namespace, has turns of its own. */
  readonly #turns = new Map<string, Set<string>>();
  readonly #unsettledNamespaces = new Set<NamespaceUsage>();
  readonly #resizedSets = new Set<IpSetId>();
  readonly #unusedSets = new Set<UsedSet>();

  constructor(listener: RuleScannerListener, memberCounts: MemberCounts) {
    this.#listener = listener;
    this.#memberCounts = memberCounts;
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
    const ruleCount = policy.inboundRules.length + policy.outboundRules.length;
    const restrictedSets = () => {
      const used = new Map<IpSetId, IpSetSpec>();
      this.#convertPolicy(key, policy, used, policy.namespace);
      return used;
    };
    this.#setOwner(`policy ${id}`, policy.namespace, { sets, restrictedSets, ruleCount }, (state) => {
      const { inbound, outbound } =
        state === "within-limits"
          ? (converted ?? this.#convertPolicy(key, policy, new Map()))
          : state === "too-many-foreign-members"
            ? this.#convertPolicy(key, policy, new Map(), policy.namespace)
            : this.#denyAll(policy);
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
    this.#setOwner(`profile ${name}`, undefined, { sets, restrictedSets: () => sets, ruleCount: 0 }, () =>
      this.#listener.onProfileActive(name, proto),
    );
  }

  deleteProfile(name: string): void {
    this.#deleteOwner(`profile ${name}`, () => this.#listener.onProfileInactive(name));
  }

  /** Must be called when the number of members of a used set has changed. */
  onMemberCount(id: IpSetId): void {
    this.#resizedSets.add(id);
  }

  /** Returns true if the latest version of the policy was emitted. */
  isPolicySettled(id: string): boolean {
    return this.#owners.get(`policy ${id}`)?.isSettled ?? true;
  }
  isProfileSettled(name: string): boolean {
    return this.#owners.get(`profile ${name}`)?.isSettled ?? true;
  }

  /** Finds the namespaces whose usage may have changed although no rule did. */
  collectResized(): void {
    if (this.#resizedSets.size === 0) return;
    for (const namespace of this.#namespaces.values())
      if (namespace.usesAny(this.#resizedSets)) this.#unsettledNamespaces.add(namespace);
    this.#resizedSets.clear();
  }

  /**
   * Does one step of the work that the other methods left.
   * @returns false if nothing is left
   */
  step(): boolean {
    if (this.#turns.size === 0) this.collectResized();
    // One of each kind, so that a namespace that causes much work of one kind does not delay the other kinds.
    const didUpdate = this.#updateNextNamespace();
    const didStep = this.#stepNextOwner();
    const didRemove = this.#removeNextUnusedSet();
    return didUpdate || didStep || didRemove;
  }

  #updateNextNamespace(): boolean {
    for (const namespace of this.#unsettledNamespaces) {
      this.#unsettledNamespaces.delete(namespace);
      this.#updateNamespace(namespace);
      return true;
    }
    return false;
  }

  #stepNextOwner(): boolean {
    for (const [turn, ids] of this.#turns) {
      for (const id of ids) {
        const owner = this.#owners.get(id);
        if (owner === undefined || this.#stepOwner(owner)) ids.delete(id);
        break;
      }
      if (ids.size === 0) this.#turns.delete(turn);
      return true;
    }
    return false;
  }

  #removeNextUnusedSet(): boolean {
    for (const set of this.#unusedSets) {
      this.#unusedSets.delete(set);
      if (set.users > 0) return true;
      this.#sets.delete(set.spec.id);
      this.#listener.onIpSetUnused(set.spec);
      return true;
    }
    return false;
  }

  /** Ends the turn of the namespace whose policies are being settled. */
  nextTurn(): void {
    for (const [turn, ids] of this.#turns) {
      this.#turns.delete(turn);
      this.#turns.set(turn, ids);
      return;
    }
  }

  /**
   * Emits the removal of deleted policies and profiles.
   * @param isReferenced returns true for those to which an endpoint in the dataplane refers; they are kept
   */
  removeDeleted(isReferenced: (owner: { readonly kind: "policy" | "profile"; readonly id: string }) => boolean): void {
    for (const [key, { owner, emit }] of this.#deleted) {
      const [kind = "", ...id] = key.split(" ");
      if (isReferenced({ kind: kind === "policy" ? "policy" : "profile", id: id.join(" ") })) continue;
      this.#deleted.delete(key);
      emit();
      this.#release(owner, { toCount: NO_SETS, toFill: NO_SETS });
    }
  }

  /** Returns true if it was the last step. */
  #stepOwner(owner: RuleOwner): boolean {
    owner.steps ??= this.#settleOwner(owner);
    if (owner.steps.next().done !== true) return false;
    owner.isSettled = true;
    owner.steps = undefined;
    return true;
  }

  *#settleOwner(owner: RuleOwner): Generator<void> {
    const state = owner.namespace?.state ?? "within-limits"; // if it changes, the steps start again
    const toFill = this.#setsToFill(owner, state);
    const toCount = toFill === owner.sets || !isCounted(state) ? toFill : new Map([...owner.sets, ...toFill]);
    for (const [id, spec] of toCount) {
      if (!owner.counted.has(id)) {
        this.#count(owner, id, spec);
        yield;
      }
      while (!this.#listener.countStep(spec)) yield;
    }
    if (owner.namespace !== undefined) {
      if (!owner.isUsageKnown) this.#unsettledNamespaces.add(owner.namespace);
      owner.isUsageKnown = true;
      while (this.#unsettledNamespaces.has(owner.namespace)) yield;
    }
    for (const [id, spec] of toFill) {
      if (!owner.filled.has(id)) {
        this.#fill(owner, id, spec);
        yield;
      }
      while (!this.#listener.fillStep(spec)) yield;
    }
    owner.emit(state);
    owner.emitted = toFill;
    this.#release(owner, { toCount, toFill });
  }

  #setsToFill({ sets, restrictedSets }: RuleOwner, state: LimitState): Sets {
    if (state === "within-limits") return sets;
    return state === "too-many-foreign-members" ? restrictedSets() : NO_SETS;
  }

  #updateNamespace(namespace: NamespaceUsage): void {
    if (!namespace.update(this.#memberCounts)) return;
    this.#listener.onNamespaceLimit(namespace.name, namespace.state);
    for (const id of namespace.policies) this.#unsettle(id);
  }

  #unsettle(id: string): void {
    const owner = this.#owners.get(id);
    if (owner === undefined) return;
    // Copied, because they are changed step by step.
    owner.counted = new Map(owner.counted);
    owner.filled = new Map(owner.filled);
    owner.isSettled = false;
    owner.steps = undefined;
    const turn = owner.namespace === undefined ? id : `namespace ${owner.namespace.name}`;
    const ids = this.#turns.get(turn);
    if (ids === undefined) this.#turns.set(turn, new Set([id]));
    else ids.add(id);
  }

  #setOwner(
    id: string,
    namespaceName: string | undefined,
    { sets, restrictedSets, ruleCount }: Pick<RuleOwner, "sets" | "restrictedSets" | "ruleCount">,
    emit: RuleOwner["emit"],
  ): void {
    const before = this.#owners.get(id);
    const last = before ?? this.#deleted.get(id)?.owner;
    this.#deleted.delete(id);
    const namespace = namespaceName === undefined ? undefined : this.#namespace(namespaceName);
    namespace?.policies.add(id);
    namespace?.use({ sets, ruleCount });
    if (before !== undefined) this.#leaveNamespace(id, before, namespace);
    // The sets of a version that was never emitted are released now: there may be a next version before this one is settled.
    if (last?.isSettled === false) this.#releaseUnless(last, (set) => last.emitted.has(set) || sets.has(set));
    const { counted = NO_SETS, filled = NO_SETS, emitted = NO_SETS } = last ?? {};
    const state = { isUsageKnown: false, isSettled: false, steps: undefined };
    this.#owners.set(id, { namespace, sets, restrictedSets, ruleCount, counted, filled, emitted, ...state, emit });
    if (namespace !== undefined) this.#unsettledNamespaces.add(namespace);
    this.#unsettle(id);
  }

  #deleteOwner(id: string, emit: () => void): void {
    const owner = this.#owners.get(id);
    if (owner === undefined) return;
    this.#owners.delete(id);
    this.#leaveNamespace(id, owner, undefined);
    if (!owner.isSettled) this.#releaseUnless(owner, (set) => owner.emitted.has(set));
    this.#deleted.set(id, { owner, emit });
  }

  #leaveNamespace(id: string, owner: RuleOwner, next: NamespaceUsage | undefined): void {
    const { namespace } = owner;
    if (namespace === undefined) return;
    namespace.release(owner);
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
    if (owner.sets.has(id)) owner.sets.set(id, set.spec);
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
    for (const [id, spec] of owner.filled) if (!toFill.has(id)) this.#releaseFilled(id, spec);
    owner.filled = toFill;
    for (const id of owner.counted.keys()) if (!toCount.has(id)) this.#releaseCounted(id);
    owner.counted = toCount;
  }

  /** Releases the sets of an unsettled owner for which `isKept` returns false. */
  #releaseUnless(owner: RuleOwner, isKept: (id: IpSetId) => boolean): void {
    for (const [id, spec] of owner.filled)
      if (!isKept(id)) {
        owner.filled.delete(id);
        this.#releaseFilled(id, spec);
      }
    for (const id of owner.counted.keys())
      if (!isKept(id)) {
        owner.counted.delete(id);
        this.#releaseCounted(id);
      }
  }

  #releaseFilled(id: IpSetId, spec: IpSetSpec): void {
    const set = this.#sets.get(id);
    if (set !== undefined && --set.fillers === 0) this.#listener.onIpSetInactive(spec);
  }

  #releaseCounted(id: IpSetId): void {
    const set = this.#sets.get(id);
    if (set !== undefined && --set.users === 0) this.#unusedSets.add(set);
  }

  /** @param restrictTo the namespace of the policy, in state "too-many-foreign-members" */
  #convertPolicy(key: PolicyKey, policy: Policy, used: Map<IpSetId, IpSetSpec>, restrictTo?: string): ConvertedRules {
    try {
      return {
        inbound: this.#convert(policy.inboundRules, used, restrictTo),
        outbound: this.#convert(policy.outboundRules, used, restrictTo),
      };
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

  #convert(rules: readonly Rule[], used: Map<IpSetId, IpSetSpec>, restrictTo?: string): ProtoRule[] {
    const context: ConversionContext = {
      use: (set) => {
        used.set(set.id, set);
        if (used.size > MAX_SETS_PER_POLICY) throw new TooManySets();
        return set.id;
      },
    };
    if (restrictTo === undefined) return rules.map((rule) => convertRule(rule, context));
    return rules.flatMap((rule) => convertRestrictedRule(rule, restrictTo, context) ?? []);
  }
}

/** Beyond the other limits, selectors are not even matched. */
const isCounted = (state: LimitState): boolean =>
  state === "within-limits" || state === "too-many-members" || state === "too-many-foreign-members";
