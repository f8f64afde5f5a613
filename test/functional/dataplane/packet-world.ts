// Provides a host with four workloads and one external network. Any packet can be sent from any of them, and its arrival is
// detected. Packets are never answered, because a reply would make the next packet part of an established connection.
import { execFileSync } from "node:child_process";
import { NetworkNamespace, openRtnetlink, procSysctls, withNamespace } from "../../../src/kernel/index.ts";
import * as sys from "../../../src/kernel/sys/sys.ts";
import { addressBytes, type IpAddress } from "../../../src/lib/ip/ip.ts";
import type { Packet } from "../../../src/policy/index.ts";
import type { TestNamespace } from "../kernel/test-namespace.ts";
import { ipPacket, nonceOf } from "./raw-packet.ts";
import { ip, TestSpaces } from "./spaces.ts";

const AF_PACKET = 17;
const ETH_P_ALL = 0x0003;
const IPPROTO_RAW = 255;
const IPPROTO_IPV6 = 41;
const IPV6_HDRINCL = 36;
const SO_RCVBUFFORCE = 33;
const SOL_PACKET = 263;
const PACKET_IGNORE_OUTGOING = 23;
const RECEIVE_BYTES = 4 << 20;
/** Less than the kernel's queue per processor (`netdev_max_backlog`). */
const BURST = 500;
/** The timeout for packets that should arrive. */
const ARRIVAL_TIMEOUT_MS = 250;
const HOST_MAC = "ee:ee:ee:ee:ee:ee";

export interface WorldPod {
  readonly name: string;
  readonly interfaceName: string;
  readonly addresses: readonly IpAddress[];
}

/** A packet and its two places: "host", "outside" or a pod's name. */
export interface Sent {
  readonly packet: Packet;
  readonly from: string;
  readonly to: string;
}

interface Wire {
  /** A packet socket on the far interface. */
  readonly fd: number;
  readonly mac: Uint8Array;
  readonly hostMac: Uint8Array;
}

const mac = (text: string) => Uint8Array.from(text.split(":").map((part) => Number.parseInt(part, 16)));

export class PacketWorld implements Disposable {
  readonly host: TestNamespace;
  readonly handle: NetworkNamespace;
  readonly #spaces = new TestSpaces();
  readonly #wires = new Map<string, Wire>();
  readonly #hostSockets: number[] = [];
  readonly #raw4: number;
  readonly #raw6: number;
  readonly #buffer = sys.allocate(4096);
  #nonce = 1;
  /** The packets of the last `send`, by number. */
  readonly #waiting = new Map<number, { readonly index: number; readonly to: string }>();
  #arrived: boolean[] = [];

  constructor(pods: readonly WorldPod[], hostAddresses: readonly IpAddress[]) {
    this.host = this.#spaces.make("wh");
    this.handle = this.#spaces.open(this.host);
    withNamespace(this.handle, () => {
      procSysctls.write(["net", "ipv4", "ip_forward"], 1);
      procSysctls.write(["net", "ipv6", "conf", "all", "forwarding"], 1);
      for (const which of ["all", "default"]) procSysctls.write(["net", "ipv4", "conf", which, "rp_filter"], 0);
      procSysctls.write(["net", "ipv4", "icmp_ratelimit"], 0);
    });
    const outside = this.#spaces.make("wo");
    const host = this.host.name;
    this.#wire("outside", "eth0", "02:00:00:00:00:99", outside);
    const isV6 = (address: IpAddress) => address.includes(":");
    ip(
      host,
      ...hostAddresses.map((to) => `addr add ${to}/${isV6(to) ? "128" : "32"} dev eth0${isV6(to) ? " nodad" : ""}`),
      // The default route, to a gateway with a permanent neighbour entry.
      ...["169.254.9.9", "fe80::99"].flatMap((gateway) => [
        `neigh replace ${gateway} lladdr 02:00:00:00:00:99 dev eth0 nud permanent`,
        `route replace default via ${gateway} dev eth0 onlink`,
      ]),
    );
    for (const [i, pod] of pods.entries()) {
      const podMac = `02:00:00:00:01:0${i}`;
      this.#wire(pod.name, pod.interfaceName, podMac, this.#spaces.make("wp"));
      const device = `lladdr ${podMac} dev ${pod.interfaceName} nud permanent`;
      ip(host, ...pod.addresses.map((address) => `neigh replace ${address} ${device}`));
    }
    const raw = withNamespace(this.handle, () => {
      for (const [family, protocols] of [
        [sys.AF_INET, [6, 17, 1, 4]],
        [sys.AF_INET6, [6, 17, 58, 4]],
      ] as const)
        for (const protocol of protocols) {
          const fd = sys.socket(family, sys.SOCK_RAW, protocol);
          sys.setsockoptInt(fd, sys.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES);
          this.#hostSockets.push(fd);
        }
      const raw6 = sys.socket(sys.AF_INET6, sys.SOCK_RAW, IPPROTO_RAW);
      sys.setsockoptInt(raw6, IPPROTO_IPV6, IPV6_HDRINCL, 1);
      return [sys.socket(sys.AF_INET, sys.SOCK_RAW, IPPROTO_RAW), raw6] as const;
    });
    [this.#raw4, this.#raw6] = raw;
  }

  /** Creates a veth pair with one end in the host, and a socket at the far end that only receives. */
  #wire(name: string, hostInterface: string, farMac: string, space: TestNamespace): void {
    const far = `name far address ${farMac} netns ${space.name}`;
    ip(
      this.host.name,
      `link add ${hostInterface} address ${HOST_MAC} type veth peer ${far}`,
      `link set ${hostInterface} up`,
    );
    ip(space.name, "link set far arp off up");
    const handle = this.#spaces.open(space);
    using kernel = openRtnetlink(handle);
    const index = kernel.links.get("far")?.index ?? 0;
    const fd = space.enter(() => {
      execFileSync("nft", [
        "table inet quiet { chain c { type filter hook prerouting priority -500; policy drop;\n }\n }",
      ]);
      const socket = sys.socket(AF_PACKET, sys.SOCK_RAW, ((ETH_P_ALL & 0xff) << 8) | (ETH_P_ALL >> 8));
      const address = sys.allocate(20);
      const view = new DataView(address.buffer);
      view.setUint16(0, AF_PACKET, true);
      view.setUint16(2, ETH_P_ALL);
      view.setInt32(4, index, true);
      if (sys.bind(socket, address) < 0) throw new Error("cannot open a packet socket: run as root");
      sys.setsockoptInt(socket, sys.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES);
      sys.setsockoptInt(socket, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1);
      return socket;
    });
    this.#wires.set(name, { fd, mac: mac(farMac), hostMac: mac(HOST_MAC) });
  }

