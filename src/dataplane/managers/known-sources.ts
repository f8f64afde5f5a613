// Keeps the chain with the allowed source addresses of each workload, which is used if the kernel rejects the reverse-path
// filter. The chain is filled only while a rule leads to it, one round later; until then it drops all packets.
import type { Cidr } from "../../lib/ip/ip.ts";
import type { Manager } from "../loop/manager.ts";
import { KNOWN_SOURCES } from "../rules/fallback/fallback-chains.ts";
import type { FamilyRules } from "../rules/rule-table.ts";
import { chain, drop, inInterface, isNet, returnAction, type Rule } from "../rules/rule.ts";
import type { EndpointRegistry } from "./endpoint-registry.ts";

/** Neighbour discovery uses the unspecified address and link-local addresses. */
const DISCOVERY_SOURCES: readonly Cidr[] = ["::/128" as Cidr, "fe80::/10" as Cidr];

export class KnownSources implements Manager {
  readonly name = "known sources of workloads";
  readonly #families: readonly FamilyRules[];
  readonly #registry: EndpointRegistry;
  readonly #dirty: Set<string>;
  readonly #filled = new Set<FamilyRules>();

  constructor(families: readonly FamilyRules[], registry: EndpointRegistry) {
    this.#families = families;
    this.#registry = registry;
    this.#dirty = registry.watchWorkloads();
    for (const { tables } of families) tables.raw.setChain(chain(KNOWN_SOURCES.chain, [{ action: drop }]));
  }

  onUpdate(): void {} // the registry stores the messages

  apply(): void {
    const isStale = this.#dirty.size > 0;
    this.#dirty.clear();
    for (const family of this.#families)
      if (!family.tables.raw.isNeeded(KNOWN_SOURCES.chain)) this.#filled.delete(family);
      else if (isStale || !this.#filled.has(family)) this.#fill(family);
  }

  #fill(family: FamilyRules): void {
    this.#filled.add(family);
    const rules = [...this.#sources(family)].map(
      ([interfaceName, net]): Rule => ({
        match: [inInterface(interfaceName), isNet("source", net)],
        action: returnAction,
      }),
    );
    family.tables.raw.setChain(chain(KNOWN_SOURCES.chain, [...rules, { action: drop }]));
  }

  /** An address that two workloads have is not allowed for either of them. */
  *#sources({ version }: FamilyRules): Generator<readonly [interfaceName: string, net: Cidr]> {
    const active = [...this.#registry.activeWorkloads]
      .filter(([, { endpoint }]) => endpoint.state === "active")
      .map(([name, { endpoint }]) => [name, version === 4 ? endpoint.ipv4Nets : endpoint.ipv6Nets] as const)
      .sort(([a], [b]) => (a < b ? -1 : 1));
    const owners = Map.groupBy(
      active.flatMap(([, nets]) => nets),
      (net) => net,
    );
    for (const [name, nets] of active) {
      if (version === 6) for (const net of DISCOVERY_SOURCES) yield [name, net];
      for (const net of nets) if (owners.get(net)?.length === 1) yield [name, net];
    }
  }
}
