// Active policies and profiles, their rules turned into rules over IP sets, and which sets those need. A set is active
// while any rule uses it. Within one change new sets come before old ones go, and the sets come before the rules.
import type { Policy, PolicyKey, ProfileRules, Rule } from "../../model/index.ts";
import type { IpSetSpec } from "../ipsets/ip-set.ts";
import type { IpSetId, ProtoPolicy, ProtoProfile, ProtoRule } from "../messages.ts";
import { type ConversionContext, convertRule } from "./convert.ts";
import { nameRules } from "./rule-ids.ts";
import { SelectorSets } from "./selector-sets.ts";

export interface RuleScannerListener {
  onIpSetActive(set: IpSetSpec): void;
  onIpSetInactive(set: IpSetSpec): void;
  /** The policy needs too many IP sets. It denies everything. */
  onPolicyTooLarge(key: PolicyKey): void;
  onPolicyActive(key: PolicyKey, policy: ProtoPolicy): void;
  onPolicyInactive(key: PolicyKey): void;
  onProfileActive(name: string, profile: ProtoProfile): void;
  onProfileInactive(name: string): void;
}

/**
 * The kernel finds a set by comparing all names, and has room for 65,534 sets (ipset): the time for N sets grows with N², and
 * one policy with 65,000 selectors would leave no set for the others on the node.
 */
const MOST_SETS = 1000;

class TooManySets extends Error {
  override readonly name = "TooManySets";
}

const DENY: Rule = { action: "deny", source: {}, destination: {} };

interface ActiveSet {
  readonly spec: IpSetSpec;
  users: number;
}

export class RuleScanner {
  readonly #listener: RuleScannerListener;
  readonly #selectorSets = new SelectorSets();
  readonly #sets = new Map<IpSetId, ActiveSet>();
  /** The sets each owner uses. */
  readonly #used = new Map<string, ReadonlyMap<IpSetId, IpSetSpec>>();

  constructor(listener: RuleScannerListener) {
    this.#listener = listener;
  }

  /** How many sets the active rules use. */
  get setCount(): number {
    return this.#sets.size;
  }

  /** @param id what tells this policy from all others */
  setPolicy(id: string, key: PolicyKey, policy: Policy): void {
    const used = new Map<IpSetId, IpSetSpec>();
    const { inbound, outbound } = this.#convertPolicy(key, policy, used);
    const proto: ProtoPolicy = {
      inboundRules: nameRules(inbound, `pol-in-default/${key.name}`),
      outboundRules: nameRules(outbound, `pol-out-default/${key.name}`),
      untracked: policy.untracked ?? false,
      preDnat: policy.preDnat ?? false,
      namespace: policy.namespace ?? "",
      originalSelector: this.#selectorSets.canonical(policy.selector),
      performanceHints: policy.performanceHints ?? [],
      tier: policy.tier,
    };
    this.#use(`policy ${id}`, used, () => this.#listener.onPolicyActive(key, proto));
  }

  deletePolicy(id: string, key: PolicyKey): void {
    this.#listener.onPolicyInactive(key);
    this.#use(`policy ${id}`, new Map(), () => {});
  }

  setProfile(name: string, profile: ProfileRules): void {
    const used = new Map<IpSetId, IpSetSpec>();
    const proto: ProtoProfile = {
      inboundRules: nameRules(this.#convert(profile.inboundRules, used), `prof-in-${name}`),
      outboundRules: nameRules(this.#convert(profile.outboundRules, used), `prof-out-${name}`),
    };
    this.#use(`profile ${name}`, used, () => this.#listener.onProfileActive(name, proto));
  }

  deleteProfile(name: string): void {
    this.#listener.onProfileInactive(name);
    this.#use(`profile ${name}`, new Map(), () => {});
  }

  #use(owner: string, used: ReadonlyMap<IpSetId, IpSetSpec>, between: () => void): void {
    const before = this.#used.get(owner);
    if (used.size === 0) this.#used.delete(owner);
    else this.#used.set(owner, used);
    for (const [id, spec] of used) if (before?.has(id) !== true) this.#claim(id, spec);
    between();
    if (before !== undefined) for (const id of before.keys()) if (!used.has(id)) this.#release(id);
  }

  #claim(id: IpSetId, spec: IpSetSpec): void {
    const active = this.#sets.get(id);
    if (active !== undefined) {
      active.users++;
      return;
    }
    this.#sets.set(id, { spec, users: 1 });
    this.#listener.onIpSetActive(spec);
  }

  #release(id: IpSetId): void {
    const active = this.#sets.get(id);
    if (active === undefined || --active.users > 0) return;
    this.#sets.delete(id);
    this.#listener.onIpSetInactive(active.spec);
  }

  #convertPolicy(
    key: PolicyKey,
    { inboundRules, outboundRules }: Policy,
    used: Map<IpSetId, IpSetSpec>,
  ): { readonly inbound: ProtoRule[]; readonly outbound: ProtoRule[] } {
    try {
      return { inbound: this.#convert(inboundRules, used), outbound: this.#convert(outboundRules, used) };
    } catch (error) {
      if (!(error instanceof TooManySets)) throw error;
      used.clear();
      this.#listener.onPolicyTooLarge(key);
      const deny = (rules: readonly Rule[]) => this.#convert(rules.length === 0 ? [] : [DENY], used);
      return { inbound: deny(inboundRules), outbound: deny(outboundRules) };
    }
  }

  #convert(rules: readonly Rule[], used: Map<IpSetId, IpSetSpec>): ProtoRule[] {
    const context: ConversionContext = {
      selectorSets: this.#selectorSets,
      use: (set) => {
        used.set(set.id, set);
        if (used.size > MOST_SETS) throw new TooManySets();
        return set.id;
      },
    };
    return rules.map((rule) => convertRule(rule, context));
  }
}
