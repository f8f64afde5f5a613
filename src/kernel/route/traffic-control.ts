// Manages the queueing disciplines (tc(8)) of bandwidth limits over rtnetlink. Egress is limited by a token bucket filter
// (tc-tbf(8)). Ingress is redirected to an ifb device, whose token bucket filter limits it.
import type { NamespaceHandle } from "../sys/namespace.ts";
import type { NetlinkMessage, NetlinkReader } from "../netlink/netlink-reader.ts";
import { NETLINK_ROUTE, NetlinkSocket } from "../netlink/netlink-socket.ts";
import { type NetlinkWriter, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE } from "../netlink/netlink-writer.ts";

const RTM_NEWQDISC = 36;
const RTM_DELQDISC = 37;
const RTM_GETQDISC = 38;
const RTM_NEWTFILTER = 44;
const RTM_GETTFILTER = 46;
const TCA_KIND = 1;
const TCA_OPTIONS = 2;
const TCA_TBF_PARMS = 1;
const TBF_PARMS_LENGTH = 36; // tc_tbf_qopt
const TCA_TBF_RATE64 = 4;
const TCA_TBF_PRATE64 = 5;
const TCA_U32_ACT = 7;
const TCA_U32_SEL = 5;
const TCA_ACT_KIND = 1;
const TCA_ACT_OPTIONS = 2;
const TCA_MIRRED_PARMS = 2;
const MIRRED_PARMS_LENGTH = 28; // tc_mirred
const TC_H_ROOT = 0xffffffff;
const TC_H_INGRESS = 0xfffffff1;
const INGRESS_HANDLE = 0xffff0000;
const ROOT_HANDLE = 0x10000; // 1:
const TC_ACT_STOLEN = 4;
const TCA_EGRESS_REDIR = 1;
const ETH_P_ALL_BE = 0x0300;
const HEADER = 20; // tcmsg
const TICKS_PER_MICROSECOND = 15.625; // a tick is 64 ns

export interface TokenBucket {
  readonly bytesPerSecond: bigint;
  /** Size of the queue in bytes. */
  readonly limit: number;
  /** Size of the bucket, as the time that the burst takes at the rate, in ticks of 64 ns. */
  readonly bufferTicks: number;
  /** Maximum rate of a burst; `ticks` is the time of one MTU at that rate. */
  readonly peak?: { readonly bytesPerSecond: bigint; readonly ticks: number };
}

export interface TrafficControl extends Disposable {
  /** Token buckets by link, and the links with an ingress queueing discipline. */
  limitedLinks(): { readonly buckets: ReadonlyMap<number, TokenBucket>; readonly ingress: ReadonlySet<number> };
  /** Undefined if the root queueing discipline is of another kind. */
  tokenBucket(link: number): TokenBucket | undefined;
  setTokenBucket(link: number, bucket: TokenBucket): void;
  deleteTokenBucket(link: number): void;
  /** Returns the index of the device to which all incoming packets are redirected. */
  ingressRedirect(link: number): number | undefined;
  setIngressRedirect(link: number, target: number): void;
  /** Deletes the ingress queueing discipline and its filters. */
  deleteIngress(link: number): void;
}

const MAX_U32 = 0xffff_ffff;

/** Returns the time of a burst at a rate in ticks, at most the kernel's limit of 32 bits (275 s). */
export function burstTicks(bytesPerSecond: number, burstBytes: number): number {
  return Math.min(MAX_U32, Math.floor((burstBytes / bytesPerSecond) * 1e6 * TICKS_PER_MICROSECOND));
}

export function openTrafficControl(namespace?: NamespaceHandle): TrafficControl {
  return new NetlinkTrafficControl(NetlinkSocket.open(NETLINK_ROUTE, { namespace }));
}

interface Target {
  readonly link: number;
  readonly parent: number;
  readonly handle?: number;
  readonly info?: number;
}

class NetlinkTrafficControl implements TrafficControl {
  readonly #socket: NetlinkSocket;
  constructor(socket: NetlinkSocket) {
    this.#socket = socket;
  }

