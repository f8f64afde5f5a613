// Answers for addresses that are not this interface's own, as if they were: ARP (RFC 826) for IPv4, neighbour discovery
// (RFC 4861) for IPv6. The kernel can do that only for addresses it has a route to by another interface, which the
// addresses of load balancers have not.
import { addressBytes, type IpAddress, type IpVersion } from "../lib/ip.ts";
import { errnoName } from "./errno.ts";
import { macBytes } from "./mac.ts";
import { SyscallError } from "./netlink-error.ts";
import * as sys from "./sys.ts";

export interface NeighbourResponder extends Disposable {
  /** For these and no others from now on; new ones are announced to everybody on the link. */
  answerFor(addresses: ReadonlySet<IpAddress>): void;
  announceAll(): void;
}

const AF_PACKET = 17;
const ETH_P_ARP = 0x0806;
const IPPROTO_IPV6 = 41;
const IPPROTO_ICMPV6 = 58;
const SO_BINDTODEVICE = 25;
const ICMP6_FILTER = 1;
const IPV6_UNICAST_HOPS = 16;
const IPV6_MULTICAST_HOPS = 18;
const IPV6_JOIN_GROUP = 20;
const IPV6_LEAVE_GROUP = 21;
const SOLICITATION = 135;
const ADVERTISEMENT = 136;
const LOOK_MS = 10;

const keyOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");

/** The link must be Ethernet-like: without a MAC there is nothing to answer. */
export type OpenNeighbourResponder = (
  version: IpVersion,
  link: { readonly index: number; readonly name: string; readonly mac: string },
) => NeighbourResponder;

export const openNeighbourResponder: OpenNeighbourResponder = (version, { index, name, mac }) =>
  version === 4 ? new ArpResponder(index, macBytes(mac)) : new DiscoveryResponder(index, name, macBytes(mac));

abstract class Responder implements NeighbourResponder {
  protected readonly fd: number;
  readonly #timer: Timer;
  protected addresses = new Map<string, IpAddress>();

  constructor(fd: number) {
    this.fd = fd;
    this.#timer = setInterval(() => this.look(), LOOK_MS);
    this.#timer.unref();
  }

  answerFor(addresses: ReadonlySet<IpAddress>): void {
    const before = this.addresses;
    this.addresses = new Map([...addresses].map((address) => [keyOf(addressBytes(address)), address]));
    for (const [key, address] of before) if (!this.addresses.has(key)) this.left?.(address);
    for (const [key, address] of this.addresses)
      if (!before.has(key)) {
        this.joined?.(address);
        this.announce(address);
      }
  }

  announceAll(): void {
    for (const address of this.addresses.values()) this.announce(address);
  }

  protected abstract look(): void;
  protected abstract announce(address: IpAddress): void;
  /** What has to be done to hear questions about an address. */
  protected joined?(address: IpAddress): void;
  protected left?(address: IpAddress): void;

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    sys.close(this.fd);
  }
}

class ArpResponder extends Responder {
  readonly #link: number;
  readonly #mac: Uint8Array;
  readonly #frame = sys.allocate(256);

  constructor(link: number, mac: Uint8Array) {
    const fd = open("an ARP socket", AF_PACKET, 0);
    super(fd);
    this.#link = link;
    this.#mac = mac;
    this.must(`hear ARP on link ${link}`, sys.bind(fd, linkAddress(link)));
  }

