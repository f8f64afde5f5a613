// Keeps one routing table of one IP family equal to the desired routes (desired-routes.ts). Routes of other programs are
// not changed.
import {
  hasErrno,
  type NewRoute,
  type Route,
  type RouteChange,
  type RejectedRouteChange,
  type Routes,
} from "../../kernel/index.ts";
import type { Cidr, IpAddress, IpVersion } from "../../lib/ip/ip.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import type { ApplyOutcome, ManagerMessage, Reconciler } from "../loop/manager.ts";
import { type DesiredRoute, DesiredRoutes, type RouteClass } from "./desired-routes.ts";
import {
  deletionOf,
  isSameRoute,
  type KeyedChange,
  movedAddress,
  planChanges,
  type RouteState,
} from "./plan-changes.ts";

/** Decides which routes calico-ts may delete. */
export interface RouteOwnership {
  isOwned(route: Route, interfaceName: string | undefined): boolean;
  /** True for interfaces on which the CNI plugin may write a route before Felix receives the endpoint. */
  hasGrace?(interfaceName: string): boolean;
}

export interface RouteTableOptions {
  readonly version: IpVersion;
  readonly table: number;
  readonly routes: Routes;
  readonly ownership: RouteOwnership;
  readonly logger: Logger;
  /**
   * Deletes the conntrack entries of addresses that moved or were removed. Called in every round that changes routes, also
   * without addresses, after old routes were deleted and before new ones are written. Undefined for tables where connections
   * do not matter.
   */
  readonly flushConnections?: (addresses: ReadonlySet<IpAddress>) => Promise<void> | undefined;
  readonly graceMs?: number;
  readonly nowMs?: () => number;
  /** Called with the duration of each complete read of the table. */
  readonly onResync?: (seconds: number) => void;
}

interface InterfaceState {
  readonly index: number;
  readonly isUp: boolean;
  readonly firstSeenMs: number;
}

const GRACE_MS = 10_000;

export class RouteTable implements Reconciler {
  readonly name: string;
  readonly version: IpVersion;
  readonly table: number;
  readonly #options: RouteTableOptions;
  readonly #log: Logger;
  readonly #nowMs: () => number;
  readonly #desired: DesiredRoutes;
  /** The routes of the kernel that calico-ts owns. */
  readonly #actual = new Map<string, Route>();
  readonly #interfaces = new Map<string, InterfaceState>();
  readonly #names = new Map<number, string>();
  readonly #dirty = new Set<string>();
  /** Addresses that moved or were removed, and whose connections are not flushed yet. */
  readonly #moved = new Set<IpAddress>();
  #needsResync = true;

