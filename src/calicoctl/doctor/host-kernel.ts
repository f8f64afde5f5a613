// Checks that the kernel of this host forwards packets of pods, has the features that the pools require, and that its
// tables are not nearly full.
import type { IpVersion } from "../../lib/ip/ip.ts";
import { type ClusterFacts, type HostFacts, type RuleCount, usesIpip, usesVxlan } from "./facts.ts";
import { type Finding, formatList } from "./finding.ts";

interface RequiredSysctl {
  readonly path: string;
  readonly isValid: (value: number) => boolean;
  readonly set: string;
  readonly severity: Finding["severity"];
  readonly consequence: string;
  readonly onlyFor?: IpVersion;
}

const SYSCTLS: readonly RequiredSysctl[] = [
  {
    path: "net/ipv4/ip_forward",
    isValid: (value) => value === 1,
    set: "1",
    severity: "error",
    consequence: "the host drops all packets that are not addressed to itself: its pods reach nothing outside the host",
  },
  {
    path: "net/ipv6/conf/all/forwarding",
    isValid: (value) => value === 1,
    set: "1",
    severity: "error",
    consequence:
      "the host drops all IPv6 packets that are not addressed to itself: its pods reach nothing outside the host",
    onlyFor: 6,
  },
  {
    path: "net/ipv6/conf/all/disable_ipv6",
    isValid: (value) => value === 0,
    set: "0",
    severity: "error",
    consequence: "the Node has an IPv6 address, but IPv6 is disabled on the host",
    onlyFor: 6,
  },
  {
    path: "net/ipv4/conf/all/rp_filter",
    isValid: (value) => value < 2,
    set: "1",
    severity: "warning",
    consequence:
      "the kernel uses the higher value of `all` and the interface; 2 (loose) lets workloads send from addresses of others",
  },
];

export function* sysctlFaults(cluster: ClusterFacts, host: HostFacts): Generator<Finding> {
  const node = cluster.nodes.get(host.node);
  for (const { path, isValid, set, severity, consequence, onlyFor } of SYSCTLS) {
    const value = host.sysctl(path);
    if (value === undefined || isValid(Number(value))) continue;
    if (onlyFor !== undefined && node?.networks[onlyFor] === undefined) continue;
    const name = path.replaceAll("/", ".");
    yield {
      id: "sysctl",
      severity,
      object: `host ${host.node}`,
      problem: `${name} is ${value} on ${host.node}, want ${set}`,
      cause: consequence,
      evidence: [`/proc/sys/${path} is ${value}`],
      fix: `sysctl -w ${name}=${set}, and set it in /etc/sysctl.d to keep it after a reboot`,
      node: host.node,
      setting: `${name}=${set}`,
    };
  }
}

const CONNTRACK_WARNING_RATIO = 0.9;

export function* fullConntrack(host: HostFacts): Generator<Finding> {
  const [count, limit] = ["nf_conntrack_count", "nf_conntrack_max"].map((file) =>
    Number(host.sysctl(`net/netfilter/${file}`) ?? Number.NaN),
  );
  if (count === undefined || limit === undefined || !(count >= limit * CONNTRACK_WARNING_RATIO)) return;
  yield {
    id: "conntrack-full",
    severity: "error",
    object: `host ${host.node}`,
    problem: `${host.node} tracks ${count} connections of at most ${limit}`,
    cause: "when the table is full, the kernel drops the first packet of every new connection",
    evidence: [`nf_conntrack_count is ${count}, nf_conntrack_max is ${limit}`],
    fix: `sysctl -w net.netfilter.nf_conntrack_max=${limit * 2}`,
    node: host.node,
    setting: `net.netfilter.nf_conntrack_max=${limit * 2}`,
  };
}

