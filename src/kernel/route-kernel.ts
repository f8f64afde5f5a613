// One rtnetlink socket and everything that is spoken over it, for one network namespace.
import { type Addresses, NetlinkAddresses } from "./addresses.ts";
import { type Links, NetlinkLinks, type NewLink } from "./links.ts";
import type { Place } from "./namespace.ts";
import { type Neighbours, NetlinkNeighbours } from "./neighbours.ts";
import { NETLINK_ROUTE, NetlinkSocket } from "./netlink-socket.ts";
import { NetlinkRoutes, type Routes } from "./routes.ts";
import { NetlinkRules, type Rules } from "./rules.ts";

/** The routing half of a namespace's kernel state. */
export interface RouteKernel extends Disposable {
  readonly links: Links;
  readonly addresses: Addresses;
  readonly routes: Routes;
  readonly rules: Rules;
  readonly neighbours: Neighbours;
  /** `links.create` while this thread goes on; nothing else of this kernel may be asked until it is done. */
  createLinkAside(link: NewLink): Promise<void>;
}

/** Opens the kernel of a namespace, or of the calling thread's own. No need to be inside afterwards. */
export function openRouteKernel(namespace?: Place): RouteKernel {
  const socket = NetlinkSocket.open(NETLINK_ROUTE, { strict: true, namespace });
  const links = new NetlinkLinks(socket);
  return {
    links,
    addresses: new NetlinkAddresses(socket),
    routes: new NetlinkRoutes(socket),
    rules: new NetlinkRules(socket),
    neighbours: new NetlinkNeighbours(socket),
    createLinkAside: (link) => links.createAside(link),
    [Symbol.dispose]: () => socket[Symbol.dispose](),
  };
}
