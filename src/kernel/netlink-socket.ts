// A netlink socket: requests with their acknowledgement, dumps that notice when they are no snapshot, batches.
// Everything is synchronous: the kernel handles a request before send() returns, so its answer is already queued.
import { write } from "node:fs";
import { EAGAIN, EINTR, ENOBUFS, errnoName } from "./errno.ts";
import { nextTurn } from "../lib/retry.ts";
import { openIn, type Place } from "./namespace.ts";
import { type ExtendedAck, NetlinkError, succeed } from "./netlink-error.ts";
import { forEachMessage, type NetlinkMessage } from "./netlink-reader.ts";
import { NetlinkWriter, NLM_F_ACK, NLM_F_DUMP } from "./netlink-writer.ts";
import * as sys from "./sys.ts";

export const NETLINK_ROUTE = 0;
export const NETLINK_NETFILTER = 12;
export const NETLINK_GENERIC = 16;

const NLMSG_ERROR = 2;
const NLMSG_DONE = 3;
const NLM_F_DUMP_INTR = 0x10;
const NLM_F_CAPPED = 0x100;
const NLM_F_ACK_TLVS = 0x200;
const SOL_NETLINK = 270;
const SO_RCVTIMEO = 20;
const SO_SNDBUFFORCE = 32;
const SO_RCVBUFFORCE = 33;
const NETLINK_ADD_MEMBERSHIP = 1;
const NETLINK_CAP_ACK = 10;
const NETLINK_EXT_ACK = 11;
const NETLINK_GET_STRICT_CHK = 12;
const RECEIVE_BYTES = 256 * 1024; // more than the kernel ever puts into one datagram
const DUMP_ATTEMPTS = 10;
const SLICE_MS = 10;

/**
 * Receive buffers that are not in use. A socket borrows one while it reads and parses one datagram, which is synchronous.
 * There is more than one only if parsing sends another request. With a buffer per socket, a busy CNI service held up to
 * 38 MB of them between two garbage collections.
 */
const freeBuffers: sys.Bytes[] = [];

function withReceiveBuffer<T>(use: (buffer: sys.Bytes) => T): T {
  const buffer = freeBuffers.pop() ?? sys.allocate(RECEIVE_BYTES);
  try {
    return use(buffer);
  } finally {
    freeBuffers.push(buffer);
  }
}

export interface NetlinkRequest {
  /** In words, for the error: "add route 10.0.0.0/26 dev vxlan.calico". */
  readonly what: string;
  readonly type: number;
  readonly flags?: number;
  /** Puts the family's fixed header and the attributes. */
  readonly body: (w: NetlinkWriter) => void;
}

/** A message of a batch that the kernel refused. */
export interface BatchFault {
  /** Position of the refused message in the batch, from 0. */
  readonly index: number;
  readonly errno: string;
  readonly extack: ExtendedAck;
}

export interface NetlinkOptions {
  /** Kernel-side checks of dump requests, and with them kernel-side filters (rtnetlink). */
  readonly strict?: boolean;
  readonly receiveBufferBytes?: number;
  /** Multicast groups by number (not bit mask). */
  readonly groups?: readonly number[];
  /** How long an answer may take. */
  readonly timeoutMs?: number;
  /** Where; absent: in the calling thread's network namespace. It stays there for good. */
  readonly namespace?: Place | undefined;
}

export class NetlinkSocket implements Disposable {
  readonly fd: number;
  readonly #writer = new NetlinkWriter();
  #sequence = 1;
  #sendBufferBytes = 0;
  #isOpen = true;

  private constructor(fd: number) {
    this.fd = fd;
  }

