// A fake Rtnetlink in memory, for tests without root. It passes the same test suite as the real kernel
// (`route/rtnetlink.suite.ts`), but has no local table and adds no link-local IPv6 addresses.
import { ipVersion, type IpVersion } from "../../lib/ip/ip.ts";
import type { NewLink } from "../route/links.ts";
import { MemoryAddresses, MemoryLinks } from "./memory-links.ts";
import { MemoryRoutes, MemoryRules } from "./memory-routes.ts";
import type { FdbEntry, Neighbour, NeighbourState, Neighbours, ProxyNeighbour } from "../route/neighbours.ts";
import { NetlinkError } from "../sys/kernel-error.ts";
import type { Rtnetlink } from "../route/rtnetlink.ts";

export function memoryRtnetlink(): Rtnetlink {
  const links = new MemoryLinks();
  const routes = new MemoryRoutes(links);
  const addresses = new MemoryAddresses(links, [routes]);
  const neighbours = new MemoryNeighbours();
  const ignore = (): void => {};
  links.observe(routes);
  for (const table of [addresses, neighbours])
    links.observe({
      linkWentDown: ignore,
      linkRemoved: (index) => table.linkRemoved(index),
      addressAdded: ignore,
      addressRemoved: ignore,
    });
  const createLinkOffThread = async (link: NewLink): Promise<void> => links.create(link);
  return {
    links,
    addresses,
    routes,
    rules: new MemoryRules(),
    neighbours,
    createLinkOffThread,
    [Symbol.dispose]: ignore,
  };
}

class MemoryNeighbours implements Neighbours {
  #entries: Neighbour[] = [];
  #proxies: ProxyNeighbour[] = [];
  #fdb: FdbEntry[] = [];

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
  listFdb(link: number): FdbEntry[] {
    return this.#fdb.filter((entry) => entry.link === link);
  }
  setFdb(entry: Omit<FdbEntry, "isPermanent">): void {
    this.#fdb = this.#fdb.filter((e) => e.link !== entry.link || e.mac !== entry.mac);
    this.appendFdb(entry);
  }
  appendFdb(entry: Omit<FdbEntry, "isPermanent">): void {
    this.#fdb.push({ ...entry, isPermanent: true });
  }
  deleteFdb(entry: Omit<FdbEntry, "isPermanent">): void {
    const isMatch = (e: FdbEntry): boolean =>
      e.link === entry.link && e.mac === entry.mac && e.destination === entry.destination;
    this.#fdb = without(this.#fdb, isMatch, `delete FDB entry ${entry.mac}`);
  }
  linkRemoved(index: number): void {
    this.#entries = this.#entries.filter((n) => n.link !== index);
    this.#proxies = this.#proxies.filter((p) => p.link !== index);
    this.#fdb = this.#fdb.filter((e) => e.link !== index);
  }
}

const isSame = (a: ProxyNeighbour, b: ProxyNeighbour): boolean => a.link === b.link && a.address === b.address;

/** @throws NetlinkError ENOENT if no item matches */
function without<T>(list: readonly T[], isMatch: (item: T) => boolean, operation: string): T[] {
  const kept = list.filter((item) => !isMatch(item));
  if (kept.length === list.length) throw new NetlinkError(operation, "ENOENT");
  return kept;
}
