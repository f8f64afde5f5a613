// Which routes are wanted in one table. Several parts may want one to the same destination (a local workload, a tunnel, a
// blackhole for its block): the class decides, then the newest interface. What the kernel has is route-table.ts' to know.
import type { NewRoute, RouteType } from "../../kernel/index.ts";
import type { Cidr, IpAddress, IpVersion } from "../../lib/ip.ts";

/** Who wants the route; the earlier one wins. */
const ROUTE_CLASSES = [
  "localWorkload",
  "wireguard",
  "vxlanSameSubnet",
  "vxlanTunnel",
  "ipipSameSubnet",
  "ipipTunnel",
  "noEncap",
  "blackholeVxlan",
  "blackholeIpip",
  "blackholeNoEncap",
] as const;
export type RouteClass = (typeof ROUTE_CLASSES)[number];

export interface WantedRoute {
  readonly destination: Cidr;
  /** By name; none for blackholes and the like. */
  readonly interfaceName?: string;
  readonly type?: RouteType;
  readonly gateway?: IpAddress;
  readonly onlink?: boolean;
  readonly scope?: "link" | "universe";
  readonly protocol: number;
  readonly priority?: number;
  readonly source?: IpAddress;
  readonly mtu?: number;
}

interface Candidate {
  readonly routeClass: RouteClass;
  readonly route: WantedRoute;
}

const IPV6_DEFAULT_PRIORITY = 1024;

export class WantedRoutes {
  readonly #version: IpVersion;
  readonly #table: number;
  readonly #indexOf: (interfaceName: string) => number | undefined;
  readonly #candidates = new Map<string, Map<string, Candidate>>();
  readonly #keysOfInterface = new Map<string, Set<string>>();
  /** Routes that were wanted at some time, or forbidden: they are ours without doubt, and go at once. */
  readonly #known = new Set<string>();

  /** @param indexOf an interface's index, while it is up */
  constructor(version: IpVersion, table: number, indexOf: (interfaceName: string) => number | undefined) {
    this.#version = version;
    this.#table = table;
    this.#indexOf = indexOf;
  }

  /** What the kernel knows a route of the table by. */
  key(destination: Cidr, priority: number | undefined): string {
    return `${destination} ${this.#priority(priority)}`;
  }

  /** Gives the key of what changed. */
  set(routeClass: RouteClass, route: WantedRoute): string {
    const key = this.key(route.destination, route.priority);
    let candidates = this.#candidates.get(key);
    if (candidates === undefined) this.#candidates.set(key, (candidates = new Map()));
    candidates.set(candidateKey(routeClass, route.interfaceName), { routeClass, route });
    this.#known.add(key);
    if (route.interfaceName !== undefined) {
      let keys = this.#keysOfInterface.get(route.interfaceName);
      if (keys === undefined) this.#keysOfInterface.set(route.interfaceName, (keys = new Set()));
      keys.add(key);
    }
    return key;
  }

  /** Gives the key of what changed, if anything did. */
  remove(
    routeClass: RouteClass,
    route: Pick<WantedRoute, "destination" | "priority" | "interfaceName">,
  ): string | undefined {
    const key = this.key(route.destination, route.priority);
    const candidates = this.#candidates.get(key);
    if (candidates?.delete(candidateKey(routeClass, route.interfaceName)) !== true) return undefined;
    if (candidates.size === 0) this.#candidates.delete(key);
    const { interfaceName } = route;
    const isStillOn = candidates.values().some((candidate) => candidate.route.interfaceName === interfaceName);
    if (interfaceName !== undefined && !isStillOn) this.#removeFromInterface(interfaceName, key);
    return key;
  }

  #removeFromInterface(interfaceName: string, key: string): void {
    const keys = this.#keysOfInterface.get(interfaceName);
    keys?.delete(key);
    if (keys?.size === 0) this.#keysOfInterface.delete(interfaceName);
  }

  /** None with this key shall be there. False when that is known, or one is wanted. */
  forbid(key: string): boolean {
    if (this.#known.has(key) || this.#candidates.has(key)) return false;
    this.#known.add(key);
    return true;
  }

  has(key: string): boolean {
    return this.#candidates.has(key);
  }
  keys(): Iterable<string> {
    return this.#candidates.keys();
  }
  isKnown(key: string): boolean {
    return this.#known.has(key);
  }
  /** The route is gone for good. */
  forget(key: string): void {
    this.#known.delete(key);
  }

  get interfaceCount(): number {
    return this.#keysOfInterface.size;
  }
  /** Keys with a candidate on the interface. */
  keysOn(interfaceName: string): Iterable<string> {
    return this.#keysOfInterface.get(interfaceName) ?? [];
  }
  hasAnyOn(interfaceName: string): boolean {
    return this.#keysOfInterface.has(interfaceName);
  }

  /** The candidate that shall stand, as the kernel wants it; nothing when none can. */
  best(key: string): NewRoute | undefined {
    let best: { readonly rank: number; readonly index: number; readonly route: WantedRoute } | undefined;
    for (const { routeClass, route } of this.#candidates.get(key)?.values() ?? []) {
      const index = route.interfaceName === undefined ? 0 : this.#indexOf(route.interfaceName);
      if (index === undefined) continue;
      const rank = ROUTE_CLASSES.indexOf(routeClass);
      if (best === undefined || rank < best.rank || (rank === best.rank && index > best.index))
        best = { rank, index, route };
    }
    if (best === undefined) return undefined;
    const { route, index } = best;
    return {
      destination: route.destination,
      table: this.#table,
      type: route.type ?? "unicast",
      protocol: route.protocol,
      priority: this.#priority(route.priority),
      ...(index === 0 ? {} : { link: index }),
      ...(route.gateway === undefined ? {} : { gateway: route.gateway }),
      ...(route.onlink === true ? { onlink: true } : {}),
      ...(route.scope === undefined || this.#version === 6 ? {} : { scope: route.scope }),
      ...(route.source === undefined ? {} : { source: route.source }),
      ...(route.mtu === undefined ? {} : { metrics: { mtu: route.mtu } }),
    };
  }

  #priority(priority: number | undefined): number {
    if (this.#version === 6 && (priority === undefined || priority === 0)) return IPV6_DEFAULT_PRIORITY;
    return priority ?? 0;
  }
}

const candidateKey = (routeClass: RouteClass, interfaceName: string | undefined): string =>
  `${routeClass} ${interfaceName ?? ""}`;
