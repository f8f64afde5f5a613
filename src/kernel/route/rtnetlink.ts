// Opens an rtnetlink socket (rtnetlink(7)) of one network namespace, and the objects that are managed over it.
import { type Addresses, NetlinkAddresses } from "./addresses.ts";
import { type Links, NetlinkLinks, type NewLink } from "./links.ts";
import type { NamespaceHandle } from "../sys/namespace.ts";
import { type Neighbours, NetlinkNeighbours } from "./neighbours.ts";
import { NETLINK_ROUTE, NetlinkSocket } from "../netlink/netlink-socket.ts";
import { NetlinkRoutes, type Routes } from "./routes.ts";
import { NetlinkRules, type Rules } from "./rules.ts";

export interface Rtnetlink extends Disposable {
  readonly links: Links;
  readonly addresses: Addresses;
  readonly routes: Routes;
  readonly rules: Rules;
  readonly neighbours: Neighbours;
  /** `links.create` off-thread. No other method of this object may be called until the promise is settled. */
  createLinkOffThread(link: NewLink): Promise<void>;
}

/** @param namespace by default that of the calling thread */
export function openRtnetlink(namespace?: NamespaceHandle): Rtnetlink {
  const socket = NetlinkSocket.open(NETLINK_ROUTE, { strict: true, namespace });
  const links = new NetlinkLinks(socket);
  return {
    links,
    addresses: new NetlinkAddresses(socket),
    routes: new NetlinkRoutes(socket),
    rules: new NetlinkRules(socket),
    neighbours: new NetlinkNeighbours(socket),
    createLinkOffThread: (link) => links.createOffThread(link),
    [Symbol.dispose]: () => socket[Symbol.dispose](),
  };
}
