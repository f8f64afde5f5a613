// Plans which routes a node announces and which it programs into its kernel. Blocks are announced as a whole. Single addresses
// are announced only if they are migrating to this node or borrowed from another node's block.
import {
  addressBits,
  cidrContains,
  cidrLength,
  type IpAddress,
  type IpVersion,
  ipVersion,
  tryParseCidr,
} from "../lib/ip/ip.ts";
import { type BgpConfiguration, DEFAULT_ROUTE_PRIORITY, isCommunity, type Node, type Pool } from "../model/index.ts";
import type { BgpPlan, RouteStep } from "./plan-types.ts";
import type { BgpState, Problem } from "./state.ts";

export interface ServiceRoutes {
  /** Whole ranges, announced and not programmed into the kernel. */
  readonly ranges: readonly string[];
  /** Ranges whose routes are not programmed into the kernel, whether announced or not. */
  readonly rejected: readonly string[];
  /** Single addresses of services, announced. */
  readonly addresses: readonly string[];
}

export interface RoutePolicy
  extends Pick<
    BgpPlan,
    "staticBlackholes" | "staticProtocol" | "aggregation" | "communities" | "kernelExport" | "bgpExport"
  > {}

export function routePolicy(
  state: BgpState,
  node: Node,
  services: ServiceRoutes,
  hasStaticRoute: (family: IpVersion) => boolean,
  problems: Problem[],
): RoutePolicy {
  const configuration = state.configurations.get("default");
  const priority = (family: IpVersion) => configuration?.routePriority[family] ?? DEFAULT_ROUTE_PRIORITY;
  const blocks = [...state.blocks].sort((a, b) => compare(keyText(a.cidr), keyText(b.cidr)));
  const announced = sortTexts([...services.ranges, ...services.addresses]);
  const ofFamily = (family: IpVersion) => ({
    blackholes: [
      ...blocks
        .filter(({ cidr }) => ipVersion(cidr) === family && cidrLength(cidr) < addressBits(family))
        .map(({ cidr }) => cidr),
      ...announced.filter(isFamily(family)),
    ],
    aggregation: blocks
      .filter(({ cidr, state: affinity }) => ipVersion(cidr) === family && affinity !== "pendingDeletion")
      .map(({ cidr }) => ({ block: cidr, insideAcceptedWhenMetricBelow: priority(family) })),
    hasStatic:
      blocks.some(({ cidr }) => ipVersion(cidr) === family) ||
      announced.some(isFamily(family)) ||
      hasStaticRoute(family),
    kernel: kernelExport(state, node, family, excludedFromKernel(services).filter(isFamily(family)), priority(family)),
    bgp: bgpExport(state, node, family, announced.filter(isFamily(family))),
  });
  const [v4, v6] = [ofFamily(4), ofFamily(6)];
  return {
    staticBlackholes: [...v4.blackholes, ...v6.blackholes],
    staticProtocol: { 4: v4.hasStatic, 6: v6.hasStatic },
    aggregation: [...v4.aggregation, ...v6.aggregation],
    communities: communities(state, node, problems),
    kernelExport: { 4: v4.kernel, 6: v6.kernel },
    bgpExport: { 4: v4.bgp, 6: v6.bgp },
  };
}

/** Whether BIRD programs the routes of pools without encapsulation. Felix programs all other cluster routes. */
function programsPlainRoutes(configuration: BgpConfiguration | undefined): boolean {
  const setting = configuration?.programClusterRoutes;
  return setting !== "Disabled" && setting !== "EnabledIPIPOnly";
}

function kernelExport(
  state: BgpState,
  node: Node,
  family: IpVersion,
  rejected: readonly string[],
  priority: number,
): readonly RouteStep[] {
  const configuration = state.configurations.get("default");
  return [
    ...sortTexts(rejected).map((within) => ({ within, action: "reject" as const })),
    { step: "metric", default: priority, preferWhenMetricBelow: priority, preference: 200 },
    ...encryptedNextHops(state, node, family).map((nextHop) => ({ nextHop, action: "reject" as const })),
    ...poolSteps(state.pools, node, family, programsPlainRoutes(configuration)),
    { action: "accept" },
  ];
}

/**
 * Returns the addresses of nodes that are reached through WireGuard. BIRD must not program routes through them, because
 * Felix does.
 */
function encryptedNextHops(state: BgpState, node: Node, family: IpVersion): readonly IpAddress[] {
  if (node.tunnels.wireguard[family] === undefined) return [];
  return [...state.nodes.values()]
    .filter((other) => other.name !== node.name && other.tunnels.wireguard[family] !== undefined)
    .flatMap((other) => other.networks[family]?.address ?? [])
    .sort(compare);
}

