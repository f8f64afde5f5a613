// Links and addresses of one namespace in memory. Observers, such as the routes, are notified of changes.
import type { Addresses, InterfaceAddress, NewAddress } from "../route/addresses.ts";
import { type Link, type LinkSettings, type Links, type NewLink, isLinkName } from "../route/links.ts";
import { NetlinkError } from "../sys/kernel-error.ts";
import { ipVersion, type IpVersion } from "../../lib/ip/ip.ts";

type Draft = { -readonly [K in keyof Link]: Link[K] };

export interface LinkObserver {
  linkWentDown(index: number): void;
  linkRemoved(index: number): void;
  addressAdded(address: InterfaceAddress): void;
  addressRemoved(address: InterfaceAddress): void;
}

export class MemoryLinks implements Links {
  readonly #links = new Map<number, Draft>();
  readonly #observers: LinkObserver[] = [];
  #nextIndex = 1;

  constructor() {
    this.#insert({ name: "lo", kind: undefined, up: true, mtu: 65536 }).isLoopback = true;
  }

  observe(observer: LinkObserver): void {
    this.#observers.push(observer);
  }

  list(): Link[] {
    return [...this.#links.values()].map((link) => ({ ...link }));
  }
  get(which: string | number): Link | undefined {
    const link = this.#find(which);
    return link === undefined ? undefined : { ...link };
  }

  create(link: NewLink): void {
    const operation = `create ${link.type.kind} link ${link.name}`;
    for (const name of link.type.kind === "veth" ? [link.name, link.type.peer.name] : [link.name]) {
      if (!isLinkName(name)) throw new NetlinkError(operation, "EINVAL");
      const isElsewhere = name !== link.name && link.type.kind === "veth" && link.type.peer.namespaceFd !== undefined;
      if (!isElsewhere && this.#find(name) !== undefined) throw new NetlinkError(operation, "EEXIST");
    }
    const { kind } = link.type;
    const created = this.#insert({ name: link.name, kind, up: false, mtu: link.mtu ?? 1500 });
    if (link.type.kind === "vxlan") {
      const { kind: _, ...settings } = link.type;
      created.vxlan = settings;
    }
    if (link.type.kind === "veth" && link.type.peer.namespaceFd === undefined) {
      const { peer } = link.type;
      const far = this.#insert({ name: peer.name, kind, up: false, mtu: peer.mtu ?? 1500 });
      if (peer.mac !== undefined) far.mac = peer.mac;
      far.peer = created.index;
      created.peer = far.index;
    }
    const { name: _name, type: _type, queues: _queues, ...settings } = link;
    this.set(created.index, settings);
  }

  set(which: string | number, settings: LinkSettings): void {
    const link = this.#find(which);
    if (link === undefined) throw new NetlinkError(`set link ${which}`, "ENODEV");
    if (settings.name !== undefined && settings.name !== link.name) {
      if (this.#find(settings.name) !== undefined) throw new NetlinkError(`rename link ${which}`, "EEXIST");
      link.name = settings.name;
    }
    if (settings.mtu !== undefined) link.mtu = settings.mtu;
    if (settings.mac !== undefined) link.mac = settings.mac;
    if (settings.alias !== undefined) link.alias = settings.alias;
    if (settings.transmitQueueLength !== undefined) link.transmitQueueLength = settings.transmitQueueLength;
    if (settings.master === 0) delete link.master;
    else if (settings.master !== undefined) link.master = settings.master;
    if (settings.up !== undefined && settings.up !== link.isUp) {
      link.isUp = settings.up;
      if (!link.isUp) for (const observer of this.#observers) observer.linkWentDown(link.index);
    }
    this.#updateCarriers();
    if (settings.namespaceFd !== undefined) this.#remove(link.index);
  }

  delete(which: string | number): void {
    const link = this.#find(which);
    if (link === undefined) throw new NetlinkError(`delete link ${which}`, "ENODEV");
    if (link.kind === undefined) throw new NetlinkError(`delete link ${which}`, "EOPNOTSUPP");
    this.#remove(link.index);
    if (link.kind === "veth" && link.peer !== undefined) this.#remove(link.peer);
  }

  #find(which: string | number): Draft | undefined {
    if (typeof which === "number") return this.#links.get(which);
    for (const link of this.#links.values()) if (link.name === which) return link;
    return undefined;
  }

  #insert(given: { name: string; kind: string | undefined; up: boolean; mtu: number }): Draft {
    const index = this.#nextIndex++;
    const link: Draft = {
      index,
      name: given.name,
      mtu: given.mtu,
      isUp: given.up,
      isRunning: given.up,
      isLoopback: false,
      operState: "unknown",
      mac: `02:00:00:00:${(index >> 8).toString(16).padStart(2, "0")}:${(index & 255).toString(16).padStart(2, "0")}`,
      kind: given.kind,
    };
    this.#links.set(index, link);
    return link;
  }

  #remove(index: number): void {
    for (const observer of this.#observers) observer.linkRemoved(index);
    this.#links.delete(index);
    this.#updateCarriers();
  }

  /** An end of a veth pair has a carrier if both ends are up. */
  #updateCarriers(): void {
    for (const link of this.#links.values()) {
      if (link.isLoopback) continue;
      const peer = link.kind === "veth" && link.peer !== undefined ? this.#links.get(link.peer) : undefined;
      link.isRunning = link.isUp && (peer === undefined || peer.isUp);
      link.operState = link.isRunning ? "up" : link.isUp ? "lowerlayerdown" : "down";
    }
  }
}

export class MemoryAddresses implements Addresses {
  readonly #addresses: InterfaceAddress[] = [];
  readonly #links: Links;
  readonly #observers: readonly LinkObserver[];

  constructor(links: Links, observers: readonly LinkObserver[]) {
    this.#links = links;
    this.#observers = observers;
  }

  list(filter: { readonly version?: IpVersion; readonly link?: number } = {}): InterfaceAddress[] {
    return this.#addresses.filter(
      (a) =>
        (filter.version === undefined || ipVersion(a.address) === filter.version) &&
        (filter.link === undefined || a.link === filter.link),
    );
  }
  add(address: NewAddress): void {
    const operation = `add address ${address.address}/${address.length} on link ${address.link}`;
    if (this.#links.get(address.link) === undefined) throw new NetlinkError(operation, "ENODEV");
    if (this.#position(address) >= 0) throw new NetlinkError(operation, "EEXIST");
    const { noDuplicateDetection: _, noPrefixRoute, scope = "universe", ...rest } = address;
    const added = { ...rest, scope, isTentative: false };
    this.#addresses.push(added);
    if (noPrefixRoute !== true) for (const observer of this.#observers) observer.addressAdded(added);
  }
  replace(address: NewAddress): void {
    if (this.#position(address) >= 0) this.delete(address);
    this.add(address);
  }
  delete(address: Pick<NewAddress, "link" | "address" | "length">): void {
    const position = this.#position(address);
    const operation = `delete address ${address.address}/${address.length} on link ${address.link}`;
    const [removed] = position < 0 ? [] : this.#addresses.splice(position, 1);
    if (removed === undefined) throw new NetlinkError(operation, "EADDRNOTAVAIL");
    for (const observer of this.#observers) observer.addressRemoved(removed);
  }
  linkRemoved(index: number): void {
    for (const address of this.list({ link: index })) this.#addresses.splice(this.#addresses.indexOf(address), 1);
  }

  #position(key: Pick<NewAddress, "link" | "address" | "length">): number {
    return this.#addresses.findIndex(
      (a) => a.link === key.link && a.address === key.address && a.length === key.length,
    );
  }
}
