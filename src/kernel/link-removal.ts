// Taking a link away without waiting for the kernel to bury it. Once unregistered a device is gone for everybody, but
// the request only returns after the kernel has waited for all processors to forget it (15 ms and more). So the
// request is sent by another thread, and we are done when nobody can see the link any more.
//
// Whether it can still be seen is asked of a file: a question over netlink waits for the lock under which the kernel
// takes the link away, and this thread with it.
import { closeSync, readSync } from "node:fs";
import { delay } from "../lib/retry.ts";
import { isLinkName, RTM_DELLINK, writeLinkTarget } from "./links.ts";
import { openIn, type Place } from "./namespace.ts";
import { isGone, succeed } from "./netlink-error.ts";
import { NETLINK_ROUTE, NetlinkSocket } from "./netlink-socket.ts";
import { cString } from "./sys.ts";

/** Looks at short intervals first: alone, a link is gone at once; among many it waits for its turn. */
const LOOKS_AT_ONCE = 4;
const LONGEST_LOOK_MS = 8;

/**
 * Resolves when the link has no name, no address and no route any more; one that was not there is gone already.
 * @param onSent is given what settles when the kernel has buried it, and the thread that waits for it is free again
 */
export async function removeLink(
  name: string,
  namespace?: Place,
  onSent?: (buried: Promise<void>) => void,
): Promise<void> {
  if (!isLinkName(name)) return;
  using observer = new LinkNames(namespace);
  if (!observer.has(name)) return;
  const sender = NetlinkSocket.open(NETLINK_ROUTE, { namespace });
  const answered = sendDelete(sender, name).finally(() => sender[Symbol.dispose]());
  onSent?.(answered);
  await untilGone(() => !observer.has(name), answered);
}

/** Looks until it is so or the kernel has answered, and then throws what it answered. */
export async function untilGone(isGoneNow: () => boolean, answered: Promise<void>): Promise<void> {
  let isAnswered = false;
  const end = answered.finally(() => {
    isAnswered = true;
  });
  end.catch(() => {}); // read below, unless all is gone before
  for (let look = 1; !isAnswered; look++) {
    if (isGoneNow()) return;
    await delay(look <= LOOKS_AT_ONCE ? 0 : Math.min(look - LOOKS_AT_ONCE, LONGEST_LOOK_MS));
  }
  await end;
}

/** The names of the links of one namespace; absent: that of this thread. */
export class LinkNames implements Disposable {
  readonly #file: number;

  constructor(namespace?: Place) {
    this.#file = succeed(openIn(namespace, { kind: "file", path: cString(DEVICES), flags: 0 }), `open ${DEVICES}`);
  }

  has(name: string): boolean {
    const wanted = `${Buffer.from(name).toString("latin1")}:`;
    return this.#text()
      .split("\n")
      .some((line) => line.trimStart().startsWith(wanted));
  }

  #text(): string {
    let text = "";
    const piece = Buffer.allocUnsafe(16 * 1024);
    for (let length = 1; length > 0; ) {
      length = readSync(this.#file, piece, 0, piece.length, text.length);
      text += piece.toString("latin1", 0, length);
    }
    return text;
  }

  [Symbol.dispose](): void {
    closeSync(this.#file);
  }
}

const DEVICES = "/proc/thread-self/net/dev";

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
