// Builds raw frames, as a process with CAP_NET_RAW can send, and opens sockets that send and receive them.
import { closeSync, openSync } from "node:fs";
import type { ProbeEndpoint } from "../../src/kernel/index.ts";
import * as sys from "../../src/kernel/sys/sys.ts";
import { addressBytes, type IpAddress } from "../../src/lib/ip/ip.ts";
import { checksum, join, nonceOf, pseudoHeader } from "../functional/dataplane/raw-packet.ts";

const AF_PACKET = 17;
const ETH_P_ALL = 3;
const SOL_PACKET = 263;
const PACKET_IGNORE_OUTGOING = 23;
const SO_RCVBUFFORCE = 33;
const RECEIVE_BYTES = 4 << 20;
const IPPROTO_ICMPV6 = 58;

export const ETHERTYPE = { ipv4: 0x0800, arp: 0x0806, ipv6: 0x86dd } as const;
/** The MAC address of the host's end of every workload interface. */
export const HOST_MAC = "ee:ee:ee:ee:ee:ee";
export const BROADCAST_MAC = "ff:ff:ff:ff:ff:ff";

/** Runs synchronous code in a namespace: sockets opened there stay there. */
function inNamespaceOf<T>(target: ProbeEndpoint, body: () => T extends PromiseLike<unknown> ? never : T): T {
  const home = openSync("/proc/thread-self/ns/net", "r");
  try {
    if (sys.setns(target.namespace, sys.CLONE_NEWNET) < 0)
      throw new Error(`cannot enter the namespace of ${target.name}`);
    return body();
  } finally {
    sys.setns(home, sys.CLONE_NEWNET);
    closeSync(home);
  }
}

