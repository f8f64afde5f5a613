// Metrics of the Linux dataplane, with Calico's names: tables, sets, routes, and calls to the kernel and to tools. The
// metrics of an unused renderer are 0, except for the iptables tables, which are not listed.
import type { DataplaneSizes, DataplaneStats } from "../../dataplane/index.ts";
import type { WireguardDevice } from "../../kernel/index.ts";
import type { MetricLabels, MetricsRegistry } from "../../lib/metrics.ts";

export interface MeasuredDataplane {
  readonly stats: DataplaneStats;
  sizes(): DataplaneSizes;
}

type Samples = [MetricLabels, number][];

export function linuxMetrics(registry: MetricsRegistry, dataplane: MeasuredDataplane): void {
  const { stats } = dataplane;
  const counter = (name: string, help: string, read: () => number) =>
    registry.collect(name, help, "counter", () => [[{}, read()]]);
  const gauge = (name: string, help: string, read: (now: DataplaneSizes) => Samples) =>
    registry.collect(name, help, "gauge", () => read(dataplane.sizes()));

  counter("felix_iptables_save_calls", "Times iptables-save was run.", () => stats.iptablesSave.calls);
  counter("felix_iptables_save_errors", "Times iptables-save failed.", () => stats.iptablesSave.errors);
  counter("felix_iptables_restore_calls", "Times iptables-restore was run.", () => stats.iptablesRestore.calls);
  counter("felix_iptables_restore_errors", "Times iptables-restore failed.", () => stats.iptablesRestore.errors);
  registry.collect("felix_iptables_lines_executed", "Lines passed to iptables-restore.", "counter", () =>
    [...stats.iptablesLines].map(([key, lines]): [MetricLabels, number] => {
      const [ip_version = "", table = ""] = key.split(" ");
      return [{ ip_version, table }, lines];
    }),
  );
  const iptables =
    (what: "chains" | "rules") =>
    (now: DataplaneSizes): Samples =>
      now.backend !== "iptables"
        ? []
        : now.tables.map((t) => [{ ip_version: String(t.version), table: t.table ?? "" }, t[what]]);
  gauge("felix_iptables_chains", "Calico's chains in iptables.", iptables("chains"));
  gauge("felix_iptables_rules", "Calico's rules in iptables.", iptables("rules"));

  counter("felix_ipset_calls", "Batches of changes passed to ipset.", () => stats.ipset.calls);
  counter("felix_ipset_errors", "Batches of changes that ipset rejected.", () => stats.ipset.errors);
  counter("felix_ipset_lines_executed", "Changes passed to ipset.", () => stats.ipsetLines);
  const setsBy =
    (backend: DataplaneSizes["backend"]) =>
    (now: DataplaneSizes): Samples =>
      now.backend !== backend
        ? ["inet", "inet6"].map((ip_version) => [{ ip_version }, 0])
        : now.sets.map(({ version, ours }) => [{ ip_version: version === 4 ? "inet" : "inet6" }, ours]);
  gauge("felix_ipsets_calico", "Calico's IP sets in the kernel.", setsBy("iptables"));
  gauge("felix_ipsets_total", "All of Calico's IP sets, both IP families.", (now) => [
    [{}, now.backend === "iptables" ? now.sets.reduce((sum, set) => sum + set.ours, 0) : 0],
  ]);

  counter("felix_nft_calls", "nftables transactions.", () => stats.nft.calls);
  counter("felix_nft_errors", "nftables transactions that the kernel rejected.", () => stats.nft.errors);
  counter("felix_nft_list_calls", "Times Calico's nftables tables were read.", () => stats.nftList.calls);
  counter("felix_nft_list_errors", "Times Calico's nftables tables could not be read.", () => stats.nftList.errors);
  // Sets and rules are changed in the same transaction.
  counter("felix_nft_set_calls", "Transactions with changes to sets.", () => stats.nft.calls);
  counter("felix_nft_set_errors", "Rejected transactions with changes to sets.", () => stats.nft.errors);
  const nft =
    (what: "chains" | "rules" | undefined) =>
    (now: DataplaneSizes): Samples =>
      now.backend !== "nftables"
        ? ["4", "6", "arp"].map((ip_version) => [{ ip_version }, 0])
        : now.tables.map((t) => [{ ip_version: String(t.version) }, what === undefined ? 0 : t[what]]);
  gauge("felix_nft_chains", "Calico's chains in nftables.", nft("chains"));
  gauge("felix_nft_rules", "Calico's rules in nftables.", nft("rules"));
  gauge("felix_nft_sets", "Calico's sets in nftables.", setsBy("nftables"));
  gauge("felix_nft_flowtable_devices", "Devices whose flows are offloaded.", nft(undefined));
  gauge("felix_nft_flowtable_missing_devices", "Devices to offload that do not exist.", nft(undefined));

  const table =
    (what: "routes" | "interfaces") =>
    (now: DataplaneSizes): Samples =>
      now.routes.map((r) => [{ table: r.table }, r[what]]);
  gauge("felix_route_table_num_routes", "Calico's routes.", table("routes"));
  gauge("felix_route_table_num_ifaces", "Interfaces with Calico's routes.", table("interfaces"));
  const timed = (name: string, help: string, source: DataplaneStats["executionMicros"] | undefined) => {
    const summary = registry.summary(name, help);
    source?.listen((seconds) => summary.observe(seconds));
  };
  timed("felix_route_table_resync_seconds", "Seconds to compare a complete routing table.", stats.routeResyncSeconds);
  timed("felix_route_table_partial_resync_seconds", "Seconds to compare one interface's routes.", undefined);
  timed("felix_route_table_conntrack_wait_seconds", "Seconds to delete conntrack entries.", stats.conntrackSeconds);
  timed("felix_int_dataplane_iface_msg_batch_size", "Interface events per round.", stats.interfaceBatch);
  timed("felix_int_dataplane_addr_msg_batch_size", "Address events per round.", stats.addressBatch);
  timed("felix_exec_time_micros", "Microseconds spent in executed programs.", stats.executionMicros);
}

/** Metrics of WireGuard devices and peers, read from the kernel at each scrape. */
export function wireguardMetrics(
  registry: MetricsRegistry,
  hostname: string,
  devices: () => readonly WireguardDevice[],
): void {
  registry.collect("wireguard_meta", "Calico's WireGuard devices, by key.", "gauge", () =>
    devices().map(({ name, port, publicKey = "" }) => [
      { hostname, iface: name, listen_port: String(port), public_key: publicKey },
      1,
    ]),
  );
  const perPeer = (
    name: string,
    help: string,
    type: "counter" | "gauge",
    read: (peer: WireguardDevice["peers"][number]) => number,
  ) =>
    registry.collect(name, help, type, () =>
      devices().flatMap(({ peers, publicKey = "" }) =>
        peers.map((peer): [MetricLabels, number] => {
          const { endpoint } = peer;
          const peer_endpoint = endpoint === undefined ? "" : `${endpoint.address}:${endpoint.port}`;
          return [{ hostname, peer_endpoint, peer_key: peer.publicKey, public_key: publicKey }, read(peer)];
        }),
      ),
    );
  perPeer(
    "wireguard_latest_handshake_seconds",
    "Time of the last handshake with a peer, in seconds since 1970.",
    "gauge",
    (peer) => peer.lastHandshake,
  );
  perPeer("wireguard_bytes_sent", "Bytes sent to a peer.", "counter", (peer) => Number(peer.sentBytes));
  perPeer("wireguard_bytes_rcvd", "Bytes received from a peer.", "counter", (peer) => Number(peer.receivedBytes));
}
