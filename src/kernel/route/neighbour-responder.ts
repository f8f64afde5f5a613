// Responds to ARP requests (RFC 826) and neighbour solicitations (RFC 4861) for addresses that the host does not have, such
// as load balancer addresses. The kernel's proxy_arp and proxy_ndp respond only for addresses that have a route through
// another interface, which these addresses do not have.
import { addressBytes, type IpAddress, type IpVersion } from "../../lib/ip/ip.ts";
import { parseMac } from "./mac.ts";
import { ETH_P_ARP, openPacketSocket, packetAddress } from "./packet-socket.ts";
import { checkSyscall } from "../sys/kernel-error.ts";
import * as sys from "../sys/sys.ts";

export interface NeighbourResponder extends Disposable {
  /** Replaces the addresses, and announces the new ones to all hosts on the link. */
  setAddresses(addresses: ReadonlySet<IpAddress>): void;
  announceAll(): void;
}

const IPPROTO_IPV6 = 41;
const IPPROTO_ICMPV6 = 58;
const SO_BINDTODEVICE = 25;
const ICMP6_FILTER = 1;
const IPV6_UNICAST_HOPS = 16;
const IPV6_MULTICAST_HOPS = 18;
const IPV6_JOIN_GROUP = 20;
const IPV6_LEAVE_GROUP = 21;
const ND_NEIGHBOR_SOLICIT = 135;
const ND_NEIGHBOR_ADVERT = 136;
const ARP_REQUEST = 1;
const ARP_REPLY = 2;
/** The first eight bytes of an ARP request for IPv4 over Ethernet. */
const ARP_REQUEST_HEADER = "0001080006040001";
const POLL_INTERVAL_MS = 10;

const keyOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");

/** @param link an Ethernet link: the reply contains its MAC address */
export type OpenNeighbourResponder = (
  version: IpVersion,
  link: { readonly index: number; readonly name: string; readonly mac: string },
) => NeighbourResponder;

export const openNeighbourResponder: OpenNeighbourResponder = (version, { index, name, mac }) =>
  version === 4 ? new ArpResponder(index, parseMac(mac)) : new DiscoveryResponder(index, name, parseMac(mac));

abstract class Responder implements NeighbourResponder {
  protected readonly fd: number;
  readonly #timer: Timer;
  /** By the bytes of the address, in hexadecimal. */
  protected addresses = new Map<string, IpAddress>();

  constructor(fd: number) {
    this.fd = fd;
    this.#timer = setInterval(() => this.poll(), POLL_INTERVAL_MS);
    this.#timer.unref();
  }

  setAddresses(addresses: ReadonlySet<IpAddress>): void {
    const before = this.addresses;
    this.addresses = new Map([...addresses].map((address) => [keyOf(addressBytes(address)), address]));
    for (const [key, address] of before) if (!this.addresses.has(key)) this.stopReceiving?.(address);
    for (const [key, address] of this.addresses)
      if (!before.has(key)) {
        this.startReceiving?.(address);
        this.announce(address);
      }
  }

  announceAll(): void {
    for (const address of this.addresses.values()) this.announce(address);
  }

