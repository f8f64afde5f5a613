// Checks whether packet filters of other programs on this host drop packets that Calico allows: those of pods, of BGP and of
// the VXLAN overlay.
import { type Cidr, cidrsOverlap, tryParseCidr } from "../../lib/ip/ip.ts";
import { type ClusterFacts, type HostFacts, usesVxlan } from "./facts.ts";
import { type Finding, formatList } from "./finding.ts";
import type { FilterChain, FilterRule } from "./packet-filters.ts";

const MAX_EVIDENCE = 5;
const BGP_PORT = 179;
/** The default of `vxlanPort` in FelixConfiguration. */
const DEFAULT_VXLAN_PORT = 4789;

export function* foreignFilters(cluster: ClusterFacts, host: HostFacts): Generator<Finding> {
  const node = cluster.nodes.get(host.node);
  for (const chain of host.filters) {
    if (chain.family === "ip6" && node?.networks[6] === undefined) continue;
    if (chain.family === "ip" && node?.networks[4] === undefined) continue;
    if (chain.hook === "input" || chain.hook === "output") yield* dropsOfHostPackets(cluster, host, chain);
    else yield* dropsOfPodPackets(cluster, host, chain);
  }
}

function* dropsOfPodPackets(cluster: ClusterFacts, host: HostFacts, chain: FilterChain): Generator<Finding> {
  const pools = cluster.pools.filter(({ isDisabled }) => !isDisabled).map(({ cidr }) => cidr);
  const named = chain.rules.filter((rule) => rule.verdict === "drop" && isAboutPods(rule, pools));
  if (named.length > 0) {
    yield finding(host, chain, {
      severity: "error",
      problem: `on ${host.node} a rule that is not Calico's drops packets of pods (${chain.where}, hook ${chain.hook})`,
      evidence: named.map(({ text }) => text),
      fix: "delete the rule with the tool that added it; write policy for pods as a GlobalNetworkPolicy",
    });
    return;
  }
  const all = dropsAll(chain);
  if (chain.hook !== "forward" || all === undefined || chain.entersCalico) return;
  if (chain.rules.some((rule) => rule.verdict === "accept" && (rule.isBare || isAboutPods(rule, pools)))) return;
  const acceptsSome = chain.rules.some(({ verdict }) => verdict === "accept");
  const dropped = acceptsSome ? "forwarded packets that none of its rules accepts" : "forwarded packets";
  const can = acceptsSome ? "may not be able to" : "cannot";
  yield finding(host, chain, {
    severity: acceptsSome ? "warning" : "error",
    problem: `on ${host.node} ${chain.where}, which is not Calico's, drops ${dropped}: pods ${can} reach anything outside their host, or be reached from there`,
    evidence: [`hook ${chain.hook}, ${all}`, ...chain.rules.map(({ text }) => text)],
    fix: `${acceptPodPackets(chain)}; to make the change permanent, configure it in the program that owns the chain (Docker sets FORWARD to DROP, firewalld and ufw have their own tables)`,
  });
}

