import { expect, test } from "bun:test";
import { CalculationGraph, type DataplaneMessage } from "../calc/index.ts";
import type { SyncerUpdate } from "../datastore/index.ts";
import type { HealthReport } from "../lib/health.ts";
import { type LogRecord, createLogger, silentLogger } from "../lib/log.ts";
import { objectsLeftPerRound } from "../lib/testing/heap-growth.ts";
import { MetricsRegistry } from "../lib/metrics.ts";
import { GraphRunner } from "./graph-runner.ts";
import { graphMetrics } from "./metrics/graph-metrics.ts";
import { ValidationFilter } from "./validation-filter.ts";

function bench(options: { readonly ready?: () => Promise<void> } = {}) {
  const messages: DataplaneMessage[] = [];
  const health: HealthReport[] = [];
  let now = 0;
  const registry = new MetricsRegistry();
  const graph = new CalculationGraph(
    {
      host: "here",
      withoutOverlaps: true,
      routes: "none",
      vteps: false,
      ambientMesh: false,
      ownsNoEncapRoutes: false,
      toRawConfig: () => ({}),
    },
    { onMessage: (message) => messages.push(message) },
  );
  const flushes: number[] = [];
  const flush = graph.flush.bind(graph);
  graph.flush = () => {
    flushes.push(now);
    flush();
  };
  const metrics = graphMetrics(registry, "here");
  const runner = new GraphRunner({
    graph,
    driver: { send: () => {}, ready: options.ready ?? (() => Promise.resolve()) },
    filter: new ValidationFilter({ log: silentLogger, allowSpoofing: false, onRefused: () => metrics.onRefused() }),
    log: silentLogger,
    health: (report) => health.push(report),
    metrics,
    onFailure: (error) => {
      throw error;
    },
    now: () => now,
  });
  return { runner, messages, health, flushes, registry, wait: (ms: number) => (now += ms) };
}
const host = (n: number): SyncerUpdate => ({
  key: { type: "resource", kind: "Node", name: `n${n}` },
  value: { apiVersion: "projectcalico.org/v3", kind: "Node", metadata: { name: `n${n}` }, spec: {} },
  change: "new",
});
const turn = () => new Promise((resolve) => setImmediate(resolve));

test("FC-041 nothing is said before the first in-sync, then everything, then in-sync once", async () => {
  const { runner, messages, health } = bench();
  runner.onStatus("resync");
  runner.onUpdates([host(1)]);
  expect(messages).toEqual([]);
  expect(health.at(-1)).toEqual({ live: true, ready: false });
  runner.onStatus("in-sync");
  await turn();
  expect(messages.map(({ type }) => type)).toEqual(["hostMetadataUpdate", "encapsulation", "inSync"]);
  expect(health.at(-1)).toEqual({ live: true, ready: true });
  runner.onStatus("resync");
  runner.onStatus("in-sync");
  runner.onUpdates([host(2)]);
  await turn();
  expect(messages.map(({ type }) => type).slice(3)).toEqual(["hostMetadataUpdate"]);
});

test("FC-041 ten flushes in a row, then one per ten milliseconds", async () => {
  const { runner, flushes, wait } = bench();
  runner.onStatus("in-sync");
  await turn();
  for (let n = 0; n < 30; n++) {
    runner.onUpdates([host(n)]);
    await turn();
  }
  expect(flushes).toHaveLength(10);
  wait(10);
  await new Promise((resolve) => setTimeout(resolve, 30)); // its timer is a real one
  expect(flushes).toHaveLength(11);
  wait(1000);
  for (let n = 0; n < 30; n++) {
    runner.onUpdates([host(n + 100)]);
    await turn();
  }
  expect(flushes.length).toBeLessThanOrEqual(22);
});

test("FC-109 while the dataplane is busy nothing is flushed, and changes are joined", async () => {
  let free: () => void = () => {};
  const { runner, messages, flushes } = bench({ ready: () => new Promise((resolve) => (free = resolve)) });
  runner.onStatus("in-sync");
  await turn();
  for (let n = 0; n < 5; n++) runner.onUpdates([host(1)]);
  await turn();
  expect(flushes).toHaveLength(1);
  free();
  await turn();
  expect(flushes).toHaveLength(2);
  expect(messages.filter(({ type }) => type === "hostMetadataUpdate")).toHaveLength(1);
});

test("FC-105 a hung graph stops reporting", () => {
  const { runner, health } = bench();
  runner.onStatus("resync");
  const before = health.length;
  runner.hang();
  runner.onStatus("in-sync");
  expect(health).toHaveLength(before);
});

test("selectors of policies that are gone are not kept for long", async () => {
  const filter = new ValidationFilter({ log: silentLogger, allowSpoofing: false });
  const check = (selector: string) =>
    filter.check({
      key: { type: "policy", kind: "GlobalNetworkPolicy", namespace: "", name: "p" },
      value: { tier: "default", selector, types: ["ingress"], inboundRules: [], outboundRules: [] },
      change: "updated",
    } as unknown as SyncerUpdate);
  const left = await objectsLeftPerRound((number) => void check(`app == 'a${number}'`));
  expect(left).toBeLessThan(0.5);
});

