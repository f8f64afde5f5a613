// Deletes a link without waiting until the kernel has unregistered it completely.
//
// A deleted device disappears for every process after about 1 ms, but the request returns only after the kernel has waited
// for RCU grace periods on all CPUs, 15 ms or more (`netdev_run_todo` in net/core/dev.c). So another thread sends the
// request, and the deletion counts as done when the link is no longer visible.
//
// Visibility is read from a file: a netlink request would wait for the RTNL lock, which the kernel holds while it deletes
// the link, and would block this thread.
import { closeSync, readSync } from "node:fs";
import { delay } from "../../lib/retry.ts";
import { isLinkName, RTM_DELLINK, writeLinkTarget } from "./links.ts";
import { openInNamespace, type NamespaceHandle } from "../sys/namespace.ts";
import { isGone, checkSyscall } from "../sys/kernel-error.ts";
import { NETLINK_ROUTE, NetlinkSocket } from "../netlink/netlink-socket.ts";
import { cString } from "../sys/sys.ts";

/** The first polls follow each other without a delay, because a single link is deleted at once. */
const IMMEDIATE_POLLS = 4;
const MAX_POLL_DELAY_MS = 8;

/**
 * Resolves when the link has no name, address or route any more, or if it does not exist.
 * @param onSent receives a promise that settles when the kernel has unregistered the link and the thread is free again
 */
export async function removeLink(
  name: string,
  namespace?: NamespaceHandle,
  onSent?: (unregistered: Promise<void>) => void,
): Promise<void> {
  if (!isLinkName(name)) return;
  using names = new LinkNames(namespace);
  if (!names.has(name)) return;
  const socket = NetlinkSocket.open(NETLINK_ROUTE, { namespace });
  const unregistered = sendDelete(socket, name).finally(() => socket[Symbol.dispose]());
  onSent?.(unregistered);
  await waitUntilGone(() => !names.has(name), unregistered);
}

/**
 * Polls until `isGoneNow` returns true or the kernel has replied.
 * @param unregistered the kernel's reply; its error is thrown if the reply comes first
 */
export async function waitUntilGone(isGoneNow: () => boolean, unregistered: Promise<void>): Promise<void> {
  let hasReplied = false;
  const reply = unregistered.finally(() => {
    hasReplied = true;
  });
  reply.catch(() => {}); // not awaited if the link disappears before the reply
  for (let polls = 1; !hasReplied; polls++) {
    if (isGoneNow()) return;
    await delay(polls <= IMMEDIATE_POLLS ? 0 : Math.min(polls - IMMEDIATE_POLLS, MAX_POLL_DELAY_MS));
  }
  await reply;
}

const DEVICES = "/proc/thread-self/net/dev";

/** The names of a namespace's links, read from /proc/net/dev (proc_pid_net(5)). */
export class LinkNames implements Disposable {
  readonly #file: number;

  constructor(namespace?: NamespaceHandle) {
    const file = { kind: "file", path: cString(DEVICES), flags: 0 } as const;
    this.#file = checkSyscall(openInNamespace(namespace, file), `open ${DEVICES}`);
  }

  has(name: string): boolean {
    const start = `${Buffer.from(name).toString("latin1")}:`;
    return this.#read()
      .split("\n")
      .some((line) => line.trimStart().startsWith(start));
  }

  #read(): string {
    let text = "";
    const chunk = Buffer.allocUnsafe(16 * 1024);
    for (let length = 1; length > 0; ) {
      length = readSync(this.#file, chunk, 0, chunk.length, text.length);
      text += chunk.toString("latin1", 0, length);
    }
    return text;
  }

  [Symbol.dispose](): void {
    closeSync(this.#file);
  }
}

async function sendDelete(socket: NetlinkSocket, name: string): Promise<void> {
  try {
    await socket.requestOffThread({
      operation: `delete link ${name}`,
      type: RTM_DELLINK,
      body: (w) => writeLinkTarget(w, name),
    });
  } catch (error) {
    if (!isGone(error)) throw error;
  }
}
