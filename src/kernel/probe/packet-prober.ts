// Sends real packets between network namespaces and receives them, in one process: a socket stays in the namespace in which
// it was opened. All connections of a matrix are tried at the same time, in one poll loop, so that a thousand cells need a
// thousand sockets and not a thousand processes.
//
//   TCP    connects and reads the listener's name
//   UDP    sends a nonce and expects it back with the listener's name
//   ICMP   expects an echo reply
//   SCTP   sends a raw INIT chunk, because the kernel may lack SCTP sockets; reached when the listener receives it
import { closeSync, openSync } from "node:fs";
import { type IpAddress, ipVersion } from "../../lib/ip/ip.ts";
import { yieldToEventLoop } from "../../lib/retry.ts";
import { checkSyscall } from "../sys/kernel-error.ts";
import { errnoName } from "../sys/errno.ts";
import { socketAddress } from "../sys/socket-address.ts";
import * as sys from "../sys/sys.ts";

export type ProbeProtocol = "tcp" | "udp" | "icmp" | "sctp";

export interface ProbeEndpoint {
  /** File descriptor of a network namespace. */
  readonly namespace: number;
  readonly name: string;
}

export interface ProbeRequest {
  readonly from: ProbeEndpoint;
  readonly to: IpAddress;
  readonly protocol: ProbeProtocol;
  /** Ignored for ICMP. */
  readonly port: number;
  /** Source address; by default the one that routing selects. The namespace need not have it. */
  readonly source?: IpAddress;
  readonly sourcePort?: number;
}

/** `refused`: a reset or an ICMP error was received. `silent`: nothing was received. */
export type ProbeOutcome =
  | { readonly result: "reached"; readonly by: string }
  | { readonly result: "refused"; readonly errno: string }
  | { readonly result: "silent" };

interface Listener {
  readonly fd: number;
  readonly target: ProbeEndpoint;
  readonly protocol: ProbeProtocol;
  readonly version: 4 | 6;
  readonly port: number;
}
interface PendingProbe {
  readonly index: number;
  readonly request: ProbeRequest;
  readonly nonce: number;
  readonly fd: number;
  connecting: boolean;
  established: boolean;
}

const IPPROTO: Readonly<Record<ProbeProtocol, number>> = { tcp: 6, udp: 17, icmp: 1, sctp: 132 };
const IPPROTO_IPV6 = 41;
const IPPROTO_ICMPV6 = 58;
const IPV6_V6ONLY = 26;
const SO_REUSEADDR = 2;
const SO_ERROR = 4;
const IP_FREEBIND = 15;
/** A packet that has arrived before the deadline may still need three rounds: serve, reply, read the reply. */
const LATE_ROUNDS = 3;

export class PacketProber implements Disposable {
  readonly #own = openSync("/proc/thread-self/ns/net", "r");
  readonly #listeners: Listener[] = [];
  #nonce = 1 + Math.floor(Math.random() * 0x3fffffff);

  /** Opens a port for both IP families in a namespace. Does nothing for ICMP: the kernel replies to echo requests. */
  listen(target: ProbeEndpoint, protocol: ProbeProtocol, port: number): void {
    if (protocol === "icmp") return;
    for (const version of [4, 6] as const) {
      const fd = this.#within(target.namespace, () => openListener(protocol, version, port));
      this.#listeners.push({ fd, target, protocol, version, port });
    }
  }

