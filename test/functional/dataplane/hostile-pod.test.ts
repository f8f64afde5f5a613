// Tests packets that a pod with CAP_NET_RAW can send to bypass policy of another pod, to take over its traffic, or to
// reconfigure its node. Every frame is sent as raw bytes. Pod a is the attacker; policy of pod b accepts only packets of pod c.
import { describe, expect, test } from "bun:test";
import type { ProbeEndpoint } from "../../../src/kernel/index.ts";
import type { IpAddress } from "../../../src/lib/ip/ip.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import * as frames from "../../support/raw-frames.ts";
import { allowProfile, BACKENDS, type Backend, DataplaneHost, inSync, type Pod, policy, rule, tier } from "./host.ts";
import { ipPacket } from "./raw-packet.ts";

const HOST = "192.0.2.10" as IpAddress;
const OUTSIDE = "192.0.2.99" as IpAddress;
const GATEWAY6 = "fe80::ecee:eeff:feee:eeee" as IpAddress;
const ALL_NODES = "ff02::1" as IpAddress;
const EVIL_MAC = "02:00:00:00:00:66";
const { arp, ETHERTYPE, FrameSocket, HOST_MAC, frame } = frames;

const udpPacket = (source: IpAddress, destination: IpAddress, nonce: number) =>
  ipPacket({ source, destination, protocol: 17, sourcePort: 4000, destinationPort: 7777 }, nonce);
const typeOf = (bytes: Uint8Array) => ((bytes[0] ?? 0) >> 4 === 4 ? ETHERTYPE.ipv4 : ETHERTYPE.ipv6);

class HostilePods implements AsyncDisposable {
  #nonce = 1;
  private constructor(
    readonly host: DataplaneHost,
    readonly a: Pod,
    readonly b: Pod,
    readonly c: Pod,
    readonly sockets: Readonly<Record<"a" | "b" | "c", frames.FrameSocket>>,
  ) {}

  static async create(backend: Backend): Promise<HostilePods> {
    const host = await DataplaneHost.create(backend);
    const [a, b, c] = [host.addPod("a", 2), host.addPod("b", 3), host.addPod("c", 4)];
    const index = ({ target }: { readonly target: ProbeEndpoint }) =>
      Number(/^(\d+): eth0/m.exec(host.exec(target, "ip", "-o", "link"))?.[1]);
    const socket = (pod: Pod) => new FrameSocket(pod.target, index(pod));
    const pods = new HostilePods(host, a, b, c, { a: socket(a), b: socket(b), c: socket(c) });
    host.start();
    await host.send(
      allowProfile,
      { type: "ipSetUpdate", id: "s:c", setType: "net", members: [`${c.v4}/32`, `${c.v6}/128`] },
      policy("from-c", [rule({ srcIpSetIds: ["s:c"] })]),
      host.endpoint(a),
      host.endpoint(b, { tiers: [tier(["from-c"])] }),
      host.endpoint(c),
      inSync,
    );
    return pods;
  }

  nonce(): number {
    return this.#nonce++;
  }

  /** Sends IP packets from a pod to its node, as frames. */
  send(from: "a" | "c", ...packets: readonly Uint8Array[]): void {
    for (const bytes of packets) this.sockets[from].send(frame(HOST_MAC, EVIL_MAC, typeOf(bytes), bytes));
  }

  /** Checks that packets of c reach b and not a, with both IP versions. Returns the packets that b received meanwhile. */
  async expectUndisturbed(): Promise<ReadonlySet<number>> {
    const { b, c } = this;
    const desired = [this.nonce(), this.nonce()] as const;
    const seen = new Set<number>();
    this.sockets.a.take();
    this.send("c", udpPacket(c.v4, b.v4, desired[0]), udpPacket(c.v6, b.v6, desired[1]));
    await eventually(() => {
      for (const nonce of this.sockets.b.take()) seen.add(nonce);
      return desired.every((nonce) => seen.has(nonce));
    }, 5_000);
    expect(this.sockets.a.take()).toEqual([]);
    return seen;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of Object.values(this.sockets)) socket[Symbol.dispose]();
    await this.host[Symbol.asyncDispose]();
  }
}

