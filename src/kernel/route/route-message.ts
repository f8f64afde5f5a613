// Encodes and parses routes in rtnetlink messages: rtmsg, attributes, metrics and next hops (rtnetlink(7)).
import { addressBytes, type Cidr, cidrAddress, cidrLength, type IpAddress, ipVersion } from "../../lib/ip/ip.ts";
import { type NetlinkMessage, NetlinkReader, prefixOf, type RawAttribute } from "../netlink/netlink-reader.ts";
import type { NetlinkWriter } from "../netlink/netlink-writer.ts";
import {
  RT_TABLE_MAIN,
  RTPROT_BOOT,
  type RouteType,
  routeTypeNumber,
  routeTypeOf,
  type Scope,
  scopeNumber,
  scopeOf,
} from "./route-constants.ts";
import { AF_INET, AF_INET6, type Bytes } from "../sys/sys.ts";

export const RTM_NEWROUTE = 24;
export const RTM_DELROUTE = 25;
const RTA_DST = 1;
const RTA_SRC = 2;
const RTA_OIF = 4;
const RTA_GATEWAY = 5;
const RTA_PRIORITY = 6;
const RTA_PREFSRC = 7;
const RTA_METRICS = 8;
const RTA_MULTIPATH = 9;
const RTA_CACHEINFO = 12;
const RTA_TABLE = 15;
const RTA_VIA = 18;
const RTA_PREF = 20;
const RTNH_F_DEAD = 1;
const RTNH_F_ONLINK = 4;
const RTNH_F_LINKDOWN = 16;
const RTM_F_CLONED = 0x200;
const HEADER = 12; // rtmsg

/** Names of RTAX_* as in ip-route(8); the index is the number. */
const METRICS = [
  "",
  "lock",
  "mtu",
  "window",
  "rtt",
  "rttvar",
  "ssthresh",
  "cwnd",
  "advmss",
  "reordering",
  "hoplimit",
  "initcwnd",
  "features",
  "rto_min",
  "initrwnd",
  "quickack",
] as const;
export type RouteMetric = Exclude<(typeof METRICS)[number], "">;

export interface NextHop {
  /** Index of the interface. */
  readonly link: number;
  readonly gateway?: IpAddress;
  /** At least 1. */
  readonly weight: number;
  readonly onlink: boolean;
}

export interface Route {
  /** `0.0.0.0/0` or `::/0` is the default route. */
  readonly destination: Cidr;
  readonly table: number;
  readonly type: RouteType;
  readonly protocol: number;
  readonly scope: Scope;
  readonly tos: number;
  /** The route with the lowest number is used. For IPv6 the kernel replaces 0 by 1024. */
  readonly priority: number;
  readonly link?: number;
  readonly gateway?: IpAddress;
  /** The gateway is treated as reachable on the link, even if no address prefix of the link covers it. */
  readonly onlink: boolean;
  /** Preferred source address. */
  readonly source?: IpAddress;
  readonly metrics?: Readonly<Partial<Record<RouteMetric, number>>>;
  /** Multipath; then `link` and `gateway` are absent. */
  readonly nextHops?: readonly NextHop[];
  /** The kernel does not use the route now, because its link is down. */
  readonly isDead: boolean;
  /** Unknown attributes, which are written back unchanged. */
  readonly other?: readonly RawAttribute[];
}

/** A route to program. Absent fields have the defaults of `ip route`. */
export type NewRoute = Pick<Route, "destination"> & Partial<Omit<Route, "destination" | "isDead">>;

/** Identifies a route. The kernel compares only the given fields. */
export type RouteKey = Pick<Route, "destination"> &
  Partial<Pick<Route, "table" | "type" | "protocol" | "tos" | "priority" | "link" | "gateway">>;