  /** Sends all probes at the same time. The outcomes are in the order of the requests. */
  async probe(requests: readonly ProbeRequest[], options: { readonly timeoutMs: number }): Promise<ProbeOutcome[]> {
    const outcomes: (ProbeOutcome | undefined)[] = requests.map(() => undefined);
    const pending = new Map<number, PendingProbe>(); // by descriptor
    const byNonce = new Map<number, PendingProbe>();
    const settle = (attempt: PendingProbe, outcome: ProbeOutcome) => {
      outcomes[attempt.index] ??= outcome;
      pending.delete(attempt.fd);
      byNonce.delete(attempt.nonce);
      sys.close(attempt.fd);
    };
    try {
      for (const [index, request] of requests.entries()) {
        const nonce = this.#nonce++ & 0x7fffffff;
        const opened = this.#within(request.from.namespace, () => openAttempt(request, nonce));
        if (typeof opened === "string") {
          outcomes[index] = { result: "refused", errno: opened };
          continue;
        }
        const attempt = {
          index,
          request,
          nonce,
          fd: opened,
          connecting: request.protocol === "tcp",
          established: false,
        };
        pending.set(attempt.fd, attempt);
        byNonce.set(nonce, attempt);
      }
      const deadline = performance.now() + options.timeoutMs;
      // On a busy machine the deadline may pass before this loop runs again. Packets that have arrived until then count.
      for (let late = 0; pending.size > 0 && late < LATE_ROUNDS; ) {
        if (performance.now() >= deadline) late++;
        this.#serve((nonce, by) => {
          const attempt = byNonce.get(nonce);
          if (attempt?.request.protocol === "sctp") settle(attempt, { result: "reached", by });
        });
        this.#advance(pending, settle);
        await yieldToEventLoop();
      }
      // A server other than this prober may send nothing: an established connection has reached it.
      for (const attempt of pending.values())
        if (attempt.established) outcomes[attempt.index] ??= { result: "reached", by: "" };
      return outcomes.map((outcome) => outcome ?? { result: "silent" });
    } finally {
      for (const fd of pending.keys()) sys.close(fd);
    }
  }

  [Symbol.dispose](): void {
    for (const { fd } of this.#listeners) sys.close(fd);
    this.#listeners.length = 0;
    closeSync(this.#own);
  }

  /** Replies to the packets that have arrived at the listeners. */
  #serve(onInit: (nonce: number, by: string) => void): void {
    if (this.#listeners.length === 0) return;
    const readable = sys.pollReadable(
      this.#listeners.map(({ fd }) => fd),
      0,
    );
    if (typeof readable === "number") return;
    const ready = new Set(readable);
    for (const listener of this.#listeners) {
      if (!ready.has(listener.fd)) continue;
      if (listener.protocol === "tcp") greetConnections(listener);
      else if (listener.protocol === "udp") echoDatagrams(listener);
      else receiveInits(listener, onInit);
    }
  }

  #advance(pending: Map<number, PendingProbe>, settle: (attempt: PendingProbe, outcome: ProbeOutcome) => void): void {
    const attempts = [...pending.values()].filter(({ request }) => request.protocol !== "sctp");
    const events = sys.poll(
      attempts.map(({ fd, connecting }) => ({ fd, events: connecting ? sys.POLLOUT : sys.POLLIN })),
      1,
    );
    if (typeof events === "number") return;
    for (const [i, attempt] of attempts.entries()) {
      if (events[i] === 0 || !pending.has(attempt.fd)) continue;
      const outcome = attempt.connecting ? finishConnect(attempt) : readAnswer(attempt);
      if (outcome !== undefined) settle(attempt, outcome);
    }
  }

  #within<T>(namespace: number, work: () => T): T {
    enter(namespace);
    try {
      return work();
    } finally {
      enter(this.#own);
    }
  }
}

function enter(namespace: number): void {
  checkSyscall(sys.setns(namespace, sys.CLONE_NEWNET), `enter network namespace descriptor ${namespace}`);
}

