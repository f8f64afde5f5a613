// Routing tables over rtnetlink: list, look up, and change many routes with one datagram.
import { type Cidr, type IpAddress, type IpVersion, ipVersion, maskCidr } from "../lib/ip.ts";
import { hasErrno, NetlinkError } from "./netlink-error.ts";
import type { NetlinkSocket } from "./netlink-socket.ts";
import { type NetlinkWriter, NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE } from "./netlink-writer.ts";
import {
  type NewRoute,
  parseRoute,
  RTM_DELROUTE,
  RTM_NEWROUTE,
  type Route,
  type RouteKey,
  writeRoute,
  writeRouteKey,
} from "./route-wire.ts";
import { AF_INET, AF_INET6 } from "./sys.ts";

const RTM_GETROUTE = 26;
const RTA_DST = 1;
const RTA_OIF = 4;
const RTA_TABLE = 15;

export interface RouteFilter {
  readonly version: IpVersion;
  /** All tables when absent. */
  readonly table?: number;
  readonly link?: number;
  readonly protocol?: number;
}

export type RouteChange =
  | { readonly action: "add" | "replace" | "append"; readonly route: NewRoute }
  | { readonly action: "delete"; readonly route: RouteKey };

export interface RouteFault {
  readonly change: RouteChange;
  readonly error: NetlinkError;
}

export interface Routes {
  list(filter: RouteFilter): Route[];
  /**
   * The route a packet to that address would take; undefined if there is none, or if the best match rejects packets
   * (types blackhole, prohibit, unreachable and throw). For those the kernel answers with an error, not with the route.
   */
  lookup(address: IpAddress): Route | undefined;
  add(route: NewRoute): void;
  /** Adds it, or takes the place of the one with the same destination, table, TOS and priority. */
  replace(route: NewRoute): void;
  delete(route: RouteKey): void;
  /** All changes in order; each stands alone, and those the kernel refused come back. */
  apply(changes: readonly RouteChange[]): RouteFault[];
}

const FLAGS = {
  add: NLM_F_CREATE | NLM_F_EXCL,
  replace: NLM_F_CREATE | NLM_F_REPLACE,
  append: NLM_F_CREATE | NLM_F_APPEND,
} as const;
/** Changes per datagram: refusals of all of them must fit the receive buffer. */
const BATCH = 4096;

export class NetlinkRoutes implements Routes {
  readonly #socket: NetlinkSocket;
  constructor(socket: NetlinkSocket) {
    this.#socket = socket;
  }

  list(filter: RouteFilter): Route[] {
    const { table, link, protocol } = filter;
    const body = (w: NetlinkWriter): void => {
      w.putU8(filter.version === 4 ? AF_INET : AF_INET6);
      w.putZero(3);
      w.putU8(table !== undefined && table < 256 ? table : 0);
      w.putU8(protocol ?? 0);
      w.putZero(6);
      if (table !== undefined) w.u32(RTA_TABLE, table);
      if (link !== undefined) w.u32(RTA_OIF, link);
    };
    const what = `list IPv${filter.version} routes${table === undefined ? "" : ` of table ${table}`}`;
    try {
      return this.#socket.dump({ what, type: RTM_GETROUTE, body }, (message) => {
        const route = parseRoute(message);
        if (route === undefined || (table !== undefined && route.table !== table)) return undefined;
        if (protocol !== undefined && route.protocol !== protocol) return undefined;
        return link === undefined || leavesBy(route, link) ? route : undefined;
      });
    } catch (error) {
      // A table nobody wrote to does not exist; a link that went meanwhile has no routes.
      if (hasErrno(error, "ENOENT", "ENODEV")) return [];
      throw error;
    }
  }

  lookup(address: IpAddress): Route | undefined {
    const version = ipVersion(address);
    const body = (w: NetlinkWriter): void => {
      w.putU8(version === 4 ? AF_INET : AF_INET6);
      w.putU8(version === 4 ? 32 : 128);
      w.putZero(6);
      w.putU32(RTM_F_FIB_MATCH);
      w.address(RTA_DST, address);
    };
    try {
      return this.#socket.query({ what: `look up route to ${address}`, type: RTM_GETROUTE, body }, parseRoute);
    } catch (error) {
      if (hasErrno(error, ...NO_ROUTE_ERRNOS)) return undefined;
      throw error;
    }
  }

  add(route: NewRoute): void {
    this.#one({ action: "add", route });
  }
  replace(route: NewRoute): void {
    this.#one({ action: "replace", route });
  }
  delete(route: RouteKey): void {
    this.#one({ action: "delete", route });
  }

  apply(changes: readonly RouteChange[]): RouteFault[] {
    const faults: RouteFault[] = [];
    for (let start = 0; start < changes.length; start += BATCH) {
      const part = changes.slice(start, start + BATCH);
      const w = this.#socket.batch();
      for (const change of part) w.message(typeOf(change), flagsOf(change), () => writeChange(w, change));
      for (const fault of this.#socket.sendBatch(w, `change ${part.length} routes`)) {
        const change = part[fault.index];
        if (change === undefined) continue;
        faults.push({ change, error: new NetlinkError(describeChange(change), fault.errno, fault.extack) });
      }
    }
    return faults;
  }

  #one(change: RouteChange): void {
    this.#socket.request({
      what: describeChange(change),
      type: typeOf(change),
      flags: flagsOf(change),
      body: (w) => writeChange(w, change),
    });
  }
}

const RTM_F_FIB_MATCH = 0x2000;
/** Of a lookup: no route; then the errors of route types unreachable, blackhole and prohibit (`fib_props` in the kernel). */
const NO_ROUTE_ERRNOS = ["ENETUNREACH", "ESRCH", "EHOSTUNREACH", "EINVAL", "EACCES"] as const;

export function leavesBy(route: Route, link: number): boolean {
  return route.link === link || (route.nextHops?.some((hop) => hop.link === link) ?? false);
}

/** `replace blackhole route 10.0.0.0/26 table 254 …`, for errors and logs. */
export function describeChange({ action, route }: RouteChange): string {
  const words: string[] = [action];
  if (route.type !== undefined && route.type !== "unicast") words.push(route.type);
  words.push("route", route.destination);
  if (route.gateway !== undefined) words.push("via", route.gateway);
  if (route.link !== undefined) words.push("link", String(route.link));
  if (route.table !== undefined) words.push("table", String(route.table));
  return words.join(" ");
}

/** The default route's destination. */
export const defaultDestination = (version: IpVersion): Cidr =>
  maskCidr((version === 4 ? "0.0.0.0" : "::") as IpAddress, 0);

const typeOf = (change: RouteChange): number => (change.action === "delete" ? RTM_DELROUTE : RTM_NEWROUTE);
const flagsOf = (change: RouteChange): number => (change.action === "delete" ? 0 : FLAGS[change.action]);

function writeChange(w: NetlinkWriter, change: RouteChange): void {
  if (change.action === "delete") writeRouteKey(w, change.route);
  else writeRoute(w, change.route);
}
