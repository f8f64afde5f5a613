// Tests packets of workloads and of the host through VXLAN devices to another node, with both IP versions.
//
//   pod a ─ cali… ─ host ─ vxlan.calico ══ 192.0.2.10 ── 192.0.2.99 ══ vxb ─ outside, which has workloads' addresses
import { describe, expect, test } from "bun:test";
import type { DataplaneMessage, RouteUpdate } from "../../../src/calc/index.ts";
import type { IpAddress } from "../../../src/lib/ip/ip.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { allowProfile, BACKENDS, DataplaneHost, hostEndpoint, inSync, policy, rule, tier, vxlanRoute } from "./host.ts";

const SETTINGS = { IPv4VXLANTunnelAddr: "10.65.1.0", IPv6VXLANTunnelAddr: "fd00:65:1::" };
const HOST = ["192.0.2.10", "2001:db8::10"] as IpAddress[];
const FAR = ["10.65.2.5", "fd00:65:2::5"] as IpAddress[];
/** Addresses in a block of a node in the same subnet. */
const NEAR = ["10.65.3.5", "fd00:65:3::5"] as IpAddress[];

const tunnelEnd = (node: string, n: number, parents: readonly string[]): DataplaneMessage => ({
  type: "vtepUpdate",
  node,
  ...{ mac: `66:00:00:00:00:0${n}`, ipv4Addr: `10.65.${n}.0`, parentDeviceIp: parents[0] ?? "" },
  ...{ macV6: `66:00:00:00:06:0${n}`, ipv6Addr: `fd00:65:${n}::`, parentDeviceIpv6: parents[1] ?? "" },
});
const remote = (dst: string, sameSubnet: boolean): RouteUpdate =>
  vxlanRoute(dst, dst.includes(":") ? "2001:db8::99" : "192.0.2.99", sameSubnet);

/** Configures the other node. */
function makeFarEnd(host: DataplaneHost): void {
  const own = ["10.65.2.0/32", `${FAR[0]}/32`, `${NEAR[0]}/32`];
  const own6 = ["fd00:65:2::/128", `${FAR[1]}/128`, `${NEAR[1]}/128`];
  const lines = [
    "ip link add vxb type vxlan id 4096 dstport 4789 local 192.0.2.99 dev eth0 nolearning",
    "ip link add vxb6 type vxlan id 4096 dstport 4789 local 2001:db8::99 dev eth0 nolearning udp6zerocsumrx",
    "ip link set vxb address 66:00:00:00:00:02 mtu 1450 up",
    "ip link set vxb6 address 66:00:00:00:06:02 mtu 1430 up",
    ...own.map((address) => `ip addr add ${address} dev vxb`),
    ...own6.map((address) => `ip addr add ${address} dev vxb6 nodad`),
    "bridge fdb append 66:00:00:00:00:01 dev vxb dst 192.0.2.10",
    "bridge fdb append 66:00:00:00:06:01 dev vxb6 dst 2001:db8::10",
    "ip neigh replace 10.65.1.0 lladdr 66:00:00:00:00:01 dev vxb nud permanent",
    "ip neigh replace fd00:65:1:: lladdr 66:00:00:00:06:01 dev vxb6 nud permanent",
    "ip route add 10.65.0.0/23 via 10.65.1.0 dev vxb onlink",
    "ip route del fd00:65::/64 via 2001:db8::10",
    "ip route add fd00:65::/47 via fd00:65:1:: dev vxb6 onlink",
    // Replies to packets without a tunnel are sent without it; this test does not check their path.
    "sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.vxb.rp_filter=0 net.ipv4.conf.eth0.rp_filter=0",
  ];
  for (const line of lines) host.exec(host.outside, "sh", "-c", line);
}

