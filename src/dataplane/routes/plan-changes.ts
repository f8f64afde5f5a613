// Plans the changes to the routes of one table, in the order in which they must be made.
//
// 1. `deleteFirst`: routes that must not exist any more, and routes that cannot be replaced in place.
// 2. The caller deletes the conntrack entries of `movedAddresses`. Meanwhile no route leads to the new owner of an address.
// 3. `replace`: new and changed routes.
// 4. `deleteLast`: routes that a new one replaces, and routes of other programs. No workload is without a route meanwhile.
import type { NewRoute, Route, RouteChange } from "../../kernel/index.ts";
import { addressBits, cidrAddress, cidrLength, type IpAddress, ipVersion } from "../../lib/ip/ip.ts";

/** A route by its key in the kernel (destination and priority), with everything that its change depends on. */
export interface RouteState {
  readonly key: string;
  readonly actual?: Route | undefined;
  /** Undefined if no route is desired, or its interface is down. */
  readonly desired?: NewRoute | undefined;
  /** True if a route is desired although `desired` is undefined: its interface is down. */
  readonly isSuspended?: boolean;
  /** True if calico-ts certainly wrote the route, or forbade it. Otherwise it may be another program's. */
  readonly isManaged?: boolean;
  /** True if a route with another priority is desired for the same destination and interface. */
  readonly hasAlternative?: boolean;
  /** True if the interface of `actual` is down. The kernel may have removed the route already. */
  readonly isActualDown?: boolean;
  /** How much longer the route must not be deleted. */
  readonly graceLeftMs?: number;
}

export interface KeyedChange {
  readonly key: string;
  readonly change: RouteChange;
}

export interface RoutePlan {
  readonly deleteFirst: readonly RouteChange[];
  readonly movedAddresses: readonly IpAddress[];
  readonly replace: readonly KeyedChange[];
  readonly deleteLast: readonly KeyedChange[];
  /** When the next grace period ends; undefined if no route has one. */
  readonly retryInMs: number | undefined;
}

export function planChanges(states: Iterable<RouteState>): RoutePlan {
  const deleteFirst: RouteChange[] = [];
  const replace: KeyedChange[] = [];
  const deleteLast: KeyedChange[] = [];
  const movedAddresses: IpAddress[] = [];
  let retryInMs: number | undefined;
  for (const state of states) {
    const { key, actual, desired, graceLeftMs = 0 } = state;
    if (desired !== undefined) {
      if (actual !== undefined && isSameRoute(desired, actual)) continue;
      if (actual !== undefined && !isReplaceable(desired, actual)) deleteFirst.push(deletionOf(actual, state));
      movedAddresses.push(...movedAddress(actual, desired));
      replace.push({ key, change: { action: "replace", route: desired } });
    } else if (actual !== undefined) {
      if (graceLeftMs > 0) {
        retryInMs = Math.min(retryInMs ?? graceLeftMs, graceLeftMs);
        continue;
      }
      const change = deletionOf(actual, state);
      const hasAlternative = state.hasAlternative === true;
      if (state.isManaged === true && !hasAlternative) deleteFirst.push(change);
      else deleteLast.push({ key, change });
      if (!hasAlternative && state.isSuspended !== true) movedAddresses.push(...movedAddress(actual, undefined));
    }
  }
  return { deleteFirst, movedAddresses, replace, deleteLast, retryInMs };
}

/** The kernel identifies the route by destination, table and priority. */
export function deletionOf(route: Route, { isActualDown }: Pick<RouteState, "isActualDown"> = {}): RouteChange {
  const { destination, table, priority, link } = route;
  // If the kernel has removed the route already, a route with the same key over another interface must not be deleted.
  const only = link !== undefined && isActualDown === true ? { link } : {};
  return { action: "delete", route: { destination, table, priority, ...only } };
}

/** Not every kernel replaces a route in place if its type or interface changes. */
const isReplaceable = (desired: NewRoute, actual: Route): boolean =>
  actual.link === desired.link && actual.type === (desired.type ?? "unicast");

/** Returns the address whose connections must not be continued, because its packets take another path now. */
export function movedAddress(before: Route | undefined, after: NewRoute | undefined): IpAddress[] {
  if (before?.link === undefined || before.type !== "unicast") return [];
  const address = cidrAddress(before.destination);
  if (cidrLength(before.destination) !== addressBits(ipVersion(address))) return [];
  if (after?.link === before.link) return [];
  if (before.gateway !== undefined && after?.gateway !== undefined) return []; // from one remote node to another
  return [address];
}

export function isSameRoute(desired: NewRoute, actual: Route): boolean {
  return (
    (desired.type ?? "unicast") === actual.type &&
    desired.link === (actual.type === "unicast" ? actual.link : undefined) &&
    desired.gateway === actual.gateway &&
    (desired.onlink ?? false) === actual.onlink &&
    desired.protocol === actual.protocol &&
    desired.source === actual.source &&
    (desired.scope === undefined || desired.scope === actual.scope) &&
    (desired.metrics?.mtu ?? 0) === (actual.metrics?.mtu ?? 0) &&
    actual.nextHops === undefined
  );
}