  static open(protocol: number, options: NetlinkOptions = {}): NetlinkSocket {
    const what = { kind: "socket", family: sys.AF_NETLINK, type: sys.SOCK_RAW, protocol } as const;
    const fd = succeed(openIn(options.namespace, what), `open netlink socket ${protocol}`);
    const socket = new NetlinkSocket(fd);
    try {
      const address = sys.allocate(12); // sockaddr_nl: the kernel chooses the port
      new DataView(address.buffer).setUint16(0, sys.AF_NETLINK, true);
      succeed(sys.bind(fd, address), `bind netlink socket ${protocol}`);
      succeed(sys.setsockoptInt(fd, SOL_NETLINK, NETLINK_CAP_ACK, 1), "ask for capped acknowledgements");
      succeed(sys.setsockoptInt(fd, SOL_NETLINK, NETLINK_EXT_ACK, 1), "ask for extended acknowledgements");
      if (options.strict === true)
        succeed(sys.setsockoptInt(fd, SOL_NETLINK, NETLINK_GET_STRICT_CHK, 1), "ask for strict dump requests");
      // Without CAP_NET_ADMIN of the first user namespace the limit of the system stays: not an error.
      sys.setsockoptInt(fd, sys.SOL_SOCKET, SO_RCVBUFFORCE, options.receiveBufferBytes ?? 4 << 20);
      sys.setsockopt(fd, sys.SOL_SOCKET, SO_RCVTIMEO, timeval(options.timeoutMs ?? 10_000));
      for (const group of options.groups ?? []) socket.join(group);
      return socket;
    } catch (error) {
      socket[Symbol.dispose]();
      throw error;
    }
  }

  join(group: number): void {
    succeed(
      sys.setsockoptInt(this.fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, group),
      `join netlink multicast group ${group}`,
    );
  }

  /** One request; its acknowledgement is awaited. Replies before it go to `each`. */
  request(request: NetlinkRequest, each?: (reply: NetlinkMessage) => void): void {
    this.#acknowledge(request, this.#send(request, NLM_F_ACK), each);
  }

