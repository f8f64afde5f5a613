// The host answers ARP for everybody (proxy ARP), and might answer a workload that asks whether its own address is
// taken: the workload would then not use it. What says "that address is mine" to the very workload it belongs to is
// dropped on the way out.
import { cidrAddress } from "../../lib/ip.ts";
import type { Manager } from "../manager.ts";
import type { LayerTable } from "../rules/layer-table.ts";
import type { ChainNames } from "../rules/names.ts";
import { chain, drop, jump, outInterface, type Rule } from "../rules/rule.ts";
import type { EndpointRegistry } from "./endpoint-registry.ts";

const DISPATCH = "cali-arp-dispatch";

export class ArpRules implements Manager {
  readonly name = "ARP suppression";
  readonly #table: LayerTable;
  readonly #names: ChainNames;
  readonly #registry: EndpointRegistry;
  readonly #dirty: Set<string>;
  readonly #targets = new Map<string, string>();

  /** @param table of the family that sees ARP */
  constructor(table: LayerTable, names: ChainNames, registry: EndpointRegistry) {
    this.#table = table;
    this.#names = names;
    this.#registry = registry;
    this.#dirty = registry.watchWorkloads();
    table.setHook("OUTPUT", "insert", [{ action: jump(DISPATCH), ifRefused: "leaveOut" }]);
    this.#applyDispatch();
  }

  onUpdate(): void {} // the registry remembers

  apply(): void {
    if (this.#dirty.size === 0) return;
    const before = [...this.#targets.keys()].join(" ");
    for (const name of this.#dirty) this.#applyWorkload(name);
    this.#dirty.clear();
    if ([...this.#targets.keys()].join(" ") !== before) this.#applyDispatch();
  }

  #applyWorkload(name: string): void {
    const addresses = this.#registry.activeWorkloads.get(name)?.endpoint.ipv4Nets.map(cidrAddress) ?? [];
    const chainName = this.#names.arp(name);
    if (addresses.length === 0) {
      if (this.#targets.delete(name)) this.#table.removeChain(chainName);
      return;
    }
    const rules = addresses.map(
      (sender): Rule => ({
        match: [outInterface(name), { kind: "arpReply", sender }],
        action: drop,
        ifRefused: "leaveOut", // without ARP the workload would have nothing at all
      }),
    );
    this.#table.setChain(chain(chainName, rules));
    this.#targets.set(name, chainName);
  }

  #applyDispatch(): void {
    const targets = new Map([...this.#targets].sort(([a], [b]) => (a < b ? -1 : 1)));
    this.#table.setChain({ kind: "dispatch", name: DISPATCH, direction: "out", targets, otherwise: [] });
  }
}
