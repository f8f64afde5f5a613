// Tests packets on unusual paths through the host: translated, with DSCP, forwarded for other hosts, to a floating address.
import { describe, expect, test } from "bun:test";
import type { DataplaneMessage } from "../../../src/calc/index.ts";
import type { IpAddress } from "../../../src/lib/ip/ip.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { allowProfile, BACKENDS, DataplaneHost, hostEndpoint, inSync, policy, rule, tier } from "./host.ts";

const tcp = { name: "tcp" };
const HOST = "192.0.2.10" as IpAddress;
const OUTSIDE = "192.0.2.99" as IpAddress;
const OUTSIDE6 = "2001:db8::99" as IpAddress;
const open = (...ports: number[]) =>
  rule({ protocol: tcp, dstPorts: ports.map((each) => ({ first: each, last: each })) });
const discovery = rule({ protocol: { name: "icmpv6" } });
const reached = (outcomes: readonly string[]) => outcomes.map((outcome) => outcome === "reached");

for (const backend of BACKENDS)
  describe(backend, () => {
    test("FD-046 host policy applies to packets to a service after translation, and not to forwarded packets", async () => {
      await using host = await DataplaneHost.create(backend);
      const a = host.addPod("a", 2);
      for (const p of [80, 81, 82]) host.prober.listen(host.outside, "tcp", p);
      // Service addresses have a dummy route; rules of another program translate them.
      for (const [route, source] of [
        ["198.51.100.0/24", HOST],
        ["2001:db8:5::/64", "2001:db8::10"],
      ] as const)
        host.exec(host.hostTarget, "ip", "route", "add", route, "dev", "lo", "src", source);
      const nat = (family: string, service: string, to: string) => {
        const rules = [80, 81, 82]
          .map((p) => `${family} daddr ${service} tcp dport 1${p} dnat to ${to}:${p}`)
          .join("\n");
        const chain = (hook: string) => `chain ${hook} { type nat hook ${hook} priority -110;\n${rules}\n }\n`;
        return `table ${family} somebody { ${chain("output")} ${chain("prerouting")} }`;
      };
      host.namespace.run("nft", [nat("ip", "198.51.100.1", OUTSIDE)]);
      host.namespace.run("nft", [nat("ip6", "2001:db8:5::1", `[${OUTSIDE6}]`)]);
      host.start();
      await host.send(
        allowProfile,
        // By the port before translation, the first would be denied and the second allowed.
        policy("out", [discovery], [open(81, 180), discovery]),
        host.endpoint(a),
        hostEndpoint("eth0", { tiers: [tier(["out"], ["out"])] }),
        inSync,
      );
      const services = ["198.51.100.1", "2001:db8:5::1"] as IpAddress[];
      const from = (target: typeof host.outside) =>
        services.flatMap((to) => [180, 181, 182].map((p) => ({ from: target, to, port: p })));
      expect(reached(await host.probe(from(host.hostTarget), 1500))).toEqual([false, true, false, false, true, false]);
      // Not translated: ordinary host policy applies.
      const plain = [80, 81].map((p) => ({ from: host.hostTarget, to: OUTSIDE, port: p }));
      expect(reached(await host.probe(plain, 500))).toEqual([false, true]);
      // Forwarded for a workload: its own policy allows the packet, and host policy does not apply.
      expect(reached(await host.probe(from(a.target), 1500))).toEqual(from(a.target).map(() => true));
    }, 60_000);

    test("FD-058 host policy also applies to untracked packets of the host", async () => {
      await using host = await DataplaneHost.create(backend);
      const [seen, seen6] = ["ip", "ip6"].map((family) =>
        [7001, 7002].map((p) =>
          host.count(host.outside, `meta nfproto ${family === "ip" ? "ipv4" : "ipv6"} udp dport ${p}`),
        ),
      );
      host.prober.listen(host.outside, "udp", 7001);
      // A rule of another program disables connection tracking for these packets.
      host.namespace.run("nft", [
        "table inet somebody { chain c { type filter hook output priority -310; udp dport 7001-7002 notrack\n }\n }",
      ]);
      host.start();
      const udp = rule({ protocol: { name: "udp" }, dstPorts: [{ first: 7001, last: 7001 }] });
      await host.send(
        policy("out", [discovery], [udp, discovery]),
        hostEndpoint("eth0", { tiers: [tier(["out"], ["out"])] }),
        inSync,
      );
      const cells = [OUTSIDE, OUTSIDE6].flatMap((to) =>
        [7001, 7002].map((p) => ({ from: host.hostTarget, to, port: p, protocol: "udp" as const })),
      );
      await host.probe(cells, 1500); // replies are untracked, so they are denied
      expect([seen, seen6].map((counts) => counts?.map((count) => count()))).toEqual([
        [1, 0],
        [1, 0],
      ]);
    }, 60_000);

    test("FD-064 failsafe ports and their replies also pass untracked policy that denies everything", async () => {
      await using host = await DataplaneHost.create(backend, {
        FailsafeInboundHostPorts: "tcp:8022",
        FailsafeOutboundHostPorts: "tcp:9001",
      });
      for (const p of [8022, 8023]) host.prober.listen(host.hostTarget, "tcp", p);
      for (const p of [9001, 9002]) host.prober.listen(host.outside, "tcp", p);
      host.start();
      const deny = rule({ action: "deny" });
      await host.send(
        allowProfile,
        policy("closed", [discovery, deny], [discovery, deny], { untracked: true }),
        hostEndpoint("eth0", { profileIds: ["allow"], untrackedTiers: [tier(["closed"], ["closed"])] }),
        inSync,
      );
      const cells = [
        ...[HOST, "2001:db8::10" as IpAddress].flatMap((to) =>
          [8022, 8023].map((p) => ({ from: host.outside, to, port: p })),
        ),
        ...[OUTSIDE, OUTSIDE6].flatMap((to) => [9001, 9002].map((p) => ({ from: host.hostTarget, to, port: p }))),
      ];
      expect(reached(await host.probe(cells, 2500))).toEqual([true, false, true, false, true, false, true, false]);
    }, 60_000);

    test("FD-055 IPv6 tunnel packets are accepted only from nodes; without a tunnel of the IP version, the port is not special", async () => {
      await using host = await DataplaneHost.create(backend);
      host.exec(host.outside, "ip", "addr", "add", "2001:db8::11/64", "dev", "eth0", "nodad");
      const arrived = () =>
        Number(/packets (\d+)/.exec(host.namespace.run("nft", ["list", "table", "inet", "arrived"]))?.[1] ?? -1);
      host.namespace.run("nft", [
        "table inet arrived { chain c { type filter hook input priority 100; udp dport 4789 counter\n }\n }",
      ]);
      host.start({}, backend, { vxlanEnabledV6: true });
      await host.send(
        {
          type: "vtepUpdate",
          node: "node-b",
          ...{ mac: "", ipv4Addr: "", parentDeviceIp: "", macV6: "66:00:00:00:00:0b", ipv6Addr: "fd00:65:2::" },
          parentDeviceIpv6: "2001:db8::11",
        },
        inSync,
      );
      const sends = (source: string, to: string) =>
        host.exec(host.outside, "sh", "-c", `echo x | socat -u - UDP-SENDTO:${to}:4789,bind=${source}`);
      sends("[2001:db8::11]", "[2001:db8::10]");
      await eventually(() => arrived() === 1, 5000);
      sends("[2001:db8::99]", "[2001:db8::10]");
      sends("192.0.2.99", HOST); // without an IPv4 tunnel, an ordinary port
      await eventually(() => arrived() === 2, 5000);
      expect(arrived()).toBe(2);
    }, 60_000);

    test("FD-048 new connections between workloads of the mesh get its DSCP, others do not", async () => {
      await using host = await DataplaneHost.create(backend, { IstioAmbientMode: "Enabled", IstioDSCPMark: "23" });
      const [a, b, c] = [host.addPod("a", 2), host.addPod("b", 3), host.addPod("c", 4)];
      for (const pod of [b, c]) for (const p of ["tcp", "udp"] as const) host.prober.listen(pod.target, p, 80);
      const classed = [b, c].map((pod) => [
        host.count(pod.target, "ip dscp 23"),
        host.count(pod.target, "ip6 dscp 23"),
      ]);
      const seen = () => classed.map((counts) => counts.map((count) => count()));
      host.start();
      const member = { isIstioAmbient: true };
      await host.send(allowProfile, host.endpoint(a, member), host.endpoint(b, member), host.endpoint(c), inSync);
      const to = (from: typeof a, target: typeof b, protocol: "tcp" | "udp" = "tcp") =>
        [target.v4, target.v6].map((address) => ({ from: from.target, to: address, protocol }));
      await host.probe(to(a, b));
      expect(seen()).toEqual([
        [1, 1], // only the first packet
        [0, 0],
      ]);
      await host.probe([...to(a, b, "udp"), ...to(a, c), ...to(c, b)]);
      expect(seen()).toEqual([
        [1, 1],
        [0, 0],
      ]);
      await host.send(host.endpoint(c, member), host.endpoint(b));
      await host.probe([...to(a, c), ...to(a, b)]);
      expect(seen()).toEqual([
        [1, 1],
        [1, 1],
      ]);
    }, 60_000);

    test("FD-061 in OpenStack a workload reaches metadata, DNS and DHCP on its host regardless of policy, and nothing else", async () => {
      const settings = { ClusterType: "openstack", MetadataAddr: HOST, MetadataPort: "8775", Ipv6Support: "true" };
      await using host = await DataplaneHost.create(backend, settings);
      const a = host.addPod("a", 2);
      for (const p of [80, 8775]) host.prober.listen(host.hostTarget, "tcp", p);
      for (const p of [53, 54]) host.prober.listen(host.hostTarget, "udp", p);
      const asked = host.count(host.hostTarget, "udp sport 68 udp dport 67 ip saddr 0.0.0.0");
      const heard = () =>
        Number(/packets (\d+)/.exec(host.namespace.run("nft", ["list", "table", "ip", "heard"]))?.[1] ?? -1);
      host.namespace.run("nft", [
        "table ip heard { chain c { type filter hook input priority 100; udp dport 67 counter\n }\n }",
      ]);
      host.start();
      await host.send(
        policy("nothing", [], []),
        host.endpoint(a, { tiers: [tier(["nothing"], ["nothing"])], profileIds: [] }),
        inSync,
      );
      const to = (address: string, p: number, protocol: "tcp" | "udp") => ({
        ...{ from: a.target, to: address as IpAddress, port: p, protocol },
      });
      expect(
        reached(
          await host.probe(
            [
              to("169.254.169.254", 80, "tcp"),
              to(HOST, 8775, "tcp"),
              to(HOST, 53, "udp"),
              to("2001:db8::10", 53, "udp"),
              to(HOST, 80, "tcp"),
              to(HOST, 54, "udp"),
            ],
            2500,
          ),
        ),
      ).toEqual([true, true, true, true, false, false]);
      // A DHCP request of a client without an address.
      const discover =
        "echo x | socat -u - UDP4-DATAGRAM:255.255.255.255:67,broadcast,bind=0.0.0.0:68,so-bindtodevice=eth0";
      host.exec(a.target, "sh", "-c", "ip addr flush dev eth0 scope global; ip route add default dev eth0");
      host.exec(a.target, "sh", "-c", discover);
      expect([asked(), heard()]).toEqual([1, 1]);
    }, 60_000);

    test("FD-053 FD-054 a floating address is translated to its workload: in OpenStack always, otherwise if enabled", async () => {
      const EXTERNAL = ["203.0.113.5", "2001:db8:f::5"] as IpAddress[];
      const trial = async (setting: string, orchestrator: string) => {
        await using host = await DataplaneHost.create(backend, { FloatingIPs: setting });
        const a = host.addPod("a", 2);
        for (const p of [80, 81]) host.prober.listen(a.target, "tcp", p);
        host.exec(host.outside, "ip", "route", "add", "203.0.113.0/24", "via", HOST);
        host.exec(host.outside, "ip", "route", "add", "2001:db8:f::/64", "via", "2001:db8::10");
        const [v4, v6] = EXTERNAL.map((external, i) => [{ external, internal: i === 0 ? a.v4 : a.v6 }]);
        const claim = host.endpoint(a, { ipv4Nat: v4 ?? [], ipv6Nat: v6 ?? [], tiers: [tier(["http"])] });
        if (claim.type !== "workloadEndpointUpdate") throw new Error("no endpoint");
        const endpoint: DataplaneMessage = { ...claim, id: { ...claim.id, orchestrator } };
        host.start();
        await host.send(allowProfile, policy("http", [open(80)]), endpoint, inSync);
        // Policy applies to the workload's own address, not to the floating one.
        const cells = EXTERNAL.flatMap((to) => [80, 81].map((p) => ({ from: host.outside, to, port: p })));
        const outcomes = reached(await host.probe(cells, 500));
        // The workload and the host can connect to the floating address.
        const inward = [a.target, host.hostTarget].flatMap((from) => EXTERNAL.map((to) => ({ from, to })));
        if (outcomes[0] === true) expect(reached(await host.probe(inward, 1500))).toEqual([true, true, true, true]);
        return outcomes;
      };
      expect(await trial("Disabled", "openstack")).toEqual([true, false, true, false]);
      expect(await trial("Enabled", "k8s")).toEqual([true, false, true, false]);
      expect(await trial("Disabled", "k8s")).toEqual([false, false, false, false]);
    }, 90_000);
  });

