// Counts what the policies of one namespace use on this node: rules, IP sets, terms of selectors, and members of the sets.
//
// Without a limit, the owner of a namespace could fill the memory of every node that runs one of its pods (one policy may
// use 1,000 sets, and each set may contain every pod of the cluster), or slow down the calculation for all others (each new
// pod of the cluster is matched with each term). The limits are per namespace, so that only the policies of that namespace
// are affected: they deny everything. Whether a namespace is over its limit depends only on the current state of the
// datastore, not on the order of changes.
//
// A rule that selects peers in all namespaces also selects the network sets of other tenants, who could close the policy by
// adding prefixes. Members that come from network sets and services of other namespaces are therefore counted separately. If
// only these exceed the limit, the policy continues to work without them (restrict-rule.ts). Endpoints are not counted
// separately: a tenant has few of them, and each contributes few members (`usedPorts`). The number of objects in a namespace is limited by a ResourceQuota, not here.
import type { ParsedSelector } from "../../model/index.ts";
import type { IpSetSpec } from "../ipsets/ip-set.ts";
import type { IpSetId } from "../messages.ts";

/** With 5,000 sets the kernel needs less than a second to create them all; the time grows with the square. */
const MAX_SETS_PER_NAMESPACE = 5000;
/** 1,000,000 members need about 0.5 GB, most of it in the kernel (nftables: 350 bytes each). */
const MAX_MEMBERS_PER_NAMESPACE = 1_000_000;

/** A pod whose labels no other pod has is matched with each term of each selector: 20,000 terms take 2 ms. */
const MAX_TERMS_PER_NAMESPACE = 20_000;
/** Ten Kubernetes policies of the largest size. The kernel needs about 1 kB for each rule, in each direction. */
const MAX_RULES_PER_NAMESPACE = 50_000;

export type LimitState =
  | "within-limits"
  | "too-many-rules"
  | "too-many-sets"
  | "too-many-terms"
  | "too-many-members"
  /** The policies work, but without the network sets and services of other namespaces. */
  | "too-many-foreign-members";

/** The number of members of a set; 0 for one that is not counted. */
export interface MemberCounts {
  all(id: IpSetId): number;
  /** Those that network sets and services of other namespaces contribute. */
  foreign(id: IpSetId, namespace: string): number;
}

/** What one policy uses. */
export interface PolicyUsage {
  readonly sets: ReadonlyMap<IpSetId, IpSetSpec>;
  readonly ruleCount: number;
}

export class NamespaceUsage {
  /** IDs of the policies of the namespace. */
  readonly policies = new Set<string>();
  /** The number of policies that use each set. */
  readonly #sets = new Map<IpSetId, number>();
  /** The number of sets that are defined by each selector. */
  readonly #selectors = new Map<ParsedSelector, number>();
  #terms = 0;
  #rules = 0;
  state: LimitState = "within-limits";

  constructor(readonly name: string) {}

  usesAny(ids: ReadonlySet<IpSetId>): boolean {
    return !this.#sets.keys().every((id) => !ids.has(id));
  }

  use({ sets, ruleCount }: PolicyUsage): void {
    this.#rules += ruleCount;
    for (const [id, { content }] of sets) {
      const users = this.#sets.get(id) ?? 0;
      this.#sets.set(id, users + 1);
      if (users === 0 && content.kind !== "service") this.#addToSelector(content.selector, 1);
    }
  }

  release({ sets, ruleCount }: PolicyUsage): void {
    this.#rules -= ruleCount;
    for (const [id, { content }] of sets) {
      const users = this.#sets.get(id) ?? 0;
      if (users > 1) this.#sets.set(id, users - 1);
      else {
        this.#sets.delete(id);
        if (content.kind !== "service") this.#addToSelector(content.selector, -1);
      }
    }
  }

  /** The terms of a selector count once, even if several sets of named ports are defined by it. */
  #addToSelector(selector: ParsedSelector, change: 1 | -1): void {
    const before = this.#selectors.get(selector) ?? 0;
    if (before + change > 0) this.#selectors.set(selector, before + change);
    else this.#selectors.delete(selector);
    if (before === 0) this.#terms += selector.termCount;
    else if (before + change === 0) this.#terms -= selector.termCount;
  }

  /**
   * Computes the state again.
   * @returns true if the state changed
   */
  update(counts: MemberCounts): boolean {
    const before = this.state;
    this.state = this.#computeState(counts);
    return this.state !== before;
  }

  #computeState(counts: MemberCounts): LimitState {
    if (this.#rules > MAX_RULES_PER_NAMESPACE) return "too-many-rules";
    if (this.#sets.size > MAX_SETS_PER_NAMESPACE) return "too-many-sets";
    if (this.#terms > MAX_TERMS_PER_NAMESPACE) return "too-many-terms";
    let own = 0;
    let foreign = 0;
    for (const id of this.#sets.keys()) {
      const foreignOfSet = counts.foreign(id, this.name);
      foreign += foreignOfSet;
      own += counts.all(id) - foreignOfSet;
      if (own > MAX_MEMBERS_PER_NAMESPACE) return "too-many-members";
    }
    return own + foreign > MAX_MEMBERS_PER_NAMESPACE ? "too-many-foreign-members" : "within-limits";
  }
}
