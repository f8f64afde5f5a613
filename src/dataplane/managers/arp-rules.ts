// Drops ARP replies of the host to a workload for the workload's own address. The host replies to all ARP requests (proxy
// ARP). A workload that checks whether its address is in use would receive such a reply, and not use the address.
import { cidrAddress } from "../../lib/ip/ip.ts";
import type { Manager } from "../loop/manager.ts";
import type { RuleTable } from "../rules/rule-table.ts";
import type { ChainNames } from "../rules/names.ts";
import { chain, drop, jump, outInterface, type Rule } from "../rules/rule.ts";
import type { EndpointRegistry } from "./endpoint-registry.ts";

const DISPATCH = "cali-arp-dispatch";

export class ArpRules implements Manager {
  readonly name = "ARP suppression";
  readonly #table: RuleTable;
  readonly #names: ChainNames;
  readonly #registry: EndpointRegistry;
  readonly #dirty: Set<string>;
  readonly #targets = new Map<string, string>();

  /** @param table the table for ARP packets */
  constructor(table: RuleTable, names: ChainNames, registry: EndpointRegistry) {
    this.#table = table;
    this.#names = names;
    this.#registry = registry;
    this.#dirty = registry.watchWorkloads();
    table.setHook("OUTPUT", "insert", [{ action: jump(DISPATCH), ifRejected: "omit" }]);
    this.#applyDispatch();
  }

  onUpdate(): void {} // the registry stores the messages

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
        ifRejected: "omit", // a drop without the match would block all ARP replies
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
