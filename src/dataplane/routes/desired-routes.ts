// Keeps the desired routes of one table. Several managers may set a route to the same destination (a local workload, a
// tunnel, a blackhole for its block): the class decides, then the newest interface. route-table.ts compares them with the
// kernel's routes.
import type { NewRoute, RouteType } from "../../kernel/index.ts";
import type { Cidr, IpAddress, IpVersion } from "../../lib/ip/ip.ts";

/** The purpose of a route. Earlier classes are preferred. */
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

export interface DesiredRoute {
  readonly destination: Cidr;
  /** Undefined for blackhole routes. */
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
  readonly route: DesiredRoute;
}

const IPV6_DEFAULT_PRIORITY = 1024;

export class DesiredRoutes {
  readonly #version: IpVersion;
  readonly #table: number;
  readonly #indexOf: (interfaceName: string) => number | undefined;
  readonly #candidates = new Map<string, Map<string, Candidate>>();
  readonly #keysOfInterface = new Map<string, Set<string>>();
  /** Keys of routes that were desired at some time, or forbidden. They certainly belong to calico-ts. */
  readonly #managed = new Set<string>();

  /** @param indexOf returns the index of an interface; undefined if it is not up */
  constructor(version: IpVersion, table: number, indexOf: (interfaceName: string) => number | undefined) {
    this.#version = version;
    this.#table = table;
    this.#indexOf = indexOf;
  }

  /** Identifies a route in the kernel's table. */
  key(destination: Cidr, priority: number | undefined): string {
    return `${destination} ${this.#priority(priority)}`;
  }

  /** @returns the key of the changed route */
  set(routeClass: RouteClass, route: DesiredRoute): string {
    const key = this.key(route.destination, route.priority);
    let candidates = this.#candidates.get(key);
    if (candidates === undefined) this.#candidates.set(key, (candidates = new Map()));
    candidates.set(candidateKey(routeClass, route.interfaceName), { routeClass, route });
    this.#managed.add(key);
    if (route.interfaceName !== undefined) {
      let keys = this.#keysOfInterface.get(route.interfaceName);
      if (keys === undefined) this.#keysOfInterface.set(route.interfaceName, (keys = new Set()));
      keys.add(key);
    }
    return key;
  }

  /** @returns the key of the changed route; undefined if the route was not set */
  remove(
    routeClass: RouteClass,
    route: Pick<DesiredRoute, "destination" | "priority" | "interfaceName">,
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

  /**
   * Marks a route as certainly not desired, so that it is deleted without a grace period.
   * @returns false if nothing changes
   */
  forbid(key: string): boolean {
    if (this.#managed.has(key) || this.#candidates.has(key)) return false;
    this.#managed.add(key);
    return true;
  }

  has(key: string): boolean {
    return this.#candidates.has(key);
  }
  keys(): Iterable<string> {
    return this.#candidates.keys();
  }
  isManaged(key: string): boolean {
    return this.#managed.has(key);
  }
  /** Must be called when the route was deleted and is no longer desired. */
  unmanage(key: string): void {
    this.#managed.delete(key);
  }

  get interfaceCount(): number {
    return this.#keysOfInterface.size;
  }
  /** Keys of the routes that are desired on the interface. */
  keysOn(interfaceName: string): Iterable<string> {
    return this.#keysOfInterface.get(interfaceName) ?? [];
  }
  hasAnyOn(interfaceName: string): boolean {
    return this.#keysOfInterface.has(interfaceName);
  }

  /** Returns the preferred candidate; undefined if there is none whose interface is up. */
  best(key: string): NewRoute | undefined {
    let best: { readonly rank: number; readonly index: number; readonly route: DesiredRoute } | undefined;
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
      gateway: route.gateway,
      ...(route.onlink === true ? { onlink: true } : {}),
      ...(route.scope === undefined || this.#version === 6 ? {} : { scope: route.scope }),
      source: route.source,
      metrics: route.mtu === undefined ? undefined : { mtu: route.mtu },
    };
  }

  #priority(priority: number | undefined): number {
    if (this.#version === 6 && (priority === undefined || priority === 0)) return IPV6_DEFAULT_PRIORITY;
    return priority ?? 0;
  }
}

const candidateKey = (routeClass: RouteClass, interfaceName: string | undefined): string =>
  `${routeClass} ${interfaceName ?? ""}`;
