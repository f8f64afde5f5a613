// Tests all kinds of host endpoints, and traffic between workloads and their host, by sending packets.
import { describe, expect, test } from "bun:test";
import { procSysctls } from "../../../src/kernel/index.ts";
import type { IpAddress } from "../../../src/lib/ip/ip.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { allowProfile, BACKENDS, DataplaneHost, hostEndpoint, inSync, policy, rule, tier } from "./host.ts";

const tcp = { name: "tcp" };
const udp = { name: "udp" };
const port = (first: number, last = first) => ({ first, last });
const HOST = "192.0.2.10" as IpAddress;
const HOST6 = "2001:db8::10" as IpAddress;
const OUTSIDE = "192.0.2.99" as IpAddress;
const OUTSIDE6 = "2001:db8::99" as IpAddress;
/** The link-local address of the host on every workload interface. */
const GATEWAY6 = "fe80::ecee:eeff:feee:eeee";
/** Allows neighbour discovery, to which the policy of a host endpoint also applies. */
const discovery = rule({ protocol: { name: "icmpv6" } });
const open = (...ports: number[]) => rule({ protocol: tcp, dstPorts: ports.map((each) => port(each)) });
const reached = (outcomes: readonly string[]) => outcomes.map((outcome) => outcome === "reached");