function openListener(protocol: ProbeProtocol, version: 4 | 6, port: number): number {
  const operation = `listen on ${protocol} port ${port}, IPv${version}`;
  const family = version === 4 ? sys.AF_INET : sys.AF_INET6;
  const type = protocol === "tcp" ? sys.SOCK_STREAM : protocol === "udp" ? sys.SOCK_DGRAM : sys.SOCK_RAW;
  const fd = checkSyscall(
    sys.socket(family, type | sys.SOCK_NONBLOCK, protocol === "sctp" ? IPPROTO.sctp : 0),
    operation,
  );
  try {
    sys.setsockoptInt(fd, sys.SOL_SOCKET, SO_REUSEADDR, 1);
    if (version === 6) sys.setsockoptInt(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    if (protocol !== "sctp") checkSyscall(sys.bind(fd, socketAddress(version, undefined, port)), operation);
    if (protocol === "tcp") checkSyscall(sys.listen(fd, 128), operation);
    return fd;
  } catch (error) {
    sys.close(fd);
    throw error;
  }
}

/** Sends the first packet. Returns its socket, or the name of the errno if it could not be sent. */
function openAttempt(request: ProbeRequest, nonce: number): number | string {
  const version = ipVersion(request.to);
  const family = version === 4 ? sys.AF_INET : sys.AF_INET6;
  const raw = request.protocol === "icmp" || request.protocol === "sctp";
  const number = request.protocol === "icmp" && version === 6 ? IPPROTO_ICMPV6 : IPPROTO[request.protocol];
  const type = raw ? sys.SOCK_RAW : request.protocol === "tcp" ? sys.SOCK_STREAM : sys.SOCK_DGRAM;
  const fd = sys.socket(family, type | sys.SOCK_NONBLOCK, raw ? number : 0);
  if (fd < 0) return errnoName(-fd);
  const fail = (result: number) => {
    sys.close(fd);
    return errnoName(-result);
  };
  if (request.source !== undefined || request.sourcePort !== undefined) {
    sys.setsockoptInt(fd, 0, IP_FREEBIND, 1); // allows a spoofed source address
    sys.setsockoptInt(fd, sys.SOL_SOCKET, SO_REUSEADDR, 1);
    const bound = sys.bind(fd, socketAddress(version, request.source, raw ? 0 : (request.sourcePort ?? 0)));
    if (bound < 0) return fail(bound);
  }
  const connected = sys.connect(fd, socketAddress(version, request.to, raw ? 0 : request.port));
  if (connected < 0 && !(request.protocol === "tcp" && errnoName(-connected) === "EINPROGRESS")) return fail(connected);
  if (request.protocol === "tcp") return fd;
  const payload =
    request.protocol === "icmp"
      ? echoRequest(version, nonce)
      : request.protocol === "sctp"
        ? sctpInit(request.sourcePort ?? 40000 + (nonce % 20000), request.port, nonce)
        : numberBytes(nonce);
  const sent = sys.send(fd, payload, payload.length, sys.MSG_DONTWAIT);
  return sent < 0 ? fail(sent) : fd;
}

function finishConnect(attempt: PendingProbe): ProbeOutcome | undefined {
  const value = sys.allocate(4);
  sys.getsockopt(attempt.fd, sys.SOL_SOCKET, SO_ERROR, value);
  const errno = new DataView(value.buffer).getInt32(0, true);
  if (errno !== 0) return failure(errno);
  attempt.connecting = false;
  attempt.established = true;
  return undefined;
}

function readAnswer(attempt: PendingProbe): ProbeOutcome | undefined {
  const bytes = sys.allocate(512);
  const length = sys.recv(attempt.fd, bytes, sys.MSG_DONTWAIT);
  if (length < 0) return errnoName(-length) === "EAGAIN" ? undefined : failure(-length);
  const { protocol, to } = attempt.request;
  if (protocol === "tcp")
    return length === 0 ? failure(104) : { result: "reached", by: textOf(bytes.subarray(0, length)) };
  if (protocol === "udp") {
    if (length < 4 || readNumber(bytes, 0) !== attempt.nonce) return undefined;
    return { result: "reached", by: textOf(bytes.subarray(4, length)) };
  }
  // A raw IPv4 socket receives the IP header too, a raw IPv6 socket does not.
  const start = ipVersion(to) === 4 ? ((bytes[0] ?? 0) & 15) * 4 : 0;
  const isReply = bytes[start] === (ipVersion(to) === 4 ? 0 : 129);
  return isReply && readNumber(bytes, start + 4) === attempt.nonce ? { result: "reached", by: to } : undefined;
}

/** ETIMEDOUT is the kernel's own timeout: no packet was received. */
function failure(errno: number): ProbeOutcome {
  const name = errnoName(errno);
  return name === "ETIMEDOUT" ? { result: "silent" } : { result: "refused", errno: name };
}

/** Sends the listener's name on each new connection and closes it. The kernel still delivers the name. */
function greetConnections(listener: Listener): void {
  const name = bytesOf(listener.target.name);
  for (let fd = sys.accept(listener.fd); fd >= 0; fd = sys.accept(listener.fd)) {
    sys.send(fd, name, name.length, sys.MSG_DONTWAIT);
    sys.close(fd);
  }
}

function echoDatagrams(listener: Listener): void {
  const name = bytesOf(listener.target.name);
  const bytes = sys.allocate(512);
  for (;;) {
    const from = sys.allocate(28);
    const got = sys.receiveFrom(listener.fd, bytes, from);
    if (typeof got === "number") return;
    const answer = sys.allocate(4 + name.length);
    answer.set(bytes.subarray(0, 4), 0);
    answer.set(name, 4);
    sys.sendTo(listener.fd, answer, from.slice(0, got.fromLength));
  }
}

function receiveInits(listener: Listener, onInit: (nonce: number, by: string) => void): void {
  const bytes = sys.allocate(512);
  for (;;) {
    const length = sys.recv(listener.fd, bytes, sys.MSG_DONTWAIT);
    if (length < 0) return;
    const start = listener.version === 4 ? ((bytes[0] ?? 0) & 15) * 4 : 0;
    const view = new DataView(bytes.buffer, start);
    if (view.getUint16(2) === listener.port) onInit(view.getUint32(16) & 0x7fffffff, listener.target.name);
  }
}

/** An ICMP echo request with the nonce as identifier and sequence number. The kernel fills in the checksum of ICMPv6. */
function echoRequest(version: 4 | 6, nonce: number): sys.Bytes {
  const bytes = sys.allocate(16);
  const view = new DataView(bytes.buffer);
  view.setUint8(0, version === 4 ? 8 : 128);
  view.setUint32(4, nonce);
  if (version === 4) view.setUint16(2, internetChecksum(bytes));
  return bytes;
}

/** An SCTP INIT chunk whose initiate tag is the nonce (RFC 9260 §3.3.2). */
function sctpInit(sourcePort: number, port: number, nonce: number): sys.Bytes {
  const bytes = sys.allocate(32);
  const view = new DataView(bytes.buffer);
  view.setUint16(0, sourcePort);
  view.setUint16(2, port);
  view.setUint8(12, 1); // INIT
  view.setUint16(14, 20);
  view.setUint32(16, nonce);
  view.setUint32(20, 65535); // receiver window
  view.setUint16(24, 1);
  view.setUint16(26, 1);
  view.setUint32(28, nonce);
  view.setUint32(8, crc32c(bytes), true);
  return bytes;
}

function internetChecksum(bytes: Uint8Array): number {
  let sum = 0;
  for (let i = 0; i + 1 < bytes.length; i += 2) sum += ((bytes[i] ?? 0) << 8) | (bytes[i + 1] ?? 0);
  while (sum >> 16 !== 0) sum = (sum & 0xffff) + (sum >> 16);
  return ~sum & 0xffff;
}

function crc32c(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let i = 0; i < 8; i++) crc = crc & 1 ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1;
  }
  return ~crc >>> 0;
}

function numberBytes(value: number): sys.Bytes {
  const bytes = sys.allocate(4);
  new DataView(bytes.buffer).setUint32(0, value);
  return bytes;
}
const readNumber = (bytes: sys.Bytes, offset: number): number => new DataView(bytes.buffer).getUint32(offset);
const textOf = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);
function bytesOf(text: string): sys.Bytes {
  const encoded = new TextEncoder().encode(text);
  const bytes = sys.allocate(encoded.length);
  bytes.set(encoded);
  return bytes;
}
