import { expect, test } from "bun:test";
import { checkCreate, checkUpdate } from "./preconditions.ts";
import { API_VERSION, type Metadata, type Resource } from "./resource.ts";
import { keepStatus, nameWorkloadEndpoint, withReadDefaults, withStatus, withWriteDefaults } from "./write-defaults.ts";

const make = (kind: Resource["kind"], metadata: Partial<Metadata>, spec: unknown = {}, status?: unknown): Resource => ({
  apiVersion: API_VERSION,
  kind,
  metadata: { name: "x", ...metadata },
  spec,
  ...(status === undefined ? {} : { status }),
});
const fields = (faults: readonly { readonly field: string }[]) => faults.map((fault) => fault.field);

test("DM-109 a create has a name, no revision, and a namespace exactly when its kind has one", () => {
  expect(checkCreate(make("IPPool", {}))).toEqual([]);
  expect(checkCreate(make("NetworkPolicy", { namespace: "ns" }))).toEqual([]);
  expect(fields(checkCreate(make("IPPool", { name: "" })))).toEqual(["metadata.name"]);
  expect(fields(checkCreate(make("IPPool", { name: "", generateName: "a-" })))).toEqual(["metadata.generateName"]);
  expect(fields(checkCreate(make("IPPool", { resourceVersion: "5" })))).toEqual(["metadata.resourceVersion"]);
  expect(fields(checkCreate(make("NetworkPolicy", {})))).toEqual(["metadata.namespace"]);
  expect(fields(checkCreate(make("IPPool", { namespace: "ns" })))).toEqual(["metadata.namespace"]);
});

test("DM-109 an update names the revision, the identity and the age of what it replaces", () => {
  const metadata = { resourceVersion: "5", uid: "u", creationTimestamp: "2026-01-01T00:00:00Z" };
  expect(checkUpdate(make("IPPool", metadata))).toEqual([]);
  expect(fields(checkUpdate(make("IPPool", {})))).toEqual([
    "metadata.resourceVersion",
    "metadata.creationTimestamp",
    "metadata.uid",
  ]);
});

test("DM-110 a status write changes only the status, a spec write leaves it", () => {
  const stored = make("Tier", { resourceVersion: "5", labels: { a: "b" } }, { order: 1 }, { conditions: [] });
  const wanted = make(
    "Tier",
    { resourceVersion: "5" },
    { order: 2 },
    { conditions: [{ type: "Ready", status: "True" }] },
  );
  expect(withStatus(stored, wanted)).toEqual({ ...stored, status: wanted.status });
  expect(keepStatus(stored, wanted)).toEqual({ ...wanted, status: stored.status });
});

test("DM-046 policies carry their tier in a label, set on write and defaulted on read", () => {
  const label = "projectcalico.org/tier";
  const written = withWriteDefaults(
    make("GlobalNetworkPolicy", { labels: { a: "b", [label]: "wrong" } }, { tier: "sec" }),
  );
  expect(written.metadata.labels).toEqual({ a: "b", [label]: "sec" });
  const old = withReadDefaults(make("NetworkPolicy", { namespace: "ns" }, { order: 1 }));
  expect(old.metadata.labels).toEqual({ [label]: "default" });
  expect(old.spec).toEqual({ order: 1, tier: "default" });
  const pool = make("IPPool", {});
  expect(withWriteDefaults(pool)).toBe(pool);
  const staged = make("StagedKubernetesNetworkPolicy", { namespace: "ns" });
  expect(withWriteDefaults(staged)).toBe(staged);
});

test("DM-114 a workload endpoint's name and labels follow its spec", () => {
  const spec = { node: "n1", orchestrator: "k8s", pod: "p1", endpoint: "eth0" };
  const unnamed = make("WorkloadEndpoint", { name: "", namespace: "ns" }, spec);
  expect(nameWorkloadEndpoint(unnamed)).toMatchObject({ metadata: { name: "n1-k8s-p1-eth0" } });
  const wrong = nameWorkloadEndpoint(make("WorkloadEndpoint", { name: "other", namespace: "ns" }, spec));
  expect(wrong).toEqual([
    { field: "metadata.name", value: "other", reason: "want n1-k8s-p1-eth0, as the spec has it" },
  ]);
  const lacking = nameWorkloadEndpoint(make("WorkloadEndpoint", {}, { ...spec, pod: undefined }));
  expect(lacking).toMatchObject([{ field: "spec.pod" }]);
  const labels = { app: "a", "projectcalico.org/namespace": "faked" };
  expect(withWriteDefaults(make("WorkloadEndpoint", { namespace: "ns", labels }, spec)).metadata.labels).toEqual({
    app: "a",
    "projectcalico.org/namespace": "ns",
    "projectcalico.org/orchestrator": "k8s",
  });
});