/** Collects the numbers of packets that a socket received. */
abstract class NonceSocket implements Disposable {
  protected readonly fd: number;
  readonly #buffer = sys.allocate(65_536);
  constructor(fd: number, what: string) {
    if (fd < 0) throw new Error(`cannot open ${what}: run as root`);
    this.fd = fd;
    sys.setsockoptInt(fd, sys.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES);
  }
  /** Returns the numbers of all packets since the last call. */
  take(): number[] {
    const seen: number[] = [];
    for (;;) {
      const length = sys.recv(this.fd, this.#buffer, sys.MSG_DONTWAIT);
      if (length <= 0) return seen;
      const nonce = nonceOf(this.#buffer, length);
      if (nonce !== undefined) seen.push(nonce);
    }
  }
  [Symbol.dispose](): void {
    sys.close(this.fd);
  }
}

/** A packet socket on an interface: sends any frame, and receives all frames that arrive there. */
export class FrameSocket extends NonceSocket {
  /** @param index of the interface; that of a pod is 2 if it has only lo and eth0 */
  constructor(target: ProbeEndpoint, index: number) {
    const protocol = ((ETH_P_ALL & 0xff) << 8) | (ETH_P_ALL >> 8);
    super(
      inNamespaceOf(target, () => sys.socket(AF_PACKET, sys.SOCK_RAW | sys.SOCK_NONBLOCK, protocol)),
      "a packet socket",
    );
    const address = sys.allocate(20);
    const view = new DataView(address.buffer);
    view.setUint16(0, AF_PACKET, true);
    view.setUint16(2, ETH_P_ALL);
    view.setInt32(4, index, true);
    if (sys.bind(this.fd, address) < 0) throw new Error(`${target.name} has no interface with index ${index}`);
    sys.setsockoptInt(this.fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1);
  }
  send(frame: Uint8Array): void {
    const bytes = sys.allocate(frame.length);
    bytes.set(frame);
    sys.send(this.fd, bytes, bytes.length, sys.MSG_DONTWAIT);
  }
}

/** A raw IP socket: receives the packets that the namespace accepts after its packet filter. */
export class ReceivedPackets extends NonceSocket {
  constructor(target: ProbeEndpoint, version: 4 | 6, protocol: number) {
    super(
      inNamespaceOf(target, () =>
        sys.socket(version === 4 ? sys.AF_INET : sys.AF_INET6, sys.SOCK_RAW | sys.SOCK_NONBLOCK, protocol),
      ),
      "a raw IP socket",
    );
  }
}

const mac = (text: string): Uint8Array => Uint8Array.from(text.split(":").map((part) => Number.parseInt(part, 16)));

export function frame(to: string, from: string, type: number, payload: Uint8Array): Uint8Array {
  return join(join(mac(to), mac(from)), join(Uint8Array.of(type >> 8, type & 0xff), payload));
}

/** An ARP message (RFC 826). */
export function arp(
  kind: "request" | "reply",
  sender: { readonly mac: string; readonly address: IpAddress },
  target: { readonly mac: string; readonly address: IpAddress },
): Uint8Array {
  const head = Uint8Array.of(0, 1, 8, 0, 6, 4, 0, kind === "request" ? 1 : 2);
  const end = (each: typeof sender) => join(mac(each.mac), addressBytes(each.address));
  return join(head, join(end(sender), end(target)));
}

/** @param fragment offset in bytes, and whether more fragments follow */
export function ipv4(
  source: IpAddress,
  destination: IpAddress,
  protocol: number,
  payload: Uint8Array,
  fragment: { readonly offset: number; readonly isLast: boolean; readonly id?: number } = { offset: 0, isLast: true },
): Uint8Array {
  const header = new Uint8Array(20);
  const view = new DataView(header.buffer);
  header[0] = 0x45;
  view.setUint16(2, 20 + payload.length);
  view.setUint16(4, fragment.id ?? 0);
  view.setUint16(6, (fragment.isLast ? 0 : 0x2000) | (fragment.offset >> 3));
  header[8] = 64;
  header[9] = protocol;
  header.set(addressBytes(source), 12);
  header.set(addressBytes(destination), 16);
  view.setUint16(10, checksum([header]));
  return join(header, payload);
}

export function ipv6(
  source: IpAddress,
  destination: IpAddress,
  protocol: number,
  payload: Uint8Array,
  hops = 64,
): Uint8Array {
  const header = new Uint8Array(40);
  header[0] = 0x60;
  new DataView(header.buffer).setUint16(4, payload.length);
  header[6] = protocol;
  header[7] = hops;
  header.set(addressBytes(source), 8);
  header.set(addressBytes(destination), 24);
  return join(header, payload);
}

/** A UDP datagram over IPv4 whose checksum is left out, which receivers accept. */
function udp(sourcePort: number, destinationPort: number, payload: Uint8Array): Uint8Array {
  const header = new Uint8Array(8);
  const view = new DataView(header.buffer);
  view.setUint16(0, sourcePort);
  view.setUint16(2, destinationPort);
  view.setUint16(4, 8 + payload.length);
  return join(header, payload);
}

/** A VXLAN packet (RFC 7348) that carries an IPv4 packet, in the network that Calico uses. */
export function vxlan(source: IpAddress, destination: IpAddress, inner: Uint8Array): Uint8Array {
  const vni = Uint8Array.of(8, 0, 0, 0, 0, 0x10, 0, 0); // 4096
  const ethernet = frame("66:00:00:00:00:01", "66:00:00:00:00:02", ETHERTYPE.ipv4, inner);
  return ipv4(source, destination, 17, udp(40_000, 4789, join(vni, ethernet)));
}

/** An IPv4 packet in fragments of eight bytes: ports and payload are in different fragments. */
export function fragmented(
  source: IpAddress,
  destination: IpAddress,
  protocol: number,
  payload: Uint8Array,
  id: number,
) {
  const parts: Uint8Array[] = [];
  for (let offset = 0; offset < payload.length; offset += 8)
    parts.push(
      ipv4(source, destination, protocol, payload.slice(offset, offset + 8), {
        offset,
        isLast: offset + 8 >= payload.length,
        id,
      }),
    );
  return parts;
}

function icmpv6(source: IpAddress, destination: IpAddress, message: Uint8Array): Uint8Array {
  const [from, to] = [addressBytes(source), addressBytes(destination)];
  const body = message.slice();
  new DataView(body.buffer).setUint16(2, checksum([pseudoHeader(IPPROTO_ICMPV6, from, to)(body.length), body]));
  return ipv6(source, destination, IPPROTO_ICMPV6, body, 255);
}

/** An unsolicited neighbour advertisement that overrides existing entries (RFC 4861, 4.4). */
export function neighbourAdvertisement(
  source: IpAddress,
  destination: IpAddress,
  about: IpAddress,
  at: string,
): Uint8Array {
  const head = Uint8Array.of(136, 0, 0, 0, 0x20, 0, 0, 0);
  return icmpv6(source, destination, join(join(head, addressBytes(about)), join(Uint8Array.of(2, 1), mac(at))));
}

/** A router advertisement for an hour, with a prefix for autoconfiguration (RFC 4861, 4.2). */
export function routerAdvertisement(source: IpAddress, prefix: IpAddress): Uint8Array {
  const head = Uint8Array.of(134, 0, 0, 0, 64, 0, 0x0e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0);
  const option = Uint8Array.of(3, 4, 64, 0xc0, 0, 0, 0x0e, 0x10, 0, 0, 0x0e, 0x10, 0, 0, 0, 0);
  return icmpv6(source, "ff02::1" as IpAddress, join(head, join(option, addressBytes(prefix))));
}

/** An ICMP redirect: packets to the destination of `about` shall go to another gateway (RFC 792). */
export function redirect(source: IpAddress, destination: IpAddress, gateway: IpAddress, about: Uint8Array): Uint8Array {
  const message = join(join(Uint8Array.of(5, 1, 0, 0), addressBytes(gateway)), about.slice(0, 28));
  new DataView(message.buffer).setUint16(2, checksum([message]));
  return ipv4(source, destination, 1, message);
}

/** A DHCP offer as a broadcast, with a number by which it is recognised (RFC 2131). */
export function dhcpOffer(source: IpAddress, nonce: number): Uint8Array {
  const message = new Uint8Array(244);
  message.set([2, 1, 6, 0]);
  message.set([0x63, 0x82, 0x53, 0x63, 53, 1, 2, 255], 236);
  const mark = new Uint8Array(8);
  new DataView(mark.buffer).setUint32(0, 0x63616c69);
  new DataView(mark.buffer).setUint32(4, nonce);
  message.set(mark, 44); // in the server's name
  return ipv4(source, "255.255.255.255" as IpAddress, 17, udp(67, 68, message));
}

/** The TCP packet over IPv4 with ACK instead of SYN: as if it belonged to a connection. */
export function withAckFlag(packet: Uint8Array): Uint8Array {
  const bytes = packet.slice();
  const view = new DataView(bytes.buffer);
  const [flags, sum] = [view.getUint16(32), view.getUint16(36)];
  view.setUint16(32, (flags & ~0x3f) | 0x10);
  // RFC 1624: incremental update of the checksum.
  let next = (~sum & 0xffff) + (~flags & 0xffff) + view.getUint16(32);
  while (next > 0xffff) next = (next & 0xffff) + (next >>> 16);
  view.setUint16(36, ~next & 0xffff);
  return bytes;
}
