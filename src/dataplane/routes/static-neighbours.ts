// Permanent ARP entries for workloads whose MAC is known: the host need not ask, and a workload cannot answer for
// another.
import { hasErrno, type Neighbours } from "../../kernel/index.ts";
import { type IpAddress, type IpVersion, ipVersion } from "../../lib/ip.ts";
import type { Logger } from "../../lib/log.ts";
import type { ApplyOutcome, ManagerMessage, Reconciler } from "../manager.ts";

interface Entry {
  readonly interfaceName: string;
  readonly address: IpAddress;
  readonly mac: string;
}

export class StaticNeighbours implements Reconciler {
  readonly name = "static neighbours";
  readonly #neighbours: Neighbours;
  readonly #log: Logger;
  readonly #wanted = new Map<string, Entry>();
  readonly #dirty = new Set<string>();
  readonly #indexes = new Map<string, number>();
  readonly #keysOf = new Map<string, Set<string>>();
  /** Written before and only looked at again. */
  readonly #rechecked = new Set<string>();

  constructor(neighbours: Neighbours, logger: Logger) {
    this.#neighbours = neighbours;
    this.#log = logger;
  }

  set(interfaceName: string, address: IpAddress, mac: string): void {
    const key = `${interfaceName} ${address}`;
    if (this.#wanted.get(key)?.mac === mac) return;
    this.#wanted.set(key, { interfaceName, address, mac });
    const keys = this.#keysOf.get(interfaceName);
    if (keys === undefined) this.#keysOf.set(interfaceName, new Set([key]));
    else keys.add(key);
    this.#dirty.add(key);
  }

  remove(interfaceName: string, address: IpAddress): void {
    // The entry goes with the interface; one for another address of a living interface does no harm but is removed.
    const key = `${interfaceName} ${address}`;
    if (!this.#wanted.delete(key)) return;
    this.#dirty.add(key);
    const keys = this.#keysOf.get(interfaceName);
    keys?.delete(key);
    if (keys?.size === 0) this.#keysOf.delete(interfaceName);
  }

  onInterface(message: ManagerMessage): void {
    if (message.type !== "interfaceState") return;
    if (message.state === "gone") this.#indexes.delete(message.name);
    else this.#indexes.set(message.name, message.index);
    for (const key of this.#keysOf.get(message.name) ?? []) this.#dirty.add(key);
  }

  queueResync(): void {
    for (const key of this.#wanted.keys()) {
      if (!this.#dirty.has(key)) this.#rechecked.add(key);
      this.#dirty.add(key);
    }
  }

  apply(): ApplyOutcome {
    const present = this.#present();
    const repaired: string[] = [];
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
        else if (present.get(`${link} ${entry.address}`) !== entry.mac.toLowerCase()) {
          this.#neighbours.set({ link, address: entry.address, mac: entry.mac, state: "permanent" });
          if (this.#rechecked.has(key)) repaired.push(entry.address);
        }
      } catch (error) {
        if (!hasErrno(error, "ENODEV", "ENOENT", "ENXIO", "ENETDOWN")) throw error;
      }
      this.#dirty.delete(key);
    }
    this.#rechecked.clear();
    if (repaired.length > 0)
      this.#log.warn("somebody changed our static neighbours; repaired", {
        count: repaired.length,
        first: repaired[0],
      });
    return {};
  }

  /** MACs of the permanent entries the kernel has, where something is to be done. */
  #present(): ReadonlyMap<string, string> {
    const present = new Map<string, string>();
    const versions = new Map<IpVersion, Set<number>>();
    for (const key of this.#dirty) {
      const entry = this.#wanted.get(key);
      const link = entry === undefined ? undefined : this.#indexes.get(entry.interfaceName);
      if (entry === undefined || link === undefined) continue;
      const version = ipVersion(entry.address);
      const links = versions.get(version);
      if (links === undefined) versions.set(version, new Set([link]));
      else links.add(link);
    }
    for (const [version, links] of versions) {
      const filters = links.size > FEW_LINKS ? [{ version }] : [...links].map((link) => ({ version, link }));
      for (const filter of filters)
        for (const { link, address, mac, state } of this.#neighbours.list(filter))
          if (state === "permanent" && mac !== undefined) present.set(`${link} ${address}`, mac);
    }
    return present;
  }
}

/** With more links than these, one list of all is cheaper than one of each. */
const FEW_LINKS = 8;