  /**
   * Sends packets, each from its place, and returns which of them arrived at their destination.
   * @param expected which packets should arrive. `send` returns when they have; `poll` detects others that arrive later
   */
  async send(packets: readonly Sent[], expected?: readonly boolean[]): Promise<boolean[]> {
    this.poll(); // discards late packets of earlier calls
    const arrived = packets.map(() => false);
    this.#waiting.clear();
    this.#arrived = arrived;
    let missing = 0;
    for (const [index, { packet, from, to }] of packets.entries()) {
      const nonce = this.#nonce++;
      this.#waiting.set(nonce, { index, to });
      this.#inject(from, packet, ipPacket(packet, nonce));
      if (index % BURST === BURST - 1) this.poll();
    }
    // Packets are processed in the context of the sender or in softirqs soon after, so the first poll finds nearly all.
    const deadlineMs = performance.now() + (expected === undefined ? 20 : ARRIVAL_TIMEOUT_MS);
    do {
      await new Promise((resolve) => setTimeout(resolve, 1));
      this.poll();
      missing = expected?.findIndex((should, index) => should && arrived[index] === false) ?? 0;
    } while (missing >= 0 && performance.now() < deadlineMs);
    return arrived;
  }

  /** Marks packets that arrived since in the result of the last `send`, so that late packets do not count as dropped. */
  poll(): void {
    for (const [name, { fd, mac: own }] of this.#wires) this.#take(fd, name, own);
    for (const fd of this.#hostSockets) this.#take(fd, "host");
  }

  #take(fd: number, place: string, own?: Uint8Array): void {
    for (;;) {
      const length = sys.recv(fd, this.#buffer, sys.MSG_DONTWAIT);
      if (length <= 0) return;
      if (own?.every((byte, i) => this.#buffer[i] === byte) === false) continue; // for another MAC address
      const nonce = nonceOf(this.#buffer, length);
      const found = nonce === undefined ? undefined : this.#waiting.get(nonce);
      if (found?.to === place) this.#arrived[found.index] = true;
    }
  }

  #inject(from: string, packet: Packet, bytes: Uint8Array): void {
    if (from !== "host") {
      const wire = this.#wires.get(from);
      if (wire === undefined) throw new Error(`no wire to ${from}`);
      const frame = sys.allocate(14 + bytes.length);
      frame.set(wire.hostMac, 0);
      frame.set(wire.mac, 6);
      frame.set(packet.destination.includes(":") ? [0x86, 0xdd] : [0x08, 0x00], 12);
      frame.set(bytes, 14);
      sys.send(wire.fd, frame, frame.length, 0);
      return;
    }
    const isV6 = packet.destination.includes(":");
    const address = sys.allocate(isV6 ? 28 : 16);
    new DataView(address.buffer).setUint16(0, isV6 ? sys.AF_INET6 : sys.AF_INET, true);
    address.set(addressBytes(packet.destination), isV6 ? 8 : 4);
    const fd = isV6 ? this.#raw6 : this.#raw4;
    sys.connect(fd, address);
    const copy = sys.allocate(bytes.length);
    copy.set(bytes);
    sys.send(fd, copy, copy.length, 0);
  }

  forgetConnections(): void {
    this.host.enter(() => execFileSync("conntrack", ["-F"], { stdio: "pipe" }));
  }

  [Symbol.dispose](): void {
    for (const fd of [...this.#hostSockets, this.#raw4, this.#raw6]) sys.close(fd);
    for (const { fd } of this.#wires.values()) sys.close(fd);
    this.#spaces[Symbol.dispose]();
  }
}
