// Lists, looks up and changes routes over rtnetlink. Many changes are sent in one datagram.
import { type Cidr, type IpAddress, type IpVersion, ipVersion, maskCidr } from "../../lib/ip/ip.ts";
import { hasErrno, NetlinkError } from "../sys/kernel-error.ts";
import type { NetlinkSocket } from "../netlink/netlink-socket.ts";
import {
  type NetlinkWriter,
  NLM_F_APPEND,
  NLM_F_CREATE,
  NLM_F_EXCL,
  NLM_F_REPLACE,
} from "../netlink/netlink-writer.ts";
import {
  type NewRoute,
  parseRoute,
  RTM_DELROUTE,
  RTM_NEWROUTE,
  type Route,
  type RouteKey,
  writeRoute,
  writeRouteKey,
} from "./route-message.ts";
import { AF_INET, AF_INET6 } from "../sys/sys.ts";

const RTM_GETROUTE = 26;
const RTA_DST = 1;
const RTA_OIF = 4;
const RTA_TABLE = 15;

export interface RouteFilter {
  readonly version: IpVersion;
  /** By default, all tables. */
  readonly table?: number;
  readonly link?: number;
  readonly protocol?: number;
}

export type RouteChange =
  | { readonly action: "add" | "replace" | "append"; readonly route: NewRoute }
  | { readonly action: "delete"; readonly route: RouteKey };

export interface RejectedRouteChange {
  readonly change: RouteChange;
  readonly error: NetlinkError;
}

export interface Routes {
  list(filter: RouteFilter): Route[];
  /**
   * Returns the route of a packet to this address; undefined if there is none, or if the best match rejects packets (types
   * blackhole, prohibit, unreachable and throw). For those types the kernel returns an error, not the route.
   */
  lookup(address: IpAddress): Route | undefined;
  add(route: NewRoute): void;
  /** Adds the route, or replaces the one with the same destination, table, TOS and priority. */
  replace(route: NewRoute): void;
  delete(route: RouteKey): void;
  /** Makes the changes in order, independently of each other, and returns those that the kernel rejected. */
  apply(changes: readonly RouteChange[]): RejectedRouteChange[];
}

const FLAGS = {
  add: NLM_F_CREATE | NLM_F_EXCL,
  replace: NLM_F_CREATE | NLM_F_REPLACE,
  append: NLM_F_CREATE | NLM_F_APPEND,
} as const;
/** Changes per datagram. If all of them are rejected, the error messages must fit into the receive buffer. */
const MAX_BATCH = 4096;

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
    const operation = `list IPv${filter.version} routes${table === undefined ? "" : ` of table ${table}`}`;
    try {
      return this.#socket.dump({ operation, type: RTM_GETROUTE, body }, (message) => {
        const route = parseRoute(message);
        if (route === undefined || (table !== undefined && route.table !== table)) return undefined;
        if (protocol !== undefined && route.protocol !== protocol) return undefined;
        return link === undefined || usesLink(route, link) ? route : undefined;
      });
    } catch (error) {
      // A table without routes does not exist; a link that was just deleted has no routes.
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
      return this.#socket.query({ operation: `look up route to ${address}`, type: RTM_GETROUTE, body }, parseRoute);
    } catch (error) {
      if (hasErrno(error, ...NO_ROUTE_ERRNOS)) return undefined;
      throw error;
    }
  }

  add(route: NewRoute): void {
    this.#request({ action: "add", route });
  }
  replace(route: NewRoute): void {
    this.#request({ action: "replace", route });
  }
  delete(route: RouteKey): void {
    this.#request({ action: "delete", route });
  }

  apply(changes: readonly RouteChange[]): RejectedRouteChange[] {
    const rejected: RejectedRouteChange[] = [];
    for (let start = 0; start < changes.length; start += MAX_BATCH) {
      const batch = changes.slice(start, start + MAX_BATCH);
      const w = this.#socket.startBatch();
      for (const change of batch) w.message(typeOf(change), flagsOf(change), () => writeChange(w, change));
      for (const { index, errno, extack } of this.#socket.sendBatch(w, `change ${batch.length} routes`)) {
        const change = batch[index];
        if (change === undefined) continue;
        rejected.push({ change, error: new NetlinkError(describeRouteChange(change), errno, extack) });
      }
    }
    return rejected;
  }

  #request(change: RouteChange): void {
    this.#socket.request({
      operation: describeRouteChange(change),
      type: typeOf(change),
      flags: flagsOf(change),
      body: (w) => writeChange(w, change),
    });
  }
}

const RTM_F_FIB_MATCH = 0x2000;
/** Errors of a lookup: no route, then those of types unreachable, blackhole and prohibit (`fib_props` in the kernel). */
const NO_ROUTE_ERRNOS = ["ENETUNREACH", "ESRCH", "EHOSTUNREACH", "EINVAL", "EACCES"] as const;

export function usesLink(route: Route, link: number): boolean {
  return route.link === link || (route.nextHops?.some((hop) => hop.link === link) ?? false);
}

/** `replace blackhole route 10.0.0.0/26 table 254 …`, for error messages. */
export function describeRouteChange({ action, route }: RouteChange): string {
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
