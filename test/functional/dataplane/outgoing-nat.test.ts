// Tests the source address and port of traffic that leaves the cluster, for all settings of outgoing NAT and both IP versions.
import { describe, expect, test } from "bun:test";
import type { IpAddress } from "../../../src/lib/ip/ip.ts";
import { allowProfile, BACKENDS, DataplaneHost, inSync, pool } from "./host.ts";

const OUTSIDE = "192.0.2.99" as IpAddress;
const OUTSIDE6 = "2001:db8::99" as IpAddress;
const SNAT = "192.0.2.77";
const syn = "tcp dport 80 tcp flags syn";
const datagram = "udp dport 80";

for (const backend of BACKENDS)
  describe(backend, () => {
    /** Sends TCP and UDP from a pod to outside. Returns which of the senders arrived, and the number of packets from others. */
    async function trial(settings: Readonly<Record<string, string>>, senders: Readonly<Record<string, string>>) {
      await using host = await DataplaneHost.create(backend, settings);
      const a = host.addPod("a", 2);
      host.exec(host.hostTarget, "ip", "addr", "add", `${SNAT}/32`, "dev", "eth0");
      for (const p of ["tcp", "udp"] as const) host.prober.listen(host.outside, p, 80);
      const everything = [syn, datagram].map((match) => host.count(host.outside, match));
      const counts = Object.entries(senders).map(([name, match]) => [name, host.count(host.outside, match)] as const);
      host.start();
      await host.send(
        allowProfile,
        host.endpoint(a),
        pool("10.65.0.0/16", { masquerade: true }),
        pool("fd00:65::/64", { masquerade: true }),
        inSync,
      );
      const cells = [OUTSIDE, OUTSIDE6].flatMap((to) =>
        (["tcp", "udp"] as const).map((protocol) => ({ from: a.target, to, protocol, sourcePort: 1500 })),
      );
      expect(await host.probe(cells, 3000)).toEqual(cells.map(() => "reached"));
      const seen = counts.map(([name, count]) => [name, count()] as const);
      // The first packet may be repeated until the neighbour is resolved, so the count does not matter.
      const sum = (list: readonly number[]) => list.reduce((total, each) => total + each, 0);
      const others = sum(everything.map((count) => count())) - sum(seen.map(([, count]) => count));
      return { ...Object.fromEntries(seen.map(([name, count]) => [name, count > 0])), others };
    }
    const by = (v4: string, v6: string, port: string) => ({
      tcp: `ip saddr ${v4} ${syn} tcp sport ${port}`,
      udp: `ip saddr ${v4} ${datagram} udp sport ${port}`,
      tcp6: `ip6 saddr ${v6} ${syn} tcp sport ${port}`,
      udp6: `ip6 saddr ${v6} ${datagram} udp sport ${port}`,
    });
    const all = { tcp: true, udp: true, tcp6: true, udp6: true, others: 0 };

    test("FD-049 masqueraded to the address of the host, with ports of the range if one is configured", async () => {
      expect(await trial({}, by("192.0.2.10", "2001:db8::10", "1-65535"))).toEqual(all);
      const range = { NATPortRange: "40000:40100" };
      expect(await trial(range, by("192.0.2.10", "2001:db8::10", "40000-40100"))).toEqual(all);
    }, 60_000);

    test("FD-049 translated to the configured address for its IP version, to that of the host for the other, both with the port range", async () => {
      const settings = { NATOutgoingAddress: SNAT, NATPortRange: "40000:40100" };
      expect(await trial(settings, by(SNAT, "2001:db8::10", "40000-40100"))).toEqual(all);
    }, 60_000);

    test("FD-049 only on the interfaces of the interface filter", async () => {
      const filter = (name: string) => ({ IptablesNATOutgoingInterfaceFilter: name });
      const asHost = by("192.0.2.10", "2001:db8::10", "1-65535");
      const asPod = by("10.65.0.2", "fd00:65::2", "1500");
      expect(await trial(filter("eth+"), asHost)).toEqual(all);
      expect(await trial(filter("eth0"), asHost)).toEqual(all);
      expect(await trial(filter("wlan+"), asPod)).toEqual(all);
    }, 60_000);
  });
