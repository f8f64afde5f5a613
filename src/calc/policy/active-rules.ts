// Which policies and profiles matter on this host: those that select a local endpoint, or that one lists. The rest of
// the cluster's policies is only remembered. A profile that an endpoint lists and nobody has defined denies everything.
import {
  type HostEndpoint,
  type Labels,
  type Policy,
  type PolicyKey,
  type ProfileRules,
  type WorkloadEndpoint,
} from "../../model/index.ts";
import { type EndpointKey, policyKeyText } from "../ids.ts";
import { LabelIndex, LabelItem, SelectorEntry } from "../labels/index.ts";

/** A local endpoint with the policies that select it. Written here, read by the resolver. */
export class LocalEndpoint extends LabelItem {
  readonly policies = new Set<ActivePolicy>();
  value: WorkloadEndpoint | HostEndpoint;

  constructor(
    readonly key: EndpointKey,
    readonly id: string,
    value: WorkloadEndpoint | HostEndpoint,
  ) {
    super();
    this.value = value;
  }
}

/** A known policy with the local endpoints it selects. */
export class ActivePolicy {
  readonly endpoints = new Set<LocalEndpoint>();
  /** Breaks ties between policies of one order. */
  readonly sortKey: string;
  selector: PolicySelector;
  isActive = false;

  constructor(
    readonly id: string,
    readonly key: PolicyKey,
    public policy: Policy,
    selector: PolicySelector,
  ) {
    this.sortKey = `${key.name}/${key.namespace}/${key.kind}`;
    this.selector = selector;
  }
}

/** Who wants to know which local endpoints a selector of its own selects. */
export interface SelectionListener {
  onSelected(selector: string, endpoint: EndpointKey): void;
  onDeselected(selector: string, endpoint: EndpointKey): void;
}

class PolicySelector extends SelectorEntry {
  readonly policies = new Set<ActivePolicy>();
  readonly listeners = new Set<SelectionListener>();
}

export interface ActiveRulesListener {
  onPolicyActive(policy: ActivePolicy): void;
  onPolicyInactive(policy: ActivePolicy): void;
  onProfileActive(name: string, rules: ProfileRules): void;
  onProfileInactive(name: string): void;
  /** The policies of the endpoint, or what orders them, changed. */
  onEndpointPoliciesChanged(endpoint: LocalEndpoint): void;
  /** An endpoint lists a profile that is not there. */
  onProfileMissing(name: string): void;
}

const DENY_ALL: ProfileRules = {
  inboundRules: [{ action: "deny", source: {}, destination: {} }],
  outboundRules: [{ action: "deny", source: {}, destination: {} }],
};
const NEEDED_EVERYWHERE = "AssumeNeededOnEveryNode";

export class ActiveRules {
  readonly #index: LabelIndex<LocalEndpoint, PolicySelector>;
  readonly #endpoints = new Map<string, LocalEndpoint>();
  readonly #policies = new Map<string, ActivePolicy>();
  readonly #profiles = new Map<string, ProfileRules>();
  /** Local endpoints that list the profile. */
  readonly #profileUsers = new Map<string, number>();
  readonly #selectors = new Map<string, PolicySelector>();
  readonly #listener: ActiveRulesListener;
  #activePolicies = 0;

