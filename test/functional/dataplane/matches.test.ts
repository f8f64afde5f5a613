// Tests every match and every action of rules with both IP versions, by sending packets. Each case lists the packets that its
// rule matches and those that it does not match.
import { describe, expect, test } from "bun:test";
import type { DataplaneMessage, ProtoRule } from "../../../src/calc/index.ts";
import type { Cidr, IpAddress } from "../../../src/lib/ip/ip.ts";
import { describePacket, type Packet } from "../../../src/policy/index.ts";
import { allowProfile, BACKENDS, inSync, policy, policyId, rule, tier, workload } from "./host.ts";
import { WorldDataplane } from "./world-dataplane.ts";

const SOURCE = { name: "pod0", interfaceName: "cali0", addresses: ["10.0.0.1", "fd00::1"] as IpAddress[] };
const TARGET = { name: "pod1", interfaceName: "cali1", addresses: ["10.0.0.2", "fd00::2"] as IpAddress[] };
const OTHER = { name: "pod2", interfaceName: "cali2", addresses: ["10.0.0.3", "fd00::3"] as IpAddress[] };
const HOST = ["192.168.0.1", "fd00:f::1"] as IpAddress[];

type Family = 4 | 6;
const TCP = 6;
const UDP = 17;
const SCTP = 132;
const tcp = { name: "tcp" };
const udp = { name: "udp" };
const port = (first: number, last = first) => ({ first, last });
const manyPorts = Array.from({ length: 20 }, (_, i) => port(2000 + 2 * i));
const nets = (...list: string[]) => list as Cidr[];

interface Sent {
  readonly packet: (sourcePort: number) => Packet;
  readonly from: string;
}
/** The default source is the first pod. Each packet has its own source port, so that each is a new connection. */
const send = (family: Family, protocol: number, destinationPort?: number, more: Partial<Packet> = {}): Sent => {
  const source = more.source ?? SOURCE.addresses[family === 4 ? 0 : 1]!;
  const destination = TARGET.addresses[family === 4 ? 0 : 1]!;
  const from = [SOURCE, OTHER].find((pod) => pod.addresses.includes(source))?.name ?? "outside";
  const hasPorts = [TCP, UDP, SCTP].includes(protocol);
  return {
    from,
    packet: (sourcePort) => ({
      source,
      destination,
      protocol,
      ...(hasPorts ? { sourcePort, destinationPort: destinationPort ?? 80 } : {}),
      ...more,
    }),
  };
};
const both = (protocol: number, destinationPort?: number): Sent[] => [
  send(4, protocol, destinationPort),
  send(6, protocol, destinationPort),
];
const echo = (type: number, code = 0) => send(4, 1, undefined, { icmp: { type, code } });
const echo6 = (type: number, code = 0) => send(6, 58, undefined, { icmp: { type, code } });
const outside = (address: string, destinationPort = 80) =>
  send(address.includes(":") ? 6 : 4, TCP, destinationPort, { source: address as IpAddress });
const fromPort = (family: Family, sourcePort: number) => send(family, TCP, 80, { sourcePort });

interface Case {
  readonly name: string;
  readonly rule: Partial<ProtoRule>;
  readonly takes: readonly Sent[];
  readonly leaves: readonly Sent[];
}

const set = (id: string, setType: "net" | "ipAndPort", ...members: string[]): DataplaneMessage => ({
  type: "ipSetUpdate",
  id,
  setType,
  members,
});
const SETS = [
  set("s:pod0", "net", "10.0.0.1/32", "fd00::1/128"),
  set("s:pod1", "net", "10.0.0.2/32", "fd00::2/128"),
  set("s:nobody", "net"),
  set("s:wide", "net", "10.0.0.0/24", "10.0.0.0/16", "fd00::/64"),
  set("n:web", "ipAndPort", "10.0.0.2,tcp:8080", "fd00::2,tcp:8080", "10.0.0.2,sctp:9000", "10.0.0.2,udp:8080"),
  set("n:client", "ipAndPort", "10.0.0.1,tcp:4000", "fd00::1,tcp:4000"),
];

