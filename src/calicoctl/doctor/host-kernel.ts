// Whether this host's kernel is set up for forwarding pods' packets, and has what the pools ask for.
import type { IpVersion } from "../../lib/ip/ip.ts";
import { type ClusterFacts, type HostFacts, type RuleCount, usesIpip, usesVxlan } from "./facts.ts";
import { type Finding, listed } from "./finding.ts";

interface WantedSysctl {
  readonly path: string;
  readonly isRight: (value: number) => boolean;
  readonly set: string;
  readonly severity: Finding["severity"];
  readonly consequence: string;
  readonly onlyFor?: IpVersion;
}

const SYSCTLS: readonly WantedSysctl[] = [
  {
    path: "net/ipv4/ip_forward",
    isRight: (value) => value === 1,
    set: "1",
    severity: "error",
    consequence: "the host drops whatever is not for itself: pods reach nothing beyond it",
  },
  {
    path: "net/ipv6/conf/all/forwarding",
    isRight: (value) => value === 1,
    set: "1",
    severity: "error",
    consequence: "the host drops IPv6 that is not for itself: pods reach nothing beyond it",
    onlyFor: 6,
  },
  {
    path: "net/ipv6/conf/all/disable_ipv6",
    isRight: (value) => value === 0,
    set: "0",
    severity: "error",
    consequence: "the Node has an IPv6 address, but the host speaks none",
    onlyFor: 6,
  },
  {
    path: "net/ipv4/conf/all/rp_filter",
    isRight: (value) => value < 2,
    set: "1",
    severity: "warning",
    consequence: "the highest of `all` and the interface's own counts, so workloads can send from addresses of others",
  },
];

export function* sysctlFaults(cluster: ClusterFacts, host: HostFacts): Generator<Finding> {
  const node = cluster.nodes.get(host.node);
  for (const { path, isRight, set, severity, consequence, onlyFor } of SYSCTLS) {
    const value = host.sysctl(path);
    if (value === undefined || isRight(Number(value))) continue;
    if (onlyFor !== undefined && node?.networks[onlyFor] === undefined) continue;
    const name = path.replaceAll("/", ".");
    yield {
      id: "sysctl",
      severity,
      object: `host ${host.node}`,
      problem: `${name} is ${value} on ${host.node}, want ${set}`,
      cause: consequence,
      evidence: [`/proc/sys/${path} is ${value}`],
      fix: `sysctl -w ${name}=${set}, and in /etc/sysctl.d so that it stays`,
      node: host.node,
      setting: `${name}=${set}`,
    };
  }
}

const FULL = 0.9;

export function* fullConntrack(host: HostFacts): Generator<Finding> {
  const [count, most] = ["nf_conntrack_count", "nf_conntrack_max"].map((file) =>
    Number(host.sysctl(`net/netfilter/${file}`) ?? Number.NaN),
  );
  if (count === undefined || most === undefined || !(count >= most * FULL)) return;
  yield {
    id: "conntrack-full",
    severity: "error",
    object: `host ${host.node}`,
    problem: `${host.node} tracks ${count} connections of at most ${most}`,
    cause: "when the table is full the kernel drops the first packet of every new connection",
    evidence: [`nf_conntrack_count is ${count}, nf_conntrack_max ${most}`],
    fix: `sysctl -w net.netfilter.nf_conntrack_max=${most * 2}`,
    node: host.node,
    setting: `net.netfilter.nf_conntrack_max=${most * 2}`,
  };
}

export function* missingFeatures(cluster: ClusterFacts, host: HostFacts): Generator<Finding> {
  const node = cluster.nodes.get(host.node);
  const pools = cluster.pools.filter((pool) => !pool.isDisabled);
  const felix = [cluster.felix.get(`node.${host.node}`), cluster.felix.get("default")];
  const setting = <T>(read: (spec: NonNullable<(typeof felix)[number]>) => T | undefined): T | undefined =>
    felix.flatMap((spec) => (spec === undefined ? [] : (read(spec) ?? []))).at(0) as T | undefined;
  const named = (name: string) => host.links.some((link) => link.name === name);
  const needs: { module: string; has: boolean; why: string; config: string; otherwise: string }[] = [];
  const need = (module: string, has: boolean, why: string, config: string, otherwise: string) =>
    needs.push({ module, has: has || host.hasModule(module), why, config, otherwise });
  const vxlan = pools.filter((pool) => usesVxlan(pool)).map(({ name }) => name);
  const ipip = pools.filter((pool) => usesIpip(pool)).map(({ name }) => name);
  if (vxlan.length > 0)
    need("vxlan", named("vxlan.calico"), `pool ${listed(vxlan)} has vxlanMode`, "VXLAN", "set vxlanMode: Never");
  if (ipip.length > 0 && node?.networks[4] !== undefined)
    need(
      "ipip",
      named("tunl0"),
      `pool ${listed(ipip)} has ipipMode`,
      "NET_IPIP",
      "set ipipMode: Never, and vxlanMode where an overlay is needed",
    );
  if (setting((spec) => spec.wireguardEnabled) === true)
    need(
      "wireguard",
      named("wireguard.cali"),
      "FelixConfiguration has wireguardEnabled",
      "WIREGUARD",
      "set wireguardEnabled: false for this node",
    );
  const mode = setting((spec) => spec.nftablesMode);
  if (mode === "Enabled")
    need("nf_tables", false, "FelixConfiguration has nftablesMode Enabled", "NF_TABLES", "set nftablesMode: Auto");
  else if (mode === "Disabled") {
    need("ip_set", false, "FelixConfiguration has nftablesMode Disabled", "IP_SET", "set nftablesMode: Auto");
  } else if (!host.hasModule("nf_tables") && !host.hasModule("ip_tables"))
    need(
      "nf_tables",
      false,
      "policy is written as nftables or iptables rules",
      "NF_TABLES",
      "install a kernel that has one",
    );
  for (const { module, has, why, config, otherwise } of needs) {
    if (has) continue;
    yield {
      id: "kernel-feature",
      severity: "error",
      object: `host ${host.node}`,
      problem: `the kernel of ${host.node} has no ${module}`,
      cause: `${why}, and the kernel was built without it or its module is not installed`,
      evidence: [`no module ${module}, loaded, built in or loadable`, why],
      fix: `modprobe ${module}, or a kernel with CONFIG_${config}; or ${otherwise}`,
      node: host.node,
      setting: otherwise.replace(/^set /, ""),
    };
  }
}

