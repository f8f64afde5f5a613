// Small chains with a manager each: service loops, and the class (DSCP) of traffic that leaves the cluster.
import { type Cidr, cidrAddress, hostCidr, ipVersion } from "../../lib/ip.ts";
import type { Manager, ManagerMessage } from "../manager.ts";
import { type RulesConfig, SET } from "../rules/config.ts";
import type { RulePlane } from "../rules/layer-table.ts";
import { chain, isAddress, isNet, type Rule } from "../rules/rule.ts";
import { parsePrefixes } from "./set-managers.ts";

/**
 * `cali-cidr-block`: a packet to a service address that no rule translated would go back to the router that sent it,
 * and come again.
 */
export class ServiceLoops implements Manager {
  readonly name = "service loops";
  readonly #config: RulesConfig;
  readonly #planes: readonly RulePlane[];
  #prefixes: readonly Cidr[] = [];
  #isStale = true;

  constructor(config: RulesConfig, planes: readonly RulePlane[]) {
    this.#config = config;
    this.#planes = planes;
  }

  onUpdate(message: ManagerMessage): void {
    if (message.type !== "globalBgpConfigUpdate") return;
    const { serviceClusterCidrs, serviceExternalCidrs, serviceLoadBalancerCidrs } = message;
    const all = [...serviceClusterCidrs, ...serviceExternalCidrs, ...serviceLoadBalancerCidrs];
    this.#prefixes = [...new Set(parsePrefixes(all))].sort();
    this.#isStale = true;
  }

  apply(): void {
    if (!this.#isStale) return;
    this.#isStale = false;
    const { serviceLoop } = this.#config;
    for (const { tables, version } of this.#planes) {
      const prefixes = serviceLoop === "disabled" ? [] : this.#prefixes.filter((cidr) => ipVersion(cidr) === version);
      tables.filter.setChain(
        chain(
          "cali-cidr-block",
          prefixes.map(
            (cidr): Rule => ({
              match: [isNet("destination", cidr)],
              action: { kind: serviceLoop === "reject" ? "reject" : "drop" },
              ifRefused: "leaveOut", // a loop is a nuisance; everything forwarded comes by here
            }),
          ),
        ),
      );
    }
  }
}

/** `cali-egress-dscp` and the set of sources it is for. */
export class EgressDscp implements Manager {
  readonly name = "DSCP of outgoing traffic";
  readonly #planes: readonly RulePlane[];
  readonly #endpoints = new Map<string, { readonly prefixes: readonly Cidr[]; readonly value: number }>();
  #isStale = true;

  constructor(planes: readonly RulePlane[]) {
    this.#planes = planes;
  }

  onUpdate(message: ManagerMessage): void {
    switch (message.type) {
      case "workloadEndpointUpdate": {
        const { qosPolicies, ipv4Nets, ipv6Nets } = message.endpoint;
        return this.#set(`w${JSON.stringify(message.id)}`, [...ipv4Nets, ...ipv6Nets], qosPolicies[0]?.dscp);
      }
      case "workloadEndpointRemove":
        return this.#set(`w${JSON.stringify(message.id)}`, [], undefined);
      case "hostEndpointUpdate": {
        const { qosPolicies, expectedIpv4Addrs, expectedIpv6Addrs } = message.endpoint;
        const addresses = [...expectedIpv4Addrs, ...expectedIpv6Addrs].map(hostCidr);
        return this.#set(`h${message.endpointId}`, addresses, qosPolicies[0]?.dscp);
      }
      case "hostEndpointRemove":
        return this.#set(`h${message.endpointId}`, [], undefined);
      default:
        return;
    }
  }

  #set(key: string, prefixes: readonly Cidr[], value: number | undefined): void {
    if (value === undefined) {
      if (this.#endpoints.delete(key)) this.#isStale = true;
      return;
    }
    this.#endpoints.set(key, { prefixes, value });
    this.#isStale = true;
  }

  apply(): void {
    if (!this.#isStale) return;
    this.#isStale = false;
    for (const { tables, sets, version } of this.#planes) {
      const values = new Map<Cidr, number>();
      for (const { prefixes, value } of this.#endpoints.values())
        for (const prefix of prefixes) if (ipVersion(prefix) === version) values.set(prefix, value);
      const sorted = [...values].sort(([a], [b]) => (a < b ? -1 : 1));
      const rules = sorted.map(
        ([prefix, value]): Rule => ({
          match: [isHost(prefix) ? isAddress("source", cidrAddress(prefix)) : isNet("source", prefix)],
          action: { kind: "dscp", value },
        }),
      );
      tables.mangle.setChain(chain("cali-egress-dscp", rules));
      sets.replace(SET.dscpSources, "net", values.keys());
    }
  }
}

const isHost = (prefix: Cidr): boolean => prefix.endsWith(prefix.includes(":") ? "/128" : "/32");

/** Endpoints whose packets must be seen one by one (limits, classes) take no short cut through a flowtable. */
export class OffloadExclusions implements Manager {
  readonly name = "offload exclusions";
  readonly #planes: readonly RulePlane[];
  readonly #endpoints = new Map<string, readonly Cidr[]>();
  #isStale = true;

  constructor(planes: readonly RulePlane[]) {
    this.#planes = planes;
  }

  onUpdate(message: ManagerMessage): void {
    if (message.type !== "workloadEndpointUpdate" && message.type !== "workloadEndpointRemove") return;
    const key = JSON.stringify(message.id);
    if (message.type === "workloadEndpointRemove" || !needsEveryPacket(message.endpoint)) this.#endpoints.delete(key);
    else this.#endpoints.set(key, [...message.endpoint.ipv4Nets, ...message.endpoint.ipv6Nets]);
    this.#isStale = true;
  }

  apply(): void {
    if (!this.#isStale) return;
    this.#isStale = false;
    const members = [...this.#endpoints.values()].flat().map(cidrAddress);
    for (const { sets } of this.#planes) sets.replace(SET.noOffload, "ip", members);
  }
}

function needsEveryPacket(endpoint: (ManagerMessage & { type: "workloadEndpointUpdate" })["endpoint"]): boolean {
  const qos = endpoint.qosControls;
  return (
    endpoint.qosPolicies.length > 0 ||
    [qos?.ingressPacketRate, qos?.egressPacketRate, qos?.ingressMaxConnections, qos?.egressMaxConnections].some(
      (limit) => (limit ?? 0) > 0,
    )
  );
}
