// Deletes the links of many pods in groups. While the kernel deletes links, further removals are queued, and are then
// deleted together. For each request the kernel waits for several RCU grace periods, no matter how many links the request
// deletes: ten requests for ten links take 190 ms, one request for a group of ten takes 12 to 19 ms.
//
// A link is invisible after 1 ms, but its request occupies a thread of the pool (`sys/thread-pool.ts`) for 20 ms, until the
// kernel has unregistered the device. The next removal does not wait for that, unless many requests are in flight.
//
// One request deletes a group of links in one namespace (IFLA_GROUP). Each pod has a namespace of its own, but the host ends
// of all their veth pairs are in one: the host ends are put into a new group, and the pod ends are deleted with them. The
// host end is identified by its index and namespace ID, not by its name, which a new container of the pod may use again.
import { delay } from "../../lib/retry.ts";
import { parseLink, IFLA_GROUP, RTM_DELLINK, RTM_GETLINK, RTM_NEWLINK, writeLinkTarget } from "./links.ts";
import { LinkNames, removeLink, waitUntilGone } from "./remove-link.ts";
import { NetworkNamespace, type NamespaceHandle } from "../sys/namespace.ts";
import { NetlinkError } from "../sys/kernel-error.ts";
import { NETLINK_ROUTE, NetlinkSocket } from "../netlink/netlink-socket.ts";

const RTM_NEWNSID = 88;
const RTM_GETNSID = 90;
const NETNSA_NSID = 1;
const NETNSA_FD = 3;

interface PendingRemoval {
  readonly name: string;
  /** Open until the link is gone. */
  readonly namespace: NamespaceHandle;
  readonly resolve: () => void;
  readonly reject: (reason: unknown) => void;
}

interface VethRemoval {
  readonly removal: PendingRemoval;
  /** Index of the other end, in the host's namespace. */
  readonly hostIndex: number;
}

/** Half of the thread pool, which other work needs too. */
const MAX_UNREGISTERING = 8;
/** The kernel never unregisters a device that something still refers to. Other removals do not wait for it any longer. */
const MAX_WAIT_MS = 1000;

export class LinkRemovalQueue {
  readonly #host: NamespaceHandle | undefined;
  #isRunning = false;
  #queue: PendingRemoval[] = [];
  /** The kernel's replies that are still awaited. */
  readonly #unregistering = new Set<Promise<void>>();

  /** @param host namespace of the host ends; by default that of the calling thread */
  constructor(host?: NamespaceHandle) {
    this.#host = host;
  }

