// Taking many links away: while the kernel takes one, those that come meanwhile gather, and then go together. It waits for
// all processors several times for each request, whatever that deletes: ten links one by one take ten times as long
// (190 ms) as ten of one group (12 to 19).
//
// A link is gone after one millisecond and buried after twenty, for which the request holds a thread (`asides.ts`). The next
// link goes meanwhile; only when many are being buried those that come gather.
//
// A request deletes a group of one namespace. Pods have a namespace each, but the other ends of their wires are all in
// ours: those are put into a group of their own, and the pods' ends go with them. That an end is here is the kernel's word,
// not a name's: a pod's new container may have a wire of the same name.
import { delay } from "../lib/retry.ts";
import { parseLink, IFLA_GROUP, RTM_DELLINK, RTM_GETLINK, RTM_NEWLINK, writeLinkTarget } from "./links.ts";
import { LinkNames, removeLink, untilGone } from "./link-removal.ts";
import { NetworkNamespace, type Place } from "./namespace.ts";
import { NetlinkError } from "./netlink-error.ts";
import { NETLINK_ROUTE, NetlinkSocket } from "./netlink-socket.ts";

const RTM_NEWNSID = 88;
const RTM_GETNSID = 90;
const NETNSA_NSID = 1;
const NETNSA_FD = 3;

interface Doomed {
  readonly name: string;
  /** Where it is; open until it is gone. */
  readonly namespace: Place;
  readonly resolve: () => void;
  readonly reject: (reason: unknown) => void;
}

/** Half of the threads there are: others need some too. */
const MOST_BURIALS = 8;
/** A link that something in the kernel holds on to is never buried; others are not to wait for that. */
const LONGEST_WAIT_MS = 1000;

export class LinkRemover {
  #isBusy = false;
  #waiting: Doomed[] = [];
  readonly #burials = new Set<Promise<void>>();
  /** @param here where the other ends are; absent: in the namespace of this thread */
  constructor(readonly here?: Place) {}

  /** Resolves when the link is gone for everybody; one that was not there is gone already. */
  readonly remove = (name: string, namespace: Place): Promise<void> =>
    new Promise((resolve, reject) => {
      this.#waiting.push({ name, namespace, resolve, reject });
      if (!this.#isBusy) void this.#removeAll();
    });

  async #removeAll(): Promise<void> {
    this.#isBusy = true;
    while (this.#waiting.length > 0) {
      if (this.#burials.size >= MOST_BURIALS) await Promise.race([...this.#burials, delay(LONGEST_WAIT_MS)]);
      const doomed = this.#waiting;
      this.#waiting = [];
      const first = doomed.length === 1 ? doomed[0] : undefined;
      try {
        await (first === undefined ? this.#removeTogether(doomed) : this.#removeAlone(first));
      } catch (error) {
        for (const each of doomed) each.reject(error); // those that are answered already stay so
      }
    }
    this.#isBusy = false;
  }

  async #removeTogether(doomed: readonly Doomed[]): Promise<void> {
    using own = NetworkNamespace.current();
    const here = this.here ?? own;
    const peers: number[] = [];
    const together: Doomed[] = [];
    const alone: Doomed[] = [];
    for (const each of doomed)
      try {
        const peer = await peerOf(each, here);
        if (peer === "gone") each.resolve();
        else if (peer === "elsewhere") alone.push(each);
        else {
          peers.push(peer);
          together.push(each);
        }
      } catch (error) {
        each.reject(error);
      }
    if (together.length > 0 && !(await removeGroup(here, peers, together, this.#bury))) alone.push(...together);
    for (const each of alone) await this.#removeAlone(each);
  }

  async #removeAlone({ name, namespace, resolve, reject }: Doomed): Promise<void> {
    try {
      await removeLink(name, namespace, this.#bury);
      resolve();
    } catch (error) {
      reject(error);
    }
  }

  readonly #bury = (buried: Promise<void>): void => {
    const burial = buried.catch(() => {}).finally(() => this.#burials.delete(burial)); // who asked hears of it
    this.#burials.add(burial);
  };
}

/** The index of the other end, if it is in that namespace. */
async function peerOf({ name, namespace }: Doomed, here: Place): Promise<number | "gone" | "elsewhere"> {
  using socket = NetlinkSocket.open(NETLINK_ROUTE, { namespace });
  const writer = socket.batchAside();
  writer.message(RTM_GETLINK, 0, () => writeLinkTarget(writer, name));
  writer.message(RTM_GETNSID, 0, () => {
    writer.putZero(4); // rtgenmsg
    writer.u32(NETNSA_FD, here.fd);
  });
  let link: ReturnType<typeof parseLink>;
  let ourId = -1;
  const faults = await socket.sendBatchAside(writer, `find the other end of ${name}`, (reply) => {
    if (reply.type !== RTM_NEWNSID) link ??= parseLink(reply);
    else for (const a = reply.attributes(4); a.next(); ) if (a.type === NETNSA_NSID) ourId = a.i32();
  });
  if (faults.some(({ index, errno }) => index === 0 && errno === "ENODEV")) return "gone";
  // Of a macvlan or the like it is the host's own device below it.
  const hasOtherEnd = link?.kind === "veth" || link?.kind === "netkit";
  return hasOtherEnd && link?.peer !== undefined && ourId >= 0 && link.peerNamespaceId === ourId
    ? link.peer
    : "elsewhere";
}

/**
 * Links of one namespace, and with them their other ends, which are waited for.
 * @returns false when the kernel refuses to: what keeps one back is to keep not the others, and to be said of that one
 */
async function removeGroup(
  here: Place,
  indexes: readonly number[],
  ends: readonly Doomed[],
  onSent: (buried: Promise<void>) => void,
): Promise<boolean> {
  const socket = NetlinkSocket.open(NETLINK_ROUTE, { namespace: here });
  // A number of its own each time: nobody else's links may ever be in it.
  const group = (crypto.getRandomValues(new Uint32Array(1))[0] ?? 0) | 0x80000000;
  const writer = socket.batchAside();
  for (const index of indexes)
    writer.message(RTM_NEWLINK, 0, () => {
      writeLinkTarget(writer, index);
      writer.u32(IFLA_GROUP, group >>> 0);
    });
  writer.message(RTM_DELLINK, 0, () => {
    writeLinkTarget(writer, 0);
    writer.u32(IFLA_GROUP, group >>> 0);
  });
  const what = `delete ${indexes.length} links`;
  const answered = socket
    .sendBatchAside(writer, what)
    .then((faults) => {
      const fault = faults.find(({ errno }) => errno !== "ENODEV"); // what went by itself is gone
      if (fault !== undefined) throw new NetlinkError(what, fault.errno, fault.extack);
    })
    .finally(() => socket[Symbol.dispose]());
  onSent(answered);
  using own = new DisposableStack();
  try {
    const left = ends.map((end) => ({
      end,
      names: own.use(new LinkNames(end.namespace)),
    }));
    // They vanish together: one is looked at often, the others when it is gone.
    const areGone = (): boolean => {
      for (let last = left.at(-1); last !== undefined; last = left.at(-1)) {
        if (last.names.has(last.end.name)) return false;
        last.end.resolve();
        left.pop();
      }
      return true;
    };
    await untilGone(areGone, answered);
    if (!areGone()) for (const { end } of left) end.reject(new NetlinkError(`delete link ${end.name}`, "EBUSY"));
    return true;
  } catch {
    return false;
  }
}
