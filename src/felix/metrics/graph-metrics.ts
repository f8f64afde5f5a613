// Metrics of the calculation graph, with Calico's names.
import type { ClusterStats, GraphStatistics } from "../../calc/index.ts";
import type { SyncStatus } from "../../datastore/index.ts";
import type { MetricsRegistry } from "../../lib/metrics.ts";
import type { Key } from "../../model/index.ts";

const STATUS_NUMBER: Readonly<Record<SyncStatus, number>> = { "wait-for-ready": 1, resync: 2, "in-sync": 3 };

/** Calico uses the names of its Go types as label values. */
const KEY_NAMES: Readonly<Partial<Record<Key["type"], string>>> = {
  resource: "ResourceKey",
  block: "BlockKey",
  globalConfig: "GlobalConfigKey",
  hostConfig: "HostConfigKey",
  hostEndpoint: "HostEndpointKey",
  workloadEndpoint: "WorkloadEndpointKey",
  pool: "IPPoolKey",
  policy: "PolicyKey",
  profileLabels: "ProfileLabelsKey",
  profileRules: "ProfileRulesKey",
  ready: "ReadyFlagKey",
  tier: "TierKey",
  networkSet: "NetworkSetKey",
  wireguard: "WireguardKey",
  hostIp: "HostIPKey",
};

export interface GraphMetrics {
  onStatus(status: SyncStatus): void;
  onUpdate(key: Key): void;
  onUpdateTime(seconds: number): void;
  onMessage(): void;
  /** A datastore entry is invalid. */
  onRejected(): void;
  onFlush(statistics: GraphStatistics): void;
  onStats(stats: ClusterStats): void;
}

export function graphMetrics(registry: MetricsRegistry, host: string): GraphMetrics {
  const resyncState = registry.gauge(
    "felix_resync_state",
    "Current datastore state: 1 waiting, 2 resyncing, 3 in sync.",
  );
  const resyncs = registry.counter("felix_resyncs_started", "Number of resyncs with the datastore.");
  const updates = new Map<Key["type"], number>(); // a plain map, because every update is counted
  registry.collect(
    "felix_calc_graph_updates_processed",
    "Datastore updates processed by the calculation graph, by type.",
    "counter",
    () => [...updates].map(([type, count]) => [{ type: KEY_NAMES[type] ?? type }, count]),
  );
  const messages = registry.counter("felix_calc_graph_output_events", "Messages sent to the dataplane.");
  const updateTime = registry.summary(
    "felix_calc_graph_update_time_seconds",
    "Seconds to calculate one datastore update.",
  );
  const rejected = registry.counter(
    "felix_invalid_datastore_entries",
    "Invalid datastore entries, which are treated as missing.",
  );
  const gauge = (name: string, help: string) => {
    const created = registry.gauge(name, help);
    created.set(0);
    return created;
  };
  const endpoints = gauge("felix_active_local_endpoints", "Endpoints on this host.");
  const policies = gauge("felix_active_local_policies", "Policies that select an endpoint on this host.");
  const selectors = gauge("felix_active_local_selectors", "IP sets that rules on this host use.");
  const cluster = {
    hosts: gauge("felix_cluster_num_hosts", "Hosts in the cluster."),
    workloadEndpoints: gauge("felix_cluster_num_workload_endpoints", "Workload endpoints in the cluster."),
    hostEndpoints: gauge("felix_cluster_num_host_endpoints", "Host endpoints in the cluster."),
    policies: gauge("felix_cluster_num_policies", "Policies in the cluster."),
    profiles: gauge("felix_cluster_num_profiles", "Profiles in the cluster."),
    tiers: gauge("felix_cluster_num_tiers", "Tiers in the cluster."),
  };
  registry.gauge("felix_host", "Name of this host, as a label.").set(1, { host });
  const items = gauge("felix_label_index_num_endpoints", "Endpoints and network sets that selectors are matched with.");
  let statistics: GraphStatistics | undefined;
  registry.collect("felix_label_index_selector_evals", "Selector evaluations, by result.", "counter", () => {
    const { matched = 0, unmatched = 0 } = statistics?.labelIndex.evaluations ?? {};
    return [
      [{ result: "true" }, matched],
      [{ result: "false" }, unmatched],
    ];
  });
  registry.collect("felix_label_index_strategy_evals", "How candidates for a selector were found.", "counter", () =>
    Object.entries(statistics?.labelIndex.strategies ?? {}).map(([strategy, count]) => [{ strategy }, count]),
  );
  registry.collect(
    "felix_label_index_num_active_selectors",
    "Selectors in use, by whether they are indexed by label.",
    "gauge",
    () => {
      const { optimized = 0, unoptimized = 0 } = statistics?.labelIndex.selectors ?? {};
      return [
        [{ optimized: "true" }, optimized],
        [{ optimized: "false" }, unoptimized],
      ];
    },
  );
  resyncState.set(STATUS_NUMBER["wait-for-ready"]);
  resyncs.add(0);
  messages.add(0);
  rejected.add(0);
  return {
    onStatus: (status) => {
      resyncState.set(STATUS_NUMBER[status]);
      if (status === "resync") resyncs.add();
    },
    onUpdate: ({ type }) => updates.set(type, (updates.get(type) ?? 0) + 1),
    onUpdateTime: (seconds) => updateTime.observe(seconds),
    onMessage: () => messages.add(),
    onRejected: () => rejected.add(),
    onFlush: (latest) => {
      statistics = latest;
      endpoints.set(latest.localEndpoints);
      policies.set(latest.activePolicies);
      selectors.set(latest.activeSelectors);
      items.set(latest.labelIndex.items);
    },
    onStats: (stats) => {
      for (const [name, value] of Object.entries(stats)) cluster[name as keyof ClusterStats].set(value);
    },
  };
}
