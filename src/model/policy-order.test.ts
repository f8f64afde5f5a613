import { expect, test } from "bun:test";
import fc from "fast-check";
import type { PolicyKind } from "./keys/keys.ts";
import { comparePolicies, compareTiers } from "./policy-order.ts";

test("DM-042 tiers are sorted by order, then by name; tiers without order come last", () => {
  const tiers = [
    { name: "z", order: 1 },
    { name: "none" },
    { name: "b", order: 5 },
    { name: "a", order: 5 },
    { name: "also-none" },
    { name: "neg", order: -0.5 },
  ];
  expect(tiers.toSorted(compareTiers).map((tier) => tier.name)).toEqual(["neg", "z", "a", "b", "also-none", "none"]);
});

test("DM-042 policies are sorted by order, then by name/namespace/kind", () => {
  const policy = (name: string, namespace: string, kind: PolicyKind, order?: number) => ({
    name,
    namespace,
    kind,
    order,
  });
  const policies = [
    policy("b", "ns", "NetworkPolicy", 1),
    policy("a", "ns", "NetworkPolicy"),
    policy("a", "ns", "NetworkPolicy", 1),
    policy("a", "ns", "KubernetesNetworkPolicy", 1),
    policy("a", "", "GlobalNetworkPolicy", 1),
    policy("z", "", "GlobalNetworkPolicy", 0.5),
  ];
  expect(policies.toSorted(comparePolicies).map((p) => `${p.name}/${p.namespace}/${p.kind}/${p.order}`)).toEqual([
    "z//GlobalNetworkPolicy/0.5",
    "a//GlobalNetworkPolicy/1",
    "a/ns/KubernetesNetworkPolicy/1",
    "a/ns/NetworkPolicy/1",
    "b/ns/NetworkPolicy/1",
    "a/ns/NetworkPolicy/undefined",
  ]);
});

test("DM-042 the sorted order does not depend on the input order", () => {
  const arbitrary = fc.record({
    name: fc.constantFrom("a", "b", "a-b"),
    namespace: fc.constantFrom("", "ns", "ns2"),
    kind: fc.constantFrom<PolicyKind[]>("NetworkPolicy", "GlobalNetworkPolicy", "StagedNetworkPolicy"),
    order: fc.option(fc.constantFrom(1, 2, 1000.5), { nil: undefined }),
  });
  fc.assert(
    fc.property(fc.array(arbitrary, { maxLength: 8 }), (policies) => {
      expect(policies.toReversed().sort(comparePolicies)).toEqual(policies.toSorted(comparePolicies));
    }),
  );
});
