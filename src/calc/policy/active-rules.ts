// Finds the active policies and profiles of this host: policies that select a local endpoint, and profiles that a local
// endpoint lists. All other policies and profiles of the cluster are only stored. A listed profile that does not exist
// denies everything.
import {
  type HostEndpoint,
  type Labels,
  type ParsedSelector,
  type Policy,
  type PolicyKey,
  type ProfileRules,
  type WorkloadEndpoint,
} from "../../model/index.ts";
import { type EndpointKey, policyKeyText } from "../ids.ts";
import { LabelIndex, LabelItem, SelectorEntry } from "../labels/index.ts";

/** A local endpoint with the policies that select it. `ActiveRules` writes it, `PolicyResolver` reads it. */
export class LocalEndpoint extends LabelItem {
  readonly policies = new Set<IndexedPolicy>();
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

/** A policy of the cluster with the local endpoints that it selects. */
export class IndexedPolicy {
  readonly endpoints = new Set<LocalEndpoint>();
  /** Determines the order of policies with equal `order`. */
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

/** Receives the local endpoints that a selector passed to `addSelection` selects. */
export interface SelectionListener {
  onSelected(selector: ParsedSelector, endpoint: EndpointKey): void;
  onDeselected(selector: ParsedSelector, endpoint: EndpointKey): void;
}

class PolicySelector extends SelectorEntry {
  readonly policies = new Set<IndexedPolicy>();
  readonly listeners = new Set<SelectionListener>();
}

export interface ActiveRulesListener {
  onPolicyActive(policy: IndexedPolicy): void;
  onPolicyInactive(policy: IndexedPolicy): void;
  onProfileActive(name: string, rules: ProfileRules): void;
  onProfileInactive(name: string): void;
  /** The endpoint's policies, or their order, changed. */
  onEndpointPoliciesChanged(endpoint: LocalEndpoint): void;
  /** A local endpoint lists a profile that does not exist. */
  onProfileMissing(name: string): void;
}

const DENY_ALL: ProfileRules = {
  inboundRules: [{ action: "deny", source: {}, destination: {} }],
  outboundRules: [{ action: "deny", source: {}, destination: {} }],
};
const NEEDED_ON_EVERY_NODE = "AssumeNeededOnEveryNode";

export class ActiveRules {
  readonly #index: LabelIndex<LocalEndpoint, PolicySelector>;
  readonly #endpoints = new Map<string, LocalEndpoint>();
  readonly #policies = new Map<string, IndexedPolicy>();
  readonly #profiles = new Map<string, ProfileRules>();
  /** The number of local endpoints that list the profile. */
  readonly #profileUsers = new Map<string, number>();
  readonly #selectors = new Map<ParsedSelector, PolicySelector>();
  readonly #listener: ActiveRulesListener;
  #activePolicies = 0;

