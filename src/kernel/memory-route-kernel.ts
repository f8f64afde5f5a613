// A namespace's routing state in memory, for tests without root. It passes the suite the real kernel passes.
// It has no local table and makes no link-local IPv6 addresses.
import { ipVersion, type IpVersion } from "../lib/ip.ts";
import type { NewLink } from "./links.ts";
import { MemoryAddresses, MemoryLinks } from "./memory-links.ts";
import { MemoryRoutes, MemoryRules } from "./memory-routes.ts";
import type { ForwardingEntry, Neighbour, NeighbourState, Neighbours, ProxyNeighbour } from "./neighbours.ts";
import { NetlinkError } from "./netlink-error.ts";
import type { RouteKernel } from "./route-kernel.ts";

export function memoryRouteKernel(): RouteKernel {
  const links = new MemoryLinks();
  const routes = new MemoryRoutes(links);
  const addresses = new MemoryAddresses(links, [routes]);
  const neighbours = new MemoryNeighbours();
  const ignore = (): void => {};
  links.follow(routes);
  for (const holder of [addresses, neighbours])
    links.follow({
      linkWentDown: ignore,
      linkRemoved: (index) => holder.linkRemoved(index),
      addressAdded: ignore,
      addressRemoved: ignore,
    });
  const createLinkAside = async (link: NewLink): Promise<void> => links.create(link);
  return { links, addresses, routes, rules: new MemoryRules(), neighbours, createLinkAside, [Symbol.dispose]: ignore };
}

class MemoryNeighbours implements Neighbours {
  #entries: Neighbour[] = [];
  #proxies: ProxyNeighbour[] = [];
  #forwarding: ForwardingEntry[] = [];

  list(filter: { readonly version: IpVersion; readonly link?: number }): Neighbour[] {
    return this.#entries.filter(
      (n) => ipVersion(n.address) === filter.version && (filter.link === undefined || n.link === filter.link),
    );
  }
  set(neighbour: Omit<Neighbour, "state"> & { readonly state?: NeighbourState }): void {
    this.#entries = this.#entries.filter((n) => !isSame(n, neighbour));
    this.#entries.push({ ...neighbour, state: neighbour.state ?? "permanent" });
  }
  delete(neighbour: Pick<Neighbour, "link" | "address">): void {
    this.#entries = without(this.#entries, (n) => isSame(n, neighbour), `delete neighbour ${neighbour.address}`);
  }
  listProxies(version: IpVersion): ProxyNeighbour[] {
    return this.#proxies.filter((p) => ipVersion(p.address) === version);
  }
  addProxy(proxy: ProxyNeighbour): void {
    if (!this.#proxies.some((p) => isSame(p, proxy))) this.#proxies.push({ ...proxy });
  }
  deleteProxy(proxy: ProxyNeighbour): void {
    this.#proxies = without(this.#proxies, (p) => isSame(p, proxy), `delete proxy for ${proxy.address}`);
  }
  listForwarding(link: number): ForwardingEntry[] {
    return this.#forwarding.filter((entry) => entry.link === link);
  }
  setForwarding(entry: Omit<ForwardingEntry, "isPermanent">): void {
    this.#forwarding = this.#forwarding.filter((e) => e.link !== entry.link || e.mac !== entry.mac);
    this.appendForwarding(entry);
  }
  appendForwarding(entry: Omit<ForwardingEntry, "isPermanent">): void {
    this.#forwarding.push({ ...entry, isPermanent: true });
  }
  deleteForwarding(entry: Omit<ForwardingEntry, "isPermanent">): void {
    const isMeant = (e: ForwardingEntry): boolean =>
      e.link === entry.link && e.mac === entry.mac && e.destination === entry.destination;
    this.#forwarding = without(this.#forwarding, isMeant, `delete forwarding of ${entry.mac}`);
  }
  linkRemoved(index: number): void {
    this.#entries = this.#entries.filter((n) => n.link !== index);
    this.#proxies = this.#proxies.filter((p) => p.link !== index);
    this.#forwarding = this.#forwarding.filter((e) => e.link !== index);
  }
}

const isSame = (a: ProxyNeighbour, b: ProxyNeighbour): boolean => a.link === b.link && a.address === b.address;

function without<T>(list: readonly T[], isMeant: (item: T) => boolean, what: string): T[] {
  const kept = list.filter((item) => !isMeant(item));
  if (kept.length === list.length) throw new NetlinkError(what, "ENOENT");
  return kept;
}