  tokenBucket(link: number): TokenBucket | undefined {
    const body = (w: NetlinkWriter): void => writeTarget(w, { link, parent: 0 });
    return this.#socket.dump(
      { operation: `list queueing disciplines of link ${link}`, type: RTM_GETQDISC, body },
      (message) => (message.i32(4) === link && message.u32(12) === TC_H_ROOT ? parseTokenBucket(message) : undefined),
    )[0];
  }

  limitedLinks(): { readonly buckets: ReadonlyMap<number, TokenBucket>; readonly ingress: ReadonlySet<number> } {
    const buckets = new Map<number, TokenBucket>();
    const ingress = new Set<number>();
    const body = (w: NetlinkWriter): void => writeTarget(w, { link: 0, parent: 0 });
    this.#socket.dump({ operation: "list queueing disciplines of all links", type: RTM_GETQDISC, body }, (message) => {
      const link = message.i32(4);
      const parent = message.u32(12);
      const bucket = parent === TC_H_ROOT ? parseTokenBucket(message) : undefined;
      if (parent === TC_H_INGRESS) ingress.add(link);
      else if (bucket !== undefined) buckets.set(link, bucket);
      return undefined;
    });
    return { buckets, ingress };
  }

  setTokenBucket(link: number, bucket: TokenBucket): void {
    this.#socket.request({
      operation: `set token bucket of ${bucket.bytesPerSecond} B/s on link ${link}`,
      type: RTM_NEWQDISC,
      flags: NLM_F_CREATE | NLM_F_REPLACE,
      body: (w) => {
        writeTarget(w, { link, parent: TC_H_ROOT, handle: ROOT_HANDLE });
        w.string(TCA_KIND, "tbf");
        w.nest(TCA_OPTIONS, () => writeTokenBucket(w, bucket));
      },
    });
  }

  deleteTokenBucket(link: number): void {
    const body = (w: NetlinkWriter): void => writeTarget(w, { link, parent: TC_H_ROOT });
    this.#socket.request({ operation: `delete token bucket of link ${link}`, type: RTM_DELQDISC, body });
  }

  ingressRedirect(link: number): number | undefined {
    const body = (w: NetlinkWriter): void => writeTarget(w, { link, parent: INGRESS_HANDLE });
    return this.#socket.dump(
      { operation: `list filters of link ${link}`, type: RTM_GETTFILTER, body },
      parseRedirect,
    )[0];
  }

  setIngressRedirect(link: number, target: number): void {
    this.#socket.request({
      operation: `add ingress queueing discipline to link ${link}`,
      type: RTM_NEWQDISC,
      flags: NLM_F_CREATE | NLM_F_EXCL,
      body: (w) => {
        writeTarget(w, { link, parent: TC_H_INGRESS, handle: INGRESS_HANDLE });
        w.string(TCA_KIND, "ingress");
      },
    });
    this.#socket.request({
      operation: `redirect ingress of link ${link} to link ${target}`,
      type: RTM_NEWTFILTER,
      flags: NLM_F_CREATE | NLM_F_EXCL,
      body: (w) => {
        writeTarget(w, { link, parent: INGRESS_HANDLE, info: (1 << 16) | ETH_P_ALL_BE });
        w.string(TCA_KIND, "u32");
        w.nest(TCA_OPTIONS, () => {
          w.bytes(TCA_U32_SEL, matchAll());
          w.nest(TCA_U32_ACT, () => w.nest(1, () => writeRedirect(w, target)));
        });
      },
    });
  }

  deleteIngress(link: number): void {
    const body = (w: NetlinkWriter): void => writeTarget(w, { link, parent: TC_H_INGRESS, handle: INGRESS_HANDLE });
    this.#socket.request({ operation: `delete ingress queueing discipline of link ${link}`, type: RTM_DELQDISC, body });
  }

  [Symbol.dispose](): void {
    this.#socket[Symbol.dispose]();
  }
}

function writeTarget(w: NetlinkWriter, { link, parent, handle = 0, info = 0 }: Target): void {
  w.putU32(0); // family and padding
  w.putI32(link);
  w.putU32(handle);
  w.putU32(parent);
  w.putU32(info);
}

