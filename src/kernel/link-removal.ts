// Taking a link away without waiting for the kernel to bury it. Once unregistered a device is gone for everybody, but
// the request only returns after the kernel has waited for all processors to forget it (15 ms and more). So the
// request is sent by another thread, and we are done when nobody can see the link any more.
import { write } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { errnoName } from "./errno.ts";
import { NetlinkLinks, RTM_DELLINK, writeLinkTarget } from "./links.ts";
import { withNamespace } from "./namespace.ts";
import { isGone, NetlinkError } from "./netlink-error.ts";
import { forEachMessage } from "./netlink-reader.ts";
import { NETLINK_ROUTE, NetlinkSocket } from "./netlink-socket.ts";
import { NetlinkWriter, NLM_F_ACK } from "./netlink-writer.ts";
import { allocate, MSG_DONTWAIT, recv } from "./sys.ts";

const NLMSG_ERROR = 2;

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
  const what = `delete link ${name}`;
  const w = new NetlinkWriter();
  w.message(RTM_DELLINK, NLM_F_ACK, () => writeLinkTarget(w, name));
  await new Promise<void>((resolve, reject) => {
    write(socket.fd, w.buffer, 0, w.length, null, (error) =>
      error === null ? resolve() : reject(new NetlinkError(what, error.code ?? "EIO")),
    );
  });
  const reply = allocate(4096);
  const length = recv(socket.fd, reply, MSG_DONTWAIT);
  let errno = length < 0 ? -length : 0;
  if (length > 0)
    forEachMessage(reply, length, (message) => {
      if (message.type === NLMSG_ERROR) errno = -message.i32(0);
    });
  const error = new NetlinkError(what, errnoName(errno));
  if (errno !== 0 && !isGone(error)) throw error;
}
