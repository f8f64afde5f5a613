import { expect, test } from "bun:test";
import { createLogger, type LogRecord, silentLogger } from "../lib/log/log.ts";
import { objectsLeftPerRound } from "../lib/testing/heap-growth.ts";
import { loadSchemas, type WorkloadEndpoint } from "../model/index.ts";
import type { SyncerUpdate } from "./syncer.ts";
import { ValidationFilter, type ValidationFilterOptions } from "./validation-filter.ts";

function bench(options: Partial<ValidationFilterOptions> = {}) {
  const reports: LogRecord[] = [];
  const log = createLogger({ level: "debug", write: (record) => reports.push(record) });
  const filter = new ValidationFilter({ log, allowSpoofing: false, ...options });
  return { filter, reports, check: (update: object) => filter.check(update as SyncerUpdate).value };
}

const key = { type: "workloadEndpoint", host: "h", orchestrator: "k8s", workload: "a/b", endpoint: "eth0" } as const;
const value: WorkloadEndpoint = {
  state: "active",
  name: "cali1",
  profileIds: [],
  ipv4Nets: [],
  ipv6Nets: [],
  labels: {},
  ports: [],
};

test("FC-039 FC-040 TC-T02 an invalid value counts as absent, is reported once, and everything else is passed on", () => {
  const { check, reports } = bench();
  expect(check({ key, value, change: "new" })).toBe(value);
  expect(check({ key, value: { ...value, name: "" }, change: "new" })).toBeUndefined();
  expect(check({ key, value: { ...value, name: "" }, change: "updated" })).toBeUndefined();
  expect(reports.map(({ fields }) => fields["reason"])).toEqual(["the workload endpoint has no interface name"]);
  expect(reports[0]?.fields["key"]).toContain("/workload/k8s/a%2fb/");
});

const changes = [
  { name: "another fault", between: { ...value, allowSpoofedSourcePrefixes: ["10.0.0.0/8"] }, reports: 3 },
  { name: "a valid value", between: value, reports: 2 },
  { name: "a deletion", between: undefined, reports: 2 },
];
for (const { name, between, reports: want } of changes)
  test(`FC-040 a fault is reported again after ${name}`, () => {
    const { check, reports } = bench();
    for (const each of [{ ...value, name: "" }, between, { ...value, name: "" }])
      check({ key, value: each, change: "updated" });
    expect(reports).toHaveLength(want);
  });

test("endpoints with allowSpoofedSourcePrefixes are accepted only with allowSpoofing", () => {
  const spoofing = { key, value: { ...value, allowSpoofedSourcePrefixes: ["10.0.0.0/8"] }, change: "new" };
  expect(bench().check(spoofing)).toBeUndefined();
  expect(bench({ allowSpoofing: true }).check(spoofing)).toBe(spoofing.value as never);
});

test("labels of another namespace are removed from a NetworkSet", () => {
  const { check } = bench();
  const labels = { app: "x", "pcns.team": "monitoring", "pcsa.a": "b", "projectcalico.org/orchestrator": "k8s" };
  const labelsOf = (name: string, own: object) => {
    const set = { nets: [], labels: own, profileIds: [] };
    return check({ key: { type: "networkSet", name }, value: set, change: "new" }) as { readonly labels: object };
  };
  expect(labelsOf("evil/s", { ...labels, "projectcalico.org/namespace": "monitoring" }).labels).toEqual({
    app: "x",
    "projectcalico.org/namespace": "evil",
  });
  expect(labelsOf("global", labels).labels).toEqual(labels);
  expect(check({ key: { type: "networkSet", name: "evil/s" }, value: undefined, change: "deleted" })).toBeUndefined();
});

test("an EndpointSlice with too many ports times addresses counts as absent and is reported", () => {
  const limited = bench({ maxSliceMembers: 100_000 });
  const slice = (addresses: number, ports: number) => ({
    key: { type: "resource", kind: "KubernetesEndpointSlice", name: "web", namespace: "ns1" },
    value: {
      ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", metadata: { name: "web", namespace: "ns1" } },
      endpoints: Array.from({ length: addresses / 100 }, () => ({ addresses: Array<string>(100).fill("10.0.0.1") })),
      ports: Array.from({ length: ports }, (_, i) => ({ port: 1 + i })),
    },
    change: "new",
  });
  for (const fine of [slice(100_000, 0), slice(100_000, 1), slice(1000, 100)])
    expect(limited.check(fine)).toBeDefined();
  expect(limited.reports).toEqual([]);
  expect(limited.check(slice(1000, 101))).toBeUndefined();
  expect(limited.reports[0]?.fields["reason"]).toBe("addresses times ports are 101000; the limit is 100000");
  expect(bench().check(slice(1000, 101))).toBeDefined();
});

test("resources are checked against the schemas that are given", async () => {
  const { loadSchema } = await loadSchemas();
  const strict = bench({ schemas: new Map([["BGPPeer", await loadSchema("BGPPeer")]]) });
  const peer = (name: string, spec: object) => ({
    key: { type: "resource", kind: "BGPPeer", name },
    value: { apiVersion: "projectcalico.org/v3", kind: "BGPPeer", metadata: { name }, spec },
    change: "new",
  });
  expect(strict.check(peer("good", { nodeSelector: "has(rack)" }))).toBeDefined();
  expect(strict.check(peer("bad", { nodeSelector: "has(" }))).toBeUndefined();
  expect(strict.reports[0]?.fields["reason"]).toContain("spec.nodeSelector: ");
  expect(bench().check(peer("bad", { nodeSelector: "has(" }))).toBeDefined();
});

test("as a sink, the filter keeps statuses, order and paths, and reports unreadable entries", () => {
  const passed: unknown[] = [];
  const { filter, reports } = bench();
  const sink = filter.before({
    onStatus: (status) => passed.push(status),
    onUpdates: (updates, paths) => passed.push([updates.map((update) => update.value), paths]),
    onUnreadable: (path) => passed.push(path),
  });
  sink.onStatus("resync");
  const updates = [value, { ...value, name: "" }, value].map((each) => ({ key, value: each, change: "new" }));
  sink.onUpdates(updates as SyncerUpdate[], ["a", "b", "c"]);
  for (let i = 0; i < 2; i++) sink.onUnreadable?.("/calico/x", "no JSON");
  sink.onStatus("in-sync");
  expect(passed).toEqual([
    "resync",
    [
      [value, undefined, value],
      ["a", "b", "c"],
    ],
    "/calico/x",
    "/calico/x",
    "in-sync",
  ]);
  expect(reports).toHaveLength(2);
});

test("the number of stored reports is limited", async () => {
  const filter = new ValidationFilter({ log: silentLogger, allowSpoofing: false });
  for (let i = 0; i < 20_000; i++) filter.reportUnreadable(`/calico/first-${i}`, "no JSON");
  expect(await objectsLeftPerRound((number) => filter.reportUnreadable(`/calico/${number}`, "no JSON"))).toBeLessThan(
    1,
  );
});