/** tc_tbf_qopt: two rates of 12 bytes, limit, buffer, mtu. A rate of more than 32 bits has an attribute of its own. */
function writeTokenBucket(w: NetlinkWriter, bucket: TokenBucket): void {
  const bytes = new Uint8Array(TBF_PARMS_LENGTH);
  const view = new DataView(bytes.buffer);
  const isLarge = bucket.bytesPerSecond > 0xffffffffn;
  view.setUint8(1, 1); // link layer Ethernet: no rate table is needed
  view.setUint32(8, isLarge ? 0xffffffff : Number(bucket.bytesPerSecond), true);
  view.setUint32(24, bucket.limit, true);
  view.setUint32(28, bucket.bufferTicks, true);
  const { peak } = bucket;
  const isPeakLarge = peak !== undefined && peak.bytesPerSecond > 0xffffffffn;
  if (peak !== undefined) {
    view.setUint8(13, 1);
    view.setUint32(20, isPeakLarge ? 0xffffffff : Number(peak.bytesPerSecond), true);
    view.setUint32(32, peak.ticks, true);
  }
  w.bytes(TCA_TBF_PARMS, bytes);
  if (isLarge) w.u64(TCA_TBF_RATE64, bucket.bytesPerSecond);
  if (peak !== undefined && isPeakLarge) w.u64(TCA_TBF_PRATE64, peak.bytesPerSecond);
}

export function parseTokenBucket(message: NetlinkMessage): TokenBucket | undefined {
  let kind = "";
  let options: NetlinkReader | undefined;
  const a = message.attributes(HEADER);
  while (a.next())
    if (a.type === TCA_KIND) kind = a.string();
    else if (a.type === TCA_OPTIONS) options = a.nested();
  if (kind !== "tbf" || options === undefined) return undefined;
  let bucket: TokenBucket | undefined;
  while (options.next())
    if (options.type === TCA_TBF_PARMS && options.length >= TBF_PARMS_LENGTH) {
      const view = new DataView(options.bytes().buffer);
      bucket = {
        bytesPerSecond: BigInt(view.getUint32(8, true)),
        limit: view.getUint32(24, true),
        bufferTicks: view.getUint32(28, true),
        ...(view.getUint32(20, true) === 0
          ? {}
          : { peak: { bytesPerSecond: BigInt(view.getUint32(20, true)), ticks: view.getUint32(32, true) } }),
      };
    } else if (options.type === TCA_TBF_RATE64 && bucket !== undefined)
      bucket = { ...bucket, bytesPerSecond: options.u64() };
    else if (options.type === TCA_TBF_PRATE64 && bucket?.peak !== undefined)
      bucket = { ...bucket, peak: { ...bucket.peak, bytesPerSecond: options.u64() } };
  return bucket;
}

/** A tc_u32_sel of 16 bytes with one key of 16 bytes whose mask is 0. */
function matchAll(): Uint8Array {
  const bytes = new Uint8Array(32);
  bytes[0] = 1; // TC_U32_TERMINAL
  bytes[2] = 1; // keys
  return bytes;
}

function writeRedirect(w: NetlinkWriter, target: number): void {
  w.string(TCA_ACT_KIND, "mirred");
  w.nest(TCA_ACT_OPTIONS, () => {
    const bytes = new Uint8Array(MIRRED_PARMS_LENGTH);
    const view = new DataView(bytes.buffer);
    view.setInt32(8, TC_ACT_STOLEN, true);
    view.setInt32(20, TCA_EGRESS_REDIR, true);
    view.setUint32(24, target, true);
    w.bytes(TCA_MIRRED_PARMS, bytes);
  });
}

export function parseRedirect(message: NetlinkMessage): number | undefined {
  const step = (a: NetlinkReader | undefined, type: number): NetlinkReader | undefined => {
    while (a?.next()) if (a.type === type) return a.nested();
    return undefined;
  };
  const action = step(step(step(message.attributes(HEADER), TCA_OPTIONS), TCA_U32_ACT), 1);
  const options = step(action, TCA_ACT_OPTIONS);
  while (options?.next())
    if (options.type === TCA_MIRRED_PARMS && options.length >= MIRRED_PARMS_LENGTH)
      return new DataView(options.bytes().buffer).getUint32(24, true);
  return undefined;
}
