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

test("fields we do not know stay when they stand there already", () => {
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

test("a group that holds nothing else comes back with its field", () => {
  const stored = { ...newer, spec: { ...spec, ingress: [{ action: "Allow", metadata: { later: 1 } }] } };
  const result = policy.decode(stored, { stored });
  expect(result).toMatchObject({ ok: true, resource: { spec: stored.spec } });
});

test("nobody brings in, moves or changes one", () => {
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

test("names that objects are born with are no stored fields", () => {
  const result = policy.decode({ ...newer, spec: { ...spec, constructor: {} } }, { stored: newer });
  expect(result.ok).toBe(false);
});

test("read as stored, unknown fields pass and wrong types do not", () => {
  expect(policy.decode(newer, { mode: "stored" }).ok).toBe(true);
  expect(policy.decode({ ...newer, spec: { ...spec, ingress: "all" } }, { mode: "stored" })).toMatchObject({
    ok: false,
    faults: [{ field: "spec.ingress" }],
  });
});