  constructor(listener: ActiveRulesListener) {
    this.#listener = listener;
    this.#index = new LabelIndex({
      onMatchStarted: (selector, endpoint) => {
        for (const policy of selector.policies) this.#startMatch(policy, endpoint);
        for (const each of selector.listeners) each.onSelected(selector.text, endpoint.key);
      },
      onMatchStopped: (selector, endpoint) => {
        for (const policy of selector.policies) this.#stopMatch(policy, endpoint);
        for (const each of selector.listeners) each.onDeselected(selector.text, endpoint.key);
      },
    });
  }

  get counts(): {
    readonly policies: number;
    readonly profiles: number;
    readonly activePolicies: number;
    readonly endpoints: number;
  } {
    return {
      policies: this.#policies.size,
      profiles: this.#profiles.size,
      activePolicies: this.#activePolicies,
      endpoints: this.#endpoints.size,
    };
  }

  endpoint(id: string): LocalEndpoint | undefined {
    return this.#endpoints.get(id);
  }
  endpoints(): Iterable<LocalEndpoint> {
    return this.#endpoints.values();
  }

  // --- endpoints -----------------------------------------------------------------------------------------------
  setEndpoint(key: EndpointKey, id: string, value: WorkloadEndpoint | HostEndpoint): void {
    const known = this.#endpoints.get(id);
    const before = known?.value.profileIds ?? [];
    const endpoint = known ?? new LocalEndpoint(key, id, value);
    endpoint.value = value;
    this.#endpoints.set(id, endpoint);
    this.#useProfiles(before, value.profileIds);
    this.#index.setItem(endpoint, value.labels, value.profileIds);
  }

  deleteEndpoint(id: string): void {
    const endpoint = this.#endpoints.get(id);
    if (endpoint === undefined) return;
    this.#endpoints.delete(id);
    this.#index.deleteItem(endpoint);
    this.#useProfiles(endpoint.value.profileIds, []);
  }

  // --- policies ------------------------------------------------------------------------------------------------
  setPolicy(key: PolicyKey, policy: Policy): void {
    const id = policyKeyText(key);
    const known = this.#policies.get(id);
    if (known === undefined) {
      const added = new ActivePolicy(id, key, policy, this.#selector(policy.selector));
      this.#policies.set(id, added);
      if (isNeededEverywhere(policy)) this.#activate(added);
      this.#attach(added);
      return;
    }
    if (Bun.deepEquals(known.policy, policy, true)) return;
    const before = known.policy;
    known.policy = policy;
    if (before.selector !== policy.selector) {
      // Held active meanwhile, so that a policy that still selects somebody is never taken away in between.
      const wasActive = known.isActive;
      known.isActive = true;
      this.#detach(known);
      known.selector = this.#selector(policy.selector);
      this.#attach(known);
      known.isActive = wasActive;
    } else if (ordersDifferently(before, policy))
      for (const endpoint of known.endpoints) this.#listener.onEndpointPoliciesChanged(endpoint);
    if (!isWanted(known)) this.#deactivate(known);
    else this.#activate(known);
  }

  deletePolicy(key: PolicyKey): void {
    const id = policyKeyText(key);
    const policy = this.#policies.get(id);
    if (policy === undefined) return;
    this.#policies.delete(id);
    this.#detach(policy);
    this.#deactivate(policy);
  }

  // --- profiles ------------------------------------------------------------------------------------------------
  setProfileRules(name: string, rules: ProfileRules | undefined): void {
    const before = this.#profiles.get(name);
    if (before === rules || (rules !== undefined && Bun.deepEquals(before, rules, true))) return;
    if (rules === undefined) this.#profiles.delete(name);
    else this.#profiles.set(name, rules);
    if (this.#profileUsers.has(name)) this.#announceProfile(name);
  }

  setProfileLabels(name: string, labels: Labels | undefined): void {
    this.#index.setParentLabels(name, labels);
  }

  /** Tells of every profile that is listed and missing: at the end of a resync, when the rest is known. */
  reportMissingProfiles(): void {
    for (const name of this.#profileUsers.keys()) if (!this.#profiles.has(name)) this.#listener.onProfileMissing(name);
  }

  // --- selectors of others -------------------------------------------------------------------------------------
  addSelection(text: string, listener: SelectionListener): void {
    const selector = this.#selector(text);
    selector.listeners.add(listener);
    for (const endpoint of this.#index.matchesOf(selector)) listener.onSelected(text, endpoint.key);
  }

  removeSelection(text: string, listener: SelectionListener): void {
    const selector = this.#selectors.get(text);
    if (selector === undefined || !selector.listeners.delete(listener)) return;
    for (const endpoint of this.#index.matchesOf(selector)) listener.onDeselected(text, endpoint.key);
    this.#forget(selector);
  }

  // --- inside --------------------------------------------------------------------------------------------------
  #selector(text: string): PolicySelector {
    let selector = this.#selectors.get(text);
    if (selector !== undefined) return selector;
    selector = new PolicySelector(text);
    this.#selectors.set(text, selector);
    this.#index.addSelector(selector);
    return selector;
  }

  #forget(selector: PolicySelector): void {
    if (selector.policies.size > 0 || selector.listeners.size > 0) return;
    this.#selectors.delete(selector.text);
    this.#index.removeSelector(selector);
  }

  #attach(policy: ActivePolicy): void {
    policy.selector.policies.add(policy);
    for (const endpoint of this.#index.matchesOf(policy.selector)) this.#startMatch(policy, endpoint);
  }

  #detach(policy: ActivePolicy): void {
    policy.selector.policies.delete(policy);
    for (const endpoint of [...policy.endpoints]) this.#stopMatch(policy, endpoint, { keep: true });
    this.#forget(policy.selector);
  }

  #startMatch(policy: ActivePolicy, endpoint: LocalEndpoint): void {
    policy.endpoints.add(endpoint);
    endpoint.policies.add(policy);
    if (!policy.isActive) this.#activate(policy);
    this.#listener.onEndpointPoliciesChanged(endpoint);
  }

  #stopMatch(policy: ActivePolicy, endpoint: LocalEndpoint, options?: { readonly keep: boolean }): void {
    policy.endpoints.delete(endpoint);
    endpoint.policies.delete(policy);
    this.#listener.onEndpointPoliciesChanged(endpoint);
    if (options?.keep !== true && !isWanted(policy)) this.#deactivate(policy);
  }

  /** Also says a changed policy anew. */
  #activate(policy: ActivePolicy): void {
    if (!policy.isActive) this.#activePolicies++;
    policy.isActive = true;
    this.#listener.onPolicyActive(policy);
  }

  #deactivate(policy: ActivePolicy): void {
    if (!policy.isActive) return;
    this.#activePolicies--;
    policy.isActive = false;
    this.#listener.onPolicyInactive(policy);
  }

  #useProfiles(before: readonly string[], after: readonly string[]): void {
    for (const name of after) {
      const users = this.#profileUsers.get(name) ?? 0;
      this.#profileUsers.set(name, users + 1);
      if (users === 0) this.#announceProfile(name);
    }
    for (const name of before) {
      const users = this.#profileUsers.get(name) ?? 0;
      if (users > 1) this.#profileUsers.set(name, users - 1);
      else {
        this.#profileUsers.delete(name);
        this.#listener.onProfileInactive(name);
      }
    }
  }

  #announceProfile(name: string): void {
    const rules = this.#profiles.get(name);
    if (rules === undefined) this.#listener.onProfileMissing(name);
    this.#listener.onProfileActive(name, rules ?? DENY_ALL);
  }
}

const isNeededEverywhere = (policy: Policy): boolean => policy.performanceHints?.includes(NEEDED_EVERYWHERE) === true;
const isWanted = (policy: ActivePolicy): boolean => policy.endpoints.size > 0 || isNeededEverywhere(policy.policy);

/** Whether an endpoint's lists of policies can look different after the change. */
function ordersDifferently(a: Policy, b: Policy): boolean {
  return (
    a.tier !== b.tier ||
    a.order !== b.order ||
    a.untracked !== b.untracked ||
    a.preDnat !== b.preDnat ||
    a.applyOnForward !== b.applyOnForward ||
    a.types.join() !== b.types.join()
  );
}