export function writeRoute(w: NetlinkWriter, route: NewRoute): void {
  const isDirect = route.gateway === undefined && route.nextHops === undefined;
  const type = route.type ?? "unicast";
  writeHeader(w, route, {
    protocol: route.protocol ?? RTPROT_BOOT,
    scope: scopeNumber(route.scope ?? defaultScope(type, isDirect, ipVersion(route.destination))),
    type: routeTypeNumber(type),
    flags: route.onlink === true ? RTNH_F_ONLINK : 0,
  });
  if (route.link !== undefined) w.u32(RTA_OIF, route.link);
  if (route.gateway !== undefined) writeGateway(w, route.gateway, ipVersion(route.destination));
  if (route.priority !== undefined && route.priority !== 0) w.u32(RTA_PRIORITY, route.priority);
  if (route.source !== undefined) w.address(RTA_PREFSRC, route.source);
  if (route.metrics !== undefined) writeMetrics(w, route.metrics);
  if (route.nextHops !== undefined) writeNextHops(w, route.nextHops, ipVersion(route.destination));
  for (const attribute of route.other ?? []) w.raw(attribute);
}

/** The scope "nowhere" and type and protocol 0 match any route. */
export function writeRouteKey(w: NetlinkWriter, key: RouteKey): void {
  writeHeader(w, key, {
    protocol: key.protocol ?? 0,
    scope: scopeNumber("nowhere"),
    type: key.type === undefined ? 0 : routeTypeNumber(key.type),
    flags: 0,
  });
  if (key.link !== undefined) w.u32(RTA_OIF, key.link);
  if (key.gateway !== undefined) writeGateway(w, key.gateway, ipVersion(key.destination));
  if (key.priority !== undefined && key.priority !== 0) w.u32(RTA_PRIORITY, key.priority);
}

function writeHeader(
  w: NetlinkWriter,
  route: Pick<NewRoute, "destination" | "table" | "tos">,
  fields: { readonly protocol: number; readonly scope: number; readonly type: number; readonly flags: number },
): void {
  const table = route.table ?? RT_TABLE_MAIN;
  const length = cidrLength(route.destination);
  w.putU8(ipVersion(route.destination) === 4 ? AF_INET : AF_INET6);
  w.putU8(length);
  w.putU8(0);
  w.putU8(route.tos ?? 0);
  w.putU8(table < 256 ? table : 0);
  w.putU8(fields.protocol);
  w.putU8(fields.scope);
  w.putU8(fields.type);
  w.putU32(fields.flags);
  if (length > 0) w.address(RTA_DST, cidrAddress(route.destination));
  w.u32(RTA_TABLE, table);
}

/** The default of `ip route add`: a destination without a gateway has scope "link". */
function defaultScope(type: RouteType, isDirect: boolean, version: 4 | 6): Scope {
  if (version === 6) return "universe"; // IPv6 routes have no other scope
  if (type === "local" || type === "nat") return "host";
  return isDirect && (type === "unicast" || type === "multicast" || type === "broadcast") ? "link" : "universe";
}

function writeGateway(w: NetlinkWriter, gateway: IpAddress, family: 4 | 6): void {
  const version = ipVersion(gateway);
  if (version === family) return w.address(RTA_GATEWAY, gateway);
  const via = new Uint8Array(2 + (version === 4 ? 4 : 16));
  via[0] = version === 4 ? AF_INET : AF_INET6;
  via.set(addressBytes(gateway), 2);
  w.bytes(RTA_VIA, via);
}

function writeMetrics(w: NetlinkWriter, metrics: NonNullable<Route["metrics"]>): void {
  w.nest(RTA_METRICS, () => {
    for (const [number, name] of METRICS.entries()) {
      const value = name === "" ? undefined : metrics[name];
      if (value !== undefined) w.u32(number, value);
    }
  });
}

function writeNextHops(w: NetlinkWriter, hops: readonly NextHop[], family: 4 | 6): void {
  const start = w.beginNest(RTA_MULTIPATH);
  for (const hop of hops) {
    const size = 8 + (hop.gateway === undefined ? 0 : gatewaySize(hop.gateway, family));
    w.putU16(size); // rtnexthop: length, flags, weight - 1, link
    w.putU8(hop.onlink ? RTNH_F_ONLINK : 0);
    w.putU8(hop.weight - 1);
    w.putI32(hop.link);
    if (hop.gateway !== undefined) writeGateway(w, hop.gateway, family);
  }
  w.endNest(start);
}

