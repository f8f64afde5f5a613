// Lists the commands of `node diags` and the files for their output. Tools that are not installed are skipped.

export interface HostCollect {
  readonly file: string;
  readonly command: readonly [string, ...string[]];
}

const collect = (file: string, command: string): HostCollect => ({
  file,
  command: command.split(" ") as [string, ...string[]],
});

export const HOST_COLLECTS: readonly HostCollect[] = [
  collect("date", "date"),
  collect("hostname", "hostname"),
  collect("uname", "uname -a"),
  collect("ip_addr", "ip -d addr show"),
  collect("ip_link_stats", "ip -s link show"),
  collect("ip_route", "ip route show table all"),
  collect("ip_6_route", "ip -6 route show table all"),
  collect("ip_rule", "ip rule show"),
  collect("ip_neigh", "ip neigh show"),
  collect("nft_ruleset", "nft -n -a list ruleset"),
  collect("iptables_save", "iptables-save -c"),
  collect("iptables_legacy_save", "iptables-legacy-save -c"),
  collect("ip6tables_save", "ip6tables-save -c"),
  collect("ipset_list", "ipset list"),
  collect("conntrack_count", "cat /proc/sys/net/netfilter/nf_conntrack_count"),
  collect("sockets", "ss -anp"),
  collect("sysctl_net", "sysctl -a -r ^net"),
  collect("modules", "cat /proc/modules"),
  collect("journal", "journalctl -u calico-node --no-pager -n 5000"),
  collect("dmesg", "dmesg"),
  collect("bird_status", "birdc -s /var/run/calico/bird.ctl show status"),
  collect("bird_protocols", "birdc -s /var/run/calico/bird.ctl show protocols all"),
  collect("bird_routes", "birdc -s /var/run/calico/bird.ctl show route all"),
  collect("bird6_status", "birdc -s /var/run/calico/bird6.ctl show status"),
  collect("bird6_protocols", "birdc -s /var/run/calico/bird6.ctl show protocols all"),
  collect("bird6_routes", "birdc -s /var/run/calico/bird6.ctl show route all"),
];

/** State files of Calico, none of which contains secrets. */
export const HOST_FILES: readonly string[] = [
  "/var/lib/calico/nodename",
  "/var/lib/calico/mtu",
  "/var/run/calico/supervisor.json",
];