test("a NetworkSet that some Typha left with another namespace's labels has none of them", () => {
  const filter = new ValidationFilter({ log: silentLogger, allowSpoofing: false });
  const labels = { app: "x", "pcns.team": "monitoring", "pcsa.a": "b", "projectcalico.org/orchestrator": "k8s" };
  const check = (name: string, own: object) =>
    filter.check({
      key: { type: "networkSet", name },
      value: { nets: [], labels: own, profileIds: [] },
      change: "new",
    } as SyncerUpdate).value as { readonly labels: object } | undefined;
  expect(check("evil/s", { ...labels, "projectcalico.org/namespace": "monitoring" })?.labels).toEqual({
    app: "x",
    "projectcalico.org/namespace": "evil",
  });
  expect(check("global", labels)?.labels).toEqual(labels);
  const gone = { key: { type: "networkSet", name: "evil/s" }, value: undefined, change: "deleted" } as SyncerUpdate;
  expect(filter.check(gone)).toEqual(gone);
});

test("FC-039 FC-040 a bad value counts as missing, is reported once, and the rest goes on", () => {
  const lines: LogRecord[] = [];
  const filter = new ValidationFilter({
    log: createLogger({ level: "debug", write: (record) => lines.push(record) }),
    allowSpoofing: false,
  });
  const key = { type: "workloadEndpoint", host: "h", orchestrator: "k8s", workload: "a/b", endpoint: "eth0" } as const;
  const value = { state: "active", name: "cali1", profileIds: [], ipv4Nets: [], ipv6Nets: [], labels: {}, ports: [] };
  const check = (given: object) => filter.check({ key, value: given, change: "new" } as SyncerUpdate).value;
  expect(check(value)).toBe(value as never);
  expect(check({ ...value, name: "" })).toBeUndefined();
  expect(check({ ...value, name: "" })).toBeUndefined();
  expect(lines).toHaveLength(1);
  expect(lines[0]?.fields["key"]).toContain("/workload/k8s/a%2fb/");
  expect(check({ ...value, allowSpoofedSourcePrefixes: ["10.0.0.0/8"] })).toBeUndefined();
  const lenient = new ValidationFilter({ log: silentLogger, allowSpoofing: true });
  const spoofing = {
    key,
    value: { ...value, allowSpoofedSourcePrefixes: ["10.0.0.0/8"] },
    change: "new",
  } as unknown as SyncerUpdate;
  expect(lenient.check(spoofing)).toBe(spoofing);
  const policy = (selector: string) =>
    ({
      key: { type: "policy", kind: "GlobalNetworkPolicy", namespace: "", name: "p" },
      value: {
        tier: "default",
        selector: "all()",
        types: [],
        outboundRules: [],
        inboundRules: [{ action: "allow", source: { selector }, destination: {} }],
      },
      change: "new",
    }) as SyncerUpdate;
  expect(filter.check(policy("has(a)")).value).toBeDefined();
  expect(filter.check(policy("has(")).value).toBeUndefined();
});

test("an EndpointSlice with too many ports times addresses counts as missing and is reported", () => {
  const lines: LogRecord[] = [];
  const filter = new ValidationFilter({
    log: createLogger({ level: "debug", write: (record) => lines.push(record) }),
    allowSpoofing: false,
  });
  const check = (addresses: number, ports: number) => {
    const key = { type: "resource", kind: "KubernetesEndpointSlice", name: "web", namespace: "ns1" } as const;
    const value = {
      ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", metadata: { name: "web", namespace: "ns1" } },
      endpoints: Array.from({ length: addresses / 100 }, () => ({ addresses: Array<string>(100).fill("10.0.0.1") })),
      ports: Array.from({ length: ports }, (_, i) => ({ port: 1 + i })),
    };
    return filter.check({ key, value, change: "new" } as unknown as SyncerUpdate).value !== undefined;
  };
  expect([check(100_000, 0), check(100_000, 1), check(1000, 100)]).toEqual([true, true, true]);
  expect(lines).toEqual([]);
  expect(check(1000, 101)).toBe(false);
  expect(lines[0]?.fields["reason"]).toBe("its addresses times its ports are 101000; at most 100000 are used");
});

test("FC-039 what is not valid is counted once, however often it comes", () => {
  const { registry, runner } = bench();
  expect(registry.render()).toContain("\nfelix_invalid_datastore_entries 0\n");
  for (let i = 0; i < 3; i++) runner.onUnreadable("/calico/x", "no JSON");
  runner.onUnreadable("/calico/y", "no JSON");
  expect(registry.render()).toContain("\nfelix_invalid_datastore_entries 2\n");
});

test("FC-099 the graph's metrics bear the names everybody knows", () => {
  const { registry, runner } = bench();
  runner.onUpdates([host(1)]);
  const page = registry.render();
  for (const name of [
    "felix_resync_state",
    "felix_resyncs_started",
    "felix_calc_graph_updates_processed",
    "felix_calc_graph_output_events",
    "felix_invalid_datastore_entries",
    "felix_calc_graph_update_time_seconds",
    "felix_active_local_endpoints",
    "felix_active_local_policies",
    "felix_active_local_selectors",
    "felix_cluster_num_hosts",
    "felix_cluster_num_workload_endpoints",
    "felix_cluster_num_host_endpoints",
    "felix_cluster_num_policies",
    "felix_cluster_num_profiles",
    "felix_cluster_num_tiers",
    "felix_host",
    "felix_label_index_num_endpoints",
    "felix_label_index_selector_evals",
    "felix_label_index_num_active_selectors",
  ])
    expect(page).toContain(`# TYPE ${name} `);
  expect(page).toContain('felix_calc_graph_updates_processed{type="ResourceKey"} 1');
});
