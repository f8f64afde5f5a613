// Sends numbered packets between namespaces and receives them in the same process, so that every packet is counted.
//
// A flow is one UDP connection that the other end answers, one that is not answered (so that each packet is judged as a new
// connection), or one long TCP connection that is echoed. The first moments show which flows pass. After that, those must not
// lose any packet, and the others must not deliver any.
import * as sys from "../../../src/kernel/sys/sys.ts";
import { addressBytes, type IpAddress, ipVersion } from "../../../src/lib/ip/ip.ts";
import type { TestNamespace } from "../kernel/test-namespace.ts";

export interface Place {
  readonly name: string;
  readonly space: TestNamespace;
  readonly address: IpAddress;
  /** The IPv6 address, if there is one. */
  readonly address6?: IpAddress;
}

/** The same place, reached by its IPv6 address. */
export function byIpv6({ name, space, address6 }: Place): Place {
  if (address6 === undefined) throw new Error(`${name} has no IPv6 address`);
  return { name: `${name}6`, space, address: address6 };
}
export type FlowKind = "answered" | "one-way" | "tcp";

export interface FlowResult {
  readonly name: string;
  readonly kind: FlowKind;
  readonly sent: number;
  readonly delivered: number;
  readonly answered: number;
  readonly failure: string | undefined;
}

interface Flow {
  readonly name: string;
  readonly kind: FlowKind;
  readonly client: number;
  /** The socket of the server; for TCP the accepted one, if a connection was accepted. */
  server: number;
  readonly listener: number;
  sent: number;
  delivered: number;
  answered: number;
  failure: string | undefined;
}

const SO_REUSEADDR = 2;
const SO_RCVBUFFORCE = 33;
const EAGAIN = 11;
const EINPROGRESS = 115;
const TICK_MS = 5;
const MESSAGE = 16;

export class Traffic implements Disposable {
  readonly #flows: Flow[] = [];
  readonly #buffer = sys.allocate(64 * 1024);
  readonly #message = sys.allocate(MESSAGE);
  #timer: Timer | undefined;
  #nextPort = 20_000;
  #isSending = false;

  /** Adds flows of all kinds from one place to a port of another. */
  add(from: Place, to: Place, port: number, kinds: readonly FlowKind[] = ["answered", "one-way", "tcp"]): void {
    for (const kind of kinds) {
      const name = `${kind} ${from.name} → ${to.name}:${port}`;
      this.#flows.push(kind === "tcp" ? this.#tcp(name, from, to, port) : this.#udp(name, kind, from, to, port));
    }
  }

  start(): void {
    this.#isSending = true;
    this.#timer ??= setInterval(() => this.#tick(), TICK_MS);
  }

