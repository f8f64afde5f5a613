// Summarizes the state of a mock dataplane, short enough to write by hand in a test.
import { ParsedSelector } from "../../model/index.ts";
import { namedPortSet, selectorSet, serviceSet } from "../ipsets/ip-set.ts";
import { ROUTE_TYPE, type TierInfo } from "../messages.ts";
import type { MockDataplane } from "./mock-dataplane.ts";

export interface Summary {
  /** By `selector`, `selector | protocol:port` or `svc ns/name`, `svcnoport ns/name`. */
  readonly sets?: Readonly<Record<string, readonly string[]>>;
  readonly policies?: readonly string[];
  /** Profiles, with `!` after those that deny all. */
  readonly profiles?: readonly string[];
  /** `tier(in / out) …` per endpoint. */
  readonly endpoints?: Readonly<Record<string, string>>;
  readonly routes?: Readonly<Record<string, string>>;
  readonly vteps?: Readonly<Record<string, string>>;
  readonly others?: readonly string[];
}

export function summarize(dataplane: MockDataplane, setNames: readonly string[]): Required<Summary> {
  const names = new Map(setNames.map((name) => [setIdOf(name), name]));
  const sets: Record<string, readonly string[]> = {};
  for (const [id, members] of dataplane.sets)
    if (id !== "all-istio-weps") sets[names.get(id) ?? id] = [...members].sort();
  const policies: string[] = [];
  const profiles: string[] = [];
  const endpoints: Record<string, string> = {};
  const routes: Record<string, string> = {};
  const vteps: Record<string, string> = {};
  const others: string[] = [];
  for (const [key, message] of dataplane.objects) {
    if (message.type === "activePolicyUpdate") policies.push(key.replace(/^policy (Global)?(NetworkPolicy )?/, ""));
    else if (message.type === "activeProfileUpdate") {
      const isDenied = message.profile.inboundRules[0]?.action === "deny";
      profiles.push(`${message.name}${isDenied ? "!" : ""}`);
    } else if (message.type === "workloadEndpointUpdate")
      endpoints[message.id.workload.replace("default/", "")] = showTiers(message.endpoint.tiers);
    else if (message.type === "hostEndpointUpdate") {
      const { tiers, untrackedTiers, preDnatTiers, forwardTiers } = message.endpoint;
      endpoints[message.endpointId] = [
        showTiers(tiers),
        ...(untrackedTiers.length > 0 ? [`untracked ${showTiers(untrackedTiers)}`] : []),
        ...(preDnatTiers.length > 0 ? [`preDNAT ${showTiers(preDnatTiers)}`] : []),
        ...(forwardTiers.length > 0 ? [`forward ${showTiers(forwardTiers)}`] : []),
      ]
        .filter((part) => part !== "")
        .join("; ");
    } else if (message.type === "routeUpdate") {
      const types = Object.entries(ROUTE_TYPE).filter(([, bit]) => bit !== 0 && (message.types & bit) !== 0);
      routes[message.dst] = [
        message.poolType,
        types.map(([name]) => name).join("+") || "cidrInfo",
        ...(message.dstNodeName === "" ? [] : [`${message.dstNodeName}=${message.dstNodeIp}`]),
        ...(["sameSubnet", "natOutgoing", "localWorkload", "borrowed"] as const).filter((flag) => message[flag]),
        ...Object.entries(message.tunnelType ?? {}).flatMap(([name, is]) => (is ? [`tunnel:${name}`] : [])),
      ].join(" ");
    } else if (message.type === "vtepUpdate") {
      const { mac, ipv4Addr, parentDeviceIp, macV6, ipv6Addr, parentDeviceIpv6 } = message;
      vteps[message.node] = [mac, ipv4Addr, parentDeviceIp, macV6, ipv6Addr, parentDeviceIpv6]
        .filter(Boolean)
        .join(" ");
    } else others.push(key);
  }
  return {
    sets,
    policies: policies.sort(),
    profiles: profiles.sort(),
    endpoints,
    routes,
    vteps,
    others: others.sort(),
  };
}

function showTiers(tiers: readonly TierInfo[]): string {
  return tiers
    .map(({ name, ingressPolicies, egressPolicies, defaultAction }) => {
      const list = (ids: typeof ingressPolicies) => ids.map((id) => id.name).join(",");
      return `${name}${defaultAction === "Pass" ? "~" : ""}(${list(ingressPolicies)} / ${list(egressPolicies)})`;
    })
    .join(" ");
}

function setIdOf(name: string): string {
  const service = /^(svc|svcnoport) (.+)$/.exec(name);
  if (service?.[2] !== undefined) return serviceSet(service[2], service[1] === "svc").id;
  const named = /^(.+) \| (tcp|udp|sctp|any):(.+)$/.exec(name);
  if (named?.[1] !== undefined && named[2] !== undefined && named[3] !== undefined)
    return namedPortSet(ParsedSelector.parse(named[1]), named[2] as "tcp" | "udp" | "sctp" | "any", named[3]).id;
  return selectorSet(ParsedSelector.parse(name)).id;
}