  /** Resolves when no process can see the link any more, or if it does not exist. */
  readonly remove = (name: string, namespace: NamespaceHandle): Promise<void> =>
    new Promise((resolve, reject) => {
      this.#queue.push({ name, namespace, resolve, reject });
      if (!this.#isRunning) void this.#run();
    });

  async #run(): Promise<void> {
    this.#isRunning = true;
    while (this.#queue.length > 0) {
      if (this.#unregistering.size >= MAX_UNREGISTERING)
        await Promise.race([...this.#unregistering, delay(MAX_WAIT_MS)]);
      const batch = this.#queue;
      this.#queue = [];
      const [first] = batch;
      try {
        if (batch.length === 1 && first !== undefined) await this.#removeOne(first);
        else await this.#removeBatch(batch);
      } catch (error) {
        for (const removal of batch) removal.reject(error); // no effect on those that are settled
      }
    }
    this.#isRunning = false;
  }

  async #removeBatch(batch: readonly PendingRemoval[]): Promise<void> {
    using current = NetworkNamespace.current();
    const host = this.#host ?? current;
    const group: VethRemoval[] = [];
    const single: PendingRemoval[] = [];
    for (const removal of batch)
      try {
        const hostEnd = await findHostEnd(removal, host);
        if (hostEnd.kind === "linkGone") removal.resolve();
        else if (hostEnd.kind === "notOnHost") single.push(removal);
        else group.push({ removal, hostIndex: hostEnd.index });
      } catch (error) {
        removal.reject(error);
      }
    // If the group is rejected because of one link, the others are still deleted, and only that one reports the error.
    if (group.length > 0 && !(await removeGroup(host, group, this.#track)))
      single.push(...group.map(({ removal }) => removal));
    for (const removal of single) await this.#removeOne(removal);
  }

  async #removeOne({ name, namespace, resolve, reject }: PendingRemoval): Promise<void> {
    try {
      await removeLink(name, namespace, this.#track);
      resolve();
    } catch (error) {
      reject(error);
    }
  }

  readonly #track = (unregistered: Promise<void>): void => {
    // An error is reported by the removal that sent the request.
    const settled = unregistered.catch(() => {}).finally(() => this.#unregistering.delete(settled));
    this.#unregistering.add(settled);
  };
}

type HostEnd =
  | { readonly kind: "found"; readonly index: number }
  | { readonly kind: "linkGone" }
  /** The link is not one end of a pair, or its other end is in a third namespace. */
  | { readonly kind: "notOnHost" };

async function findHostEnd({ name, namespace }: PendingRemoval, host: NamespaceHandle): Promise<HostEnd> {
  using socket = NetlinkSocket.open(NETLINK_ROUTE, { namespace });
  const writer = socket.startOffThreadBatch();
  writer.message(RTM_GETLINK, 0, () => writeLinkTarget(writer, name));
  writer.message(RTM_GETNSID, 0, () => {
    writer.putZero(4); // rtgenmsg
    writer.u32(NETNSA_FD, host.fd);
  });
  let link: ReturnType<typeof parseLink>;
  let hostId = -1;
  const rejected = await socket.sendBatchOffThread(writer, `find the other end of ${name}`, (reply) => {
    if (reply.type !== RTM_NEWNSID) link ??= parseLink(reply);
    else for (const a = reply.attributes(4); a.next(); ) if (a.type === NETNSA_NSID) hostId = a.i32();
  });
  if (rejected.some(({ index, errno }) => index === 0 && errno === "ENODEV")) return { kind: "linkGone" };
  // `peer` of other kinds, such as macvlan, is the device below them, which belongs to the host.
  const isPair = link?.kind === "veth" || link?.kind === "netkit";
  if (!isPair || link?.peer === undefined || hostId < 0 || link.peerNamespaceId !== hostId)
    return { kind: "notOnHost" };
  return { kind: "found", index: link.peer };
}

/**
 * Deletes the host ends with one request, and settles the removals of the pod ends.
 * @returns false if the kernel rejected the request; some links may be deleted
 */
async function removeGroup(
  host: NamespaceHandle,
  group: readonly VethRemoval[],
  onSent: (unregistered: Promise<void>) => void,
): Promise<boolean> {
  const socket = NetlinkSocket.open(NETLINK_ROUTE, { namespace: host });
  const hostIndexes = group.map(({ hostIndex }) => hostIndex);
  const unregistered = sendGroupDelete(socket, hostIndexes).finally(() => socket[Symbol.dispose]());
  onSent(unregistered);
  try {
    await settleWhenGone(
      group.map(({ removal }) => removal),
      unregistered,
    );
    return true;
  } catch {
    return false;
  }
}

/** Puts the links into a new group and deletes the group, in one datagram. */
async function sendGroupDelete(socket: NetlinkSocket, indexes: readonly number[]): Promise<void> {
  const group = newGroupNumber();
  const writer = socket.startOffThreadBatch();
  for (const index of indexes)
    writer.message(RTM_NEWLINK, 0, () => {
      writeLinkTarget(writer, index);
      writer.u32(IFLA_GROUP, group);
    });
  writer.message(RTM_DELLINK, 0, () => {
    writeLinkTarget(writer, 0);
    writer.u32(IFLA_GROUP, group);
  });
  const operation = `delete ${indexes.length} links`;
  const rejected = await socket.sendBatchOffThread(writer, operation);
  const error = rejected.find(({ errno }) => errno !== "ENODEV"); // ENODEV: deleted by another process
  if (error !== undefined) throw new NetlinkError(operation, error.errno, error.extack);
}

/** Random, so that the group never contains links of another program. The highest bit avoids small, configured numbers. */
function newGroupNumber(): number {
  const [random = 0] = crypto.getRandomValues(new Uint32Array(1));
  return (random | 0x80000000) >>> 0;
}

/** Resolves each removal when its link is gone; rejects those whose link still exists after the kernel's reply. */
async function settleWhenGone(removals: readonly PendingRemoval[], unregistered: Promise<void>): Promise<void> {
  using files = new DisposableStack();
  const remaining = removals.map((removal) => ({ removal, names: files.use(new LinkNames(removal.namespace)) }));
  // The links of a group disappear at the same time: only one is polled, and the others are checked when it is gone.
  const areGone = (): boolean => {
    for (let last = remaining.at(-1); last !== undefined; last = remaining.at(-1)) {
      if (last.names.has(last.removal.name)) return false;
      last.removal.resolve();
      remaining.pop();
    }
    return true;
  };
  await waitUntilGone(areGone, unregistered);
  if (areGone()) return;
  for (const { removal } of remaining) removal.reject(new NetlinkError(`delete link ${removal.name}`, "EBUSY"));
}
