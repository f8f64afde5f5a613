// Permanent ARP entries for workloads whose MAC is known: the host need not ask, and a workload cannot answer for
// another.
import type { Neighbours } from "../../kernel/index.ts";
import { hasErrno } from "../../kernel/index.ts";
import type { IpAddress } from "../../lib/ip.ts";
import type { ApplyOutcome, ManagerMessage, Reconciler } from "../manager.ts";

interface Entry {
  readonly interfaceName: string;
  readonly address: IpAddress;
  readonly mac: string;
}

export class StaticNeighbours implements Reconciler {
  readonly name = "static neighbours";
  readonly #neighbours: Neighbours;
  readonly #wanted = new Map<string, Entry>();
  readonly #dirty = new Set<string>();
  readonly #indexes = new Map<string, number>();

  constructor(neighbours: Neighbours) {
    this.#neighbours = neighbours;
  }

  set(interfaceName: string, address: IpAddress, mac: string): void {
    const key = `${interfaceName} ${address}`;
    if (this.#wanted.get(key)?.mac === mac) return;
    this.#wanted.set(key, { interfaceName, address, mac });
    this.#dirty.add(key);
  }

  remove(interfaceName: string, address: IpAddress): void {
    // The entry goes with the interface; one for another address of a living interface does no harm but is removed.
    const key = `${interfaceName} ${address}`;
    if (this.#wanted.delete(key)) this.#dirty.add(key);
  }

  onInterface(message: ManagerMessage): void {
    if (message.type !== "interfaceState") return;
    if (message.state === "gone") this.#indexes.delete(message.name);
    else this.#indexes.set(message.name, message.index);
    for (const [key, entry] of this.#wanted) if (entry.interfaceName === message.name) this.#dirty.add(key);
  }

  queueResync(): void {
    for (const key of this.#wanted.keys()) this.#dirty.add(key);
  }

  apply(): ApplyOutcome {
    for (const key of this.#dirty) {
      const [interfaceName = "", address = ""] = key.split(" ");
      const link = this.#indexes.get(interfaceName);
      const entry = this.#wanted.get(key);
      if (link === undefined) {
        if (entry === undefined) this.#dirty.delete(key);
        continue; // when it appears
      }
      try {
        if (entry === undefined) this.#neighbours.delete({ link, address: address as IpAddress });
        else this.#neighbours.set({ link, address: entry.address, mac: entry.mac, state: "permanent" });
      } catch (error) {
        if (!hasErrno(error, "ENODEV", "ENOENT", "ENXIO", "ENETDOWN")) throw error;
      }
      this.#dirty.delete(key);
    }
    return {};
  }
}
