// Decides which pools may assign addresses. Of several pools with overlapping ranges only one may; a pool that already assigns
// addresses has precedence. Pure.
import { type Cidr, cidrsOverlap } from "../../lib/ip/ip.ts";

export interface PoolFacts {
  readonly name: string;
  readonly cidr: Cidr | undefined;
  readonly isDisabled: boolean;
  readonly isDeleting: boolean;
  /** Status of the condition `Allocatable`; undefined if the pool has no such condition. */
  readonly allocatable: boolean | undefined;
  /** Reason of the same condition. */
  readonly reason: string;
  readonly hasFinalizer: boolean;
  readonly createdAt: string;
}

export type AllocatableReason = "OK" | "Disabled" | "Terminating" | "CIDROverlap";
export const MESSAGES: Readonly<Record<AllocatableReason, string>> = {
  OK: "",
  Disabled: "the pool is disabled by spec.disabled",
  Terminating: "the pool is being deleted",
  CIDROverlap: "the CIDR overlaps the CIDR of another pool, which has precedence",
};

export function evaluatePools(pools: readonly PoolFacts[]): ReadonlyMap<string, AllocatableReason> {
  const reasons = new Map<string, AllocatableReason>();
  const takenCidrs: Cidr[] = [];
  for (const pool of [...pools].sort(byPrecedence)) {
    const reason = evaluatePool(pool, takenCidrs);
    reasons.set(pool.name, reason);
    // A pool that is being deleted blocks its range until its last block is deleted. A disabled pool blocks nothing.
    if (pool.cidr !== undefined && (reason === "OK" || reason === "Terminating")) takenCidrs.push(pool.cidr);
  }
  return reasons;
}

function evaluatePool({ cidr, isDisabled, isDeleting }: PoolFacts, takenCidrs: readonly Cidr[]): AllocatableReason {
  if (isDisabled) return "Disabled";
  if (isDeleting) return "Terminating";
  return cidr === undefined || takenCidrs.some((other) => cidrsOverlap(other, cidr)) ? "CIDROverlap" : "OK";
}

/** Order: allocatable pools, pools being deleted, pools rejected before, new pools; within each group, the oldest first. */
function byPrecedence(a: PoolFacts, b: PoolFacts): number {
  const rank = ({ allocatable, isDeleting }: PoolFacts) =>
    isDeleting ? 1 : allocatable === true ? 0 : allocatable === false ? 2 : 3;
  const sortKey = (pool: PoolFacts) => `${rank(pool)} ${pool.createdAt} ${pool.name}`;
  return sortKey(a) < sortKey(b) ? -1 : 1;
}