  protected abstract poll(): void;
  protected abstract announce(address: IpAddress): void;
  /** Makes the socket receive requests for an address, if the protocol needs that. */
  protected startReceiving?(address: IpAddress): void;
  protected stopReceiving?(address: IpAddress): void;

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
    super(openPacketSocket(link, ETH_P_ARP));
    this.#link = link;
    this.#mac = mac;
  }

  protected poll(): void {
    for (;;) {
      const length = sys.recv(this.fd, this.#frame, sys.MSG_DONTWAIT);
      if (length < 0) return;
      const request = parseArpRequest(this.#frame.subarray(0, length));
      if (request === undefined || keyOf(request.senderMac) === keyOf(this.#mac)) continue;
      if (this.addresses.has(keyOf(request.target)))
        this.#send(arpFrame(ARP_REPLY, this.#mac, request.target, request.senderMac, request.sender));
    }
  }

  protected announce(address: IpAddress): void {
    const own = addressBytes(address);
    this.#send(arpFrame(ARP_REQUEST, this.#mac, own, new Uint8Array(6).fill(255), own));
  }

  #send(frame: sys.Bytes): void {
    sys.sendTo(this.fd, frame, packetAddress(this.#link, ETH_P_ARP)); // not checked: the sender repeats its request
  }
}

class DiscoveryResponder extends Responder {
  readonly #link: number;
  readonly #mac: Uint8Array;
  readonly #message = sys.allocate(512);
  readonly #from = sys.allocate(28);

  constructor(link: number, name: string, mac: Uint8Array) {
    super(openDiscoverySocket(name));
    this.#link = link;
    this.#mac = mac;
  }

  protected poll(): void {
    for (;;) {
      const received = sys.receiveFrom(this.fd, this.#message, this.#from);
      if (typeof received === "number") return;
      const message = this.#message.subarray(0, received.length);
      const target = message.subarray(8, 24);
      if (message[0] !== ND_NEIGHBOR_SOLICIT || target.length < 16 || !this.addresses.has(keyOf(target))) continue;
      const sender = this.#from.subarray(8, 24);
      // A sender without an address checks whether the target is in use (duplicate address detection). The reply then goes
      // to all nodes: RFC 4861 section 7.2.4.
      const isUnspecified = sender.every((byte) => byte === 0);
      this.#send(advertisement(target, this.#mac, !isUnspecified), isUnspecified ? ALL_NODES : sender);
    }
  }

  protected announce(address: IpAddress): void {
    this.#send(advertisement(addressBytes(address), this.#mac, false), ALL_NODES);
  }
  /** Solicitations are sent to a multicast group that depends on the address. The kernel joins those of its own addresses. */
  protected override startReceiving(address: IpAddress): void {
    sys.setsockopt(this.fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, this.#membership(address));
  }
  protected override stopReceiving(address: IpAddress): void {
    sys.setsockopt(this.fd, IPPROTO_IPV6, IPV6_LEAVE_GROUP, this.#membership(address));
  }

  /** An ipv6_mreq with the solicited-node multicast address (RFC 4291 section 2.7.1). */
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
  if (arp.length < 28 || keyOf(arp.subarray(0, 8)) !== ARP_REQUEST_HEADER) return undefined;
  return { senderMac: arp.slice(8, 14), sender: arp.slice(14, 18), target: arp.slice(24, 28) };
}

function arpFrame(
  operation: number,
  senderMac: Uint8Array,
  sender: Uint8Array,
  targetMac: Uint8Array,
  target: Uint8Array,
): sys.Bytes {
  const frame = sys.allocate(42);
  frame.set([...targetMac, ...senderMac, 0x08, 0x06]); // Ethernet header
  frame.set([0, 1, 8, 0, 6, 4, 0, operation, ...senderMac, ...sender, ...targetMac, ...target], 14);
  return frame;
}

/** The kernel fills in the checksum. */
function advertisement(target: Uint8Array, mac: Uint8Array, isSolicited: boolean): sys.Bytes {
  const message = sys.allocate(32);
  message[0] = ND_NEIGHBOR_ADVERT;
  message[4] = (isSolicited ? 0x40 : 0) | 0x20; // flags Solicited and Override
  message.set(target, 8);
  message.set([2, 1, ...mac], 24);
  return message;
}

/** Opens a raw ICMPv6 socket that receives only neighbour solicitations of one link. */
function openDiscoverySocket(linkName: string): number {
  const type = sys.SOCK_RAW | sys.SOCK_NONBLOCK | sys.SOCK_CLOEXEC;
  const fd = checkSyscall(sys.socket(sys.AF_INET6, type, IPPROTO_ICMPV6), "open an ICMPv6 socket");
  const blocked = sys.allocate(32).fill(255); // one bit per ICMPv6 type
  blocked[ND_NEIGHBOR_SOLICIT >> 3] = 0xff & ~(1 << (ND_NEIGHBOR_SOLICIT & 7));
  try {
    for (const result of [
      sys.setsockopt(fd, IPPROTO_ICMPV6, ICMP6_FILTER, blocked),
      sys.setsockopt(fd, sys.SOL_SOCKET, SO_BINDTODEVICE, sys.cString(linkName)),
      // Receivers drop neighbour discovery packets with another hop limit: RFC 4861 section 7.1.2.
      sys.setsockoptInt(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, 255),
      sys.setsockoptInt(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 255),
    ])
      checkSyscall(result, `receive neighbour solicitations on ${linkName}`);
    return fd;
  } catch (error) {
    sys.close(fd);
    throw error;
  }
}
