// A netlink socket (netlink(7)): requests with acknowledgement, dumps that are repeated until they are consistent, and
// batches. Calls are synchronous: the kernel handles a request before send() returns, so the reply is already queued. The
// `…OffThread` variants let a thread of the runtime's pool send, so that this thread continues while the kernel works.
import { write } from "node:fs";
import { EAGAIN, EINTR, errnoName } from "../sys/errno.ts";
import { yieldToEventLoop } from "../../lib/retry.ts";
import { openInNamespace, type NamespaceHandle } from "../sys/namespace.ts";
import { type ExtendedAck, NetlinkError, checkSyscall } from "../sys/kernel-error.ts";
import { forEachMessage, type NetlinkMessage } from "./netlink-reader.ts";
import { NetlinkWriter, NLM_F_ACK, NLM_F_DUMP } from "./netlink-writer.ts";
import * as sys from "../sys/sys.ts";

export const NETLINK_ROUTE = 0;
export const NETLINK_NETFILTER = 12;
export const NETLINK_GENERIC = 16;

const NLMSG_ERROR = 2;
const NLMSG_DONE = 3;
const NLM_F_DUMP_INTR = 0x10;
const NLM_F_CAPPED = 0x100;
const NLM_F_ACK_TLVS = 0x200;
const NLMSGERR_ATTR_MSG = 1;
const SOL_NETLINK = 270;
const SO_SNDBUFFORCE = 32;
const SO_RCVBUFFORCE = 33;
const NETLINK_ADD_MEMBERSHIP = 1;
const NETLINK_CAP_ACK = 10;
const NETLINK_EXT_ACK = 11;
const NETLINK_GET_STRICT_CHK = 12;
const RECEIVE_BYTES = 256 * 1024; // larger than any datagram of the kernel
const DUMP_ATTEMPTS = 10;
/** How long a dump is parsed before other tasks of the event loop run. */
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
  /** For error messages: "add route 10.0.0.0/26 dev vxlan.calico". */
  readonly operation: string;
  readonly type: number;
  readonly flags?: number;
  /** Writes the family's fixed header and the attributes. */
  readonly body: (w: NetlinkWriter) => void;
}

/** A message of a batch that the kernel rejected. */
export interface RejectedMessage {
  /** Position of the message in the batch, from 0. */
  readonly index: number;
  readonly errno: string;
  readonly extack: ExtendedAck;
}

