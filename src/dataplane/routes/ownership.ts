// Decides which routes of the main table calico-ts owns, by route protocol and interface.
import type { Route } from "../../kernel/index.ts";
import type { RouteOwnership } from "./route-table.ts";

/** The route protocol for routes that no other program writes. */
export const EXCLUSIVE_PROTOCOL = 80;
const RTPROT_BOOT = 3;
const RTPROT_BIRD = 12;

export interface OwnershipOptions {
  readonly deviceRouteProtocol: number;
  readonly removeExternalRoutes: boolean;
  readonly isWorkload: (interfaceName: string) => boolean;
  /** True for workloads with a BGP session to the host. BIRD writes routes to them. */
  readonly isBgpPeer: (interfaceName: string) => boolean;
  /** Felix, not BIRD, writes routes over IPIP. */
  readonly ownsIpip: boolean;
}

export const exclusiveProtocol = (deviceRouteProtocol: number): number =>
  deviceRouteProtocol === RTPROT_BOOT ? EXCLUSIVE_PROTOCOL : deviceRouteProtocol;

export function mainTableOwnership(options: OwnershipOptions): RouteOwnership {
  const exclusive = exclusiveProtocol(options.deviceRouteProtocol);
  return {
    isOwned(route: Route, name: string | undefined): boolean {
      if (route.destination === "fe80::/64") return false; // written by the kernel on every interface
      if (route.protocol === exclusive) return true;
      if (name === undefined) return false;
      if (options.isWorkload(name)) {
        if (route.protocol === RTPROT_BOOT || route.protocol === EXCLUSIVE_PROTOCOL) return true;
        if (!options.removeExternalRoutes) return false;
        return !(options.isBgpPeer(name) && route.protocol === RTPROT_BIRD);
      }
      if (name === "vxlan.calico" || name === "vxlan-v6.calico") return route.protocol !== RTPROT_KERNEL;
      return name === "tunl0" && options.ownsIpip && route.protocol === RTPROT_BIRD;
    },
    hasGrace: options.isWorkload,
  };
}
const RTPROT_KERNEL = 2;