/** Named ports that no packet has. */
const unused = (side: string) => Array.from({ length: 20 }, (_, i) => `n:unused-${side}-${i}`);
const UNUSED_SETS = ["source", "destination"].flatMap(unused).map((id) => set(id, "ipAndPort"));

const CASES: readonly Case[] = [
  { name: "nothing: everything", rule: {}, takes: [...both(TCP), ...both(UDP), ...both(SCTP), echo(8)], leaves: [] },
  { name: "protocol by name", rule: { protocol: tcp }, takes: both(TCP), leaves: [...both(UDP), echo(8)] },
  { name: "protocol by number", rule: { protocol: { number: 17 } }, takes: both(UDP), leaves: both(TCP) },
  { name: "SCTP", rule: { protocol: { name: "sctp" } }, takes: both(SCTP), leaves: [...both(TCP), ...both(UDP)] },
  { name: "a protocol without a name", rule: { protocol: { number: 99 } }, takes: both(99), leaves: both(TCP) },
  { name: "not a protocol", rule: { notProtocol: udp }, takes: [...both(TCP), ...both(SCTP)], leaves: both(UDP) },
  {
    name: "ICMP",
    rule: { protocol: { name: "icmp" } },
    takes: [echo(8)],
    leaves: [...both(TCP), echo6(128)],
  },
  { name: "ICMPv6", rule: { protocol: { name: "icmpv6" } }, takes: [echo6(128)], leaves: [echo(8), ...both(UDP)] },
  {
    name: "ICMP type",
    rule: { ipVersion: 4, protocol: { name: "icmp" }, icmp: { type: 8 } },
    takes: [echo(8)],
    leaves: [echo(13)],
  },
  {
    name: "ICMP type and code",
    rule: { ipVersion: 4, protocol: { name: "icmp" }, icmp: { type: 8, code: 3 } },
    takes: [echo(8, 3)],
    leaves: [echo(8, 0), echo(13, 3)],
  },
  {
    name: "ICMPv6 type and code",
    rule: { ipVersion: 6, protocol: { name: "icmpv6" }, icmp: { type: 128, code: 2 } },
    takes: [echo6(128, 2)],
    leaves: [echo6(128, 0), echo(8, 2)],
  },
  {
    name: "not an ICMP type",
    rule: { ipVersion: 4, protocol: { name: "icmp" }, notIcmp: { type: 13 } },
    takes: [echo(8)],
    leaves: [echo(13), ...both(TCP)],
  },
  {
    name: "not an ICMP type and code: the pair, not each part",
    rule: { ipVersion: 4, protocol: { name: "icmp" }, notIcmp: { type: 8, code: 3 } },
    takes: [echo(8, 0), echo(13, 3)],
    leaves: [echo(8, 3)],
  },
  {
    name: "an ICMP type of a protocol given by number, which is one family's",
    rule: { protocol: { number: 1 }, icmp: { type: 8 } },
    takes: [echo(8)],
    leaves: [echo6(128), ...both(TCP)],
  },
  { name: "family 4", rule: { ipVersion: 4 }, takes: [send(4, TCP)], leaves: [send(6, TCP)] },
  { name: "family 6", rule: { ipVersion: 6 }, takes: [send(6, UDP)], leaves: [send(4, UDP)] },
  {
    name: "source prefix",
    rule: { srcNet: nets("203.0.113.0/25", "2001:db8:1::/48") },
    takes: [outside("203.0.113.7"), outside("2001:db8:1::7")],
    leaves: [outside("203.0.113.200"), outside("2001:db8:2::7"), ...both(TCP)],
  },
  {
    name: "one of several source prefixes",
    rule: { srcNet: nets("203.0.113.0/25", "198.51.100.0/24", "10.0.0.1/32") },
    takes: [outside("203.0.113.7"), outside("198.51.100.1"), send(4, TCP)],
    leaves: [outside("192.0.2.7"), ...both(TCP).slice(1)],
  },
  {
    name: "none of several source prefixes",
    rule: { notSrcNet: nets("203.0.113.0/25", "198.51.100.0/24") },
    takes: [outside("203.0.113.200"), send(4, TCP)],
    leaves: [outside("203.0.113.7"), outside("198.51.100.1"), send(6, TCP)],
  },
  {
    name: "in one source prefix but not in another",
    rule: { srcNet: nets("203.0.113.0/24"), notSrcNet: nets("203.0.113.128/25") },
    takes: [outside("203.0.113.7")],
    leaves: [outside("203.0.113.200"), send(4, TCP)],
  },
  {
    name: "destination prefix",
    rule: { dstNet: nets("10.0.0.2/32", "fd00::/126") },
    takes: both(TCP),
    leaves: [],
  },
  { name: "another destination prefix", rule: { dstNet: nets("10.0.0.3/32") }, takes: [], leaves: both(TCP) },
  {
    name: "not a destination prefix",
    rule: { notDstNet: nets("10.0.0.3/32", "fd00::3/128") },
    takes: both(TCP),
    leaves: [],
  },
  { name: "not the destination's prefix", rule: { notDstNet: nets("10.0.0.0/30") }, takes: [], leaves: both(TCP) },
  {
    name: "source in a set",
    rule: { srcIpSetIds: ["s:pod0"] },
    takes: both(UDP),
    leaves: [send(4, UDP, 80, { source: OTHER.addresses[0]! }), outside("203.0.113.7")],
  },
  {
    name: "source in two sets",
    rule: { srcIpSetIds: ["s:pod0", "s:wide"] },
    takes: both(UDP),
    leaves: [send(4, UDP, 80, { source: OTHER.addresses[0]! })],
  },
  {
    name: "source in a set whose prefixes overlap",
    rule: { srcIpSetIds: ["s:wide"] },
    takes: [...both(TCP), send(4, UDP, 80, { source: OTHER.addresses[0]! }), outside("10.0.77.1")],
    leaves: [outside("10.1.0.1"), outside("2001:db8::1")],
  },
  {
    name: "source not in a set",
    rule: { notSrcIpSetIds: ["s:pod0"] },
    takes: [send(4, UDP, 80, { source: OTHER.addresses[0]! }), outside("203.0.113.7")],
    leaves: both(UDP),
  },
  { name: "destination in a set", rule: { dstIpSetIds: ["s:pod1"] }, takes: both(TCP), leaves: [] },
  { name: "destination in an empty set", rule: { dstIpSetIds: ["s:nobody"] }, takes: [], leaves: both(TCP) },
  { name: "destination not in a set", rule: { notDstIpSetIds: ["s:pod1"] }, takes: [], leaves: both(TCP) },
  {
    name: "destination port and range",
    rule: { protocol: tcp, dstPorts: [port(80), port(8000, 8010)] },
    takes: [...both(TCP, 80), ...both(TCP, 8010)],
    leaves: [...both(TCP, 81), ...both(TCP, 8011), ...both(UDP, 80)],
  },
  {
    name: "one of twenty destination ports",
    rule: { protocol: udp, dstPorts: manyPorts },
    takes: [...both(UDP, 2000), ...both(UDP, 2038)],
    leaves: [...both(UDP, 2001), ...both(UDP, 2040), ...both(TCP, 2000)],
  },
  {
    name: "SCTP ports",
    rule: { protocol: { name: "sctp" }, dstPorts: [port(3868)] },
    takes: both(SCTP, 3868),
    leaves: [...both(SCTP, 3869), ...both(TCP, 3868)],
  },
  {
    name: "none of twenty destination ports",
    rule: { protocol: tcp, notDstPorts: manyPorts },
    takes: both(TCP, 2001),
    leaves: [...both(TCP, 2000), ...both(TCP, 2038), ...both(UDP, 2001)],
  },
  {
    name: "source port",
    rule: { protocol: tcp, srcPorts: [port(4000), port(5000, 5010)] },
    takes: [fromPort(4, 4000), fromPort(6, 5005)],
    leaves: [fromPort(4, 4001), fromPort(6, 5011)],
  },
  {
    name: "not a source port",
    rule: { protocol: tcp, notSrcPorts: [port(4000, 4009)] },
    takes: [fromPort(4, 4010), fromPort(6, 3999)],
    leaves: [fromPort(4, 4002), fromPort(6, 4003)],
  },
  {
    name: "a named port",
    rule: { protocol: tcp, dstNamedPortIpSetIds: ["n:web"] },
    takes: both(TCP, 8080),
    leaves: [...both(TCP, 8081), send(4, SCTP, 9000), send(4, UDP, 8080)],
  },
  {
    name: "a named port or a number",
    rule: { protocol: tcp, dstPorts: [port(443)], dstNamedPortIpSetIds: ["n:web"] },
    takes: [...both(TCP, 8080), ...both(TCP, 443)],
    leaves: both(TCP, 8081),
  },
  {
    name: "not a named port",
    rule: { protocol: tcp, notDstNamedPortIpSetIds: ["n:web"] },
    takes: both(TCP, 8081),
    leaves: both(TCP, 8080),
  },
  {
    name: "a named source port",
    rule: { protocol: tcp, srcNamedPortIpSetIds: ["n:client"] },
    takes: [fromPort(4, 4000), fromPort(6, 4000)],
    leaves: [fromPort(4, 4001)],
  },
  {
    name: "not a named source port",
    rule: { protocol: tcp, notSrcNamedPortIpSetIds: ["n:client"] },
    takes: [fromPort(4, 4001)],
    leaves: [fromPort(4, 4000), fromPort(6, 4000)],
  },
  {
    name: "many named ports and numbers of both sides",
    rule: {
      protocol: tcp,
      srcPorts: [port(4500)],
      srcNamedPortIpSetIds: [...unused("source"), "n:client"],
      dstPorts: manyPorts,
      dstNamedPortIpSetIds: ["n:web", ...unused("destination")],
    },
    takes: [
      send(4, TCP, 8080, { sourcePort: 4000 }),
      send(6, TCP, 8080, { sourcePort: 4000 }),
      send(4, TCP, 2004, { sourcePort: 4000 }),
      send(4, TCP, 8080, { sourcePort: 4500 }),
      send(6, TCP, 2006, { sourcePort: 4500 }),
    ],
    leaves: [
      send(4, TCP, 8081, { sourcePort: 4000 }),
      send(6, TCP, 8080, { sourcePort: 4001 }),
      send(4, TCP, 2005, { sourcePort: 4500 }),
      send(4, UDP, 8080, { sourcePort: 4000 }),
    ],
  },
  {
    name: "a service: address, protocol and port together",
    rule: { dstIpPortSetIds: ["n:web"] },
    takes: [...both(TCP, 8080), send(4, SCTP, 9000), send(4, UDP, 8080)],
    leaves: [send(4, SCTP, 9001), send(6, UDP, 8080), ...both(TCP, 80)],
  },
  {
    name: "several at once: protocol, source set, ports of both sides, prefixes",
    rule: {
      protocol: tcp,
      srcIpSetIds: ["s:pod0"],
      srcPorts: [port(4000, 4999)],
      dstPorts: manyPorts,
      dstNet: nets("10.0.0.0/24", "10.9.0.0/16", "fd00::/64", "fd09::/64"),
    },
    takes: [send(4, TCP, 2002, { sourcePort: 4100 }), send(6, TCP, 2002, { sourcePort: 4101 })],
    leaves: [
      send(4, TCP, 2003, { sourcePort: 4102 }),
      send(4, TCP, 2002, { sourcePort: 5102 }),
      send(4, TCP, 2002, { sourcePort: 4103, source: OTHER.addresses[0]! }),
    ],
  },
];

