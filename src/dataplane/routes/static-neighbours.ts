// Keeps permanent ARP entries for workloads with a known MAC address. The host sends no ARP requests for them, and a workload
// cannot reply for the address of another.
import { hasErrno, type Neighbours } from "../../kernel/index.ts";
import { type IpAddress, type IpVersion, ipVersion } from "../../lib/ip/ip.ts";
import type { Logger } from "../../lib/log/log.ts";
import type { ApplyOutcome, ManagerMessage, Reconciler } from "../loop/manager.ts";

interface Entry {
  readonly interfaceName: string;
  readonly address: IpAddress;
  readonly mac: string;
}

export class StaticNeighbours implements Reconciler {
  readonly name = "static neighbours";
  readonly #neighbours: Neighbours;
  readonly #log: Logger;
  readonly #desired = new Map<string, Entry>();
  readonly #dirty = new Set<string>();
  readonly #indexes = new Map<string, number>();
  readonly #keysOf = new Map<string, Set<string>>();
  /** Entries that are only checked: any difference is due to another program. */
  readonly #rechecked = new Set<string>();

  constructor(neighbours: Neighbours, logger: Logger) {
    this.#neighbours = neighbours;
    this.#log = logger;
  }

  set(interfaceName: string, address: IpAddress, mac: string): void {
    const key = `${interfaceName} ${address}`;
    if (this.#desired.get(key)?.mac === mac) return;
    this.#desired.set(key, { interfaceName, address, mac });
    const keys = this.#keysOf.get(interfaceName);
    if (keys === undefined) this.#keysOf.set(interfaceName, new Set([key]));
    else keys.add(key);
    this.#dirty.add(key);
  }

  remove(interfaceName: string, address: IpAddress): void {
    const key = `${interfaceName} ${address}`;
    if (!this.#desired.delete(key)) return;
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
    for (const key of this.#desired.keys()) {
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
      const entry = this.#desired.get(key);
      if (link === undefined) {
        if (entry === undefined) this.#dirty.delete(key);
        continue; // applied when the interface appears
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
      this.#log.warn("another program changed static neighbours; restored them", {
        count: repaired.length,
        first: repaired[0],
      });
    return {};
  }

  /** Returns the MAC addresses of permanent entries on interfaces with changes. */
  #present(): ReadonlyMap<string, string> {
    const present = new Map<string, string>();
    const versions = new Map<IpVersion, Set<number>>();
    for (const key of this.#dirty) {
      const entry = this.#desired.get(key);
      const link = entry === undefined ? undefined : this.#indexes.get(entry.interfaceName);
      if (entry === undefined || link === undefined) continue;
      const version = ipVersion(entry.address);
      const links = versions.get(version);
      if (links === undefined) versions.set(version, new Set([link]));
      else links.add(link);
    }
    for (const [version, links] of versions) {
      const filters = links.size > MAX_SINGLE_LISTS ? [{ version }] : [...links].map((link) => ({ version, link }));
      for (const filter of filters)
        for (const { link, address, mac, state } of this.#neighbours.list(filter))
          if (state === "permanent" && mac !== undefined) present.set(`${link} ${address}`, mac);
    }
    return present;
  }
}

/** For more links, one list of all entries is cheaper than one list per link. */
const MAX_SINGLE_LISTS = 8;
