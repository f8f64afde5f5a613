import { expect, test } from "bun:test";
import { DataplaneStats } from "../../dataplane/index.ts";
import type { IpAddress } from "../../lib/ip/ip.ts";
import { MetricsRegistry } from "../../lib/metrics.ts";
import { dataplaneMetrics } from "./dataplane-metrics.ts";
import { linuxMetrics, wireguardMetrics } from "./linux-metrics.ts";
import { processMetrics } from "./process-metrics.ts";

const value = (page: string, name: string) => Number(new RegExp(`^${name} (.*)$`, "m").exec(page)?.[1]);

test("FC-099 process metrics have the standard names", () => {
  const registry = new MetricsRegistry();
  processMetrics(registry);
  const page = registry.render();
  expect(value(page, "process_resident_memory_bytes")).toBeGreaterThan(1e6);
  expect(value(page, "process_cpu_seconds_total")).toBeGreaterThan(0);
  expect(Math.abs(value(page, "process_start_time_seconds") - Date.now() / 1000)).toBeLessThan(3600);
  for (const name of [
    "process_open_fds",
    "process_max_fds",
    "process_virtual_memory_bytes",
    "process_network_receive_bytes_total",
  ])
    expect(page).toContain(`\n${name} `);
});

test("FC-099 counts and times the dataplane's rounds", () => {
  const registry = new MetricsRegistry();
  let now = 0;
  const metrics = dataplaneMetrics(registry, () => now);
  metrics.onMessage({ type: "inSync" });
  metrics.onMessage({ type: "vtepRemove", node: "n" });
  now = 2500;
  metrics.onApplied({ seconds: 0.5, ok: false, isFirst: true });
  const page = registry.render();
  expect(page).toContain('felix_int_dataplane_messages{type="VXLANTunnelEndpointRemove"} 1');
  expect(value(page, "felix_int_dataplane_initial_resync_time_seconds")).toBe(2.5);
  expect(value(page, "felix_int_dataplane_failures")).toBe(1);
  expect(value(page, "felix_int_dataplane_apply_time_seconds_sum")).toBe(0.5);
  expect(value(page, "felix_int_dataplane_msg_batch_size_sum")).toBe(2);
});

const NAMES = {
  both: [
    ...["ipset_calls", "ipset_errors", "ipset_lines_executed", "exec_time_micros"],
    ...["iptables_restore_calls", "iptables_restore_errors", "iptables_save_calls", "iptables_save_errors"],
    ...["nft_calls", "nft_errors", "nft_list_calls", "nft_list_errors", "nft_set_calls", "nft_set_errors"],
    ...["route_table_num_routes", "route_table_num_ifaces", "route_table_resync_seconds"],
    ...["route_table_partial_resync_seconds", "route_table_conntrack_wait_seconds", "ipsets_total"],
    ...["int_dataplane_iface_msg_batch_size", "int_dataplane_addr_msg_batch_size", "ipsets_calico"],
    ...["nft_chains", "nft_rules", "nft_sets", "nft_flowtable_devices", "nft_flowtable_missing_devices"],
  ],
  iptables: ["iptables_chains", "iptables_rules", "iptables_lines_executed"],
  nftables: [],
};

for (const backend of ["iptables", "nftables"] as const)
  test(`FD-154 metrics of tables, sets, routes and calls have Calico's names: ${backend}`, () => {
    const registry = new MetricsRegistry();
    const stats = new DataplaneStats();
    const tables =
      backend === "iptables"
        ? [{ version: 4 as const, table: "filter", chains: 12, rules: 34 }]
        : [
            { version: 6 as const, chains: 12, rules: 34 },
            { version: "arp" as const, chains: 1, rules: 2 },
          ];
    linuxMetrics(registry, {
      stats,
      sizes: () => ({
        backend,
        tables,
        sets: [
          { version: 4, ours: 5 },
          { version: 6, ours: 6 },
        ],
        routes: [{ table: "IPv4:254", routes: 7, interfaces: 3 }],
      }),
    });
    stats.onIptables(4, "filter", "save", true, 0);
    stats.onIptables(4, "filter", "restore", false, 20);
    stats.onIpset(true, 3);
    stats.onNft(true);
    stats.onNft(false);
    stats.onNftList(true);
    stats.routeResyncSeconds.add(0.25);
    stats.interfaceBatch.add(4);
    const page = registry.render();
    for (const name of [...NAMES.both, ...NAMES[backend]]) expect(page).toContain(`# TYPE felix_${name} `);
    for (const name of NAMES[backend === "iptables" ? "nftables" : "iptables"])
      if (name !== "iptables_lines_executed") expect(page).not.toContain(`# TYPE felix_${name} `);
    const lines = page.split("\n");
    if (backend === "iptables") {
      expect(lines).toContain('felix_iptables_rules{ip_version="4",table="filter"} 34');
      expect(lines).toContain('felix_ipsets_calico{ip_version="inet6"} 6');
      expect(lines).toContain('felix_nft_rules{ip_version="arp"} 0');
      expect(lines).toContain('felix_nft_sets{ip_version="inet"} 0');
    } else {
      expect(lines).toContain('felix_nft_chains{ip_version="arp"} 1');
      expect(lines).toContain('felix_nft_sets{ip_version="inet"} 5');
      expect(lines).toContain('felix_ipsets_calico{ip_version="inet6"} 0');
    }
    expect(lines).toContain('felix_iptables_lines_executed{ip_version="4",table="filter"} 20');
    expect(lines).toContain("felix_iptables_restore_errors 1");
    expect(lines).toContain("felix_nft_errors 1");
    expect(lines).toContain('felix_route_table_num_routes{table="IPv4:254"} 7');
    expect(lines).toContain("felix_route_table_resync_seconds_sum 0.25");
    expect(lines).toContain("felix_int_dataplane_iface_msg_batch_size_sum 4");
  });

test("FD-154 FD-150 reads WireGuard devices and peers at each scrape", () => {
  const registry = new MetricsRegistry();
  const peer = {
    publicKey: "peer",
    endpoint: { address: "192.0.2.2" as IpAddress, port: 51820 },
    ...{ allowed: [], lastHandshake: 1700, receivedBytes: 10n, sentBytes: 20n },
  };
  wireguardMetrics(registry, "me", () => [
    { name: "wireguard.cali", publicKey: "own", port: 51820, mark: 1, peers: [peer] },
  ]);
  const labels = 'hostname="me",peer_endpoint="192.0.2.2:51820",peer_key="peer",public_key="own"';
  const page = registry.render();
  expect(page).toContain('wireguard_meta{hostname="me",iface="wireguard.cali",listen_port="51820",public_key="own"} 1');
  expect(page).toContain(`wireguard_latest_handshake_seconds{${labels}} 1700`);
  expect(page).toContain(`wireguard_bytes_rcvd{${labels}} 10`);
  expect(page).toContain(`wireguard_bytes_sent{${labels}} 20`);
});
