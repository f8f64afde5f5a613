// Whether somebody else's packet filter on this host drops what Calico lets through: pods' packets, BGP, the overlay.
import { type Cidr, cidrsOverlap, tryParseCidr } from "../../lib/ip/ip.ts";
import { type ClusterFacts, type HostFacts, usesVxlan } from "./facts.ts";
import { type Finding, listed } from "./finding.ts";
import type { FilterChain, FilterRule } from "./packet-filters.ts";

const MOST_RULES = 5;
const BGP_PORT = 179;
const VXLAN_PORT = 4789;

export function* foreignFilters(cluster: ClusterFacts, host: HostFacts): Generator<Finding> {
  const node = cluster.nodes.get(host.node);
  for (const chain of host.filters) {
    if (chain.family === "ip6" && node?.networks[6] === undefined) continue;
    if (chain.family === "ip" && node?.networks[4] === undefined) continue;
    if (chain.hook === "input" || chain.hook === "output") yield* dropsOfHost(cluster, host, chain);
    else yield* dropsOfPods(cluster, host, chain);
  }
}

function* dropsOfPods(cluster: ClusterFacts, host: HostFacts, chain: FilterChain): Generator<Finding> {
  const pools = cluster.pools.filter(({ isDisabled }) => !isDisabled).map(({ cidr }) => cidr);
  const named = chain.rules.filter((rule) => rule.verdict === "drop" && isAboutPods(rule, pools));
  if (named.length > 0) {
    yield finding(host, chain, {
      severity: "error",
      problem: `on ${host.node} a rule that is not Calico's drops packets of pods (${chain.where}, hook ${chain.hook})`,
      evidence: named.map(({ text }) => text),
      fix: "take the rule away with the tool that made it; policy for pods belongs into a GlobalNetworkPolicy",
    });
    return;
  }
  const all = dropsAll(chain);
  if (chain.hook !== "forward" || all === undefined || chain.entersCalico) return;
  if (chain.rules.some((rule) => rule.verdict === "accept" && (rule.isBare || isAboutPods(rule, pools)))) return;
  const acceptsSome = chain.rules.some(({ verdict }) => verdict === "accept");
  const dropped = acceptsSome ? "forwarded packets that none of its rules accepts" : "forwarded packets";
  const reach = acceptsSome ? "may reach" : "reach";
  yield finding(host, chain, {
    severity: acceptsSome ? "warning" : "error",
    problem: `on ${host.node} ${chain.where}, which is not Calico's, drops ${dropped}: pods ${reach} nothing beyond their host, and nobody reaches them`,
    evidence: [`hook ${chain.hook}, ${all}`, ...chain.rules.map(({ text }) => text)],
    fix: `${letPodsThrough(chain)}; make it stay in the tool that owns the chain (Docker sets FORWARD to DROP, firewalld and ufw have tables of their own)`,
  });
}

function* dropsOfHost(cluster: ClusterFacts, host: HostFacts, chain: FilterChain): Generator<Finding> {
  const sessions = [...(host.birds[4]?.sessions ?? []), ...(host.birds[6]?.sessions ?? [])];
  const waits = sessions.filter(({ kind, state }) => kind !== "other" && state !== "up");
  const hasVxlan = cluster.pools.some((pool) => usesVxlan(pool) && !pool.isDisabled);
  const needs = [
    { what: "BGP", port: BGP_PORT, protocol: "tcp", isNeeded: sessions.length > 0, fails: waits.length > 0 },
    { what: "the VXLAN overlay", port: VXLAN_PORT, protocol: "udp", isNeeded: hasVxlan, fails: hasVxlan },
  ];
  for (const { what, port, protocol, isNeeded, fails } of needs) {
    if (!isNeeded) continue;
    const mentions = ({ text }: FilterRule) =>
      new RegExp(`\\b${port}\\b`).test(text) || (port === BGP_PORT && /\bbgp\b/.test(text));
    const drops = chain.rules.filter((rule) => rule.verdict === "drop" && mentions(rule));
    const isLet = chain.rules.some(
      (rule) => rule.verdict === "accept" && (rule.isBare || mentions(rule) || / (saddr|-s) /.test(` ${rule.text}`)),
    );
    const all = dropsAll(chain);
    const isClosed = fails && all !== undefined && !isLet && !chain.entersCalico;
    if (drops.length === 0 && !isClosed) continue;
    yield finding(host, chain, {
      severity: drops.length > 0 ? "error" : "warning",
      problem: `on ${host.node} ${chain.where}, which is not Calico's, ${drops.length > 0 ? "drops" : "does not let in"} ${what} (${protocol} port ${port})`,
      evidence: [
        `hook ${chain.hook}, ${all ?? "policy accept"}`,
        ...(drops.length > 0 ? drops : chain.rules).map(({ text }) => text),
        ...(port === BGP_PORT && waits.length > 0
          ? [`no session with ${listed(waits.map(({ neighbor, name }) => neighbor ?? name))}`]
          : []),
      ],
      fix:
        drops.length > 0
          ? "take the rule away with the tool that made it"
          : chain.tool === "nft"
            ? `nft insert rule ${chain.family} ${chain.table} ${chain.name} ${protocol} dport ${port} accept, and so in the tool that owns the chain`
            : `iptables-legacy -I ${chain.name} -p ${protocol} --dport ${port} -j ACCEPT, and so in the tool that owns the chain`,
    });
  }
}

/** Why everything that no other rule decides is dropped; undefined where it is not. */
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

function letPodsThrough({ tool, family, table, name }: FilterChain): string {
  const isTools = family !== "inet" && table === "filter" && name === "FORWARD";
  if (tool === "iptables-legacy" || isTools) {
    const command = `${family === "ip6" ? "ip6tables" : "iptables"}${tool === "nft" ? "" : "-legacy"}`;
    return `${command} -I FORWARD -i cali+ -j ACCEPT and ${command} -I FORWARD -o cali+ -j ACCEPT, or ${command} -P FORWARD ACCEPT`;
  }
  const insert = (way: string) => `nft insert rule ${family} ${table} ${name} ${way} "cali*" accept`;
  return `${insert("iifname")} and ${insert("oifname")}`;
}

function finding(
  host: HostFacts,
  chain: FilterChain,
  { evidence, ...said }: Pick<Finding, "severity" | "problem" | "evidence" | "fix">,
): Finding {
  const shown = evidence.slice(0, MOST_RULES);
  return {
    id: "foreign-filter",
    object: `host ${host.node}`,
    cause:
      "every table on a hook of the kernel is asked, and one drop is final: what Calico's policy allows is dropped there all the same, and calicoctl explain cannot know of it",
    ...said,
    evidence: evidence.length > shown.length ? [...shown, `and ${evidence.length - shown.length} rules more`] : shown,
    node: host.node,
    setting: chain.where,
  };
}