  constructor(options: RouteTableOptions) {
    this.#options = options;
    this.version = options.version;
    this.table = options.table;
    this.name = `routes IPv${options.version} table ${options.table}`;
    this.#log = options.logger.with({ ipVersion: options.version, table: options.table });
    this.#nowMs = options.nowMs ?? (() => performance.now());
    this.#desired = new DesiredRoutes(options.version, options.table, (name) => {
      const state = this.#interfaces.get(name);
      return state?.isUp === true ? state.index : undefined;
    });
  }

  get size(): { readonly routes: number; readonly interfaces: number } {
    return { routes: this.#actual.size, interfaces: this.#desired.interfaceCount };
  }

  set(routeClass: RouteClass, route: DesiredRoute): void {
    this.#dirty.add(this.#desired.set(routeClass, route));
  }

  remove(routeClass: RouteClass, route: Pick<DesiredRoute, "destination" | "priority" | "interfaceName">): void {
    const key = this.#desired.remove(routeClass, route);
    if (key !== undefined) this.#dirty.add(key);
  }

  /** Deletes, without a grace period, routes to the destination that have no priority. The CNI plugin writes such routes. */
  forbid(destination: Cidr): void {
    if (this.#desired.forbid(this.#desired.key(destination, 0))) this.#needsResync = true;
  }

  /** Called before the managers that set routes on the interface receive the message. */
  onInterface(message: ManagerMessage): void {
    if (message.type !== "interfaceState") return;
    const { name, index, state } = message;
    const before = this.#interfaces.get(name);
    if (before !== undefined && before.index !== index) this.#names.delete(before.index);
    const other = this.#names.get(index);
    if (other !== undefined && other !== name && state !== "gone") {
      // The interface was renamed: routes for the old name must not be written to it.
      this.#interfaces.delete(other);
      for (const key of this.#desired.keysOn(other)) this.#dirty.add(key);
    }
    if (state === "gone") {
      this.#interfaces.delete(name);
      if (other === name) this.#names.delete(index);
    } else {
      const firstSeenMs = before?.index === index ? before.firstSeenMs : this.#nowMs();
      this.#interfaces.set(name, { index, isUp: state === "up", firstSeenMs });
      this.#names.set(index, name);
    }
    // The kernel removes the routes of an interface that is set down or deleted, but keeps them if only the carrier is lost.
    // Therefore the routes of a down interface are deleted in case they exist, and written again when it is up.
    const areLost = state === "gone" || before?.index !== index || (state === "up" && !before.isUp);
    for (const [key, route] of this.#actual)
      if (route.link === (before?.index ?? index) && (areLost || state === "down")) {
        if (areLost) {
          this.#actual.delete(key);
          // If the workload was removed while Felix was not running, nothing else reports it, so its connections are
          // flushed here.
          const isDesired = this.#desired.has(key) || this.#isDesiredOn(name, route.destination);
          if (!isDesired) for (const address of movedAddress(route, undefined)) this.#moved.add(address);
        }
        this.#dirty.add(key);
      }
    for (const key of this.#desired.keysOn(name)) this.#dirty.add(key);
  }

  /**
   * Must be called when the kernel reports a deleted route.
   * @returns true if the next round must restore it
   */
  onRouteDeleted(route: Route): boolean {
    if (route.table !== this.table) return false;
    const key = this.#desired.key(route.destination, route.priority);
    const actual = this.#actual.get(key);
    if (actual === undefined || actual.link !== route.link || this.#dirty.has(key)) return false;
    const { link } = route;
    // The kernel removes the routes of an interface that goes down.
    if (link !== undefined && this.#interfaces.get(this.#names.get(link) ?? "")?.isUp !== true) return false;
    this.#actual.delete(key);
    if (!this.#desired.has(key)) return false;
    this.#dirty.add(key);
    this.#log.warn("another program deleted a route; restoring it", { destination: route.destination });
    return true;
  }

  queueResync(): void {
    this.#needsResync = true;
  }

  async apply(): Promise<ApplyOutcome> {
    if (this.#needsResync) this.#resync();
    if (this.#dirty.size === 0) return {};
    const keys = [...this.#dirty]; // events may add more while connections are flushed
    const plan = planChanges(keys.map((key) => this.#stateOf(key)));
    for (const address of plan.movedAddresses) this.#moved.add(address);
    const { routes, flushConnections } = this.#options;
    const write = (changes: readonly RouteChange[]) => (changes.length === 0 ? [] : routes.apply(changes));
    const isFailure = ({ error }: RejectedRouteChange) => !hasErrno(error, "ESRCH", "ENOENT", "ENODEV");
    const rejected = write(plan.deleteFirst).filter(isFailure);
    const moved = new Set(this.#moved);
    const flushing = flushConnections?.(moved);
    if (flushing !== undefined) await flushing;
    for (const address of moved) this.#moved.delete(address);
    rejected.push(...write(plan.replace.map(({ change }) => change)));
    this.#deletePluginRoutes(plan.replace);
    const remaining = plan.deleteLast.filter(({ key }) => this.#actual.has(key));
    rejected.push(...write(remaining.map(({ change }) => change)).filter(isFailure));
    this.#recordResults(keys, rejected);
    return plan.retryInMs === undefined ? {} : { againInMs: plan.retryInMs };
  }

  #stateOf(key: string): RouteState {
    const actual = this.#actual.get(key);
    const desired = this.#desired.best(key);
    if (actual === undefined) return { key, desired };
    const isActualDown = this.#isDown(actual);
    if (desired !== undefined) return { key, actual, desired, isActualDown };
    return {
      key,
      actual,
      isSuspended: this.#desired.has(key),
      isManaged: this.#desired.isManaged(key),
      hasAlternative: this.#hasAlternative(actual),
      isActualDown,
      graceLeftMs: this.#graceLeftMs(key, actual),
    };
  }

  /** True if a route to the destination is desired on the interface, with any priority, even if the interface is down. */
  #isDesiredOn(interfaceName: string, destination: Cidr): boolean {
    for (const key of this.#desired.keysOn(interfaceName)) if (key.startsWith(`${destination} `)) return true;
    return false;
  }

  /** True if a route to the same destination over the same interface is desired with another priority. */
  #hasAlternative({ destination, link }: Route): boolean {
    const name = link === undefined ? undefined : this.#names.get(link);
    for (const key of this.#desired.keysOn(name ?? ""))
      if (key.startsWith(`${destination} `) && this.#desired.best(key)?.link === link) return true;
    return false;
  }

  /**
   * The CNI plugin writes a route without a priority, so that a new workload is reachable at once. Deletes that route after
   * Felix has written its own, because the kernel would prefer it, and BGP would announce it separately from its block.
   */
  #deletePluginRoutes(written: readonly KeyedChange[]): void {
    const { routes, table, ownership } = this.#options;
    for (const { key, change } of written) {
      const { link, destination, priority = 0 } = change.route;
      const name = link === undefined ? undefined : this.#names.get(link);
      const isNew = name !== undefined && priority !== 0 && !this.#actual.has(key);
      if (!isNew || link === undefined || ownership.hasGrace?.(name) !== true) continue;
      const others = routes
        .list({ version: this.version, table, link })
        .filter((route) => route.destination === destination && route.priority === 0 && ownership.isOwned(route, name));
      // In a deletion, priority 0 means any: the kernel deletes the route with the lowest priority, which is the plugin's.
      routes.apply(others.map((route) => deletionOf(route, { isActualDown: this.#isDown(route) })));
      // A second deletion would delete the route of calico-ts.
      for (const route of others) this.#actual.delete(this.#desired.key(route.destination, route.priority));
    }
  }

  /** Updates the known kernel state. Routes whose change was rejected stay dirty. */
  #recordResults(keys: readonly string[], rejected: readonly RejectedRouteChange[]): void {
    const rejectedByKey = new Map<string, RejectedRouteChange>();
    for (const each of rejected)
      rejectedByKey.set(this.#desired.key(each.change.route.destination, each.change.route.priority), each);
    const problems: string[] = [];
    const { table } = this.#options;
    for (const key of keys) {
      const failure = rejectedByKey.get(key);
      const desired = this.#desired.best(key);
      if (failure === undefined) {
        const isWaiting =
          desired === undefined && this.#actual.has(key) && this.#graceLeftMs(key, this.#actual.get(key)) > 0;
        if (isWaiting) continue; // still dirty
        if (desired === undefined) {
          this.#actual.delete(key);
          if (!this.#desired.has(key)) this.#desired.unmanage(key);
        } else this.#actual.set(key, asRoute(desired, table));
        this.#dirty.delete(key);
        continue;
      }
      this.#actual.delete(key);
      // If the interface was just deleted or set down, its next state causes another attempt.
      const name = desired?.link === undefined ? undefined : this.#names.get(desired.link);
      if (name !== undefined && hasErrno(failure.error, "ENODEV", "ENETDOWN", "ENETUNREACH")) continue;
      problems.push(describeError(failure.error));
    }
    if (problems.length > 0)
      throw new Error(`${problems.length} route changes failed: ${problems.slice(0, 3).join("; ")}`);
  }

  #resync(): void {
    const started = performance.now();
    const { routes, table, ownership } = this.#options;
    const before = new Map(this.#actual);
    this.#actual.clear();
    let repaired = 0;
    for (const route of routes.list({ version: this.version, table })) {
      const name = route.link === undefined ? undefined : this.#names.get(route.link);
      const key = this.#desired.key(route.destination, route.priority);
      // If another program wrote a route with the destination and priority of a desired one, it is replaced, because the
      // kernel allows only one.
      const isDesired = this.#desired.has(key);
      if (!isDesired && !ownership.isOwned(route, name)) continue;
      this.#actual.set(key, route);
      const desired = this.#desired.best(key);
      const isRight = desired !== undefined && isSameRoute(desired, route);
      const wasWritten = before.has(key) && !this.#dirty.has(key);
      if (before.size > 0 && (!before.has(key) || (wasWritten && !isRight))) repaired++;
      if (!isRight) this.#dirty.add(key);
    }
    for (const key of this.#desired.keys()) if (!this.#actual.has(key)) this.#dirty.add(key);
    for (const key of before.keys()) if (!this.#actual.has(key)) repaired++;
    this.#needsResync = false;
    this.#options.onResync?.((performance.now() - started) / 1000);
    if (repaired > 0 && before.size > 0)
      this.#log.warn("another program changed routes; restoring them", { count: repaired });
  }

  #isDown({ link }: Route): boolean {
    return link !== undefined && this.#interfaces.get(this.#names.get(link) ?? "")?.isUp === false;
  }

  /**
   * An unknown route may belong to a new workload whose endpoint Felix has not received yet. When a route is desired on the
   * interface, the endpoint was received.
   */
  #graceLeftMs(key: string, route: Route | undefined): number {
    if (this.#desired.isManaged(key)) return 0;
    const name = route?.link === undefined ? undefined : this.#names.get(route.link);
    if (name === undefined || this.#options.ownership.hasGrace?.(name) !== true) return 0;
    const state = this.#interfaces.get(name);
    if (state === undefined || this.#desired.hasAnyOn(name)) return 0;
    return Math.max(0, state.firstSeenMs + (this.#options.graceMs ?? GRACE_MS) - this.#nowMs());
  }
}

function asRoute(desired: NewRoute, table: number): Route {
  return {
    ...desired,
    table,
    type: desired.type ?? "unicast",
    protocol: desired.protocol ?? 0,
    scope: desired.scope ?? "universe",
    tos: 0,
    priority: desired.priority ?? 0,
    onlink: desired.onlink ?? false,
    isDead: false,
  };
}
