// Generates docs/reference/metrics.md. Registers the metrics of each program with small fakes that produce at least one sample
// for each metric, so that the labels are known.
import { SnapshotCache } from "../../src/typha/snapshot-cache.ts";
import { ServerMetrics } from "../../src/typha/server-metrics.ts";
import { AddressMetrics } from "../../src/controllers/ipam-gc/metrics.ts";
import { DataplaneStats } from "../../src/dataplane/index.ts";
import type { DataplaneSizes } from "../../src/dataplane/index.ts";
import { dataplaneMetrics } from "../../src/felix/metrics/dataplane-metrics.ts";
import { graphMetrics } from "../../src/felix/metrics/graph-metrics.ts";
import { linuxMetrics, wireguardMetrics } from "../../src/felix/metrics/linux-metrics.ts";
import { logCounts } from "../../src/felix/metrics/log-metrics.ts";
import { processMetrics } from "../../src/felix/metrics/process-metrics.ts";
import { reportViewAge } from "../../src/felix/metrics/view-age.ts";
import { ProgrammedRevisions } from "../../src/felix/status/programmed.ts";
import { RejectedRulesReporter } from "../../src/felix/status/rejected-rules.ts";
import { HealthAggregator } from "../../src/lib/http/health.ts";
import { createLogger } from "../../src/lib/log/log.ts";
import { type MetricDescription, MetricsRegistry } from "../../src/lib/metrics.ts";
import { addProcessMetrics } from "../../src/lib/process/process-metrics.ts";
import { registerBgpMetrics } from "../../src/node/bgp/bgp-metrics.ts";
import { code, table } from "./markdown.ts";

const log = createLogger({ level: "none", write: () => {} });

interface Program {
  readonly title: string;
  readonly text: string;
  readonly register: (registry: MetricsRegistry) => void;
}

const PROGRAMS: readonly Program[] = [
  {
    title: "Felix",
    text: "Off by default. Set `prometheusMetricsEnabled: true` in [FelixConfiguration](felix-configuration.md); the port is 9091 (`prometheusMetricsPort`).",
    register: registerFelix,
  },
  {
    title: "BGP",
    text: "Off by default. Set `CALICO_BGP_METRICS_PORT` in the [environment of calico-node](environment.md#calico-node).",
    register: registerBgp,
  },
  {
    title: "calico-kube-controllers",
    text: "On port 9094 (`prometheusMetricsPort` of [KubeControllersConfiguration](resources/kubecontrollersconfiguration.md); 0 turns them off).",
    register: registerControllers,
  },
  {
    title: "Typha",
    text: "Off by default. Set `TYPHA_PROMETHEUSMETRICSENABLED=true`; the port is 9093. See [Typha settings](environment.md#typha-settings).",
    register: registerTypha,
  },
];

export function metricsPage(): string {
  const sections = PROGRAMS.map(({ title, text, register }) => [`## ${title}`, text, metricTable(describe(register))]);
  return `${[
    "# Metrics",
    "`make reference` generates this page from the registered metrics. Names are those of Calico, where Calico has the metric. A *summary* has the quantiles 0.5, 0.9 and 0.99 of the last ten minutes, and the series `_sum` and `_count`.",
    ...sections.flat(),
  ].join("\n\n")}\n`;
}

/** Names of all metrics that the page documents. */
export const documentedMetrics = (): ReadonlySet<string> =>
  new Set(PROGRAMS.flatMap(({ register }) => describe(register).map(({ name }) => name)));

function describe(register: (registry: MetricsRegistry) => void): readonly MetricDescription[] {
  const registry = new MetricsRegistry();
  register(registry);
  return registry.describe().toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

const metricTable = (metrics: readonly MetricDescription[]): string =>
  table(
    ["Metric", "Type", "Labels", "Meaning"],
    metrics.map(({ name, type, labels, help }) => [
      code(name),
      type,
      labels.map(code).join(", "),
      help.endsWith(".") ? help : `${help}.`,
    ]),
  );

function registerFelix(registry: MetricsRegistry): void {
  logCounts(registry);
  reportViewAge({ viewAgeMs: 0 }, { health: new HealthAggregator(), registry });
  const graph = graphMetrics(registry, "node1");
  graph.onUpdate({ type: "ready" });
  graph.onFlush({
    ...{ localEndpoints: 0, activePolicies: 0, activeSelectors: 0 },
    labelIndex: {
      items: 0,
      evaluations: { matched: 0, unmatched: 0 },
      strategies: { "full-scan": 0 },
      selectors: { optimized: 0, unoptimized: 0 },
    },
  } as unknown as Parameters<typeof graph.onFlush>[0]);
  dataplaneMetrics(registry).onMessage({ type: "inSync" });
  const stats = new DataplaneStats();
  stats.onIptables(4, "filter", "restore", true, 1);
  const sizes: DataplaneSizes = {
    backend: "iptables",
    tables: [{ version: 4, table: "filter", chains: 0, rules: 0 }],
    sets: [{ version: 4, ours: 0 }],
    routes: [{ table: "IPv4:254", routes: 0, interfaces: 0 }],
  };
  linuxMetrics(registry, { stats, sizes: () => sizes });
  const peer = { publicKey: "", allowed: [], lastHandshake: 0, receivedBytes: 0n, sentBytes: 0n };
  wireguardMetrics(registry, "node1", () => [{ name: "wireguard.cali", port: 51820, mark: 0, peers: [peer] }]);
  const programmed = new ProgrammedRevisions({ host: "node1", prefix: "", log });
  programmed.onUpdates([
    {
      key: { type: "workloadEndpoint", host: "node1", orchestrator: "k8s", workload: "shop/web", endpoint: "eth0" },
      value: {},
      revision: "1",
    } as unknown as Parameters<typeof programmed.onUpdates>[0][number],
  ]);
  programmed.measure(registry);
  new RejectedRulesReporter({ prefix: "", log }).measure(registry);
  processMetrics(registry);
}

function registerBgp(registry: MetricsRegistry): void {
  const session = { kind: "mesh", name: "Mesh_10_0_0_1", neighbor: "10.0.0.1" };
  const bird = { status: {}, sessions: [session], routes: [] };
  registerBgpMetrics(
    registry,
    { 4: bird, 6: undefined } as unknown as Parameters<typeof registerBgpMetrics>[1],
    new Date(0),
  );
}

function registerControllers(registry: MetricsRegistry): void {
  const allocation = { node: "node1", borrowed: true, suspectedAtMs: 0, block: "10.65.0.0/26" };
  const pool = {
    ...{ kind: "IPPool", apiVersion: "projectcalico.org/v3", metadata: { name: "pool" } },
    spec: { cidr: "10.65.0.0/16" },
  };
  const cache = { pools: new Map([["pool", pool]]), reservations: new Map() };
  const index = {
    blocks: () => [{ cidr: "10.65.0.0/26", host: "node1", allocations: [allocation] }],
    hasNode: () => true,
  };
  type Arguments = ConstructorParameters<typeof AddressMetrics>;
  const metrics = new AddressMetrics(registry, cache as unknown as Arguments[1], index as unknown as Arguments[2]);
  metrics.onReleased(allocation as unknown as Parameters<typeof metrics.onReleased>[0]);
  addProcessMetrics(registry, new Date(0));
}

function registerTypha(registry: MetricsRegistry): void {
  new ServerMetrics(registry, new Map([["felix", new SnapshotCache()]]));
  addProcessMetrics(registry, new Date(0));
}
