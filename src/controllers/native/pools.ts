// Which pools may give addresses, where several claim the same range: one of them at a time, and the one that does so
// already keeps the right. Pure.
import { type Cidr, cidrsOverlap } from "../../lib/ip.ts";

export interface PoolFacts {
  readonly name: string;
  readonly cidr: Cidr | undefined;
  readonly isDisabled: boolean;
  readonly isDeleting: boolean;
  /** What its condition says today; undefined when nobody has judged it. */
  readonly allocatable: boolean | undefined;
  /** And why. */
  readonly reason: string;
  readonly hasFinalizer: boolean;
  readonly createdAt: string;
}

export type Verdict = "OK" | "Disabled" | "Terminating" | "CIDROverlap";
export const MESSAGES: Readonly<Record<Verdict, string>> = {
  OK: "",
  Disabled: "the pool is switched off by spec.disabled",
  Terminating: "the pool is being deleted",
  CIDROverlap: "the range overlaps that of another pool, which gives its addresses",
};

export function judgePools(pools: readonly PoolFacts[]): ReadonlyMap<string, Verdict> {
  const verdicts = new Map<string, Verdict>();
  const taken: Cidr[] = [];
  for (const pool of [...pools].sort(byRight)) {
    const verdict = judge(pool, taken);
    verdicts.set(pool.name, verdict);
    // One that is going holds its range until its last block is gone; one that is switched off holds nothing.
    if (pool.cidr !== undefined && (verdict === "OK" || verdict === "Terminating")) taken.push(pool.cidr);
  }
  return verdicts;
}

function judge({ cidr, isDisabled, isDeleting }: PoolFacts, taken: readonly Cidr[]): Verdict {
  if (isDisabled) return "Disabled";
  if (isDeleting) return "Terminating";
  return cidr === undefined || taken.some((other) => cidrsOverlap(other, cidr)) ? "CIDROverlap" : "OK";
}

/** Who gives addresses now, then who is going, then who was refused before, then who is new; the elder first. */
function byRight(a: PoolFacts, b: PoolFacts): number {
  const rank = ({ allocatable, isDeleting }: PoolFacts) =>
    isDeleting ? 1 : allocatable === true ? 0 : allocatable === false ? 2 : 3;
  const words = (pool: PoolFacts) => `${rank(pool)} ${pool.createdAt} ${pool.name}`;
  return words(a) < words(b) ? -1 : 1;
}
