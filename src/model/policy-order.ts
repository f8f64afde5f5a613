// Defines the evaluation order of policy: tiers by order, then by name; policies of a tier by order, then by
// `name/namespace/kind`, so that policies with equal order are evaluated in the same sequence on every node. Tiers and
// policies without an order come last.
import type { PolicyKey } from "./keys/keys.ts";

export interface Ordered {
  readonly order?: number;
}

export function compareTiers(a: Ordered & { readonly name: string }, b: Ordered & { readonly name: string }): number {
  return compareOrder(a, b) || compareText(a.name, b.name);
}

type PolicyId = Pick<PolicyKey, "kind" | "namespace" | "name">;

export function comparePolicies(a: Ordered & PolicyId, b: Ordered & PolicyId): number {
  return compareOrder(a, b) || compareText(tieBreaker(a), tieBreaker(b));
}

const tieBreaker = ({ name, namespace, kind }: PolicyId): string => `${name}/${namespace}/${kind}`;

function compareOrder(a: Ordered, b: Ordered): number {
  const left = a.order ?? Number.POSITIVE_INFINITY;
  const right = b.order ?? Number.POSITIVE_INFINITY;
  return left === right ? 0 : left < right ? -1 : 1;
}

const compareText = (a: string, b: string): number => (a === b ? 0 : a < b ? -1 : 1);
