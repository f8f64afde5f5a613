// Counts the IP sets that the policies of one namespace use on this node, and their members.
//
// One policy may use 1,000 sets, and each set may contain every pod of the cluster: without a limit, the owner of a
// namespace could fill the memory of every node that runs one of its pods. The limits are per namespace, so that only the
// policies of that namespace are affected. Whether a namespace is over its limit depends only on the current state of the
// datastore, not on the order of changes.
import type { IpSetSpec } from "../ipsets/ip-set.ts";
import type { IpSetId } from "../messages.ts";

/** With 5,000 sets the kernel needs less than a second to create them all; the time grows with the square. */
const MAX_SETS_PER_NAMESPACE = 5000;
/** 1,000,000 members need about 0.5 GB, most of it in the kernel (nftables: 350 bytes each). */
const MAX_MEMBERS_PER_NAMESPACE = 1_000_000;

export type LimitState = "within-limits" | "too-many-sets" | "too-many-members";

export class NamespaceUsage {
  /** IDs of the policies of the namespace. */
  readonly policies = new Set<string>();
  /** The number of policies that use each set. */
  readonly #sets = new Map<IpSetId, number>();
  state: LimitState = "within-limits";

  constructor(readonly name: string) {}

  uses(id: IpSetId): boolean {
    return this.#sets.has(id);
  }

  use(sets: ReadonlyMap<IpSetId, IpSetSpec>): void {
    for (const id of sets.keys()) this.#sets.set(id, (this.#sets.get(id) ?? 0) + 1);
  }

  release(sets: ReadonlyMap<IpSetId, IpSetSpec>): void {
    for (const id of sets.keys()) {
      const users = this.#sets.get(id) ?? 0;
      if (users > 1) this.#sets.set(id, users - 1);
      else this.#sets.delete(id);
    }
  }

  /**
   * Computes the state again.
   * @param memberCount the number of members of a set; 0 for one that is not counted
   * @returns true if the state changed
   */
  update(memberCount: (id: IpSetId) => number): boolean {
    const before = this.state;
    this.state = this.#computeState(memberCount);
    return this.state !== before;
  }

  #computeState(memberCount: (id: IpSetId) => number): LimitState {
    if (this.#sets.size > MAX_SETS_PER_NAMESPACE) return "too-many-sets";
    let members = 0;
    for (const id of this.#sets.keys()) {
      members += memberCount(id);
      if (members > MAX_MEMBERS_PER_NAMESPACE) return "too-many-members";
    }
    return "within-limits";
  }
}