  /** Stops sending and waits for packets in flight. */
  async finish(): Promise<readonly FlowResult[]> {
    this.#isSending = false;
    let before = "";
    for (let quiet = 0; quiet < 4; quiet++) {
      await new Promise((resolve) => setTimeout(resolve, 50));
      const now = JSON.stringify(this.results().map(({ delivered, answered }) => [delivered, answered]));
      if (now !== before) quiet = 0;
      before = now;
    }
    clearInterval(this.#timer);
    this.#timer = undefined;
    return this.results();
  }

  results(): FlowResult[] {
    return this.#flows.map(({ name, kind, sent, delivered, answered, failure }) => ({
      name,
      kind,
      sent: kind === "tcp" ? Math.floor(sent / MESSAGE) : sent,
      delivered: kind === "tcp" ? Math.floor(delivered / MESSAGE) : delivered,
      answered: kind === "tcp" ? Math.floor(answered / MESSAGE) : answered,
      failure,
    }));
  }

  #udp(name: string, kind: FlowKind, from: Place, to: Place, port: number): Flow {
    const clientPort = this.#nextPort++;
    const open = (own: Place, ownPort: number, other: Place, otherPort: number) =>
      own.space.enter(() => {
        const fd = check(sys.socket(familyOf(own.address), sys.SOCK_DGRAM, 0), "socket");
        sys.setsockoptInt(fd, sys.SOL_SOCKET, SO_REUSEADDR, 1);
        sys.setsockoptInt(fd, sys.SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20);
        check(sys.bind(fd, socketAddress(own.address, ownPort)), `bind ${own.name}:${ownPort}`);
        check(sys.connect(fd, socketAddress(other.address, otherPort)), "connect");
        return fd;
      });
    const server = open(to, port, from, clientPort);
    const client = open(from, clientPort, to, port);
    return { name, kind, client, server, listener: -1, sent: 0, delivered: 0, answered: 0, failure: undefined };
  }

  #tcp(name: string, from: Place, to: Place, port: number): Flow {
    const type = sys.SOCK_STREAM | sys.SOCK_NONBLOCK;
    const listener = to.space.enter(() => {
      const fd = check(sys.socket(familyOf(to.address), type, 0), "socket");
      sys.setsockoptInt(fd, sys.SOL_SOCKET, SO_REUSEADDR, 1);
      // A port serves one flow; flows from other places use the listener on the next port.
      check(sys.bind(fd, socketAddress(to.address, port)), `bind ${to.name}:${port}`);
      check(sys.listen(fd, 8), "listen");
      return fd;
    });
    const client = from.space.enter(() => {
      const fd = check(sys.socket(familyOf(from.address), type, 0), "socket");
      const outcome = sys.connect(fd, socketAddress(to.address, port));
      if (outcome < 0 && outcome !== -EINPROGRESS) throw new Error(`connect: errno ${-outcome}`);
      return fd;
    });
    return { name, kind: "tcp", client, server: -1, listener, sent: 0, delivered: 0, answered: 0, failure: undefined };
  }

  #tick(): void {
    for (const flow of this.#flows) {
      if (flow.kind === "tcp") this.#tickTcp(flow);
      else this.#tickUdp(flow);
    }
  }

  #tickUdp(flow: Flow): void {
    if (this.#isSending) {
      this.#number(flow.sent);
      // EPERM: a rule dropped the packet on output. It counts as sent and lost.
      sys.send(flow.client, this.#message, MESSAGE, sys.MSG_DONTWAIT);
      flow.sent++;
    }
    while (sys.recv(flow.server, this.#buffer, sys.MSG_DONTWAIT) > 0) {
      flow.delivered++;
      if (flow.kind === "answered") sys.send(flow.server, this.#message, MESSAGE, sys.MSG_DONTWAIT);
    }
    if (flow.kind === "answered") while (sys.recv(flow.client, this.#buffer, sys.MSG_DONTWAIT) > 0) flow.answered++;
  }

  #tickTcp(flow: Flow): void {
    if (flow.server < 0) {
      const fd = sys.accept(flow.listener);
      if (fd < 0) return;
      flow.server = fd;
    }
    if (this.#isSending) {
      this.#number(flow.sent / MESSAGE);
      const sent = sys.send(flow.client, this.#message, MESSAGE, sys.MSG_DONTWAIT | sys.MSG_NOSIGNAL);
      if (sent > 0) flow.sent += sent;
      else if (sent !== -EAGAIN) flow.failure ??= `send: errno ${-sent}`;
    }
    for (const [fd, count] of [
      [flow.server, (n: number) => (flow.delivered += n)],
      [flow.client, (n: number) => (flow.answered += n)],
    ] as const)
      for (;;) {
        const length = sys.recv(fd, this.#buffer, sys.MSG_DONTWAIT);
        if (length === -EAGAIN) break;
        if (length <= 0) {
          flow.failure ??= length === 0 ? "closed" : `receive: errno ${-length}`;
          break;
        }
        count(length);
        if (fd === flow.server) sys.send(fd, this.#buffer, length, sys.MSG_DONTWAIT | sys.MSG_NOSIGNAL);
      }
  }

  #number(value: number): void {
    new DataView(this.#message.buffer).setBigUint64(0, BigInt(Math.floor(value)));
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    for (const { client, server, listener } of this.#flows)
      for (const fd of [client, server, listener]) if (fd >= 0) sys.close(fd);
  }
}

/** Describes lost packets and packets that passed by mistake between two readings. */
export function faults(
  before: readonly FlowResult[],
  after: readonly FlowResult[],
): { readonly lost: readonly string[]; readonly passed: readonly string[]; readonly checked: number } {
  const lost: string[] = [];
  const passed: string[] = [];
  let checked = 0;
  for (const [i, flow] of after.entries()) {
    const first = before[i];
    if (first === undefined) continue;
    checked += flow.sent - first.sent;
    if (first.delivered === 0) {
      if (flow.delivered > 0) passed.push(`${flow.name}: ${flow.delivered} of ${flow.sent}`);
      continue;
    }
    if (flow.failure !== undefined) lost.push(`${flow.name}: ${flow.failure}`);
    if (flow.delivered !== flow.sent) lost.push(`${flow.name}: ${flow.sent - flow.delivered} of ${flow.sent}`);
    if (flow.kind !== "one-way" && flow.answered !== flow.delivered)
      lost.push(`${flow.name}: ${flow.delivered - flow.answered} answers of ${flow.delivered}`);
  }
  return { lost, passed, checked };
}

const familyOf = (address: IpAddress): number => (ipVersion(address) === 4 ? sys.AF_INET : sys.AF_INET6);

/** `sockaddr_in`, or `sockaddr_in6` with flow label and scope zero. */
function socketAddress(address: IpAddress, port: number): sys.Bytes {
  const isV4 = ipVersion(address) === 4;
  const bytes = sys.allocate(isV4 ? 16 : 28);
  const view = new DataView(bytes.buffer);
  view.setUint16(0, familyOf(address), true);
  view.setUint16(2, port);
  bytes.set(addressBytes(address), isV4 ? 4 : 8);
  return bytes;
}

function check(outcome: number, what: string): number {
  if (outcome < 0) throw new Error(`${what}: errno ${-outcome}`);
  return outcome;
}
