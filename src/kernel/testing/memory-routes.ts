// Routes and rules of one namespace in memory. Invalid changes are rejected with the errno of the kernel.
import { cidrContains, cidrLength, type IpAddress, ipVersion, maskCidr, type IpVersion } from "../../lib/ip/ip.ts";
import type { InterfaceAddress } from "../route/addresses.ts";
import type { Links } from "../route/links.ts";
import type { LinkObserver } from "./memory-links.ts";
import { NetlinkError } from "../sys/kernel-error.ts";
import { isRejecting, RT_TABLE_MAIN, RTPROT_BOOT, RTPROT_KERNEL } from "../route/route-constants.ts";
import type { NewRoute, Route, RouteKey } from "../route/route-message.ts";
import {
  describeRouteChange,
  usesLink,
  type RouteChange,
  type RejectedRouteChange,
  type RouteFilter,
  type Routes,
} from "../route/routes.ts";
import type { Rule, Rules } from "../route/rules.ts";

export class MemoryRoutes implements Routes, LinkObserver {
  #routes: Route[] = [];
  readonly #links: Links;
  constructor(links: Links) {
    this.#links = links;
  }

  list(filter: RouteFilter): Route[] {
    return this.#routes.filter(
      (route) =>
        ipVersion(route.destination) === filter.version &&
        (filter.table === undefined || route.table === filter.table) &&
        (filter.protocol === undefined || route.protocol === filter.protocol) &&
        (filter.link === undefined || usesLink(route, filter.link)),
    );
  }

  lookup(address: IpAddress): Route | undefined {
    const best = this.#routes
      .filter((route) => route.table === RT_TABLE_MAIN && cidrContains(route.destination, address))
      .sort((a, b) => cidrLength(b.destination) - cidrLength(a.destination) || a.priority - b.priority)[0];
    return best === undefined || isRejecting(best.type) ? undefined : best;
  }

  add(route: NewRoute): void {
    this.#change({ action: "add", route });
  }
  replace(route: NewRoute): void {
    this.#change({ action: "replace", route });
  }
  delete(route: RouteKey): void {
    this.#change({ action: "delete", route });
  }

  apply(changes: readonly RouteChange[]): RejectedRouteChange[] {
    const rejected: RejectedRouteChange[] = [];
    for (const change of changes)
      try {
        this.#change(change);
      } catch (error) {
        if (!(error instanceof NetlinkError)) throw error;
        rejected.push({ change, error });
      }
    return rejected;
  }

  linkWentDown(index: number): void {
    this.#routes = this.#routes.filter((route) => !usesLink(route, index));
  }
  linkRemoved(index: number): void {
    this.linkWentDown(index);
  }
  addressAdded(address: InterfaceAddress): void {
    const version = ipVersion(address.address);
    if (address.length === (version === 4 ? 32 : 128) || this.#links.get(address.link)?.isUp !== true) return;
    this.#routes.push({
      ...complete({ destination: maskCidr(address.address, address.length), link: address.link }),
      protocol: RTPROT_KERNEL,
      ...(version === 4 ? { source: address.address } : { priority: 256 }),
    });
  }
  addressRemoved(address: InterfaceAddress): void {
    const destination = maskCidr(address.address, address.length);
    this.#routes = this.#routes.filter(
      (r) => !(r.protocol === RTPROT_KERNEL && r.link === address.link && r.destination === destination),
    );
  }

  #change(change: RouteChange): void {
    const reject = (errno: string): never => {
      throw new NetlinkError(describeRouteChange(change), errno);
    };
    if (change.action === "delete") {
      const position = this.#routes.findIndex((route) => matchesKey(route, change.route));
      if (position < 0) reject("ESRCH");
      this.#routes.splice(position, 1);
      return;
    }
    const route = complete(change.route);
    for (const { link, gateway, onlink } of route.nextHops ?? [route]) {
      const target = link === undefined ? undefined : this.#links.get(link);
      if (link !== undefined && target === undefined) reject("ENODEV");
      if (target !== undefined && !target.isUp) reject("ENETDOWN");
      if (gateway !== undefined && !onlink && !this.#isReachable(gateway)) reject("ENETUNREACH");
    }
    const position = this.#routes.findIndex((r) => isSame(r, route));
    if (position >= 0 && change.action === "add") reject("EEXIST");
    if (position >= 0 && change.action === "replace") this.#routes[position] = route;
    else this.#routes.push(route);
  }

  /** True if the gateway is directly on a link. */
  #isReachable(gateway: IpAddress): boolean {
    const route = this.lookup(gateway);
    return route !== undefined && route.gateway === undefined && route.type === "unicast";
  }
}

/** Adds the defaults of the kernel and of `ip route`. */
function complete(route: NewRoute): Route {
  const version = ipVersion(route.destination);
  const { type = "unicast", priority = 0 } = route;
  const isDirect = type === "unicast" && route.gateway === undefined && route.nextHops === undefined;
  return {
    table: RT_TABLE_MAIN,
    protocol: RTPROT_BOOT,
    tos: 0,
    onlink: false,
    isDead: false,
    ...route,
    type,
    scope: route.scope ?? (type === "local" ? "host" : isDirect && version === 4 ? "link" : "universe"),
    priority: version === 6 && priority === 0 ? 1024 : priority,
  };
}

const isSame = (a: Route, b: Route): boolean =>
  a.destination === b.destination && a.table === b.table && a.tos === b.tos && a.priority === b.priority;

function matchesKey(route: Route, key: RouteKey): boolean {
  return (
    route.destination === key.destination &&
    route.table === (key.table ?? RT_TABLE_MAIN) &&
    route.tos === (key.tos ?? 0) &&
    ((key.priority ?? 0) === 0 || route.priority === key.priority) &&
    (key.type === undefined || route.type === key.type) &&
    (key.protocol === undefined || route.protocol === key.protocol) &&
    (key.link === undefined || route.link === key.link) &&
    (key.gateway === undefined || route.gateway === key.gateway)
  );
}

export class MemoryRules implements Rules {
  #rules: Rule[] = ([4, 6] as const).flatMap((version): Rule[] => [
    { version, priority: 0, action: "table", table: 255, protocol: RTPROT_KERNEL },
    { version, priority: 32766, action: "table", table: RT_TABLE_MAIN, protocol: RTPROT_KERNEL },
    ...(version === 4
      ? [{ version, priority: 32767, action: "table", table: 253, protocol: RTPROT_KERNEL } as const]
      : []),
  ]);

  list(version: IpVersion): Rule[] {
    return this.#rules.filter((rule) => rule.version === version).sort((a, b) => a.priority - b.priority);
  }
  add(rule: Rule): void {
    if (this.#rules.some((r) => sameRule(r, rule))) throw new NetlinkError(`add rule ${rule.priority}`, "EEXIST");
    this.#rules.push({ protocol: 0, ...rule });
  }
  delete(rule: Rule): void {
    const kept = this.#rules.filter((r) => !sameRule(r, rule));
    if (kept.length === this.#rules.length) throw new NetlinkError(`delete rule ${rule.priority}`, "ENOENT");
    this.#rules = kept;
  }
}

const sameRule = (a: Rule, b: Rule): boolean => JSON.stringify(ruleKey(a)) === JSON.stringify(ruleKey(b));
const ruleKey = (r: Rule): unknown[] => [
  r.version,
  r.priority,
  r.action,
  r.table,
  r.goto,
  r.source,
  r.destination,
  r.incoming,
  r.outgoing,
  r.mark?.value,
  r.mark?.mask,
  r.inverted ?? false,
  r.suppressPrefixLength,
];