for (const backend of BACKENDS)
  describe(backend, () => {
    test("packets with another source address, in tunnels or in fragments do not bypass policy", async () => {
      await using pods = await HostilePods.create(backend);
      const { host, a, b, c } = pods;
      const sources4 = [a.v4, c.v4, b.v4, HOST, OUTSIDE, "127.0.0.1", "0.0.0.0", "169.254.1.1"] as IpAddress[];
      const sources6 = [a.v6, c.v6, b.v6, "2001:db8::10", "2001:db8::99", "::1", GATEWAY6] as IpAddress[];
      /** Sends the packets from a, and returns those that arrived at b before a packet that c sends later. */
      const send = async (): Promise<string[]> => {
        const sent = new Map<number, string>();
        const numbered = (what: string) => {
          const nonce = pods.nonce();
          sent.set(nonce, what);
          return nonce;
        };
        for (const source of sources4) pods.send("a", udpPacket(source, b.v4, numbered(`from ${source}`)));
        for (const source of sources6) pods.send("a", udpPacket(source, b.v6, numbered(`from ${source}`)));
        for (const destination of [HOST, b.v4]) {
          pods.send("a", frames.ipv4(a.v4, destination, 4, udpPacket(c.v4, b.v4, numbered(`IPIP to ${destination}`))));
          pods.send("a", frames.vxlan(a.v4, destination, udpPacket(c.v4, b.v4, numbered(`VXLAN to ${destination}`))));
        }
        const payload = udpPacket(a.v4, b.v4, numbered("fragments")).slice(20);
        pods.send("a", ...frames.fragmented(a.v4, b.v4, 17, payload, 99));
        const arrived = await pods.expectUndisturbed();
        return [...sent].filter(([nonce]) => arrived.has(nonce)).map(([, what]) => what);
      };
      expect(await send()).toEqual([]);
      // Without rules the same packets arrive, so it is the rules that drop them.
      await host.stop();
      host.namespace.run("nft", ["flush", "ruleset"]);
      if (backend === "legacy")
        for (const tool of ["iptables-legacy", "ip6tables-legacy"])
          for (const table of ["raw", "mangle", "filter", "nat"]) host.namespace.run(tool, ["-t", table, "-F"]);
      expect(await send()).toEqual(
        expect.arrayContaining([`from ${c.v4}`, `from ${c.v6}`, `IPIP to ${b.v4}`, "fragments"]),
      );
    }, 60_000);

    test("forged ARP and neighbour advertisements do not redirect traffic of other pods", async () => {
      await using pods = await HostilePods.create(backend);
      const { a, b, c, sockets } = pods;
      const claimed = [b.v4, c.v4, "169.254.1.1" as IpAddress, HOST];
      const host = { mac: HOST_MAC, address: "169.254.1.1" as IpAddress };
      for (const address of claimed)
        for (const to of [HOST_MAC, frames.BROADCAST_MAC])
          for (const kind of ["request", "reply"] as const) {
            const sender = { mac: EVIL_MAC, address };
            sockets.a.send(frame(to, EVIL_MAC, ETHERTYPE.arp, arp(kind, sender, { mac: to, address })));
            sockets.a.send(frame(to, EVIL_MAC, ETHERTYPE.arp, arp(kind, sender, host)));
          }
      for (const about of [b.v6, c.v6, GATEWAY6, "2001:db8::10" as IpAddress])
        for (const destination of [GATEWAY6, ALL_NODES])
          for (const source of [a.v6, about])
            pods.send("a", frames.neighbourAdvertisement(source, destination, about, EVIL_MAC));
      await pods.expectUndisturbed();
      expect(pods.host.namespace.run("ip", ["neigh", "show", "dev", b.interfaceName])).not.toContain(EVIL_MAC);
    }, 60_000);

    test("router advertisements, redirects and DHCP offers change neither the node nor other pods", async () => {
      await using pods = await HostilePods.create(backend);
      const { host, a, b, c, sockets } = pods;
      const state = () =>
        [host.hostTarget, b.target, c.target].map((where) => {
          const show = (...words: string[]) => host.exec(where, "ip", ...words);
          return [show("-4", "route"), show("-6", "route"), show("-o", "-6", "addr", "show", "scope", "global")];
        });
      await pods.expectUndisturbed(); // the neighbour tables are filled now
      const before = state();
      const linkLocal = "fe80::66" as IpAddress;
      pods.send("a", frames.routerAdvertisement(linkLocal, "2001:db8:bad::" as IpAddress));
      pods.send("a", frames.routerAdvertisement(a.v6, "2001:db8:bad::" as IpAddress));
      for (const destination of [HOST, b.v4]) {
        const quoted = udpPacket(destination, c.v4, pods.nonce());
        for (const source of [a.v4, "169.254.1.1", OUTSIDE] as IpAddress[])
          pods.send("a", frames.redirect(source, destination, a.v4, quoted));
      }
      const offer = pods.nonce();
      for (const source of [a.v4, HOST, "0.0.0.0" as IpAddress])
        sockets.a.send(frame(frames.BROADCAST_MAC, EVIL_MAC, ETHERTYPE.ipv4, frames.dhcpOffer(source, offer)));
      const arrived = await pods.expectUndisturbed();
      expect([...arrived, ...sockets.c.take()]).not.toContain(offer);
      expect(state()).toEqual(before);
      expect(host.namespace.run("ip", ["route", "get", c.v4])).toContain(`dev ${c.interfaceName}`);
    }, 60_000);
  });
