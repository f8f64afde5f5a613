// Constants of routes and addresses (rtnetlink(7)), with the names that `ip route` prints.

const SCOPES = { universe: 0, site: 200, link: 253, host: 254, nowhere: 255 } as const;
/** Distance of a destination. A value without a name is kept as a number. */
export type Scope = keyof typeof SCOPES | number;

const TYPES = [
  "unspec",
  "unicast",
  "local",
  "broadcast",
  "anycast",
  "multicast",
  "blackhole",
  "unreachable",
  "prohibit",
  "throw",
  "nat",
  "xresolve",
] as const;
export type RouteType = (typeof TYPES)[number];

const REJECTING: ReadonlySet<RouteType> = new Set(["blackhole", "unreachable", "prohibit", "throw"]);
/** True if a route of this type forwards no packets. */
export const isRejecting = (type: RouteType): boolean => REJECTING.has(type);

export const RT_TABLE_MAIN = 254;
export const RT_TABLE_LOCAL = 255;
export const RTPROT_KERNEL = 2;
export const RTPROT_BOOT = 3;

export function scopeNumber(scope: Scope): number {
  return typeof scope === "number" ? scope : SCOPES[scope];
}

export function scopeOf(number: number): Scope {
  switch (number) {
    case 0:
      return "universe";
    case 200:
      return "site";
    case 253:
      return "link";
    case 254:
      return "host";
    case 255:
      return "nowhere";
    default:
      return number;
  }
}

export function routeTypeNumber(type: RouteType): number {
  return TYPES.indexOf(type);
}

export function routeTypeOf(number: number): RouteType {
  return TYPES[number] ?? "unspec";
}