  constructor(listener: ActiveRulesListener) {
    this.#listener = listener;
    this.#index = new LabelIndex({
      onMatchStarted: (entry, endpoint) => {
        for (const policy of entry.policies) this.#startMatch(policy, endpoint);
        for (const each of entry.listeners) each.onSelected(entry.selector, endpoint.key);
      },
      onMatchStopped: (entry, endpoint) => {
        for (const policy of entry.policies) this.#stopMatch(policy, endpoint);
        for (const each of entry.listeners) each.onDeselected(entry.selector, endpoint.key);
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
      const added = new IndexedPolicy(id, key, policy, this.#selectorEntry(policy.selector));
      this.#policies.set(id, added);
      if (isNeededOnEveryNode(policy)) this.#activate(added);
      this.#attach(added);
      return;
    }
    if (Bun.deepEquals(known.policy, policy, true)) return;
    const before = known.policy;
    known.policy = policy;
    if (before.selector !== policy.selector) {
      // Marked active during the change, so that no removal is emitted if the policy still selects an endpoint.
      const wasActive = known.isActive;
      known.isActive = true;
      this.#detach(known);
      known.selector = this.#selectorEntry(policy.selector);
      this.#attach(known);
      known.isActive = wasActive;
    } else if (affectsPolicyLists(before, policy))
      for (const endpoint of known.endpoints) this.#listener.onEndpointPoliciesChanged(endpoint);
    if (!isNeeded(known)) this.#deactivate(known);
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
    if (this.#profileUsers.has(name)) this.#emitProfile(name);
  }

  setProfileLabels(name: string, labels: Labels | undefined): void {
    this.#index.setParentLabels(name, labels);
    while (this.#index.reevaluateNext());
  }

  /** Called at the end of a resync: before that, a missing profile may still arrive. */
  reportMissingProfiles(): void {
    for (const name of this.#profileUsers.keys()) if (!this.#profiles.has(name)) this.#listener.onProfileMissing(name);
  }

  // --- selectors of other parts of the graph -------------------------------------------------------------------
  addSelection(selector: ParsedSelector, listener: SelectionListener): void {
    const entry = this.#selectorEntry(selector);
    entry.listeners.add(listener);
    for (const endpoint of this.#index.matchesOf(entry)) listener.onSelected(selector, endpoint.key);
  }

  removeSelection(selector: ParsedSelector, listener: SelectionListener): void {
    const entry = this.#selectors.get(selector);
    if (entry === undefined || !entry.listeners.delete(listener)) return;
    for (const endpoint of this.#index.matchesOf(entry)) listener.onDeselected(selector, endpoint.key);
    this.#removeUnusedSelector(entry);
  }

  // --- internal ------------------------------------------------------------------------------------------------
  #selectorEntry(selector: ParsedSelector): PolicySelector {
    let entry = this.#selectors.get(selector);
    if (entry !== undefined) return entry;
    entry = new PolicySelector(selector);
    this.#selectors.set(selector, entry);
    this.#index.addSelector(entry);
    return entry;
  }

  #removeUnusedSelector(entry: PolicySelector): void {
    if (entry.policies.size > 0 || entry.listeners.size > 0) return;
    this.#selectors.delete(entry.selector);
    this.#index.removeSelector(entry);
  }

  #attach(policy: IndexedPolicy): void {
    policy.selector.policies.add(policy);
    for (const endpoint of this.#index.matchesOf(policy.selector)) this.#startMatch(policy, endpoint);
  }

  #detach(policy: IndexedPolicy): void {
    policy.selector.policies.delete(policy);
    for (const endpoint of [...policy.endpoints]) this.#stopMatch(policy, endpoint, { keepActive: true });
    this.#removeUnusedSelector(policy.selector);
  }

  #startMatch(policy: IndexedPolicy, endpoint: LocalEndpoint): void {
    policy.endpoints.add(endpoint);
    endpoint.policies.add(policy);
    if (!policy.isActive) this.#activate(policy);
    this.#listener.onEndpointPoliciesChanged(endpoint);
  }

  #stopMatch(policy: IndexedPolicy, endpoint: LocalEndpoint, options?: { readonly keepActive: boolean }): void {
    policy.endpoints.delete(endpoint);
    endpoint.policies.delete(policy);
    this.#listener.onEndpointPoliciesChanged(endpoint);
    if (options?.keepActive !== true && !isNeeded(policy)) this.#deactivate(policy);
  }

  /** If the policy is already active, emits it again, because it changed. */
  #activate(policy: IndexedPolicy): void {
    if (!policy.isActive) this.#activePolicies++;
    policy.isActive = true;
    this.#listener.onPolicyActive(policy);
  }

  #deactivate(policy: IndexedPolicy): void {
    if (!policy.isActive) return;
    this.#activePolicies--;
    policy.isActive = false;
    this.#listener.onPolicyInactive(policy);
  }

  #useProfiles(before: readonly string[], after: readonly string[]): void {
    for (const name of after) {
      const users = this.#profileUsers.get(name) ?? 0;
      this.#profileUsers.set(name, users + 1);
      if (users === 0) this.#emitProfile(name);
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

  #emitProfile(name: string): void {
    const rules = this.#profiles.get(name);
    if (rules === undefined) this.#listener.onProfileMissing(name);
    this.#listener.onProfileActive(name, rules ?? DENY_ALL);
  }
}

/** The hint of a namespaced policy is ignored: its author must not decide which policies other nodes program. */
const isNeededOnEveryNode = ({ namespace, performanceHints }: Policy): boolean =>
  namespace === undefined && performanceHints?.includes(NEEDED_ON_EVERY_NODE) === true;
const isNeeded = (policy: IndexedPolicy): boolean => policy.endpoints.size > 0 || isNeededOnEveryNode(policy.policy);

/** Returns true if the change can affect an endpoint's lists of policies. */
function affectsPolicyLists(a: Policy, b: Policy): boolean {
  return (
    a.tier !== b.tier ||
    a.order !== b.order ||
    a.untracked !== b.untracked ||
    a.preDnat !== b.preDnat ||
    a.applyOnForward !== b.applyOnForward ||
    a.types.join() !== b.types.join()
  );
}