export function* mixedBackends(host: HostFacts): Generator<Finding> {
  const { legacy, nft } = host.iptables;
  if (legacy !== undefined && nft !== undefined && legacy.all > 0 && nft.all > 0) {
    const isCalicoSplit = legacy.calico > 0 !== nft.calico > 0 && legacy.kubernetes > 0 !== nft.kubernetes > 0;
    const isTorn =
      (legacy.calico > 0 && nft.calico > 0) || (isCalicoSplit && legacy.calico > 0 !== legacy.kubernetes > 0);
    const used = nft.kubernetes >= legacy.kubernetes ? "NFT" : "Legacy";
    yield {
      id: "mixed-iptables",
      severity: isTorn ? "error" : "warning",
      object: `host ${host.node}`,
      problem: `${host.node} has iptables rules in both backends, legacy and nft`,
      cause:
        "the kernel passes every packet through both, one after the other: what one allows the other still drops, and neither tool shows the other's rules",
      evidence: [`iptables-legacy: ${counted(legacy)}`, `iptables-nft: ${counted(nft)}`],
      fix: `let all programs use one: update-alternatives --set iptables /usr/sbin/iptables-nft, iptablesBackend: ${used} in FelixConfiguration, and flush the other's rules when nobody needs them`,
      node: host.node,
      setting: `FelixConfiguration(default) spec.iptablesBackend: ${used}`,
    };
  }
  const old = [legacy, nft].reduce((sum, rules) => sum + (rules?.calico ?? 0), 0);
  if (host.hasCalicoNftTable === true && old > 0)
    yield {
      id: "two-dataplanes",
      severity: "warning",
      object: `host ${host.node}`,
      problem: `${host.node} enforces policy twice: an nftables table of Calico's, and ${old} of its iptables rules`,
      cause: "one of them was left by an agent with another setting and no longer follows the policies",
      evidence: [`nft has the table calico`, `iptables: ${old} rules in cali- chains`],
      fix: "restart calico-node: it removes what the other dataplane left; nftablesMode in FelixConfiguration decides which it is",
      node: host.node,
      setting: "FelixConfiguration(default) spec.nftablesMode",
    };
}

const counted = ({ calico, kubernetes, all }: RuleCount): string =>
  `${all} rules, ${calico} of them Calico's, ${kubernetes} kube-proxy's`;

const NEAR = 0.8;

export function* fullNeighbourTable(host: HostFacts): Generator<Finding> {
  for (const version of [4, 6] as const) {
    const table = host.neighbourTable[version];
    if (table === undefined || table.entries < table.limit * NEAR) continue;
    const name = `net.ipv${version}.neigh.default.gc_thresh3`;
    const what = version === 4 ? "ARP" : "neighbour";
    yield {
      id: "arp-table",
      severity: table.entries >= table.limit ? "error" : "warning",
      object: `host ${host.node}`,
      problem: `the ${what} table of ${host.node} holds ${table.entries} entries of at most ${table.limit}`,
      cause: `the table is one for the whole machine, all namespaces together: every pod, and every other node on the same network, is an entry. When it is full, addresses not yet in it are unreachable`,
      evidence: [
        `${table.entries} entries, ${name} is ${table.limit}`,
        ...(table.overflows > 0 ? [`it was full ${table.overflows} times since the machine started`] : []),
      ],
      fix: `sysctl -w net.ipv${version}.neigh.default.gc_thresh1=${table.limit * 4} net.ipv${version}.neigh.default.gc_thresh2=${table.limit * 6} ${name}=${table.limit * 8}`,
      node: host.node,
      setting: `${name}=${table.limit * 8}`,
    };
  }
}
