// Taking a link away without waiting for the kernel to bury it. Once unregistered a device is gone for everybody, but
// the request only returns after the kernel has waited for all processors to forget it (15 ms and more). So the
// request is sent by another thread, and we are done when nobody can see the link any more.
import { setTimeout as sleep } from "node:timers/promises";
import { NetlinkLinks, RTM_DELLINK, writeLinkTarget } from "./links.ts";
import { withNamespace } from "./namespace.ts";
import { isGone } from "./netlink-error.ts";
import { NETLINK_ROUTE, NetlinkSocket } from "./netlink-socket.ts";

/** Resolves when the link is gone for every observer; one that was not there is gone already. */
export async function removeLink(name: string, namespace?: { readonly fd: number }): Promise<void> {
  const open = (): NetlinkSocket => NetlinkSocket.open(NETLINK_ROUTE, { strict: true });
  const openThere = (): NetlinkSocket => (namespace === undefined ? open() : withNamespace(namespace, open));
  using observer = openThere();
  const links = new NetlinkLinks(observer);
  if (links.get(name) === undefined) return;

  const sender = openThere();
  let isAnswered = false;
  const answered = sendDelete(sender, name).finally(() => {
    isAnswered = true;
    sender[Symbol.dispose]();
  });
  answered.catch(() => {}); // read below, unless the link is gone before
  while (!isAnswered) {
    if (links.get(name) === undefined) return;
    await sleep(0);
  }
  await answered;
}

async function sendDelete(socket: NetlinkSocket, name: string): Promise<void> {
  try {
    await socket.requestAside({
      what: `delete link ${name}`,
      type: RTM_DELLINK,
      body: (w) => writeLinkTarget(w, name),
    });
  } catch (error) {
    if (!isGone(error)) throw error;
  }
}