function* dropsOfHostPackets(cluster: ClusterFacts, host: HostFacts, chain: FilterChain): Generator<Finding> {
  const sessions = [...(host.birds[4]?.sessions ?? []), ...(host.birds[6]?.sessions ?? [])];
  const sessionsDown = sessions.filter(({ kind, state }) => kind !== "other" && state !== "up");
  const hasVxlan = cluster.pools.some((pool) => usesVxlan(pool) && !pool.isDisabled);
  const services = [
    { what: "BGP", port: BGP_PORT, protocol: "tcp", isUsed: sessions.length > 0, mayFail: sessionsDown.length > 0 },
    {
      what: "the VXLAN overlay",
      port: hasVxlan ? vxlanPort(cluster, host.node) : DEFAULT_VXLAN_PORT,
      protocol: "udp",
      isUsed: hasVxlan,
      mayFail: hasVxlan,
    },
  ];
  for (const { what, port, protocol, isUsed, mayFail } of services) {
    if (!isUsed) continue;
    const mentions = ({ text }: FilterRule) =>
      new RegExp(`\\b${port}\\b`).test(text) || (port === BGP_PORT && /\bbgp\b/.test(text));
    const drops = chain.rules.filter((rule) => rule.verdict === "drop" && mentions(rule));
    const isAccepted = chain.rules.some(
      (rule) => rule.verdict === "accept" && (rule.isBare || mentions(rule) || / (saddr|-s) /.test(` ${rule.text}`)),
    );
    const all = dropsAll(chain);
    const isClosed = mayFail && all !== undefined && !isAccepted && !chain.entersCalico;
    if (drops.length === 0 && !isClosed) continue;
    yield finding(host, chain, {
      severity: drops.length > 0 ? "error" : "warning",
      problem: `on ${host.node} ${chain.where}, which is not Calico's, ${drops.length > 0 ? "drops" : "does not accept"} ${what} (${protocol} port ${port})`,
      evidence: [
        `hook ${chain.hook}, ${all ?? "policy accept"}`,
        ...(drops.length > 0 ? drops : chain.rules).map(({ text }) => text),
        ...(port === BGP_PORT && sessionsDown.length > 0
          ? [`no session with ${formatList(sessionsDown.map(({ neighbor, name }) => neighbor ?? name))}`]
          : []),
      ],
      fix:
        drops.length > 0
          ? "delete the rule with the tool that added it"
          : chain.tool === "nft"
            ? `nft insert rule ${chain.family} ${chain.table} ${chain.name} ${protocol} dport ${port} accept, and the same in the configuration of the program that owns the chain`
            : `iptables-legacy -I ${chain.name} -p ${protocol} --dport ${port} -j ACCEPT, and the same in the configuration of the program that owns the chain`,
    });
  }
}

/** Returns the port that Felix uses on this node: the configuration of the node takes precedence. */
function vxlanPort({ felix }: ClusterFacts, node: string): number {
  return felix.get(`node.${node}`)?.vxlanPort ?? felix.get("default")?.vxlanPort ?? DEFAULT_VXLAN_PORT;
}

/** Returns why the chain drops all packets that no other rule decides, or undefined if it does not. */
function dropsAll(chain: FilterChain): string | undefined {
  const bare = chain.rules.find(({ verdict, isBare, isDirect }) => verdict === "drop" && isBare && isDirect);
  if (bare !== undefined) return "a rule without conditions drops";
  return chain.drops ? "policy drop" : undefined;
}

function isAboutPods({ text }: FilterRule, pools: readonly Cidr[]): boolean {
  if (/\bcali(\*|\+|[0-9a-f]{4,}|")/.test(text)) return true;
  return [...text.matchAll(/(?<![\w.:])(\d+\.\d+\.\d+\.\d+(\/\d+)?|[0-9a-f]*:[0-9a-f:]+(\/\d+)?)(?![\w.:])/g)].some(
    ([word]) => {
      const cidr = tryParseCidr(word.includes("/") ? word : `${word}/${word.includes(":") ? 128 : 32}`);
      return cidr !== undefined && !cidr.endsWith("/0") && pools.some((pool) => cidrsOverlap(pool, cidr));
    },
  );
}

/** Returns the commands that accept packets of pods. */
function acceptPodPackets({ tool, family, table, name }: FilterChain): string {
  const isIptablesChain = family !== "inet" && table === "filter" && name === "FORWARD";
  if (tool === "iptables-legacy" || isIptablesChain) {
    const command = `${family === "ip6" ? "ip6tables" : "iptables"}${tool === "nft" ? "" : "-legacy"}`;
    return `${command} -I FORWARD -i cali+ -j ACCEPT and ${command} -I FORWARD -o cali+ -j ACCEPT, or ${command} -P FORWARD ACCEPT`;
  }
  const insert = (match: string) => `nft insert rule ${family} ${table} ${name} ${match} "cali*" accept`;
  return `${insert("iifname")} and ${insert("oifname")}`;
}

function finding(
  host: HostFacts,
  chain: FilterChain,
  { evidence, ...fields }: Pick<Finding, "severity" | "problem" | "evidence" | "fix">,
): Finding {
  const shown = evidence.slice(0, MAX_EVIDENCE);
  return {
    id: "foreign-filter",
    object: `host ${host.node}`,
    cause:
      "a drop in any table of the kernel is final, so packets that Calico's policy allows are still dropped here; calicoctl explain does not consider these rules",
    ...fields,
    evidence: evidence.length > shown.length ? [...shown, `and ${evidence.length - shown.length} more rules`] : shown,
    node: host.node,
    setting: chain.where,
  };
}
