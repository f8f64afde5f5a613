// One routing table of one family, kept as wanted (wanted-routes.ts). Routes that are not ours are never touched.
import {
  hasErrno,
  type NewRoute,
  type Route,
  type RouteChange,
  type RouteFault,
  type Routes,
} from "../../kernel/index.ts";
import { addressBits, type Cidr, cidrAddress, cidrLength, type IpAddress, type IpVersion } from "../../lib/ip.ts";
import { describeError, type Logger } from "../../lib/log.ts";
import type { ApplyOutcome, ManagerMessage, Reconciler } from "../manager.ts";
import { type RouteClass, type WantedRoute, WantedRoutes } from "./wanted-routes.ts";

/** Which routes are ours to remove. */
export interface RouteOwnership {
  isOurs(route: Route, interfaceName: string | undefined): boolean;
  /** Interfaces whose routes others may write just before we hear of them. */
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
  readonly forgetConnections?: (addresses: ReadonlySet<IpAddress>) => Promise<void> | undefined;
  readonly graceMs?: number;
  readonly now?: () => number;
  /** How long a full look at the table took. */
  readonly onResync?: (seconds: number) => void;
}

interface InterfaceState {
  readonly index: number;
  readonly isUp: boolean;
  readonly firstSeen: number;
}

const GRACE_MS = 10_000;

export class RouteTable implements Reconciler {
  readonly name: string;
  readonly version: IpVersion;
  readonly table: number;
  readonly #options: RouteTableOptions;
  readonly #log: Logger;
  readonly #now: () => number;
  readonly #wanted: WantedRoutes;
  /** What the kernel has that is ours. */
  readonly #actual = new Map<string, Route>();
  readonly #interfaces = new Map<string, InterfaceState>();
  readonly #names = new Map<number, string>();
  readonly #dirty = new Set<string>();
  /** Addresses that moved or were removed and whose connections still exist. */
  readonly #moved = new Set<IpAddress>();
  #needsResync = true;