export interface NetlinkOptions {
  /** Makes the kernel check dump requests, and filter dumps (rtnetlink only): NETLINK_GET_STRICT_CHK. */
  readonly strict?: boolean;
  readonly receiveBufferBytes?: number;
  /** Multicast groups by number (not bit mask). */
  readonly groups?: readonly number[];
  /** Limit for each reply. */
  readonly timeoutMs?: number;
  /** The socket stays in this namespace; by default that of the calling thread. */
  readonly namespace?: NamespaceHandle;
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
    const netlink = { kind: "socket", family: sys.AF_NETLINK, type: sys.SOCK_RAW, protocol } as const;
    const fd = checkSyscall(openInNamespace(options.namespace, netlink), `open netlink socket ${protocol}`);
    const socket = new NetlinkSocket(fd);
    try {
      const address = sys.allocate(12); // sockaddr_nl: the kernel chooses the port
      new DataView(address.buffer).setUint16(0, sys.AF_NETLINK, true);
      checkSyscall(sys.bind(fd, address), `bind netlink socket ${protocol}`);
      checkSyscall(sys.setsockoptInt(fd, SOL_NETLINK, NETLINK_CAP_ACK, 1), "set NETLINK_CAP_ACK");
      checkSyscall(sys.setsockoptInt(fd, SOL_NETLINK, NETLINK_EXT_ACK, 1), "set NETLINK_EXT_ACK");
      if (options.strict === true)
        checkSyscall(sys.setsockoptInt(fd, SOL_NETLINK, NETLINK_GET_STRICT_CHK, 1), "set NETLINK_GET_STRICT_CHK");
      // Not checked: this needs CAP_NET_ADMIN in the initial user namespace, and the default size works too.
      sys.setsockoptInt(fd, sys.SOL_SOCKET, SO_RCVBUFFORCE, options.receiveBufferBytes ?? 4 << 20);
      sys.setsockopt(fd, sys.SOL_SOCKET, sys.SO_RCVTIMEO, sys.timeval(options.timeoutMs ?? 10_000));
      for (const group of options.groups ?? []) socket.join(group);
      return socket;
    } catch (error) {
      socket[Symbol.dispose]();
      throw error;
    }
  }

  join(group: number): void {
    checkSyscall(
      sys.setsockoptInt(this.fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, group),
      `join netlink multicast group ${group}`,
    );
  }

  /** Sends one request and waits for its acknowledgement. Replies that precede it are passed to `each`. */
  request(request: NetlinkRequest, each?: (reply: NetlinkMessage) => void): void {
    this.#awaitAck(request, this.#send(request, NLM_F_ACK), each);
  }

  /**
   * Lets another thread send one request. The socket must not be used until the promise is settled.
   * @param followUp sent in the same datagram, so that the process cannot be killed between the two; its result is ignored
   */
  async requestOffThread(request: NetlinkRequest, followUp?: NetlinkRequest): Promise<void> {
    const writer = new NetlinkWriter(this.#sequence);
    writer.message(request.type, (request.flags ?? 0) | NLM_F_ACK, () => request.body(writer));
    if (followUp !== undefined) writer.message(followUp.type, followUp.flags ?? 0, () => followUp.body(writer));
    await this.#transmitOffThread(writer, request.operation);
    this.#awaitAck(request, writer.firstSequence);
  }

  #awaitAck(
    request: NetlinkRequest,
    sequence: number,
    each?: (reply: NetlinkMessage) => void,
    absentErrno?: string,
  ): void {
    let isDone = false;
    let failure: NetlinkError | undefined;
    while (!isDone)
      this.#receive(request.operation, (message) => {
        if (isDone || message.sequence !== sequence) return;
        if (message.type !== NLMSG_ERROR) return each?.(message);
        isDone = true;
        const errno = -message.i32(0);
        if (errno === 0) return;
        const name = errnoName(errno);
        if (name !== absentErrno) failure = new NetlinkError(request.operation, name, parseExtendedAck(message));
      });
    if (failure !== undefined) throw failure;
  }

  /**
   * Sends a GET request and returns its parsed reply.
   * @param absentErrno if the kernel returns this errno, the result is undefined instead of an exception, which would cost
   *   more time than the request itself
   */
  query<T>(request: NetlinkRequest, parse: (reply: NetlinkMessage) => T, absentErrno?: string): T | undefined {
    let value: T | undefined;
    const each = (reply: NetlinkMessage): void => {
      value ??= parse(reply);
    };
    this.#awaitAck(request, this.#send(request, NLM_F_ACK), each, absentErrno);
    return value;
  }

  /** Returns all objects of a dump for which `parse` returns a value. */
  dump<T>(request: NetlinkRequest, parse: (reply: NetlinkMessage) => T | undefined): T[] {
    for (let attempt = 1; ; attempt++) {
      const items: T[] = [];
      const dump = this.#startDump(request, (reply) => {
        const item = parse(reply);
        if (item !== undefined) items.push(item);
      });
      while (!dump.receive());
      if (dump.isConsistent()) return items;
      throwIfLastAttempt(request, attempt);
    }
  }

  /**
   * Reads a large dump in slices; other tasks of the event loop run between them. The socket must not be used until the
   * promise is settled.
   * @param each may receive an object more than once, because an inconsistent dump is repeated
   */
  async dumpInSlices(request: NetlinkRequest, each: (reply: NetlinkMessage) => void): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      const dump = this.#startDump(request, each);
      let sliceEndMs = performance.now() + SLICE_MS;
      while (!dump.receive()) {
        if (performance.now() < sliceEndMs) continue;
        await yieldToEventLoop();
        sliceEndMs = performance.now() + SLICE_MS;
      }
      if (dump.isConsistent()) return;
      throwIfLastAttempt(request, attempt);
    }
  }

  /** @returns `receive`, which reads one datagram and returns whether it was the last */
  #startDump(
    request: NetlinkRequest,
    each: (reply: NetlinkMessage) => void,
  ): { receive(): boolean; isConsistent(): boolean } {
    const sequence = this.#send(request, NLM_F_DUMP);
    let isConsistent = true;
    let isDone = false;
    let failure: NetlinkError | undefined;
    const receive = () => {
      this.#receive(request.operation, (message) => {
        if (isDone || message.sequence !== sequence) return;
        // A dump is not a snapshot: if the table changes during the dump, the kernel sets this flag on some message,
        // possibly the last. Using such a dump would make us delete live routes.
        // https://docs.kernel.org/userspace-api/netlink/intro.html#dump-consistency
        if ((message.flags & NLM_F_DUMP_INTR) !== 0) isConsistent = false;
        const type = message.type;
        if (type === NLMSG_DONE || type === NLMSG_ERROR) {
          isDone = true;
          const errno = -message.i32(0);
          if (errno !== 0) failure = new NetlinkError(request.operation, errnoName(errno), parseExtendedAck(message));
          return;
        }
        each(message);
      });
      if (failure !== undefined) throw failure;
      return isDone;
    };
    return { receive, isConsistent: () => isConsistent };
  }

  /** Returns a writer for one batch, valid until the next request on this socket. */
  startBatch(): NetlinkWriter {
    this.#writer.reset(this.#sequence);
    return this.#writer;
  }

  /**
   * Sends all messages of the writer in one datagram and returns those that the kernel rejected. The messages should not
   * request acknowledgements: the kernel has handled the whole batch when send() returns, so errors are already queued.
   */
  sendBatch(writer: NetlinkWriter, operation: string): RejectedMessage[] {
    if (writer.messages === 0) return [];
    this.#transmit(writer, operation);
    return this.#readRejections(writer, operation);
  }

  /** Returns a writer for `sendBatchOffThread`. Create it after the previous batch was sent: sequence numbers continue. */
  startOffThreadBatch(): NetlinkWriter {
    return new NetlinkWriter(this.#sequence);
  }

  /** Like `sendBatch`, off-thread. The socket must not be used until the promise is settled. */
  async sendBatchOffThread(
    writer: NetlinkWriter,
    operation: string,
    each?: (reply: NetlinkMessage) => void,
  ): Promise<RejectedMessage[]> {
    if (writer.messages === 0) return [];
    await this.#transmitOffThread(writer, operation);
    return this.#readRejections(writer, operation, each);
  }

  #readRejections(writer: NetlinkWriter, operation: string, each?: (reply: NetlinkMessage) => void): RejectedMessage[] {
    const first = writer.firstSequence;
    const rejected: RejectedMessage[] = [];
    while (
      this.#receiveQueued(operation, (message) => {
        const index = message.sequence - first;
        if (index < 0 || index >= writer.messages) return;
        if (message.type !== NLMSG_ERROR) return each?.(message);
        const errno = -message.i32(0);
        if (errno !== 0) rejected.push({ index, errno: errnoName(errno), extack: parseExtendedAck(message) });
      })
    );
    return rejected;
  }

  [Symbol.dispose](): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    sys.close(this.fd);
  }

  #send(request: NetlinkRequest, flags: number): number {
    const writer = this.startBatch();
    writer.message(request.type, (request.flags ?? 0) | flags, () => request.body(writer));
    this.#transmit(writer, request.operation);
    return writer.firstSequence;
  }

  #prepareSend(writer: NetlinkWriter): void {
    this.#sequence = (writer.firstSequence + writer.messages) >>> 0 || 1;
    if (writer.length > 64 * 1024) this.#raiseSendBuffer(writer.length);
  }

  #transmitOffThread(writer: NetlinkWriter, operation: string): Promise<void> {
    this.#prepareSend(writer);
    return new Promise((resolve, reject) => {
      write(this.fd, writer.buffer, 0, writer.length, null, (error) =>
        error === null ? resolve() : reject(new NetlinkError(operation, error.code ?? "EIO")),
      );
    });
  }

  #transmit(writer: NetlinkWriter, operation: string): void {
    this.#prepareSend(writer);
    for (;;) {
      const sent = sys.send(this.fd, writer.buffer, writer.length, 0);
      if (sent === -EINTR) continue;
      if (sent < 0) throw new NetlinkError(operation, errnoName(-sent));
      return;
    }
  }

  /** The kernel rejects a datagram that is larger than the send buffer. */
  #raiseSendBuffer(length: number): void {
    if (length <= this.#sendBufferBytes) return;
    this.#sendBufferBytes = length * 2;
    sys.setsockoptInt(this.fd, sys.SOL_SOCKET, SO_SNDBUFFORCE, this.#sendBufferBytes);
  }

  /** Waits for one datagram. */
  #receive(operation: string, each: (message: NetlinkMessage) => void): void {
    withReceiveBuffer((buffer) => {
      for (;;) {
        const length = sys.recv(this.fd, buffer, sys.MSG_TRUNC);
        if (length === -EINTR) continue;
        if (length === -EAGAIN) throw new NetlinkError(operation, "ETIMEDOUT", { message: "no reply from the kernel" });
        return parseDatagram(operation, buffer, length, each);
      }
    });
  }

  /** Reads one datagram without waiting. Returns false if none is queued. */
  #receiveQueued(operation: string, each: (message: NetlinkMessage) => void): boolean {
    return withReceiveBuffer((buffer) => {
      for (;;) {
        const length = sys.recv(this.fd, buffer, sys.MSG_DONTWAIT | sys.MSG_TRUNC);
        if (length === -EINTR) continue;
        if (length === -EAGAIN) return false;
        parseDatagram(operation, buffer, length, each);
        return true;
      }
    });
  }
}