for (const backend of BACKENDS)
  describe(backend, () => {
    test("FD-043 FD-051 FD-052 FD-058 FD-142 FD-143 FD-144 packets of workloads and of the host pass the tunnels, untracked outside and with the correct address inside", async () => {
      await using host = await DataplaneHost.create(backend, SETTINGS);
      const a = host.addPod("a", 2);
      makeFarEnd(host);
      host.prober.listen(host.outside, "tcp", 80);
      const tunnelled = (match: string) => host.count(host.outside, `iifname "vxb*" ${match}`);
      const from = {
        pod: [tunnelled(`ip saddr ${a.v4} tcp flags syn`), tunnelled(`ip6 saddr ${a.v6} tcp flags syn`)],
        host: [tunnelled("ip saddr 10.65.1.0 tcp flags syn"), tunnelled("ip6 saddr fd00:65:1:: tcp flags syn")],
        nobody: [tunnelled(`ip saddr ${HOST[0]}`), tunnelled(`ip6 saddr ${HOST[1]}`)],
        allowedPorts: [
          tunnelled("ip saddr 10.65.1.0 udp sport 4790-65535"),
          tunnelled("ip6 saddr fd00:65:1:: udp sport 4790-65535"),
        ],
        otherPorts: [tunnelled("udp sport 1-4789")],
      };
      const straight = NEAR.map((address) =>
        host.count(host.outside, `iifname eth0 ${address.includes(":") ? "ip6" : "ip"} daddr ${address} tcp flags syn`),
      );
      const counts = (which: readonly (() => number)[]) => which.map((count) => count());
      host.start(SETTINGS, backend, { vxlanEnabled: true, vxlanEnabledV6: true });
      await host.send(
        allowProfile,
        policy("nothing", [rule({ protocol: { name: "icmpv6" } })], [rule({ protocol: { name: "icmpv6" } })]),
        host.endpoint(a),
        tunnelEnd("node-a", 1, HOST),
        tunnelEnd("node-b", 2, ["192.0.2.99", "2001:db8::99"]),
        ...["10.65.2.0/26", "fd00:65:2::/122"].map((dst) => remote(dst, false)),
        ...["10.65.3.0/26", "fd00:65:3::/122"].map((dst) => remote(dst, true)),
        inSync,
      );
      const isUp = () => /10\.65\.2\.0\/26.*vxlan\.calico/.test(host.namespace.run("ip", ["route"]));
      await eventually(isUp, 10_000);
      await eventually(() => /fd00:65:2::\/122.*vxlan-v6/.test(host.namespace.run("ip", ["-6", "route"])), 10_000);

      // Workloads: through the tunnel to a node in another subnet, directly to one in the same subnet.
      const cells = (targets: readonly IpAddress[]) => targets.map((to) => ({ from: a.target, to }));
      expect(await host.probe(cells([...FAR, ...NEAR]), 3000)).toEqual(["reached", "reached", "reached", "reached"]);
      expect([counts(from.pod), counts(straight)]).toEqual([
        [1, 1],
        [1, 1],
      ]);
      // The host, also with a source address to which the other node would reply outside the tunnel.
      const own = FAR.flatMap((to, i) => [
        { from: host.hostTarget, to },
        { from: host.hostTarget, to, source: HOST[i]! },
      ]);
      expect(await host.probe(own, 3000)).toEqual(own.map(() => "reached"));
      const asked = { from: host.hostTarget, protocol: "udp" as const, sourcePort: 1234 };
      await host.probe(
        FAR.map((to, i) => ({ ...asked, to, source: HOST[i]! })),
        200,
      );
      expect([counts(from.host), counts(from.nobody)]).toEqual([
        [2, 2],
        [0, 0],
      ]);
      // Source ports are translated only to allowed ports.
      expect([counts(from.allowedPorts), counts(from.otherPorts)]).toEqual([[1, 1], [0]]);
      for (const family of ["ipv4", "ipv6"])
        expect(host.namespace.run("conntrack", ["-L", "-f", family, "-p", "udp"])).not.toContain("dport=4789");

      // A host endpoint that denies all egress allows tunnels to nodes, and no other packets to that port.
      const [toNode, toOther] = [
        host.count(host.outside, "ip daddr 192.0.2.99 udp dport 4789"),
        host.count(host.outside, "ip daddr 192.0.2.98 udp dport 4789"),
      ];
      host.exec(host.outside, "ip", "addr", "add", "192.0.2.98/24", "dev", "eth0");
      await host.send(hostEndpoint("eth0", { tiers: [tier(["nothing"], ["nothing"])] }));
      const before = toNode();
      expect(await host.probe(cells(FAR), 3000)).toEqual(["reached", "reached"]);
      expect(toNode()).toBeGreaterThan(before);
      await host.probe([{ from: host.hostTarget, to: "192.0.2.98" as IpAddress, protocol: "udp", port: 4789 }]);
      expect(toOther()).toBe(0);
    }, 90_000);
  });
