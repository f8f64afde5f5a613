// The Linux dataplane's own numbers: tables, sets, routes, and the calls that keep them. The names are those dashboards
// know. Of a way of writing rules that is not in use everything is zero; iptables' tables alone are not listed then.
import type { DataplaneSizes, DataplaneStats } from "../../dataplane/index.ts";
import type { WireguardDevice } from "../../kernel/index.ts";
import type { MetricLabels, MetricsRegistry } from "../../lib/metrics.ts";

export interface MeasuredDataplane {
  readonly stats: DataplaneStats;
  readonly sizes: () => DataplaneSizes;
}

type Samples = [MetricLabels, number][];

export function linuxMetrics(registry: MetricsRegistry, { stats, sizes }: MeasuredDataplane): void {
  const counter = (name: string, help: string, read: () => number) =>
    registry.collect(name, help, "counter", () => [[{}, read()]]);
  const gauge = (name: string, help: string, read: (now: DataplaneSizes) => Samples) =>
    registry.collect(name, help, "gauge", () => read(sizes()));

  counter("felix_iptables_save_calls", "Times iptables-save was run.", () => stats.iptablesSave.calls);
  counter("felix_iptables_save_errors", "Times iptables-save failed.", () => stats.iptablesSave.errors);
  counter("felix_iptables_restore_calls", "Times iptables-restore was run.", () => stats.iptablesRestore.calls);
  counter("felix_iptables_restore_errors", "Times iptables-restore failed.", () => stats.iptablesRestore.errors);
  registry.collect("felix_iptables_lines_executed", "Lines given to iptables-restore.", "counter", () =>
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
  gauge("felix_iptables_chains", "Chains of ours in iptables.", iptables("chains"));
  gauge("felix_iptables_rules", "Rules of ours in iptables.", iptables("rules"));

  counter("felix_ipset_calls", "Batches of changes given to ipset.", () => stats.ipset.calls);
  counter("felix_ipset_errors", "Batches of changes ipset refused.", () => stats.ipset.errors);
  counter("felix_ipset_lines_executed", "Changes given to ipset.", () => stats.ipsetLines);
  const setsBy =
    (backend: DataplaneSizes["backend"]) =>
    (now: DataplaneSizes): Samples =>
      now.backend !== backend
        ? ["inet", "inet6"].map((ip_version) => [{ ip_version }, 0])
        : now.sets.map(({ version, ours }) => [{ ip_version: version === 4 ? "inet" : "inet6" }, ours]);
  gauge("felix_ipsets_calico", "IP sets of ours in the kernel.", setsBy("iptables"));
  gauge("felix_ipsets_total", "All IP sets of ours, both families.", (now) => [
    [{}, now.backend === "iptables" ? now.sets.reduce((sum, set) => sum + set.ours, 0) : 0],
  ]);

  counter("felix_nft_calls", "Transactions given to nftables.", () => stats.nft.calls);
  counter("felix_nft_errors", "Transactions nftables refused.", () => stats.nft.errors);
  counter("felix_nft_list_calls", "Times our nftables tables were read.", () => stats.nftList.calls);
  counter("felix_nft_list_errors", "Times our nftables tables could not be read.", () => stats.nftList.errors);
  // Sets go with the rules, in the same transaction.
  counter("felix_nft_set_calls", "Transactions with changes to sets.", () => stats.nft.calls);
  counter("felix_nft_set_errors", "Refused transactions with changes to sets.", () => stats.nft.errors);
  const nft =
    (what: "chains" | "rules" | undefined) =>
    (now: DataplaneSizes): Samples =>
      now.backend !== "nftables"
        ? ["4", "6", "arp"].map((ip_version) => [{ ip_version }, 0])
        : now.tables.map((t) => [{ ip_version: String(t.version) }, what === undefined ? 0 : t[what]]);
  gauge("felix_nft_chains", "Chains of ours in nftables.", nft("chains"));
  gauge("felix_nft_rules", "Rules of ours in nftables.", nft("rules"));
  gauge("felix_nft_sets", "Sets of ours in nftables.", setsBy("nftables"));
  gauge("felix_nft_flowtable_devices", "Devices whose flows are offloaded.", nft(undefined));
  gauge("felix_nft_flowtable_missing_devices", "Devices to offload that are not there.", nft(undefined));

  const table =
    (what: "routes" | "interfaces") =>
    (now: DataplaneSizes): Samples =>
      now.routes.map((r) => [{ table: r.table }, r[what]]);
  gauge("felix_route_table_num_routes", "Routes of ours.", table("routes"));
  gauge("felix_route_table_num_ifaces", "Interfaces with routes of ours.", table("interfaces"));
  const timed = (name: string, help: string, source: DataplaneStats["executionMicros"] | undefined) => {
    const summary = registry.summary(name, help);
    source?.listen((seconds) => summary.observe(seconds));
  };
  timed("felix_route_table_resync_seconds", "Seconds to compare a whole routing table.", stats.routeResyncSeconds);
  timed("felix_route_table_partial_resync_seconds", "Seconds to compare one interface's routes.", undefined);
  timed("felix_route_table_conntrack_wait_seconds", "Seconds to forget connections.", stats.conntrackSeconds);
  timed(
    "felix_int_dataplane_iface_msg_batch_size",
    "News of interfaces taken together in one round.",
    stats.interfaceBatch,
  );
  timed(
    "felix_int_dataplane_addr_msg_batch_size",
    "News of addresses taken together in one round.",
    stats.addressBatch,
  );
  timed("felix_exec_time_micros", "Microseconds spent in programs we run.", stats.executionMicros);
}

/** Peers and what goes to and comes from them; read from the kernel when somebody asks. */
export function wireguardMetrics(
  registry: MetricsRegistry,
  hostname: string,
  devices: () => readonly WireguardDevice[],
): void {
  registry.collect("wireguard_meta", "Our WireGuard devices, by key.", "gauge", () =>
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
    "When a peer last shook hands, in seconds since 1970.",
    "gauge",
    (peer) => peer.lastHandshake,
  );
  perPeer("wireguard_bytes_sent", "Bytes sent to a peer.", "counter", (peer) => Number(peer.sentBytes));
  perPeer("wireguard_bytes_rcvd", "Bytes received from a peer.", "counter", (peer) => Number(peer.receivedBytes));
}
