// Keeps the chain `cali-egress-dscp`, which sets the DSCP of traffic that leaves the cluster, and the set of its sources.
import { type Cidr, cidrAddress, hostCidr, ipVersion } from "../../lib/ip/ip.ts";
import type { Manager, ManagerMessage } from "../loop/manager.ts";
import { SET } from "../rules/config.ts";
import { chain, isAddress, isNet, type Rule } from "../rules/rule.ts";
import type { FamilyRules } from "../rules/rule-table.ts";

export class EgressDscp implements Manager {
  readonly name = "egress DSCP";
  readonly #families: readonly FamilyRules[];
  readonly #endpoints = new Map<string, { readonly prefixes: readonly Cidr[]; readonly value: number }>();
  #isStale = true;

  constructor(families: readonly FamilyRules[]) {
    this.#families = families;
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
    for (const { tables, sets, version } of this.#families) {
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
