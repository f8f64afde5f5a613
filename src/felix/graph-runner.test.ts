import { expect, test } from "bun:test";
import { CalculationGraph, type DataplaneMessage } from "../calc/index.ts";
import { type SyncerUpdate, ValidationFilter } from "../datastore/index.ts";
import type { HealthReport } from "../lib/http/health.ts";
import { silentLogger } from "../lib/log/log.ts";
import { MetricsRegistry } from "../lib/metrics.ts";
import { ParsedSelector } from "../model/index.ts";
import { GraphRunner } from "./graph-runner.ts";
import { graphMetrics } from "./metrics/graph-metrics.ts";

/** @param options.tickMs how much the clock advances whenever it is read */
function createRunner(options: { readonly ready?: () => Promise<void>; readonly tickMs?: number } = {}) {
  const messages: DataplaneMessage[] = [];
  const health: HealthReport[] = [];
  let now = 0;
  const registry = new MetricsRegistry();
  const graph = new CalculationGraph(
    {
      host: "here",
      omitNestedPrefixes: true,
      routes: "none",
      vteps: false,
      ambientMesh: false,
      programsNoEncapRoutes: false,
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
    filter: new ValidationFilter({ log: silentLogger, allowSpoofing: false, onRejected: () => metrics.onRejected() }),
    log: silentLogger,
    health: (report) => health.push(report),
    metrics,
    onFailure: (error) => {
      throw error;
    },
    now: () => (now += options.tickMs ?? 0),
  });
  return { runner, messages, health, flushes, registry, wait: (ms: number) => (now += ms) };
}
const host = (n: number): SyncerUpdate => ({
  key: { type: "resource", kind: "Node", name: `n${n}` },
  value: { apiVersion: "projectcalico.org/v3", kind: "Node", metadata: { name: `n${n}` }, spec: {} },
  change: "new",
});
const wep = (name: string) => ({
  key: { type: "workloadEndpoint", host: "here", orchestrator: "k8s", workload: `ns/${name}`, endpoint: "eth0" },
  value: {
    ...{ state: "active", name: `cali${name}`, mac: "ee:ee:ee:ee:ee:ee", profileIds: [], labels: {}, ports: [] },
    ...{ ipv4Nets: ["10.0.0.1/32"], ipv6Nets: [] },
  },
});
const policyWithSelectors = (count: number) => ({
  key: { type: "policy", kind: "GlobalNetworkPolicy", namespace: "", name: "large" },
  value: {
    ...{ tier: "default", selector: ParsedSelector.parse("all()"), types: ["ingress"], outboundRules: [] },
    inboundRules: Array.from({ length: count }, (_, i) => ({
      ...{ action: "allow", source: { selector: ParsedSelector.parse(`has(l${i})`) }, destination: {} },
    })),
  },
});
const turn = () => new Promise((resolve) => setImmediate(resolve));

test("FC-041 sends nothing before the first sync, then all messages, then inSync once", async () => {
  const { runner, messages, health } = createRunner();
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

test("FC-041 flushes at most ten times in succession, then once per 10 ms", async () => {
  const { runner, flushes, wait } = createRunner();
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

test("FC-109 flushes nothing while the dataplane is busy, and merges changes", async () => {
  let free: () => void = () => {};
  const { runner, messages, flushes } = createRunner({ ready: () => new Promise((resolve) => (free = resolve)) });
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

/** Passes the updates to the runner and waits, turn by turn, until `isDone` returns true. Returns the number of turns. */
async function turnsUntil(runner: GraphRunner, updates: readonly object[], isDone: () => boolean): Promise<number> {
  runner.onUpdates(updates.map((update) => ({ ...update, change: "new" })) as SyncerUpdate[]);
  let turns = 0;
  while (!isDone()) {
    await turn();
    expect(++turns).toBeLessThan(5000);
  }
  return turns;
}

test("calculates a policy with many selectors in time slices, and sends it when all its IP sets are sent", async () => {
  const { runner, messages } = createRunner({ tickMs: 100 }); // each slice ends after its first step
  runner.onStatus("in-sync");
  await turn();
  const isSent = () => messages.some(({ type }) => type === "activePolicyUpdate");
  expect(await turnsUntil(runner, [wep("a"), policyWithSelectors(600)], isSent)).toBeGreaterThan(1000);
  const types = messages.map(({ type }) => type);
  expect(types.filter((type) => type === "ipSetUpdate")).toHaveLength(600);
  expect(types.lastIndexOf("ipSetUpdate")).toBeLessThan(types.indexOf("activePolicyUpdate"));
  expect(types.indexOf("activePolicyUpdate")).toBeLessThan(types.indexOf("workloadEndpointUpdate"));
});

const ofNamespace = (namespace: string, name: string, count: number, version = 0) => ({
  key: { type: "policy", kind: "NetworkPolicy", namespace, name },
  value: {
    ...policyWithSelectors(0).value,
    namespace,
    selector: ParsedSelector.parse(`projectcalico.org/namespace == '${namespace}'`),
    inboundRules: Array.from({ length: count }, (_, i) => ({
      ...{ action: "allow", source: { selector: ParsedSelector.parse(`!has(x${version}-${i})`) }, destination: {} },
    })),
  },
});
const podOf = (namespace: string, name: string) => ({
  key: { ...wep(name).key, workload: `${namespace}/${name}` },
  value: { ...wep(name).value, labels: { "projectcalico.org/namespace": namespace } },
});

test("a tenant that edits a large policy all the time delays no pod and no policy of another namespace", async () => {
  const { runner, messages } = createRunner({ tickMs: 100 });
  runner.onUpdates([{ ...podOf("evil", "e"), change: "new" } as unknown as SyncerUpdate]);
  runner.onStatus("in-sync");
  await turn();
  const isSent = (type: DataplaneMessage["type"], namespace: string) =>
    messages.some(
      (message) =>
        message.type === type &&
        "id" in message &&
        JSON.stringify(message.id).includes(type === "activePolicyUpdate" ? `"${namespace}"` : `"${namespace}/`),
    );
  let version = 0;
  const editor = setInterval(() => {
    runner.onUpdates([{ ...ofNamespace("evil", "p", 500, version++), change: "new" } as unknown as SyncerUpdate]);
  }, 1);
  while (version < 3) await turn();
  const turns = await turnsUntil(
    runner,
    [podOf("prod", "db"), ofNamespace("prod", "p", 3)],
    () => isSent("workloadEndpointUpdate", "prod") && isSent("activePolicyUpdate", "prod"),
  );
  clearInterval(editor);
  expect(isSent("activePolicyUpdate", "evil")).toBe(false);
  expect(turns).toBeLessThan(100); // its policy takes about ten steps, and every second turn is its own
}, 30_000);

test("FC-105 a hung graph stops its health reports", () => {
  const { runner, health } = createRunner();
  runner.onStatus("resync");
  const before = health.length;
  runner.hang();
  runner.onStatus("in-sync");
  expect(health).toHaveLength(before);
});

test("FC-039 counts an invalid object once, even if it arrives repeatedly", () => {
  const { registry, runner } = createRunner();
  expect(registry.render()).toContain("\nfelix_invalid_datastore_entries 0\n");
  for (let i = 0; i < 3; i++) runner.onUnreadable("/calico/x", "no JSON");
  runner.onUnreadable("/calico/y", "no JSON");
  expect(registry.render()).toContain("\nfelix_invalid_datastore_entries 2\n");
});

test("FC-099 the graph's metrics have Calico's names", () => {
  const { registry, runner } = createRunner();
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
