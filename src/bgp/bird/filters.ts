// Renders BGPFilters, communities, aggregation and the two route policies as BIRD functions and filters.
import { type Cidr, type IpVersion, ipVersion } from "../../lib/ip/ip.ts";
import { unreachable } from "../../lib/unreachable.ts";
import { MAX_LOCAL_PREFERENCE } from "../local-preference.ts";
import type { BgpPlan, FilterFunction, FilterOperation, FilterRule, RouteStep } from "../plan-types.ts";
import { anyOf, block, community, communityAttribute, type Lines, prefix, prefixSet, symbol } from "./text.ts";

export function communitiesFunction(plan: BgpPlan, family: IpVersion): Lines {
  const entries = plan.communities.filter(({ within }) => ipVersion(within) === family);
  return block(
    "function apply_communities()",
    entries.flatMap(({ within, add }) =>
      block(
        `if (net ~ ${within}) then`,
        add.map((value) => `${communityAttribute(value)}.add(${community(value)});`),
      ),
    ),
  );
}

/**
 * Announces whole blocks. Routes inside a block are not announced, except those of addresses that are migrating to this
 * node, which have a lower metric. The first route of a pod, by the CNI plugin, has metric 0 until Felix replaces it: if 0
 * counted as lower, the address of each new pod would be announced to all peers and withdrawn again.
 */
export function aggregationFunction(plan: BgpPlan, family: IpVersion): Lines {
  const entries = plan.aggregation.filter((entry) => ipVersion(entry.block) === family);
  return block(
    "function calico_aggr()",
    entries.flatMap((entry) => [
      announcement(entry.block),
      ...block(`if (net ~ ${entry.block}) then`, [
        `if (defined(krt_metric) && krt_metric > 0 && krt_metric < ${entry.insideAcceptedWhenMetricBelow}) then accept;`,
        "reject;",
      ]),
    ]),
  );
}

/** The line that announces a block. */
export const announcement = (block: Cidr): string => `if (net = ${block}) then accept;`;

export function exportFunction(plan: BgpPlan, family: IpVersion): Lines {
  return block("function calico_export_to_bgp_peers(bool internal_peer)", plan.bgpExport[family].flatMap(stepLines));
}

export function kernelFilter(plan: BgpPlan, family: IpVersion): Lines {
  return block("filter calico_kernel_programming", [
    // BIRD 2 would write the kernel's connected routes back to the kernel repeatedly.
    "if (source = RTS_DEVICE) then reject;",
    ...plan.kernelExport[family].flatMap(stepLines),
  ]);
}

function stepLines(step: RouteStep): Lines {
  if ("within" in step) return [`if (net ~ ${prefix(step.within)}) then ${step.action};`];
  if ("nextHop" in step) return [`if (defined(bgp_next_hop) && bgp_next_hop = ${step.nextHop}) then ${step.action};`];
  if ("interface" in step) {
    const matches = anyOf(step.interface.map((glob) => `ifname ~ "${glob}"`));
    return [`if (${step.onlyWhen === "sameAs" ? `internal_peer && (${matches})` : matches}) then ${step.action};`];
  }
  if (!("step" in step)) return [`${step.action};`];
  switch (step.step) {
    case "communities":
      return ["apply_communities();"];
    case "aggregation":
      return ["calico_aggr();"];
    case "metric":
      return block("if (source = RTS_BGP && !defined(krt_metric)) then", [
        `krt_metric = ${step.default};`,
        `if (defined(bgp_local_pref)) then krt_metric = ${MAX_LOCAL_PREFERENCE} - bgp_local_pref;`,
        `if (krt_metric < ${step.preferWhenMetricBelow}) then preference = ${step.preference};`,
      ]);
    default:
      return unreachable(step);
  }
}

export function filterFunction(filter: FilterFunction): Lines {
  const parameter = filter.takesPeerType ? "bool same_as" : "";
  return block(`function ${symbol(filter.function)}(${parameter})`, filter.rules.flatMap(ruleLines));
}

function ruleLines(rule: FilterRule): Lines {
  const conditions = conditionsOf(rule);
  const body = [...(rule.operations ?? []).map(operationLine), `${rule.action};`];
  return conditions.length === 0
    ? body
    : block(`if (${conditions.map((each) => `(${each})`).join(" && ")}) then`, body);
}

/** All conditions must be true. */
function conditionsOf(rule: FilterRule): readonly string[] {
  const conditions: string[] = [];
  if (rule.peerType !== undefined) conditions.push(rule.peerType === "iBGP" ? "same_as" : "!same_as");
  if (rule.cidr !== undefined && rule.operator !== undefined) {
    const isNegated = rule.operator === "NotEqual" || rule.operator === "NotIn";
    if (rule.prefixLength !== undefined)
      conditions.push(`net ${isNegated ? "!~" : "~"} ${prefixSet(rule.cidr, rule.prefixLength)}`);
    else conditions.push(`net ${OPERATORS[rule.operator]} ${rule.cidr}`);
  }
  if (rule.source !== undefined) conditions.push("source = RTS_BGP");
  if (rule.interface !== undefined) conditions.push(`ifname ~ "${rule.interface}"`);
  if (rule.community !== undefined)
    conditions.push(`${community(rule.community)} ~ ${communityAttribute(rule.community)}`);
  if (rule.asPathPrefix !== undefined) conditions.push(`bgp_path ~ [= ${rule.asPathPrefix.join(" ")} * =]`);
  if (rule.localPref !== undefined) conditions.push(`bgp_local_pref = ${rule.localPref}`);
  return conditions;
}

const OPERATORS = { Equal: "=", NotEqual: "!=", In: "~", NotIn: "!~" } as const;

function operationLine(operation: FilterOperation): string {
  if ("addCommunity" in operation)
    return `${communityAttribute(operation.addCommunity)}.add(${community(operation.addCommunity)});`;
  if ("prependAs" in operation) return `bgp_path.prepend(${operation.prependAs});`;
  return `bgp_local_pref = ${operation.setLocalPref};`;
}