for (const backend of BACKENDS)
  describe(backend, () => {
    test("FD-110 FD-112 a host endpoint by name or address blocks the host but not forwarded traffic, and its policy allows", async () => {
      await using host = await DataplaneHost.create(backend);
      const a = host.addPod("a", 2);
      for (const p of [22, 80, 81]) host.prober.listen(host.hostTarget, "tcp", p);
      for (const p of [80, 81]) host.prober.listen(host.outside, "tcp", p);
      host.prober.listen(a.target, "tcp", 80);
      host.start();
      const named = hostEndpoint("eth0", { tiers: [tier(["in"], ["out"])] });
      await host.send(
        allowProfile,
        policy("in", [open(80), discovery]),
        policy("out", [], [open(81), discovery]),
        host.endpoint(a),
        named,
        inSync,
      );
      const cells = [
        { from: host.outside, to: HOST, port: 80 },
        { from: host.outside, to: HOST6, port: 80 },
        { from: host.outside, to: HOST, port: 81 },
        { from: host.outside, to: HOST, port: 22 }, // a failsafe port
        { from: host.hostTarget, to: OUTSIDE, port: 81 },
        { from: host.hostTarget, to: OUTSIDE6, port: 81 },
        { from: host.hostTarget, to: OUTSIDE, port: 80 },
        { from: host.outside, to: a.v4, port: 80 }, // through the host
        { from: a.target, to: OUTSIDE, port: 80 },
        { from: host.hostTarget, to: a.v4, port: 80 }, // the host's own workload
      ];
      const desired = [true, true, false, true, true, true, false, true, true, true];
      expect(reached(await host.probe(cells, 1000))).toEqual(desired);
      // Without an interface name, the host endpoint is matched by its address.
      await host.send(
        { type: "hostEndpointRemove", endpointId: "eth0" },
        hostEndpoint("", { tiers: [tier(["in"], ["out"])], expectedIpv4Addrs: [HOST] }),
      );
      expect(reached(await host.probe(cells, 1000))).toEqual(desired);
      // A name that is not an interface of this host does not fall back to the address.
      await host.send(
        { type: "hostEndpointRemove", endpointId: "" },
        hostEndpoint("eth7", { tiers: [tier(["in"], ["out"])], expectedIpv4Addrs: [HOST] }),
      );
      expect(reached(await host.probe(cells, 1000))).toEqual(cells.map(() => true));
      // Without policy and profile all traffic is denied; the profile allows it.
      await host.send({ type: "hostEndpointRemove", endpointId: "eth7" }, hostEndpoint("eth0"));
      expect(reached(await host.probe(cells.slice(0, 4), 500))).toEqual([false, false, false, true]);
      await host.send(hostEndpoint("eth0", { profileIds: ["allow"] }));
      expect(reached(await host.probe(cells, 1000))).toEqual(cells.map(() => true));
    }, 60_000);

    test("FD-112 policy for forwarded traffic, before NAT, and without tracking", async () => {
      await using host = await DataplaneHost.create(backend);
      const a = host.addPod("a", 2);
      for (const p of [80, 81]) host.prober.listen(a.target, "tcp", p);
      host.prober.listen(host.hostTarget, "udp", 5353);
      host.prober.listen(host.hostTarget, "tcp", 80);
      // Node ports of another program, which are translated to the pod.
      const nat = "type nat hook prerouting priority -100;";
      host.namespace.run("nft", [
        `table ip somebody { chain c { ${nat} tcp dport { 30080, 30081 } dnat to ${a.v4}:80\n }\n }`,
      ]);
      host.start();
      await host.send(
        allowProfile,
        policy("forwarded", [rule({ protocol: tcp, dstPorts: [port(81)], action: "deny" }), rule()], [rule()]),
        policy("before", [rule({ protocol: tcp, dstPorts: [port(30081)], action: "deny" })], [], { preDnat: true }),
        host.endpoint(a),
        hostEndpoint("eth0", {
          profileIds: ["allow"],
          forwardTiers: [tier(["forwarded"], ["forwarded"])],
          preDnatTiers: [tier(["before"])],
        }),
        inSync,
      );
      const from = { from: host.outside };
      expect(
        reached(
          await host.probe(
            [
              { ...from, to: a.v4, port: 80 },
              { ...from, to: a.v4, port: 81 },
              { ...from, to: HOST, port: 30080 },
              { ...from, to: HOST, port: 30081 },
              { ...from, to: HOST, port: 80 },
            ],
            500,
          ),
        ),
      ).toEqual([true, false, true, false, true]);

      const dns = rule({ protocol: udp, dstPorts: [port(5353)] });
      const answers = rule({ protocol: udp, srcPorts: [port(5353)] });
      const untracked = (outward: ReturnType<typeof rule>[]) =>
        host.send(
          policy("quick", [dns], outward, { untracked: true }),
          hostEndpoint("eth0", { untrackedTiers: [tier(["quick"], ["quick"])] }),
        );
      const ask = () => host.probe([{ ...from, to: HOST, port: 5353, protocol: "udp" }], 400);
      await untracked([answers]);
      expect(await ask()).toEqual(["reached"]);
      expect(host.namespace.run("conntrack", ["-L", "-p", "udp"])).not.toContain("dport=5353");
      // Without tracking, a reply is a packet like any other: it needs its own rule.
      await untracked([]);
      expect(await ask()).toEqual(["silent"]);
    }, 60_000);

    test("FD-111 a host endpoint for every interface applies to interfaces without their own, and not to workloads", async () => {
      await using host = await DataplaneHost.create(backend);
      const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
      for (const p of [80, 81]) host.prober.listen(host.hostTarget, "tcp", p);
      for (const pod of [a, b]) host.prober.listen(pod.target, "tcp", 80);
      host.start();
      await host.send(
        allowProfile,
        policy("most", [open(81), discovery], [rule()]),
        host.endpoint(a),
        host.endpoint(b),
        hostEndpoint("*", { tiers: [tier(["most"], ["most"])] }),
        inSync,
      );
      const cells = [
        { from: host.outside, to: HOST, port: 80 },
        { from: host.outside, to: HOST, port: 81 },
        { from: host.outside, to: HOST6, port: 81 },
        { from: a.target, to: b.v4, port: 80 },
        { from: host.outside, to: a.v4, port: 80 },
        { from: host.hostTarget, to: a.v4, port: 80 },
      ];
      expect(reached(await host.probe(cells, 500))).toEqual([false, true, true, true, true, true]);
      // The interface's own host endpoint takes precedence.
      await host.send(policy("own", [open(80)]), hostEndpoint("eth0", { tiers: [tier(["own"])] }));
      expect(reached(await host.probe(cells.slice(0, 2), 500))).toEqual([true, false]);
      await host.send({ type: "hostEndpointRemove", endpointId: "eth0" });
      expect(reached(await host.probe(cells.slice(0, 2), 500))).toEqual([false, true]);
    }, 60_000);

    test("a pre-DNAT deny on every interface does not block neighbour discovery between a workload and the host", async () => {
      await using host = await DataplaneHost.create(backend);
      const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
      for (const target of [a.target, b.target]) host.prober.listen(target, "tcp", 80);
      const solicited = host.count(host.hostTarget, `iifname ${a.interfaceName} icmpv6 type nd-neighbor-solicit`);
      const advertised = host.count(host.hostTarget, `iifname ${a.interfaceName} icmpv6 type nd-neighbor-advert`);
      // Only an attacker sends a solicitation to an address behind a router: it is forwarded like any packet.
      const forwarded = host.count(b.target, `ip6 saddr ${a.v6} icmpv6 type nd-neighbor-solicit`);
      const sendSolicitation = () =>
        host.exec(a.target, "sh", "-c", `printf '\\207%023d' 0 | socat -u - 'IP6-SENDTO:[${b.v6}]:58'`);
      host.start();
      await host.send(allowProfile, host.endpoint(a), host.endpoint(b), inSync);
      expect(await host.probe([{ from: a.target, to: b.v6 }], 2000)).toEqual(["reached"]);
      sendSolicitation();
      expect(forwarded()).toBe(1);

      await host.send(
        policy("before", [rule({ protocol: { name: "icmpv6" }, action: "deny" })], [], { preDnat: true }),
        hostEndpoint("*", { profileIds: ["allow"], preDnatTiers: [tier(["before"])] }),
      );
      // The test host adds a permanent entry for the gateway to its pods; a pod of the CNI plugin resolves it.
      host.exec(a.target, "ip", "neigh", "del", GATEWAY6, "dev", "eth0");
      expect(await host.probe([{ from: a.target, to: b.v6 }], 2000)).toEqual(["reached"]);
      expect(solicited()).toBeGreaterThan(0);
      // Later the pod confirms its entry by unicast.
      host.exec(a.target, "ip", "neigh", "change", GATEWAY6, "dev", "eth0", "nud", "probe");
      const entry = () => host.exec(a.target, "ip", "-6", "neigh", "show", GATEWAY6, "dev", "eth0");
      await eventually(() => entry().includes("REACHABLE"), 5000);
      // The pod answers when its host resolves its address.
      const before = advertised();
      host.exec(host.hostTarget, "ip", "neigh", "del", a.v6, "dev", a.interfaceName);
      expect(await host.probe([{ from: b.target, to: a.v6 }], 2000)).toEqual(["reached"]);
      expect(advertised()).toBeGreaterThan(before);
      // All other ICMPv6 is denied, and so is neighbour discovery that is not with the host.
      const ping = (to: string) =>
        host.exec(a.target, "sh", "-c", `ping -6 -c 1 -W 1 ${to} >/dev/null && echo answered || echo silent`).trim();
      expect([ping(b.v6), ping(HOST6)]).toEqual(["silent", "silent"]);
      sendSolicitation();
      expect(forwarded()).toBe(1);
    }, 60_000);

    test("FD-059 FD-060 traffic of a workload to its host is dropped, decided by policy, or returned to other rules", async () => {
      for (const [action, allowed, others] of [
        ["DROP", [false, false], true],
        ["ACCEPT", [true, true], false],
        ["RETURN", [true, false], true],
      ] as const) {
        await using host = await DataplaneHost.create(backend, { DefaultEndpointToHostAction: action });
        const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
        for (const p of [80, 81, 82]) host.prober.listen(host.hostTarget, "tcp", p);
        host.prober.listen(b.target, "tcp", 80);
        // With Return, the rules of another program after Calico's decide.
        if (others)
          host.namespace.run("nft", [
            "table inet somebody { chain c { type filter hook input priority 5; tcp dport 81 drop\n }\n }",
          ]);
        host.start();
        const may = rule({ protocol: tcp, dstPorts: [port(80, 81)] });
        await host.send(
          allowProfile,
          policy("egress", [], [may]),
          host.endpoint(a, { tiers: [tier([], ["egress"])] }),
          host.endpoint(b),
          inSync,
        );
        const outcomes = await host.probe(
          [80, 81, 82].map((p) => ({ from: a.target, to: HOST, port: p })),
          300,
        );
        expect([action, reached(outcomes)]).toEqual([action, [...allowed, false]]); // 82: denied by its own policy
        // Neighbour discovery is not affected: IPv6 does not work without it.
        host.exec(a.target, "ip", "-6", "neigh", "flush", "dev", "eth0");
        host.namespace.run("ip", ["-6", "neigh", "flush", "dev", a.interfaceName]);
        expect(await host.probe([{ from: a.target, to: b.v6, port: 80 }], 3000)).toEqual(["reached"]);
      }
    }, 90_000);

    test("FD-055 FD-071 tunnelled packets are accepted only from nodes, never from workloads", async () => {
      await using host = await DataplaneHost.create(backend);
      const a = host.addPod("a", 2);
      host.exec(host.outside, "ip", "addr", "add", "192.0.2.11/24", "dev", "eth0");
      // Counts packets that pass, both for the host itself and forwarded.
      const arrived = (match: string) => {
        const table = `seen${Math.random().toString(36).slice(2)}`;
        const hook = "type filter hook input priority 100;";
        host.namespace.run("nft", [`table inet ${table} { chain c { ${hook} ${match} counter\n }\n }`]);
        return () =>
          Number(/packets (\d+)/.exec(host.namespace.run("nft", ["list", "table", "inet", table]))?.[1] ?? -1);
      };
      const [vxlan, ipip] = [arrived("udp dport 4789"), arrived("meta l4proto 4")];
      const [left, leftIpip] = [host.count(host.outside, "udp dport 4789"), host.count(host.outside, "meta l4proto 4")];
      host.start({}, backend, { vxlanEnabled: true, ipipEnabled: true });
      await host.send(
        allowProfile,
        host.endpoint(a),
        {
          type: "hostMetadataUpdate",
          hostname: "node-b",
          ipv4Addr: "192.0.2.11",
          ipv6Addr: "",
          asNumber: "",
          labels: {},
        },
        {
          type: "vtepUpdate",
          node: "node-b",
          mac: "66:00:00:00:00:0b",
          ipv4Addr: "10.65.2.0",
          parentDeviceIp: "192.0.2.11",
          macV6: "",
          ipv6Addr: "",
          parentDeviceIpv6: "",
        },
        inSync,
      );
      const sends = (where: typeof host.outside, source: string, to: string) => {
        host.exec(where, "sh", "-c", `echo x | socat -u - UDP4-SENDTO:${to}:4789,bind=${source}`);
        host.exec(where, "sh", "-c", `echo x | socat -u - IP4-SENDTO:${to}:4,bind=${source}`);
      };
      sends(host.outside, "192.0.2.11", HOST);
      expect([vxlan(), ipip()]).toEqual([1, 1]);
      sends(host.outside, "192.0.2.99", HOST); // not a node
      expect([vxlan(), ipip()]).toEqual([1, 1]);
      sends(a.target, a.v4, OUTSIDE);
      expect([left(), leftIpip()]).toEqual([0, 0]);
      await host.stop();
      host.start({ AllowVXLANPacketsFromWorkloads: "true", AllowIPIPPacketsFromWorkloads: "true" }, backend);
      await host.send(allowProfile, host.endpoint(a), inSync);
      sends(a.target, a.v4, OUTSIDE);
      expect([left(), leftIpip()]).toEqual([1, 1]);
    }, 60_000);

    test("FD-047 FD-062 DSCP of traffic that leaves the cluster, and no routing loop for service addresses that are not translated", async () => {
      await using host = await DataplaneHost.create(backend, { ServiceLoopPrevention: "Reject" });
      const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
      const classed = (where: typeof host.outside) => host.count(where, "ip dscp ef");
      const [outside, inside] = [classed(host.outside), classed(b.target)];
      host.exec(host.outside, "ip", "route", "add", "10.96.0.0/12", "via", HOST);
      // The kernel would send an ICMP redirect first, and limits the rate of ICMP messages.
      for (const name of ["all", "eth0"])
        host.inside(() => procSysctls.write(["net", "ipv4", "conf", name, "send_redirects"], 0));
      const looped = host.count(host.outside, "ip daddr 10.96.0.0/12");
      host.start();
      await host.send(
        allowProfile,
        host.endpoint(a, { qosPolicies: [{ destination: "", dscp: 46 }] }),
        host.endpoint(b),
        {
          type: "poolUpdate",
          id: "10.65.0.0-16",
          cidr: "10.65.0.0/16" as never,
          masquerade: false,
          ipipMode: "",
          vxlanMode: "",
          allowedUses: ["Workload"],
        },
        {
          type: "globalBgpConfigUpdate",
          serviceClusterCidrs: ["10.96.0.0/12"],
          serviceExternalCidrs: [],
          serviceLoadBalancerCidrs: [],
          localWorkloadPeeringIpV4: "",
          localWorkloadPeeringIpV6: "",
        },
        inSync,
      );
      await host.probe(
        [
          { from: a.target, to: OUTSIDE, port: 9, protocol: "udp" },
          { from: a.target, to: b.v4, port: 9, protocol: "udp" },
        ],
        100,
      );
      expect([outside(), inside()]).toEqual([1, 0]);
      const service = "10.96.0.7" as IpAddress;
      expect(await host.probe([{ from: host.outside, to: service }], 1000)).toEqual(["refused"]);
      expect(looped()).toBe(0);
    }, 60_000);
  });
