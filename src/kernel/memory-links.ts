// Links and addresses in memory, as a namespace keeps them. Changes are told to whoever holds routes.
import type { Addresses, InterfaceAddress, NewAddress } from "./addresses.ts";
import { type Link, type LinkSettings, type Links, type NewLink, isLinkName } from "./links.ts";
import { NetlinkError } from "./netlink-error.ts";
import { ipVersion, type IpVersion } from "../lib/ip.ts";

type Draft = { -readonly [K in keyof Link]: Link[K] };

/** What else of the kernel must follow a link. */
export interface LinkFollower {
  linkWentDown(index: number): void;
  linkRemoved(index: number): void;
  addressAdded(address: InterfaceAddress): void;
  addressRemoved(address: InterfaceAddress): void;
}

export class MemoryLinks implements Links {
  readonly #links = new Map<number, Draft>();
  readonly #followers: LinkFollower[] = [];
  #nextIndex = 1;

  constructor() {
    this.#insert({ name: "lo", kind: undefined, up: true, mtu: 65536 }).isLoopback = true;
  }

  follow(follower: LinkFollower): void {
    this.#followers.push(follower);
  }

  list(): Link[] {
    return [...this.#links.values()].map((link) => ({ ...link }));
  }
  get(which: string | number): Link | undefined {
    const link = this.#find(which);
    return link === undefined ? undefined : { ...link };
  }

  create(link: NewLink): void {
    const what = `create ${link.type.kind} link ${link.name}`;
    for (const name of link.type.kind === "veth" ? [link.name, link.type.peer.name] : [link.name]) {
      if (!isLinkName(name)) throw new NetlinkError(what, "EINVAL");
      const isElsewhere = name !== link.name && link.type.kind === "veth" && link.type.peer.namespaceFd !== undefined;
      if (!isElsewhere && this.#find(name) !== undefined) throw new NetlinkError(what, "EEXIST");
    }
    const { kind } = link.type;
    const made = this.#insert({ name: link.name, kind, up: false, mtu: link.mtu ?? 1500 });
    if (link.type.kind === "vxlan") {
      const { kind: _, ...settings } = link.type;
      made.vxlan = settings;
    }
    if (link.type.kind === "veth" && link.type.peer.namespaceFd === undefined) {
      const { peer } = link.type;
      const far = this.#insert({ name: peer.name, kind, up: false, mtu: peer.mtu ?? 1500 });
      if (peer.mac !== undefined) far.mac = peer.mac;
      far.peer = made.index;
      made.peer = far.index;
    }
    const { name: _name, type: _type, queues: _queues, ...settings } = link;
    this.set(made.index, settings);
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
      if (!link.isUp) for (const follower of this.#followers) follower.linkWentDown(link.index);
    }
    this.#settleCarrier();
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
      ...(given.kind === undefined ? {} : { kind: given.kind }),
    };
    this.#links.set(index, link);
    return link;
  }

  #remove(index: number): void {
    for (const follower of this.#followers) follower.linkRemoved(index);
    this.#links.delete(index);
    this.#settleCarrier();
  }

  /** A veth end has a carrier when both ends are up. */
  #settleCarrier(): void {
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
  readonly #followers: readonly LinkFollower[];

  constructor(links: Links, followers: readonly LinkFollower[]) {
    this.#links = links;
    this.#followers = followers;
  }

  list(filter: { readonly version?: IpVersion; readonly link?: number } = {}): InterfaceAddress[] {
    return this.#addresses.filter(
      (a) =>
        (filter.version === undefined || ipVersion(a.address) === filter.version) &&
        (filter.link === undefined || a.link === filter.link),
    );
  }
  add(address: NewAddress): void {
    const what = `add address ${address.address}/${address.length} on link ${address.link}`;
    if (this.#links.get(address.link) === undefined) throw new NetlinkError(what, "ENODEV");
    if (this.#position(address) >= 0) throw new NetlinkError(what, "EEXIST");
    const { noDuplicateDetection: _, noPrefixRoute, scope = "universe", ...rest } = address;
    const added = { ...rest, scope, isTentative: false };
    this.#addresses.push(added);
    if (noPrefixRoute !== true) for (const follower of this.#followers) follower.addressAdded(added);
  }
  replace(address: NewAddress): void {
    if (this.#position(address) >= 0) this.delete(address);
    this.add(address);
  }
  delete(address: Pick<NewAddress, "link" | "address" | "length">): void {
    const position = this.#position(address);
    const what = `delete address ${address.address}/${address.length} on link ${address.link}`;
    const [removed] = position < 0 ? [] : this.#addresses.splice(position, 1);
    if (removed === undefined) throw new NetlinkError(what, "EADDRNOTAVAIL");
    for (const follower of this.#followers) follower.addressRemoved(removed);
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