export function* missingFeatures(cluster: ClusterFacts, host: HostFacts): Generator<Finding> {
  const node = cluster.nodes.get(host.node);
  const pools = cluster.pools.filter((pool) => !pool.isDisabled);
  const felix = [cluster.felix.get(`node.${host.node}`), cluster.felix.get("default")];
  const setting = <T>(read: (spec: NonNullable<(typeof felix)[number]>) => T | undefined): T | undefined =>
    felix.flatMap((spec) => (spec === undefined ? [] : (read(spec) ?? []))).at(0) as T | undefined;
  const hasLink = (name: string) => host.links.some((link) => link.name === name);
  const requirements: { module: string; has: boolean; why: string; config: string; alternative: string }[] = [];
  const addRequirement = (module: string, has: boolean, why: string, config: string, alternative: string) =>
    requirements.push({ module, has: has || host.hasModule(module), why, config, alternative });
  const vxlan = pools.filter((pool) => usesVxlan(pool)).map(({ name }) => name);
  const ipip = pools.filter((pool) => usesIpip(pool)).map(({ name }) => name);
  if (vxlan.length > 0)
    addRequirement(
      "vxlan",
      hasLink("vxlan.calico"),
      `pool ${formatList(vxlan)} has vxlanMode`,
      "VXLAN",
      "set vxlanMode: Never",
    );
  if (ipip.length > 0 && node?.networks[4] !== undefined)
    addRequirement(
      "ipip",
      hasLink("tunl0"),
      `pool ${formatList(ipip)} has ipipMode`,
      "NET_IPIP",
      "set ipipMode: Never, and vxlanMode if an overlay is needed",
    );
  if (setting((spec) => spec.wireguardEnabled) === true)
    addRequirement(
      "wireguard",
      hasLink("wireguard.cali"),
      "FelixConfiguration has wireguardEnabled",
      "WIREGUARD",
      "set wireguardEnabled: false for this node",
    );
  const mode = setting((spec) => spec.nftablesMode);
  if (mode === "Enabled")
    addRequirement(
      "nf_tables",
      false,
      "FelixConfiguration has nftablesMode Enabled",
      "NF_TABLES",
      "set nftablesMode: Auto",
    );
  else if (mode === "Disabled") {
    addRequirement("ip_set", false, "FelixConfiguration has nftablesMode Disabled", "IP_SET", "set nftablesMode: Auto");
  } else if (!host.hasModule("nf_tables") && !host.hasModule("ip_tables"))
    addRequirement(
      "nf_tables",
      false,
      "policy is programmed as nftables or iptables rules",
      "NF_TABLES",
      "install a kernel that supports one of them",
    );
  for (const { module, has, why, config, alternative } of requirements) {
    if (has) continue;
    yield {
      id: "kernel-feature",
      severity: "error",
      object: `host ${host.node}`,
      problem: `the kernel of ${host.node} does not support ${module}`,
      cause: `${why}, and the kernel was built without it or its module is not installed`,
      evidence: [`module ${module} is neither loaded nor built in nor loadable`, why],
      fix: `modprobe ${module}, or install a kernel with CONFIG_${config}; or ${alternative}`,
      node: host.node,
      setting: alternative.replace(/^set /, ""),
    };
  }
}

export function* mixedBackends(host: HostFacts): Generator<Finding> {
  const { legacy, nft } = host.iptables;
  if (legacy !== undefined && nft !== undefined && legacy.all > 0 && nft.all > 0) {
    const isCalicoSplit = legacy.calico > 0 !== nft.calico > 0 && legacy.kubernetes > 0 !== nft.kubernetes > 0;
    const isSplit =
      (legacy.calico > 0 && nft.calico > 0) || (isCalicoSplit && legacy.calico > 0 !== legacy.kubernetes > 0);
    const used = nft.kubernetes >= legacy.kubernetes ? "NFT" : "Legacy";
    yield {
      id: "mixed-iptables",
      severity: isSplit ? "error" : "warning",
      object: `host ${host.node}`,
      problem: `${host.node} has iptables rules in both backends, legacy and nft`,
      cause:
        "the kernel evaluates both for every packet: packets that one allows may be dropped by the other, and neither tool shows the other's rules",
      evidence: [`iptables-legacy: ${counted(legacy)}`, `iptables-nft: ${counted(nft)}`],
      fix: `use one backend for all programs: update-alternatives --set iptables /usr/sbin/iptables-nft, iptablesBackend: ${used} in FelixConfiguration, and flush the rules of the other backend when no program needs them`,
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
      problem: `${host.node} enforces policy twice: with Calico's nftables table, and with ${old} of Calico's iptables rules`,
      cause: "an agent with another setting left one of them, which is no longer updated when policies change",
      evidence: [`nft has the table calico`, `iptables: ${old} rules in cali- chains`],
      fix: "restart calico-node, which removes the rules of the other dataplane; nftablesMode in FelixConfiguration selects the dataplane",
      node: host.node,
      setting: "FelixConfiguration(default) spec.nftablesMode",
    };
}

const counted = ({ calico, kubernetes, all }: RuleCount): string =>
  `${all} rules, ${calico} of them Calico's, ${kubernetes} kube-proxy's`;

const NEIGHBOUR_WARNING_RATIO = 0.8;

export function* fullNeighbourTable(host: HostFacts): Generator<Finding> {
  for (const version of [4, 6] as const) {
    const table = host.neighbourTable[version];
    if (table === undefined || table.entries < table.limit * NEIGHBOUR_WARNING_RATIO) continue;
    const name = `net.ipv${version}.neigh.default.gc_thresh3`;
    const what = version === 4 ? "ARP" : "neighbour";
    yield {
      id: "arp-table",
      severity: table.entries >= table.limit ? "error" : "warning",
      object: `host ${host.node}`,
      problem: `the ${what} table of ${host.node} holds ${table.entries} entries of at most ${table.limit}`,
      cause: `all network namespaces of the machine share one table, with an entry for every pod and for every other node on the same network. When it is full, addresses without an entry are unreachable`,
      evidence: [
        `${table.entries} entries, ${name} is ${table.limit}`,
        ...(table.overflows > 0 ? [`the table was full ${table.overflows} times since the machine started`] : []),
      ],
      fix: `sysctl -w net.ipv${version}.neigh.default.gc_thresh1=${table.limit * 4} net.ipv${version}.neigh.default.gc_thresh2=${table.limit * 6} ${name}=${table.limit * 8}`,
      node: host.node,
      setting: `${name}=${table.limit * 8}`,
    };
  }
}