const gatewaySize = (gateway: IpAddress, family: 4 | 6): number => {
  const version = ipVersion(gateway);
  const bytes = version === 4 ? 4 : 16;
  return version === family ? 4 + bytes : (4 + 2 + bytes + 3) & ~3;
};

type Draft = { -readonly [K in keyof Route]: Route[K] };

const DEFAULT_ROUTE = "0.0.0.0/0" as Cidr;

export function parseRoute(message: NetlinkMessage): Route | undefined {
  if (message.type !== RTM_NEWROUTE && message.type !== RTM_DELROUTE) return undefined;
  const family = message.u8(0);
  if (family !== AF_INET && family !== AF_INET6) return undefined;
  const flags = message.u32(8);
  if ((flags & RTM_F_CLONED) !== 0) return undefined; // a cache entry, not a route of a table
  const length = message.u8(1);
  let destination = (family === AF_INET ? "0.0.0.0" : "::") as IpAddress;
  const route: Draft = {
    destination: DEFAULT_ROUTE,
    table: message.u8(4),
    type: routeTypeOf(message.u8(7)),
    protocol: message.u8(5),
    scope: scopeOf(message.u8(6)),
    tos: message.u8(3),
    priority: 0,
    onlink: (flags & RTNH_F_ONLINK) !== 0,
    isDead: (flags & (RTNH_F_DEAD | RTNH_F_LINKDOWN)) !== 0,
  };
  const other: RawAttribute[] = [];
  const a = message.attributes(HEADER);
  while (a.next())
    switch (a.type) {
      case RTA_DST:
        destination = a.address();
        break;
      case RTA_TABLE:
        route.table = a.u32();
        break;
      case RTA_OIF:
        route.link = a.u32();
        break;
      case RTA_GATEWAY:
        route.gateway = a.address();
        break;
      case RTA_VIA:
        route.gateway = a.address(2);
        break;
      case RTA_PRIORITY:
        route.priority = a.u32();
        break;
      case RTA_PREFSRC:
        route.source = a.address();
        break;
      case RTA_METRICS:
        route.metrics = readMetrics(a.nested());
        break;
      case RTA_MULTIPATH:
        route.nextHops = readNextHops(a.bytes());
        break;
      case RTA_SRC:
      case RTA_CACHEINFO:
        break; // not part of the configured route
      case RTA_PREF:
        if (a.u8() !== 0) other.push(a.raw());
        break;
      default:
        other.push(a.raw());
    }
  route.destination = prefixOf(destination, length);
  if (other.length > 0) route.other = other;
  return route;
}

function readMetrics(a: NetlinkReader): NonNullable<Route["metrics"]> {
  const metrics: Partial<Record<RouteMetric, number>> = {};
  while (a.next()) {
    const name = METRICS[a.type];
    if (name !== undefined && name !== "") metrics[name] = a.u32();
  }
  return metrics;
}

function readNextHops(bytes: Bytes): NextHop[] {
  const view = new DataView(bytes.buffer);
  const hops: NextHop[] = [];
  for (let at = 0; at + 8 <= bytes.length; ) {
    const size = view.getUint16(at, true);
    if (size < 8 || at + size > bytes.length) break;
    let gateway: IpAddress | undefined;
    const a = NetlinkReader.fromBytes(bytes.slice(at + 8, at + size));
    while (a.next())
      if (a.type === RTA_GATEWAY) gateway = a.address();
      else if (a.type === RTA_VIA) gateway = a.address(2);
    hops.push({
      link: view.getInt32(at + 4, true),
      gateway,
      weight: view.getUint8(at + 3) + 1,
      onlink: (view.getUint8(at + 2) & RTNH_F_ONLINK) !== 0,
    });
    at += (size + 3) & ~3;
  }
  return hops;
}