  constructor(options: RouteTableOptions) {
    this.#options = options;
    this.version = options.version;
    this.table = options.table;
    this.name = `routes IPv${options.version} table ${options.table}`;
    this.#log = options.logger.with({ ipVersion: options.version, table: options.table });
    this.#now = options.now ?? (() => performance.now());
    this.#wanted = new WantedRoutes(options.version, options.table, (name) => {
      const state = this.#interfaces.get(name);
      return state?.isUp === true ? state.index : undefined;
    });
  }

  get size(): { readonly routes: number; readonly interfaces: number } {
    return { routes: this.#actual.size, interfaces: this.#wanted.interfaceCount };
  }

  set(routeClass: RouteClass, route: WantedRoute): void {
    this.#dirty.add(this.#wanted.set(routeClass, route));
  }

  remove(routeClass: RouteClass, route: Pick<WantedRoute, "destination" | "priority" | "interfaceName">): void {
    const key = this.#wanted.remove(routeClass, route);
    if (key !== undefined) this.#dirty.add(key);
  }

  /** Nothing may lead there by a route without a priority, however new: the CNI plugin writes such ones. */
  forbid(destination: Cidr): void {
    if (this.#wanted.forbid(this.#wanted.key(destination, 0))) this.#needsResync = true;
  }

  /** The table hears of interfaces before the managers that put routes on them. */
  onInterface(message: ManagerMessage): void {
    if (message.type !== "interfaceState") return;
    const { name, index, state } = message;
    const before = this.#interfaces.get(name);
    if (before !== undefined && before.index !== index) this.#names.delete(before.index);
    const other = this.#names.get(index);
    if (other !== undefined && other !== name && state !== "gone") {
      // It was renamed: a route for the old name must not land on what is now somebody else's.
      this.#interfaces.delete(other);
      for (const key of this.#wanted.keysOn(other)) this.#dirty.add(key);
    }
    if (state === "gone") {
      this.#interfaces.delete(name);
      if (other === name) this.#names.delete(index);
    } else {
      const firstSeen = before?.index === index ? before.firstSeen : this.#now();
      this.#interfaces.set(name, { index, isUp: state === "up", firstSeen });
      this.#names.set(index, name);
    }
    // The kernel drops an interface's routes when it is switched off or goes away, and keeps them when only the carrier is
    // lost. So those of one that is down are deleted, in case they are there, and when it is back none is taken for granted.
    const isNews = state === "gone" || before?.index !== index || (state === "up" && !before.isUp);
    for (const [key, route] of this.#actual)
      if (route.link === (before?.index ?? index) && (isNews || state === "down")) {
        if (isNews) {
          this.#actual.delete(key);
          // Nobody reports the removal of a workload that an earlier run of the agent left: its interface is all there was.
          const isWanted = this.#wanted.has(key) || this.#isWantedOn(name, route.destination);
          if (!isWanted) this.#noteMove(route, undefined);
        }
        this.#dirty.add(key);
      }
    for (const key of this.#wanted.keysOn(name)) this.#dirty.add(key);
  }

  /** A route went away, by our hand or another's. If we still want it, the next round brings it back. */
  onGone(route: Route): boolean {
    if (route.table !== this.table) return false;
    const key = this.#wanted.key(route.destination, route.priority);
    const actual = this.#actual.get(key);
    if (actual === undefined || actual.link !== route.link || this.#dirty.has(key)) return false;
    const { link } = route;
    // With its interface down or gone it is no news.
    if (link !== undefined && this.#interfaces.get(this.#names.get(link) ?? "")?.isUp !== true) return false;
    this.#actual.delete(key);
    if (!this.#wanted.has(key)) return false;
    this.#dirty.add(key);
    this.#log.warn("somebody deleted a route of ours; repairing", { destination: route.destination });
    return true;
  }

  queueResync(): void {
    this.#needsResync = true;
  }

  async apply(): Promise<ApplyOutcome> {
    let againInMs = this.#needsResync ? this.#resync() : undefined;
    if (this.#dirty.size === 0) return againInMs === undefined ? {} : { againInMs };
    const keys = [...this.#dirty]; // more may come while connections are flushed
    const deletions: RouteChange[] = [];
    /**
     * Routes of others on interfaces we have routes for, and of ours that only have another priority now: they go last, so
     * that no workload is without one.
     */
    const late: { readonly key: string; readonly change: RouteChange }[] = [];
    const replacements: { readonly key: string; readonly change: RouteChange }[] = [];
    for (const key of keys) {
      const actual = this.#actual.get(key);
      const wanted = this.#wanted.best(key);
      if (wanted === undefined) {
        if (actual === undefined) continue;
        const wait = this.#graceLeft(key, actual);
        if (wait > 0) {
          againInMs = Math.min(againInMs ?? wait, wait);
          continue;
        }
        const change: RouteChange = { action: "delete", route: this.#deleteKey(actual) };
        const hasOtherWay = this.#hasOtherWay(actual);
        if (this.#wanted.isKnown(key) && !hasOtherWay) deletions.push(change);
        else late.push({ key, change });
        // While the route is wanted, only its interface is down.
        if (!hasOtherWay && !this.#wanted.has(key)) this.#noteMove(actual, undefined);
      } else if (actual === undefined || !isSame(wanted, actual)) {
        // A route that changes its type or interface is not replaced in place by every kernel: it is removed first.
        if (actual !== undefined && (actual.link !== wanted.link || actual.type !== (wanted.type ?? "unicast")))
          deletions.push({ action: "delete", route: this.#deleteKey(actual) });
        this.#noteMove(actual, wanted);
        replacements.push({ key, change: { action: "replace", route: wanted } });
      }
    }
    const { routes, forgetConnections } = this.#options;
    const write = (changes: readonly RouteChange[]) => (changes.length === 0 ? [] : routes.apply(changes));
    const isReal = ({ error }: RouteFault) => !hasErrno(error, "ESRCH", "ENOENT", "ENODEV");
    const faults = write(deletions).filter(isReal);
    const moved = new Set(this.#moved);
    const flushing = forgetConnections?.(moved);
    if (flushing !== undefined) await flushing;
    for (const address of moved) this.#moved.delete(address);
    faults.push(...write(replacements.map(({ change }) => change)));
    this.#replacePluginRoutes(replacements);
    const left = late.filter(({ key }) => this.#actual.has(key));
    faults.push(...write(left.map(({ change }) => change)).filter(isReal));
    this.#settle(keys, faults);
    return againInMs === undefined ? {} : { againInMs };
  }

  /** Whether a route to the destination, of any priority, is wanted on the interface, be it up or not. */
  #isWantedOn(interfaceName: string, destination: Cidr): boolean {
    for (const key of this.#wanted.keysOn(interfaceName)) if (key.startsWith(`${destination} `)) return true;
    return false;
  }

  /** Whether another route to the same place, of another priority, is wanted by the same interface. */
  #hasOtherWay({ destination, link }: Route): boolean {
    const name = link === undefined ? undefined : this.#names.get(link);
    for (const key of this.#wanted.keysOn(name ?? ""))
      if (key.startsWith(`${destination} `) && this.#wanted.best(key)?.link === link) return true;
    return false;
  }

  /**
   * The CNI plugin gives a new workload a route of its own, without a priority, so that it is reachable before we come.
   * Once ours stands beside it, it goes: it would win for ever, and BGP would announce it as an exception to its block.
   */
  #replacePluginRoutes(written: readonly { readonly key: string; readonly change: RouteChange }[]): void {
    const { routes, table, ownership } = this.#options;
    for (const { key, change } of written) {
      const { link, destination, priority = 0 } = change.route;
      const name = link === undefined ? undefined : this.#names.get(link);
      const isNew = name !== undefined && priority !== 0 && !this.#actual.has(key);
      if (!isNew || link === undefined || ownership.hasGrace?.(name) !== true) continue;
      const others = routes
        .list({ version: this.version, table, link })
        .filter((route) => route.destination === destination && route.priority === 0 && ownership.isOurs(route, name));
      // The kernel takes the lowest priority first when none is named: that is exactly this one.
      routes.apply(others.map((route) => ({ action: "delete" as const, route: this.#deleteKey(route) })));
      // To delete it once more would take ours.
      for (const route of others) this.#actual.delete(this.#wanted.key(route.destination, route.priority));
    }
  }

  /** What went through is what is there; what failed is looked at again. */
  #settle(keys: readonly string[], faults: readonly RouteFault[]): void {
    const failed = new Map<string, RouteFault>();
    for (const fault of faults)
      failed.set(this.#wanted.key(fault.change.route.destination, fault.change.route.priority), fault);
    const problems: string[] = [];
    const { table } = this.#options;
    for (const key of keys) {
      const fault = failed.get(key);
      const wanted = this.#wanted.best(key);
      if (fault === undefined) {
        const isWaiting =
          wanted === undefined && this.#actual.has(key) && this.#graceLeft(key, this.#actual.get(key)) > 0;
        if (isWaiting) continue; // still dirty
        if (wanted === undefined) {
          this.#actual.delete(key);
          if (!this.#wanted.has(key)) this.#wanted.forget(key);
        } else this.#actual.set(key, asRoute(wanted, table));
        this.#dirty.delete(key);
        continue;
      }
      this.#actual.delete(key);
      // An interface that just went away or down is no failure: its next state brings us back.
      const name = wanted?.link === undefined ? undefined : this.#names.get(wanted.link);
      if (name !== undefined && hasErrno(fault.error, "ENODEV", "ENETDOWN", "ENETUNREACH")) continue;
      problems.push(describeError(fault.error));
    }
    if (problems.length > 0)
      throw new Error(`${problems.length} routes could not be written: ${problems.slice(0, 3).join("; ")}`);
  }

  #resync(): number | undefined {
    const started = performance.now();
    const { routes, table, ownership } = this.#options;
    const before = new Map(this.#actual);
    this.#actual.clear();
    let repaired = 0;
    for (const route of routes.list({ version: this.version, table })) {
      const name = route.link === undefined ? undefined : this.#names.get(route.link);
      const key = this.#wanted.key(route.destination, route.priority);
      // A foreign route in our place is replaced, like every route with the same key would be.
      const isWanted = this.#wanted.has(key);
      if (!isWanted && !ownership.isOurs(route, name)) continue;
      this.#actual.set(key, route);
      const wanted = this.#wanted.best(key);
      const isRight = wanted !== undefined && isSame(wanted, route);
      const wasWritten = before.has(key) && !this.#dirty.has(key);
      if (before.size > 0 && (!before.has(key) || (wasWritten && !isRight))) repaired++;
      if (!isRight) this.#dirty.add(key);
    }
    for (const key of this.#wanted.keys()) if (!this.#actual.has(key)) this.#dirty.add(key);
    for (const key of before.keys()) if (!this.#actual.has(key)) repaired++;
    this.#needsResync = false;
    this.#options.onResync?.((performance.now() - started) / 1000);
    if (repaired > 0 && before.size > 0) this.#log.warn("somebody changed our routes; repairing", { count: repaired });
    return undefined;
  }

  #deleteKey(route: Route): RouteChange["route"] {
    const { destination, priority, link } = route;
    // It may be gone already: one to the same place by another way is not meant.
    const only = link !== undefined && this.#isDown(route) ? { link } : {};
    return { destination, table: this.#options.table, priority, ...only };
  }

  #isDown({ link }: Route): boolean {
    return link !== undefined && this.#interfaces.get(this.#names.get(link) ?? "")?.isUp === false;
  }

  /** An address whose packets now go elsewhere must not keep old connections. */
  #noteMove(before: Route | undefined, after: NewRoute | undefined): void {
    if (before?.link === undefined || before.type !== "unicast") return;
    if (cidrLength(before.destination) !== addressBits(this.version)) return;
    if (after?.link === before.link) return;
    if (before.gateway !== undefined && after?.gateway !== undefined) return; // remote to remote
    this.#moved.add(cidrAddress(before.destination));
  }

  /**
   * A route nobody told us of may be a new workload's, written before we hear of the workload. Once we have a route for
   * its interface we have heard.
   */
  #graceLeft(key: string, route: Route | undefined): number {
    if (this.#wanted.isKnown(key)) return 0;
    const name = route?.link === undefined ? undefined : this.#names.get(route.link);
    if (name === undefined || this.#options.ownership.hasGrace?.(name) !== true) return 0;
    const state = this.#interfaces.get(name);
    if (state === undefined || this.#wanted.hasAnyOn(name)) return 0;
    return Math.max(0, state.firstSeen + (this.#options.graceMs ?? GRACE_MS) - this.#now());
  }
}

function isSame(wanted: NewRoute, actual: Route): boolean {
  return (
    (wanted.type ?? "unicast") === actual.type &&
    wanted.link === (actual.type === "unicast" ? actual.link : undefined) &&
    wanted.gateway === actual.gateway &&
    (wanted.onlink ?? false) === actual.onlink &&
    wanted.protocol === actual.protocol &&
    wanted.source === actual.source &&
    (wanted.scope === undefined || wanted.scope === actual.scope) &&
    (wanted.metrics?.mtu ?? 0) === (actual.metrics?.mtu ?? 0) &&
    actual.nextHops === undefined
  );
}

function asRoute(wanted: NewRoute, table: number): Route {
  return {
    ...wanted,
    table,
    type: wanted.type ?? "unicast",
    protocol: wanted.protocol ?? 0,
    scope: wanted.scope ?? "universe",
    tos: 0,
    priority: wanted.priority ?? 0,
    onlink: wanted.onlink ?? false,
    isDead: false,
  };
}
