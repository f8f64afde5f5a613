import { expect, test } from "bun:test";
import { API_VERSION, type Resource } from "../../model/index.ts";
import { withTierLabel } from "./policy-hooks.ts";

const policy = (spec: unknown, labels: Record<string, string> = {}): Resource => ({
  apiVersion: API_VERSION,
  kind: "GlobalNetworkPolicy",
  metadata: { name: "x", labels },
  spec,
});

test("DM-046 a policy has its tier as a label, which overrides a given value", () => {
  const label = "projectcalico.org/tier";
  expect(withTierLabel(policy({ tier: "sec" }, { a: "b", [label]: "wrong" })).metadata.labels).toEqual({
    a: "b",
    [label]: "sec",
  });
  expect(withTierLabel(policy({})).metadata.labels).toEqual({ [label]: "default" });
  expect(withTierLabel(policy({ tier: "" })).metadata.labels).toEqual({ [label]: "default" });
});