  /**
   * One request that another thread sends, so that ours goes on while the kernel works. The socket is not to be used
   * until the promise is settled.
   * @param along sent in the same datagram, so that no kill comes between; what the kernel says to it is not heard
   */
  async requestAside(request: NetlinkRequest, along?: NetlinkRequest): Promise<void> {
    const writer = new NetlinkWriter(this.#sequence);
    writer.message(request.type, (request.flags ?? 0) | NLM_F_ACK, () => request.body(writer));
    if (along !== undefined) writer.message(along.type, along.flags ?? 0, () => along.body(writer));
    await this.#transmitAside(writer, request.what);
    this.#acknowledge(request, writer.firstSequence);
  }

  #acknowledge(
    request: NetlinkRequest,
    sequence: number,
    each?: (reply: NetlinkMessage) => void,
    expected?: string,
  ): void {
    let isDone = false;
    let failure: NetlinkError | undefined;
    while (!isDone)
      this.#receive(request.what, (message) => {
        if (isDone || message.sequence !== sequence) return;
        if (message.type !== NLMSG_ERROR) return each?.(message);
        isDone = true;
        const errno = -message.i32(0);
        if (errno === 0) return;
        const name = errnoName(errno);
        if (name !== expected) failure = new NetlinkError(request.what, name, extendedAck(message));
      });
    if (failure !== undefined) throw failure;
  }

  /**
   * A GET that has one reply, parsed; nothing when the kernel answers with none.
   * @param none the errno by which it says so: no error is made of it, which costs more than asking did
   */
  query<T>(request: NetlinkRequest, parse: (reply: NetlinkMessage) => T, none?: string): T | undefined {
    let value: T | undefined;
    const each = (reply: NetlinkMessage): void => {
      value ??= parse(reply);
    };
    this.#acknowledge(request, this.#send(request, NLM_F_ACK), each, none);
    return value;
  }

  /** Everything the kernel lists for the request; what `parse` leaves undefined is left out. */
  dump<T>(request: NetlinkRequest, parse: (reply: NetlinkMessage) => T | undefined): T[] {
    for (let attempt = 1; ; attempt++) {
      const items: T[] = [];
      const dump = this.#startDump(request, (reply) => {
        const item = parse(reply);
        if (item !== undefined) items.push(item);
      });
      while (!dump.receive());
      if (dump.isConsistent()) return items;
      failAfterLast(request, attempt);
    }
  }

  /**
   * Reads a large dump in slices, between which other tasks of the event loop run. The socket must not be used until the
   * promise is settled.
   * @param each may see an object more than once: a dump that was not consistent is repeated
   */
  async dumpInSlices(request: NetlinkRequest, each: (reply: NetlinkMessage) => void): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      const dump = this.#startDump(request, each);
      let sliceEndMs = performance.now() + SLICE_MS;
      while (!dump.receive()) {
        if (performance.now() < sliceEndMs) continue;
        await nextTurn();
        sliceEndMs = performance.now() + SLICE_MS;
      }
      if (dump.isConsistent()) return;
      failAfterLast(request, attempt);
    }
  }

  /** `receive` reads one datagram and returns whether it was the last. */
  #startDump(
    request: NetlinkRequest,
    each: (reply: NetlinkMessage) => void,
  ): { receive(): boolean; isConsistent(): boolean } {
    const sequence = this.#send(request, NLM_F_DUMP);
    let isConsistent = true;
    let isDone = false;
    let failure: NetlinkError | undefined;
    const receive = () => {
      this.#receive(request.what, (message) => {
        if (isDone || message.sequence !== sequence) return;
        // A dump is no snapshot: if the table changed meanwhile, the kernel sets this flag on some message, even the
        // last. Trusting such a dump would make us delete live routes.
        // https://docs.kernel.org/userspace-api/netlink/intro.html#dump-consistency
        if ((message.flags & NLM_F_DUMP_INTR) !== 0) isConsistent = false;
        const type = message.type;
        if (type === NLMSG_DONE || type === NLMSG_ERROR) {
          isDone = true;
          const errno = -message.i32(0);
          if (errno !== 0) failure = new NetlinkError(request.what, errnoName(errno), extendedAck(message));
          return;
        }
        each(message);
      });
      if (failure !== undefined) throw failure;
      return isDone;
    };
    return { receive, isConsistent: () => isConsistent };
  }

  /** A writer for one batch. It stays good until the socket writes again. */
  batch(): NetlinkWriter {
    this.#writer.reset(this.#sequence);
    return this.#writer;
  }

  /**
   * Sends all messages of the writer at once. They should ask for no acknowledgement: the kernel has handled the whole
   * batch when send() returns, so what it refused is queued already and is read without waiting.
   */
  sendBatch(writer: NetlinkWriter, what: string): BatchFault[] {
    if (writer.messages === 0) return [];
    this.#transmit(writer, what);
    return this.#faults(writer, what);
  }

  /** A writer of its own for one batch that `sendBatchAside` will send, made when the last such was sent. */
  batchAside(): NetlinkWriter {
    return new NetlinkWriter(this.#sequence);
  }

  /** `sendBatch` by another thread, as `requestAside`. Replies go to `each`. */
  async sendBatchAside(
    writer: NetlinkWriter,
    what: string,
    each?: (reply: NetlinkMessage) => void,
  ): Promise<BatchFault[]> {
    if (writer.messages === 0) return [];
    await this.#transmitAside(writer, what);
    return this.#faults(writer, what, each);
  }

  #faults(writer: NetlinkWriter, what: string, each?: (reply: NetlinkMessage) => void): BatchFault[] {
    const first = writer.firstSequence;
    const faults: BatchFault[] = [];
    while (
      this.#receiveNow(what, (message) => {
        const index = message.sequence - first;
        if (index < 0 || index >= writer.messages) return;
        if (message.type !== NLMSG_ERROR) return each?.(message);
        const errno = -message.i32(0);
        if (errno !== 0) faults.push({ index, errno: errnoName(errno), extack: extendedAck(message) });
      })
    );
    return faults;
  }

  /**
   * Reads all events that wait, without blocking. "overrun": the kernel dropped some because we were slow, so only a
   * new dump tells the truth; the rest of the queue is then still read.
   */
  drain(each: (event: NetlinkMessage) => void): "drained" | "overrun" {
    let outcome: "drained" | "overrun" = "drained";
    return withReceiveBuffer((buffer) => {
      for (;;) {
        const length = sys.recv(this.fd, buffer, sys.MSG_DONTWAIT);
        if (length === -EAGAIN) return outcome;
        if (length === -EINTR) continue;
        if (length === -ENOBUFS) outcome = "overrun";
        else if (length < 0) throw new NetlinkError("read events", errnoName(-length));
        else forEachMessage(buffer, length, each);
      }
    });
  }

  [Symbol.dispose](): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    sys.close(this.fd);
  }

  #send(request: NetlinkRequest, flags: number): number {
    const writer = this.batch();
    writer.message(request.type, (request.flags ?? 0) | flags, () => request.body(writer));
    this.#transmit(writer, request.what);
    return writer.firstSequence;
  }

  #makeReady(writer: NetlinkWriter): void {
    this.#sequence = (writer.firstSequence + writer.messages) >>> 0 || 1;
    if (writer.length > 64 * 1024) this.#raiseSendBuffer(writer.length);
  }

  #transmitAside(writer: NetlinkWriter, what: string): Promise<void> {
    this.#makeReady(writer);
    return new Promise((resolve, reject) => {
      write(this.fd, writer.buffer, 0, writer.length, null, (error) =>
        error === null ? resolve() : reject(new NetlinkError(what, error.code ?? "EIO")),
      );
    });
  }

  #transmit(writer: NetlinkWriter, what: string): void {
    this.#makeReady(writer);
    for (;;) {
      const sent = sys.send(this.fd, writer.buffer, writer.length, 0);
      if (sent === -EINTR) continue;
      if (sent < 0) throw new NetlinkError(what, errnoName(-sent));
      return;
    }
  }

  /** The kernel refuses a datagram larger than the send buffer. */
  #raiseSendBuffer(length: number): void {
    if (length <= this.#sendBufferBytes) return;
    this.#sendBufferBytes = length * 2;
    sys.setsockoptInt(this.fd, sys.SOL_SOCKET, SO_SNDBUFFORCE, this.#sendBufferBytes);
  }

  /** Waits for one datagram. */
  #receive(what: string, each: (message: NetlinkMessage) => void): void {
    withReceiveBuffer((buffer) => {
      for (;;) {
        const length = sys.recv(this.fd, buffer, sys.MSG_TRUNC);
        if (length === -EINTR) continue;
        if (length === -EAGAIN) throw new NetlinkError(what, "ETIMEDOUT", { message: "the kernel did not answer" });
        return deliver(what, buffer, length, each);
      }
    });
  }

  /** One datagram if there is one. */
  #receiveNow(what: string, each: (message: NetlinkMessage) => void): boolean {
    return withReceiveBuffer((buffer) => {
      for (;;) {
        const length = sys.recv(this.fd, buffer, sys.MSG_DONTWAIT | sys.MSG_TRUNC);
        if (length === -EINTR) continue;
        if (length === -EAGAIN) return false;
        deliver(what, buffer, length, each);
        return true;
      }
    });
  }
}

