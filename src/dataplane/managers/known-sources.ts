// Which sources a workload's packets may have, by its endpoint's addresses: for a kernel that refuses to ask for the way
// back to them. The chain is filled only where something leads to it, one round after that was found; until then it drops.
import type { Cidr } from "../../lib/ip.ts";
import type { Manager } from "../manager.ts";
import { KNOWN_SOURCES } from "../rules/detours.ts";
import type { RulePlane } from "../rules/layer-table.ts";
import { chain, drop, inInterface, isNet, returnAction, type Rule } from "../rules/rule.ts";
import type { EndpointRegistry } from "./endpoint-registry.ts";

/** Neighbour discovery begins with no address and goes on with one of the link; the kernel's own check knows both. */
const OF_THE_LINK: readonly Cidr[] = ["::/128" as Cidr, "fe80::/10" as Cidr];

export class KnownSources implements Manager {
  readonly name = "known sources of workloads";
  readonly #planes: readonly RulePlane[];
  readonly #registry: EndpointRegistry;
  readonly #dirty: Set<string>;
  readonly #filled = new Set<RulePlane>();

  constructor(planes: readonly RulePlane[], registry: EndpointRegistry) {
    this.#planes = planes;
    this.#registry = registry;
    this.#dirty = registry.watchWorkloads();
    for (const { tables } of planes) tables.raw.setChain(chain(KNOWN_SOURCES.chain, [{ action: drop }]));
  }

  onUpdate(): void {} // the registry remembers

  apply(): void {
    const isStale = this.#dirty.size > 0;
    this.#dirty.clear();
    for (const plane of this.#planes)
      if (!plane.tables.raw.isNeeded(KNOWN_SOURCES.chain)) this.#filled.delete(plane);
      else if (isStale || !this.#filled.has(plane)) this.#fill(plane);
  }

  #fill(plane: RulePlane): void {
    this.#filled.add(plane);
    const rules = [...this.#sources(plane)].map(
      ([interfaceName, net]): Rule => ({
        match: [inInterface(interfaceName), isNet("source", net)],
        action: returnAction,
      }),
    );
    plane.tables.raw.setChain(chain(KNOWN_SOURCES.chain, [...rules, { action: drop }]));
  }

  /** An address of two workloads is known to lead to neither. */
  *#sources({ version }: RulePlane): Generator<readonly [interfaceName: string, net: Cidr]> {
    const active = [...this.#registry.activeWorkloads]
      .filter(([, { endpoint }]) => endpoint.state === "active")
      .map(([name, { endpoint }]) => [name, version === 4 ? endpoint.ipv4Nets : endpoint.ipv6Nets] as const)
      .sort(([a], [b]) => (a < b ? -1 : 1));
    const owners = Map.groupBy(
      active.flatMap(([, nets]) => nets),
      (net) => net,
    );
    for (const [name, nets] of active) {
      if (version === 6) for (const net of OF_THE_LINK) yield [name, net];
      for (const net of nets) if (owners.get(net)?.length === 1) yield [name, net];
    }
  }
}
