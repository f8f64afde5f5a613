import { expect, test } from "bun:test";
import { API_VERSION, type Resource } from "../../model/index.ts";
import { withReadDefaults } from "./read-defaults.ts";

const read = (kind: Resource["kind"], spec: unknown, status?: unknown) => {
  const given: Resource = { apiVersion: API_VERSION, kind, metadata: { name: "x" }, spec };
  return withReadDefaults(status === undefined ? given : { ...given, status });
};

test("a pool with only a CIDR is read with the defaults of its IP family", () => {
  const defaults = {
    vxlanMode: "Never",
    ipipMode: "Never",
    nodeSelector: "all()",
    allowedUses: ["Workload", "Tunnel"],
    assignmentMode: "Automatic",
  };
  expect(read("IPPool", { cidr: "10.0.0.0/16" }).spec).toEqual({ cidr: "10.0.0.0/16", blockSize: 26, ...defaults });
  expect(read("IPPool", { cidr: "fd00::/48", blockSize: 0, nodeSelector: "", allowedUses: [] }).spec).toEqual({
    cidr: "fd00::/48",
    blockSize: 122,
    ...defaults,
  });
  const complete = {
    ...defaults,
    cidr: "10.0.0.0/16",
    blockSize: 28,
    ipipMode: "Always",
    allowedUses: ["LoadBalancer"],
  };
  expect(read("IPPool", complete).spec).toBe(complete);
});

test("a tier without an order has the default tier's order; 0 is an order", () => {
  expect(read("Tier", {}).spec).toEqual({ order: 1_000_000, defaultAction: "Deny" });
  expect(read("Tier", { order: 0, defaultAction: "Pass" }).spec).toEqual({ order: 0, defaultAction: "Pass" });
});

test("kinds that always have a status are read with an initial status", () => {
  for (const kind of ["Tier", "KubeControllersConfiguration"] as const) expect(read(kind, {}).status).toEqual({});
  expect(read("CalicoNodeStatus", {}).status).toMatchObject({ lastUpdated: null, routes: {} });
  expect(read("Tier", {}, { conditions: [] }).status).toEqual({ conditions: [] });
  expect(read("IPPool", { cidr: "10.0.0.0/16" }).status).toBeUndefined();
});

test("other kinds, and a spec that is not an object, are not changed", () => {
  const set: Resource = { apiVersion: API_VERSION, kind: "NetworkSet", metadata: { name: "x" }, spec: {} };
  expect(withReadDefaults(set)).toBe(set);
  expect(read("IPPool", "odd").spec).toBe("odd");
});