  protected look(): void {
    for (;;) {
      const length = sys.recv(this.fd, this.#frame, sys.MSG_DONTWAIT);
      if (length < 0) return;
      const question = parseArpRequest(this.#frame.subarray(0, length));
      if (question === undefined || keyOf(question.senderMac) === keyOf(this.#mac)) continue;
      if (this.addresses.has(keyOf(question.target)))
        this.#send(arpFrame(2, this.#mac, question.target, question.senderMac, question.sender));
    }
  }

  protected announce(address: IpAddress): void {
    const own = addressBytes(address);
    this.#send(arpFrame(1, this.#mac, own, new Uint8Array(6).fill(255), own));
  }

  #send(frame: sys.Bytes): void {
    sys.sendTo(this.fd, frame, linkAddress(this.#link)); // lost or not, somebody will ask again
  }

  private must(what: string, outcome: number): void {
    if (outcome >= 0) return;
    this[Symbol.dispose]();
    throw new SyscallError(what, errnoName(-outcome));
  }
}

class DiscoveryResponder extends Responder {
  readonly #link: number;
  readonly #mac: Uint8Array;
  readonly #message = sys.allocate(512);
  readonly #from = sys.allocate(28);

  constructor(link: number, name: string, mac: Uint8Array) {
    const fd = open("a socket for neighbour discovery", sys.AF_INET6, IPPROTO_ICMPV6);
    super(fd);
    this.#link = link;
    this.#mac = mac;
    const only = sys.allocate(32).fill(255); // a bit that is set keeps its type out
    only[SOLICITATION >> 3] = (only[SOLICITATION >> 3] ?? 0) & ~(1 << (SOLICITATION & 7));
    const outcomes = [
      sys.setsockopt(fd, IPPROTO_ICMPV6, ICMP6_FILTER, only),
      sys.setsockopt(fd, sys.SOL_SOCKET, SO_BINDTODEVICE, sys.cString(name)),
      sys.setsockoptInt(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, 255), // who gets fewer takes it for an intruder's
      sys.setsockoptInt(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 255),
    ];
    const failed = outcomes.find((outcome) => outcome < 0);
    if (failed === undefined) return;
    this[Symbol.dispose]();
    throw new SyscallError(`hear neighbour discovery on ${name}`, errnoName(-failed));
  }

  protected look(): void {
    for (;;) {
      const got = sys.receiveFrom(this.fd, this.#message, this.#from);
      if (typeof got === "number") return;
      const message = this.#message.subarray(0, got.length);
      const target = message.subarray(8, 24);
      if (message[0] !== SOLICITATION || target.length < 16 || !this.addresses.has(keyOf(target))) continue;
      const asker = this.#from.subarray(8, 24);
      // Who has no address yet asks whether this one is free: everybody hears the answer.
      const isNobody = asker.every((byte) => byte === 0);
      this.#send(advertisement(target, this.#mac, !isNobody), isNobody ? ALL_NODES : asker);
    }
  }

  protected announce(address: IpAddress): void {
    this.#send(advertisement(addressBytes(address), this.#mac, false), ALL_NODES);
  }
  /** The kernel hears questions about its own addresses only. */
  protected override joined(address: IpAddress): void {
    sys.setsockopt(this.fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, this.#membership(address));
  }
  protected override left(address: IpAddress): void {
    sys.setsockopt(this.fd, IPPROTO_IPV6, IPV6_LEAVE_GROUP, this.#membership(address));
  }

  #membership(address: IpAddress): sys.Bytes {
    const request = sys.allocate(20);
    request.set([0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff]);
    request.set(addressBytes(address).subarray(13), 13);
    new DataView(request.buffer).setUint32(16, this.#link, true);
    return request;
  }

  #send(message: sys.Bytes, to: Uint8Array): void {
    const address = sys.allocate(28);
    const view = new DataView(address.buffer);
    view.setUint16(0, sys.AF_INET6, true);
    address.set(to, 8);
    view.setUint32(24, this.#link, true);
    sys.sendTo(this.fd, message, address);
  }
}

const ALL_NODES = Uint8Array.of(0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1);

export function parseArpRequest(
  frame: Uint8Array,
): { readonly senderMac: Uint8Array; readonly sender: Uint8Array; readonly target: Uint8Array } | undefined {
  const arp = frame.subarray(14);
  // Ethernet and IPv4 only, and a question.
  if (arp.length < 28 || keyOf(arp.subarray(0, 8)) !== "0001080006040001") return undefined;
  return { senderMac: arp.slice(8, 14), sender: arp.slice(14, 18), target: arp.slice(24, 28) };
}

function arpFrame(
  operation: 1 | 2,
  mac: Uint8Array,
  own: Uint8Array,
  otherMac: Uint8Array,
  other: Uint8Array,
): sys.Bytes {
  const frame = sys.allocate(42);
  frame.set([...otherMac, ...mac, 0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, operation, ...mac, ...own, ...otherMac, ...other]);
  return frame;
}

/** The kernel fills in the checksum. */
function advertisement(target: Uint8Array, mac: Uint8Array, isAsked: boolean): sys.Bytes {
  const message = sys.allocate(32);
  message[0] = ADVERTISEMENT;
  message[4] = (isAsked ? 0x40 : 0) | 0x20; // and it overrides what was known
  message.set(target, 8);
  message.set([2, 1, ...mac], 24);
  return message;
}

function linkAddress(link: number): sys.Bytes {
  const address = sys.allocate(20);
  const view = new DataView(address.buffer);
  view.setUint16(0, AF_PACKET, true);
  view.setUint16(2, ETH_P_ARP); // in network order
  view.setInt32(4, link, true);
  return address;
}

function open(what: string, family: number, protocol: number): number {
  const fd = sys.socket(family, sys.SOCK_RAW | sys.SOCK_NONBLOCK | sys.SOCK_CLOEXEC, protocol);
  if (fd < 0) throw new SyscallError(`open ${what}`, errnoName(-fd));
  return fd;
}
