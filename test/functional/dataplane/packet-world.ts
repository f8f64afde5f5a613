// A host with four workloads and everything else behind one wire, where any packet can be sent from any of them and is
// seen when it arrives. Nobody answers: a reply would turn the next packet into part of a connection.
import { execFileSync } from "node:child_process";
import { NetworkNamespace, openRouteKernel, procSysctls, withNamespace } from "../../../src/kernel/index.ts";
import * as sys from "../../../src/kernel/sys.ts";
import { addressBytes, type IpAddress } from "../../../src/lib/ip.ts";
import type { Packet } from "../../../src/policy/index.ts";
import type { TestNamespace } from "../kernel/namespace.ts";
import { ipPacket, nonceOf } from "./raw-packet.ts";
import { TestSpaces } from "./spaces.ts";

const AF_PACKET = 17;
const ETH_P_ALL = 0x0003;
const IPPROTO_RAW = 255;
const IPPROTO_IPV6 = 41;
const IPV6_HDRINCL = 36;
const SO_RCVBUFFORCE = 33;
const HOST_MAC = "ee:ee:ee:ee:ee:ee";

export interface WorldPod {
  readonly name: string;
  readonly interfaceName: string;
  readonly addresses: readonly IpAddress[];
}

interface Wire {
  /** A packet socket on the far side's interface. */
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
    const ip = (...args: string[]) => execFileSync("ip", args, { stdio: "pipe" });
    const host = this.host.name;
    this.#wire("outside", "eth0", "02:00:00:00:00:99", outside);
    for (const address of hostAddresses)
      ip(
        "-n",
        host,
        "addr",
        "add",
        `${address}/${address.includes(":") ? 128 : 32}`,
        "dev",
        "eth0",
        ...(address.includes(":") ? ["nodad"] : []),
      );
    // The way out, to somebody who never needs to be asked for his MAC.
    for (const [family, gateway] of [
      ["-4", "169.254.9.9"],
      ["-6", "fe80::99"],
    ] as const) {
      ip("-n", host, "neigh", "replace", gateway, "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent");
      ip("-n", host, family, "route", "replace", "default", "via", gateway, "dev", "eth0", "onlink");
    }
    for (const [i, pod] of pods.entries()) {
      const podMac = `02:00:00:00:01:0${i}`;
      this.#wire(pod.name, pod.interfaceName, podMac, this.#spaces.make("wp"));
      for (const address of pod.addresses)
        ip("-n", host, "neigh", "replace", address, "lladdr", podMac, "dev", pod.interfaceName, "nud", "permanent");
    }
    const raw = withNamespace(this.handle, () => {
      for (const [family, protocols] of [
        [sys.AF_INET, [6, 17, 1, 4]],
        [sys.AF_INET6, [6, 17, 58, 4]],
      ] as const)
        for (const protocol of protocols) {
          const fd = sys.socket(family, sys.SOCK_RAW, protocol);
          sys.setsockoptInt(fd, sys.SOL_SOCKET, SO_RCVBUFFORCE, 4 << 20);
          this.#hostSockets.push(fd);
        }
      const raw6 = sys.socket(sys.AF_INET6, sys.SOCK_RAW, IPPROTO_RAW);
      sys.setsockoptInt(raw6, IPPROTO_IPV6, IPV6_HDRINCL, 1);
      return [sys.socket(sys.AF_INET, sys.SOCK_RAW, IPPROTO_RAW), raw6] as const;
    });
    [this.#raw4, this.#raw6] = raw;
  }

  /** A pair with the host's end in the host, and at the far end one who listens and says nothing. */
  #wire(name: string, hostInterface: string, farMac: string, space: TestNamespace): void {
    const ip = (...args: string[]) => execFileSync("ip", args, { stdio: "pipe" });
    const host = this.host.name;
    ip(
      "-n",
      host,
      "link",
      "add",
      hostInterface,
      "address",
      HOST_MAC,
      "type",
      "veth",
      "peer",
      "name",
      "far",
      "address",
      farMac,
      "netns",
      space.name,
    );
    ip("-n", space.name, "link", "set", "far", "arp", "off", "up");
    ip("-n", host, "link", "set", hostInterface, "up");
    const handle = this.#spaces.open(space);
    using kernel = openRouteKernel(handle);
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
      if (sys.bind(socket, address) < 0) throw new Error("cannot listen on a wire: run as root");
      sys.setsockoptInt(socket, sys.SOL_SOCKET, SO_RCVBUFFORCE, 4 << 20);
      return socket;
    });
    this.#wires.set(name, { fd, mac: mac(farMac), hostMac: mac(HOST_MAC) });
  }

  /**
   * Sends packets, each from its place, and tells which arrived at the place they are for.
   * @param place "host", "outside" or a pod's name
   */
  async send(
    packets: readonly { readonly packet: Packet; readonly from: string; readonly to: string }[],
  ): Promise<boolean[]> {
    this.#drain(new Map());
    const waiting = new Map<number, { index: number; to: string }>();
    const arrived = packets.map(() => false);
    for (const [index, { packet, from, to }] of packets.entries()) {
      const nonce = this.#nonce++;
      waiting.set(nonce, { index, to });
      this.#inject(from, packet, ipPacket(packet, nonce));
    }
    // Everything happens in the senders' context or in softirqs right after: a few looks are enough, and a late
    // arrival would show as a difference, not hide one.
    for (let look = 0; look < 6; look++) {
      await new Promise((resolve) => setTimeout(resolve, look < 3 ? 1 : 5));
      this.#drain(waiting, (index) => (arrived[index] = true));
    }
    return arrived;
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

  #drain(
    waiting: ReadonlyMap<number, { index: number; to: string }>,
    arrived: (index: number) => void = () => {},
  ): void {
    const take = (fd: number, place: string, isForUs: (length: number) => boolean) => {
      for (;;) {
        const length = sys.recv(fd, this.#buffer, sys.MSG_DONTWAIT);
        if (length <= 0) return;
        if (!isForUs(length)) continue;
        const nonce = nonceOf(this.#buffer, length);
        const found = nonce === undefined ? undefined : waiting.get(nonce);
        if (found?.to === place) arrived(found.index);
      }
    };
    for (const [name, { fd, mac: own }] of this.#wires)
      take(fd, name, () => own.every((byte, i) => this.#buffer[i] === byte)); // not what we sent ourselves
    for (const fd of this.#hostSockets) take(fd, "host", () => true);
  }

  forgetConnections(): void {
    execFileSync("ip", ["netns", "exec", this.host.name, "conntrack", "-F"], { stdio: "pipe" });
  }

  [Symbol.dispose](): void {
    for (const fd of [...this.#hostSockets, this.#raw4, this.#raw6]) sys.close(fd);
    for (const { fd } of this.#wires.values()) sys.close(fd);
    this.#spaces[Symbol.dispose]();
  }
}