for (const backend of ["legacy", "nft"] as const)
  test(`${backend}: FD-057 a host whose FORWARD policy is drop forwards packets that Calico accepted, and no others`, async () => {
    for (const action of ["ACCEPT", "RETURN"] as const) {
      await using host = await DataplaneHost.create(backend, { IptablesFilterAllowAction: action });
      const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
      for (const p of [80, 81]) host.prober.listen(b.target, "tcp", p);
      // Another network behind the host, unrelated to Calico.
      host.exec(host.hostTarget, "sh", "-c", "ip link add other type veth peer name far && ip link set far up");
      host.exec(host.hostTarget, "ip", "link", "set", "other", "up");
      host.exec(host.hostTarget, "ip", "neigh", "add", "198.51.100.7", "lladdr", "02:00:00:00:00:07", "dev", "other");
      host.exec(host.hostTarget, "ip", "addr", "add", "198.51.100.1/24", "dev", "other");
      host.exec(host.outside, "ip", "route", "add", "198.51.100.0/24", "via", HOST);
      const forwarded = () =>
        Number(/packets (\d+)/.exec(host.namespace.run("nft", ["list", "table", "ip", "seen"]))?.[1] ?? -1);
      host.namespace.run("nft", [
        "table ip seen { chain c { type filter hook postrouting priority 300; ip daddr 198.51.100.7 counter\n }\n }",
      ]);
      const knock = () =>
        host.probe([{ from: host.outside, to: "198.51.100.7" as IpAddress, protocol: "udp", port: 9 }]);
      await knock();
      expect(forwarded()).toBe(1);
      for (const tool of [`iptables-${backend}`, `ip6tables-${backend}`])
        host.exec(host.hostTarget, tool, "-P", "FORWARD", "DROP");
      const cells = [
        { from: a.target, to: b.v4, port: 80 },
        { from: a.target, to: b.v6, port: 80 },
        { from: a.target, to: b.v4, port: 81 },
        { from: host.outside, to: b.v4, port: 80 },
      ];
      host.start();
      await host.send(
        allowProfile,
        policy("http", [open(80)]),
        host.endpoint(a),
        host.endpoint(b, { tiers: [tier(["http"])] }),
        inSync,
      );
      // With the allow action Return, rules of other programs decide, and here they drop.
      const isOpen = action === "ACCEPT";
      expect(reached(await host.probe(cells, 500))).toEqual([isOpen, isOpen, false, isOpen]);
      await knock();
      expect(forwarded()).toBe(1);
    }
  }, 60_000);