function parseDatagram(
  operation: string,
  buffer: sys.Bytes,
  length: number,
  each: (message: NetlinkMessage) => void,
): void {
  if (length < 0) throw new NetlinkError(operation, errnoName(-length));
  if (length > RECEIVE_BYTES)
    throw new NetlinkError(operation, "EMSGSIZE", { message: `a reply of ${length} bytes was truncated` });
  forEachMessage(buffer, length, each);
}

/** Reads the extended acknowledgement at the end of an NLMSG_ERROR or NLMSG_DONE message. */
export function parseExtendedAck(message: NetlinkMessage): ExtendedAck {
  if ((message.flags & NLM_F_ACK_TLVS) === 0) return {};
  let header = 4; // NLMSG_DONE: only the errno
  if (message.type === NLMSG_ERROR) {
    header = 20; // errno and the header of the request; the request itself follows unless NLM_F_CAPPED is set
    if ((message.flags & NLM_F_CAPPED) === 0) header += Math.max(0, message.u32(4) - 16);
  }
  const attributes = message.attributes(header);
  while (attributes.next()) if (attributes.type === NLMSGERR_ATTR_MSG) return { message: attributes.string() };
  return {};
}

function throwIfLastAttempt({ operation }: NetlinkRequest, attempt: number): void {
  if (attempt === DUMP_ATTEMPTS)
    throw new NetlinkError(operation, "EINTR", { message: `the table changed during each of ${attempt} dumps` });
}