for (const backend of BACKENDS)
  describe(backend, () => {
    test("FD-080 FD-081 FD-082 FD-083 FD-084 every match matches the expected packets and no others", async () => {
      await using dataplane = new WorldDataplane({ backend, pods: [SOURCE, TARGET, OTHER], host: HOST });
      const { world } = dataplane;
      await dataplane.send(
        allowProfile,
        ...SETS,
        ...UNUSED_SETS,
        policy("p", []),
        ...[SOURCE, OTHER].map((pod) => workload(pod.interfaceName, pod.addresses)),
        workload(TARGET.interfaceName, TARGET.addresses, { tiers: [tier(["p"])] }),
        inSync,
      );
      const wrong: string[] = [];
      let sourcePort = 10_000;
      // Packets that an allow rule matches pass, as do packets that a deny rule does not match.
      for (const { name, rule: matches, takes, leaves } of CASES)
        for (const action of ["allow", "deny"] as const) {
          await dataplane.send(
            policy("p", action === "allow" ? [rule(matches)] : [rule({ ...matches, action }), rule()]),
          );
          const cells = [...takes, ...leaves].map(({ packet, from }) => ({
            packet: packet(sourcePort++),
            from,
            to: TARGET.name,
          }));
          // Packets are not answered, so that no connection is established.
          const arrived = await world.send(cells);
          for (const [i, cell] of cells.entries()) {
            const passes = i < takes.length === (action === "allow");
            if (arrived[i] !== passes)
              wrong.push(`${action} ${name}: ${describePacket(cell.packet)} ${passes ? "was lost" : "passed"}`);
          }
        }
      expect(wrong).toEqual([]);
    }, 180_000);

    test("FD-072 FD-073 FD-074 FD-086 allow, deny, pass and log; tiers that end in a drop or pass; staged policies", async () => {
      await using dataplane = new WorldDataplane({ backend, pods: [SOURCE, TARGET, OTHER], host: HOST });
      const { world } = dataplane;
      const passes = async () => {
        world.forgetConnections();
        const ports = [80, 81, 82, 83];
        const arrived = await world.send(
          ports
            .flatMap((to) => both(TCP, to))
            .map(({ packet, from }, i) => ({
              packet: packet(20_000 + i),
              from,
              to: TARGET.name,
            })),
        );
        return ports.filter((_, i) => {
          expect(arrived[2 * i]).toBe(arrived[2 * i + 1]!); // the same with both IP versions
          return arrived[2 * i] === true;
        });
      };
      const to = (first: number, action: ProtoRule["action"]) =>
        rule({ protocol: tcp, dstPorts: [port(first)], action });
      const target = (tiers: Parameters<typeof tier>[]) =>
        workload(TARGET.interfaceName, TARGET.addresses, { tiers: tiers.map((given) => tier(...given)) });
      await dataplane.send(
        allowProfile,
        policy("first", [to(80, "log"), to(80, "allow"), to(81, "deny"), to(82, "next-tier")]),
        policy("second", [rule({ protocol: tcp, dstPorts: [port(80, 82)] })]),
        workload(SOURCE.interfaceName, SOURCE.addresses),
        target([[["first"], [], { name: "high" }], [["second"]]]),
        inSync,
      );
      expect(await passes()).toEqual([80, 82]); // 83: the end of the first tier
      await dataplane.send(target([[["first"], [], { name: "high", defaultAction: "Pass" }], [["second"]]]));
      expect(await passes()).toEqual([80, 82]); // 83 is passed on, and the second tier ends in a drop
      await dataplane.send(target([[["first"], [], { name: "high", defaultAction: "Pass" }]]));
      expect(await passes()).toEqual([80, 82, 83]); // after the last tier, the profile decides
      const staged = { ...policyId("second"), kind: "StagedGlobalNetworkPolicy" } as const;
      await dataplane.send(
        workload(TARGET.interfaceName, TARGET.addresses, {
          tiers: [{ ...tier([]), ingressPolicies: [staged] }],
        }),
      );
      expect(await passes()).toEqual([80, 81, 82, 83]); // a staged policy is not enforced
      await dataplane.send(workload(TARGET.interfaceName, TARGET.addresses, { profileIds: [] }));
      expect(await passes()).toEqual([]); // without policy and profile, all traffic is denied
      await dataplane.send(target([[["first", "second"]]]));
      expect(await passes()).toEqual([80, 82]); // in order: traffic that the first policy passes on leaves the tier
    }, 120_000);
  });
