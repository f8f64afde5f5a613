import { expect, test } from "bun:test";
import { API_VERSION, type Resource } from "../resource.ts";
import { loadSchema } from "../validation/schemas.ts";

const newer: Resource = {
  apiVersion: API_VERSION,
  kind: "GlobalNetworkPolicy",
  metadata: { name: "p" },
  spec: {
    tier: "default",
    selector: "all()",
    types: ["Ingress"],
    ingress: [{ action: "Allow" }, { action: "Deny", source: { beam: { me: "up" } } }],
    hints: ["of", "the", "future"],
  },
};
const spec = newer.spec as Record<string, unknown>;
const policy = await loadSchema("GlobalNetworkPolicy");

test("unknown fields that are already stored are preserved", () => {
  const changed = { ...newer, metadata: { name: "p", labels: { a: "b" } }, spec: { ...spec, order: 5 } };
  for (const result of [
    policy.validate(changed, "update", { stored: newer }),
    policy.decode(changed, { stored: newer }),
  ])
    expect(result).toMatchObject({
      ok: true,
      resource: { metadata: { labels: { a: "b" } }, spec: { ...spec, order: 5 } },
    });
});

test("an object that contains only an unknown field is preserved", () => {
  const stored = { ...newer, spec: { ...spec, ingress: [{ action: "Allow", metadata: { later: 1 } }] } };
  const result = policy.decode(stored, { stored });
  expect(result).toMatchObject({ ok: true, resource: { spec: stored.spec } });
});

test("unknown fields cannot be added, moved or changed", () => {
  const faultsOf = (changed: unknown, stored?: Resource) => {
    const result = policy.validate(changed, "update", { stored });
    return result.ok ? [] : result.faults.map(({ field }) => field);
  };
  expect(faultsOf(newer)).toEqual(["spec.ingress[1].source.beam", "spec.hints"]);
  expect(faultsOf({ ...newer, spec: { ...spec, hints: ["of", "the", "past"] } }, newer)).toEqual(["spec.hints"]);
  expect(faultsOf({ ...newer, spec: { ...spec, more: 1 } }, newer)).toEqual(["spec.more"]);
  const moved = { ...newer, spec: { ...spec, ingress: (spec["ingress"] as unknown[]).toReversed() } };
  expect(faultsOf(moved, newer)).toEqual(["spec.ingress[0].source.beam"]);
});

test("inherited properties such as constructor do not count as stored fields", () => {
  const result = policy.decode({ ...newer, spec: { ...spec, constructor: {} } }, { stored: newer });
  expect(result.ok).toBe(false);
});

test("in mode stored, unknown fields are accepted and wrong types are rejected", () => {
  expect(policy.decode(newer, { mode: "stored" }).ok).toBe(true);
  expect(policy.decode({ ...newer, spec: { ...spec, ingress: "all" } }, { mode: "stored" })).toMatchObject({
    ok: false,
    faults: [{ field: "spec.ingress" }],
  });
});