function deliver(what: string, buffer: sys.Bytes, length: number, each: (message: NetlinkMessage) => void): void {
  if (length < 0) throw new NetlinkError(what, errnoName(-length));
  if (length > RECEIVE_BYTES)
    throw new NetlinkError(what, "EMSGSIZE", { message: `an answer of ${length} bytes was cut` });
  forEachMessage(buffer, length, each);
}

/** The kernel's explanation at the end of an error or of the end of a dump. */
export function extendedAck(message: NetlinkMessage): ExtendedAck {
  if ((message.flags & NLM_F_ACK_TLVS) === 0) return {};
  let header = 4; // NLMSG_DONE: only the errno
  if (message.type === NLMSG_ERROR) {
    header = 20; // errno and the header of our request, then the request itself unless it was left out
    if ((message.flags & NLM_F_CAPPED) === 0) header += Math.max(0, message.u32(4) - 16);
  }
  const found: { message?: string; offset?: number; missingType?: number } = {};
  const attributes = message.attributes(header);
  while (attributes.next()) {
    if (attributes.type === 1) found.message = attributes.string();
    else if (attributes.type === 2) found.offset = attributes.u32();
    else if (attributes.type === 5) found.missingType = attributes.u32();
  }
  return found;
}

function timeval(ms: number): sys.Bytes {
  const bytes = sys.allocate(16);
  const view = new DataView(bytes.buffer);
  view.setBigInt64(0, BigInt(Math.floor(ms / 1000)), true);
  view.setBigInt64(8, BigInt((ms % 1000) * 1000), true);
  return bytes;
}

function failAfterLast({ what }: NetlinkRequest, attempt: number): void {
  if (attempt === DUMP_ATTEMPTS)
    throw new NetlinkError(what, "EINTR", { message: `changed during all of ${attempt} dumps` });
}
