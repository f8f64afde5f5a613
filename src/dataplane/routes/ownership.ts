// Whose a route in the main table is. The kernel has no names for owners, so protocol numbers and interfaces tell.
import type { Route } from "../../kernel/index.ts";
import type { RouteOwnership } from "./route-table.ts";

/** Our number for routes that no other program writes. */
export const EXCLUSIVE_PROTOCOL = 80;
const RTPROT_BOOT = 3;
const RTPROT_BIRD = 12;

export interface OwnershipOptions {
  readonly deviceRouteProtocol: number;
  readonly removeExternalRoutes: boolean;
  readonly isWorkload: (interfaceName: string) => boolean;
  /** Workloads that speak BGP with the host: BIRD's routes lead to them. */
  readonly isBgpPeer: (interfaceName: string) => boolean;
  /** Felix, not BIRD, writes routes over IPIP. */
  readonly ownsIpip: boolean;
}

export const exclusiveProtocol = (deviceRouteProtocol: number): number =>
  deviceRouteProtocol === RTPROT_BOOT ? EXCLUSIVE_PROTOCOL : deviceRouteProtocol;

export function mainTableOwnership(options: OwnershipOptions): RouteOwnership {
  const exclusive = exclusiveProtocol(options.deviceRouteProtocol);
  return {
    isOurs(route: Route, name: string | undefined): boolean {
      if (route.destination === "fe80::/64") return false; // the kernel's, on every interface
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