function poolSteps(pools: readonly Pool[], node: Node, family: IpVersion, plainByBird: boolean): readonly RouteStep[] {
  if (family === 4 && node.networks[4] === undefined) return [];
  return poolsOf(pools, family).flatMap((pool): readonly RouteStep[] => {
    const isTunnelled = pool.vxlanMode !== "" || pool.ipipMode !== "";
    if (isTunnelled || !plainByBird) return [{ within: pool.cidr, action: "reject" }];
    return family === 4 ? [{ within: pool.cidr, action: "accept" }] : [];
  });
}

function bgpExport(state: BgpState, node: Node, family: IpVersion, announced: readonly string[]): readonly RouteStep[] {
  const configuration = state.configurations.get("default");
  const pools = poolsOf(state.pools, family);
  const accept = (within: string): RouteStep => ({ within, action: "accept" });
  const reflected =
    node.clusterId === undefined
      ? []
      : [...(configuration?.serviceLoadBalancerIps ?? []), ...(configuration?.serviceExternalIps ?? [])].filter(
          isFamily(family),
        );
  return [
    ...pools.filter((pool) => pool.disableBgpExport).map((pool) => ({ within: pool.cidr, action: "reject" as const })),
    // Felix's routes through tunnels; peers in the same AS learn these destinations from the nodes that have them.
    { interface: ["*.cali", "*.calico", "tunl0"], onlyWhen: "sameAs", action: "reject" },
    { interface: ["bpf*.cali"], action: "reject" },
    { step: "communities" },
    { step: "aggregation" },
    ...announced.map(accept),
    ...reflected.map(accept),
    ...pools.filter((pool) => !pool.disableBgpExport).map((pool) => accept(pool.cidr)),
  ];
}

const poolsOf = (pools: readonly Pool[], family: IpVersion): readonly Pool[] =>
  pools.filter(({ cidr }) => ipVersion(cidr) === family).sort((a, b) => compare(keyText(a.cidr), keyText(b.cidr)));

/** A node's own advertisements replace the default ones. Names refer to communities of the same configuration. */
function communities(state: BgpState, node: Node, problems: Problem[]): BgpPlan["communities"] {
  const own = state.configurations.get(`node.${node.name}`);
  const hasOwn = own !== undefined && own.prefixAdvertisements.length > 0;
  const configuration = hasOwn ? own : state.configurations.get("default");
  const object = `BGPConfiguration(${hasOwn ? `node.${node.name}` : "default"})`;
  const entries = (configuration?.prefixAdvertisements ?? []).flatMap(({ cidr, communities: names }) => {
    const add = new Set<string>();
    for (const name of names) {
      const value = configuration?.communities[name] ?? name;
      if (isCommunity(value)) add.add(value);
      else
        problems.push({
          object,
          problem: `prefixAdvertisements: ${JSON.stringify(name)} is not a community: left out`,
        });
    }
    return add.size === 0 ? [] : [{ within: cidr, add: [...add].sort() }];
  });
  return [
    ...entries.filter(({ within }) => ipVersion(within) === 4),
    ...entries.filter(({ within }) => ipVersion(within) === 6),
  ];
}

/**
 * Returns the announced service ranges. A range of one address (/32 or /128) is announced only while a service has this
 * address.
 */
export function serviceRanges(
  configuration: BgpConfiguration | undefined,
  clusterIps: readonly string[] | undefined,
  isExcluded: boolean,
): ServiceRoutes {
  const isRange = (text: string) => {
    const cidr = tryParseCidr(text);
    return cidr !== undefined && cidrLength(cidr) < addressBits(ipVersion(cidr));
  };
  const balanced =
    configuration?.serviceLoadBalancerAggregation === false ? [] : (configuration?.serviceLoadBalancerIps ?? []);
  const ranges = [
    ...(clusterIps ?? configuration?.serviceClusterIps ?? []).filter((text) => tryParseCidr(text) !== undefined),
    ...[...(configuration?.serviceExternalIps ?? []), ...balanced].filter(isRange),
  ];
  const unique = [...new Set(ranges)];
  return { ranges: isExcluded ? [] : unique, rejected: unique, addresses: [] };
}

/** Service ranges keep the user's spelling, so they are not of type `Cidr`. */
const isFamily =
  (family: IpVersion) =>
  (text: string): boolean =>
    text.includes(":") === (family === 6);
/** Service ranges, and service addresses outside of them. */
function excludedFromKernel({ rejected, addresses }: ServiceRoutes): readonly string[] {
  return [...rejected, ...addresses.filter((address) => !rejected.some((range) => covers(range, address)))];
}

/** Whether `inner` is inside `outer` and not equal to it. */
function covers(outer: string, inner: string): boolean {
  const [large, small] = [tryParseCidr(outer), tryParseCidr(inner)];
  return large !== undefined && small !== undefined && large !== small && cidrContains(large, small);
}
const keyText = (cidr: string): string => cidr.replace("/", "-");
const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
const sortTexts = (texts: readonly string[]): readonly string[] =>
  [...new Set(texts)].sort((a, b) => compare(keyText(a), keyText(b)));
