// Keeps the chain `cali-cidr-block`, which prevents routing loops of packets to service addresses: if no rule translates such
// a packet, the node would send it back to the router from which it came.
import { type Cidr, ipVersion } from "../../lib/ip/ip.ts";
import type { Manager, ManagerMessage } from "../loop/manager.ts";
import type { RulesConfig } from "../rules/config.ts";
import { chain, isNet, type Rule } from "../rules/rule.ts";
import type { FamilyRules } from "../rules/rule-table.ts";
import { parsePrefixes } from "./set-managers.ts";

export class ServiceLoopPrevention implements Manager {
  readonly name = "service loop prevention";
  readonly #config: RulesConfig;
  readonly #families: readonly FamilyRules[];
  #prefixes: readonly Cidr[] = [];
  #isStale = true;

  constructor(config: RulesConfig, families: readonly FamilyRules[]) {
    this.#config = config;
    this.#families = families;
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
    for (const { tables, version } of this.#families) {
      const prefixes = serviceLoop === "disabled" ? [] : this.#prefixes.filter((cidr) => ipVersion(cidr) === version);
      tables.filter.setChain(
        chain(
          "cali-cidr-block",
          prefixes.map(
            (cidr): Rule => ({
              match: [isNet("destination", cidr)],
              action: { kind: serviceLoop === "reject" ? "reject" : "drop" },
              ifRejected: "omit", // all forwarded packets pass this chain, and a loop is not a security problem
            }),
          ),
        ),
      );
    }
  }
}
