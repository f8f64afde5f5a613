// Tests inputs that make Calico fail or enforce the wrong policy, by sending packets. Three match blocks in one rule are tested
// in packets.test.ts.
import { describe, expect, test } from "bun:test";
import type { Cidr, IpAddress } from "../../../src/lib/ip/ip.ts";
import { allowProfile, BACKENDS, DataplaneHost, hostEndpoint, inSync, pool, policy, rule, tier } from "./host.ts";
import { WorldDataplane } from "./world-dataplane.ts";
import { workload } from "./messages.ts";

const OUTSIDE = "192.0.2.99" as IpAddress;
const OUTSIDE6 = "2001:db8::99" as IpAddress;
const PODS = [
  { name: "pod0", interfaceName: "cali0", addresses: ["10.0.0.1", "fd00::1"] as IpAddress[] },
  { name: "pod1", interfaceName: "cali1", addresses: ["10.0.0.2", "fd00::2"] as IpAddress[] },
] as const;

for (const backend of BACKENDS)
  describe(backend, () => {
    test("ICMP type with code, also negated, and an ICMP protocol by number on both families", async () => {
      await using dataplane = new WorldDataplane({ backend, pods: PODS, host: ["192.168.0.1" as IpAddress] });
      const message = (protocol: 1 | 58, type: number, code: number) => {
        const [source, destination] = PODS.map(({ addresses }) => addresses[protocol === 1 ? 0 : 1]!);
        const packet = { source: source!, destination: destination!, protocol, icmp: { type, code } };
        return { packet, from: "pod0", to: "pod1" };
      };
      const icmp = (type: number, code: number) => message(1, type, code);
      const icmp6 = (type: number, code: number) => message(58, type, code);
      const packets = [icmp(8, 0), icmp(8, 1), icmp(13, 0), icmp6(128, 0), icmp6(128, 1)];
      const passes = async (matches: Parameters<typeof rule>[0]) => {
        await dataplane.send(policy("p", [rule(matches)]));
        return dataplane.world.send(packets);
      };
      await dataplane.send(
        allowProfile,
        policy("p", []),
        workload(PODS[0].interfaceName, PODS[0].addresses),
        workload(PODS[1].interfaceName, PODS[1].addresses, { tiers: [tier(["p"])] }),
        inSync,
      );
      const name = (text: string) => ({ name: text });
      expect(await passes({ protocol: name("icmp"), icmp: { type: 8, code: 1 } })).toEqual([
        false,
        true,
        false,
        false,
        false,
      ]);
      expect(await passes({ protocol: name("icmp"), notIcmp: { type: 8, code: 1 } })).toEqual([
        true,
        false,
        true,
        false,
        false,
      ]);
      expect(await passes({ protocol: name("icmpv6"), icmp: { type: 128, code: 1 } })).toEqual([
        false,
        false,
        false,
        false,
        true,
      ]);
      // By number, without an IP version: the protocol of one version must not cause an error in the other.
      expect(await passes({ protocol: { number: 1 }, icmp: { type: 8 } })).toEqual([true, true, false, false, false]);
      expect(await passes({ protocol: { number: 58 }, icmp: { type: 128, code: 0 } })).toEqual([
        false,
        false,
        false,
        true,
        false,
      ]);
    }, 60_000);

    test("an IPv4 NAT address does not cause an error for an IPv6 pool, which is masqueraded", async () => {
      await using host = await DataplaneHost.create(backend, { NATOutgoingAddress: "192.0.2.77" });
      const a = host.addPod("a", 2);
      host.exec(host.hostTarget, "ip", "addr", "add", "192.0.2.77/24", "dev", "eth0");
      host.prober.listen(host.outside, "tcp", 80);
      const from = (match: string) => host.count(host.outside, `${match} tcp dport 80`);
      const [asAddress, asHost6] = [from("ip saddr 192.0.2.77"), from("ip6 saddr 2001:db8::10")];
      host.start();
      await host.send(
        allowProfile,
        host.endpoint(a),
        pool("10.65.0.0/16", { masquerade: true }),
        pool("fd00:65::/64", { masquerade: true }),
        inSync,
      );
      const cells = [OUTSIDE, OUTSIDE6].map((to) => ({ from: a.target, to }));
      expect(await host.probe(cells, 3000)).toEqual(["reached", "reached"]);
      expect([asAddress() > 0, asHost6() > 0]).toEqual([true, true]);
    });

    test("overlapping external node prefixes are programmed in one set", async () => {
      await using host = await DataplaneHost.create(backend, {
        ExternalNodesCIDRList: "198.51.100.0/24,198.51.100.0/25,198.51.0.0/16,198.51.100.7/32",
        NATOutgoingExclusions: "IPPoolsAndHostIPs",
      });
      const a = host.addPod("a", 2);
      for (const address of ["198.51.100.7", "198.51.7.7", "198.52.0.7"])
        host.exec(host.outside, "ip", "addr", "add", `${address}/32`, "dev", "eth0");
      host.prober.listen(host.outside, "tcp", 80);
      const asItself = host.count(host.outside, `ip saddr ${a.v4} tcp dport 80 tcp flags syn`);
      host.start();
      await host.send(allowProfile, host.endpoint(a), pool("10.65.0.0/16", { masquerade: true }), inSync);
      for (const [address, seen] of [
        ["198.51.100.7", 1],
        ["198.51.7.7", 2],
        ["198.52.0.7", 2], // outside all prefixes: translated
      ] as const) {
        expect(await host.probe([{ from: a.target, to: address as IpAddress }], 3000)).toEqual(["reached"]);
        expect([address, asItself()]).toEqual([address, seen]);
      }
    });

    test("a host endpoint for every interface allows only the agent's health port on the loopback interface", async () => {
      await using host = await DataplaneHost.create(backend, { HealthEnabled: "true", HealthPort: "9099" });
      for (const p of [9099, 9100]) host.prober.listen(host.hostTarget, "tcp", p);
      host.start();
      const discovery = rule({ protocol: { name: "icmpv6" } });
      await host.send(
        policy("none", [discovery], [discovery]),
        hostEndpoint("*", { tiers: [tier(["none"], ["none"])] }),
        inSync,
      );
      const local = (to: string, p: number) => ({ from: host.hostTarget, to: to as IpAddress, port: p });
      const outcomes = await host.probe([
        local("127.0.0.1", 9099),
        local("::1", 9099),
        local("127.0.0.1", 9100),
        { from: host.outside, to: "192.0.2.10" as IpAddress, port: 9099 },
        { from: host.outside, to: "192.0.2.10" as IpAddress, port: 9100 },
      ]);
      expect(outcomes.map((outcome) => outcome === "reached")).toEqual([true, true, false, false, false]);
    });

    test("packets to a floating address that two workloads claim all reach the same one", async () => {
      await using host = await DataplaneHost.create(backend, { FloatingIPs: "Enabled" });
      const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
      const external = "203.0.113.5" as IpAddress;
      for (const pod of [a, b]) host.prober.listen(pod.target, "tcp", 80);
      host.exec(host.outside, "ip", "route", "add", `${external}/32`, "via", "192.0.2.10");
      const at = new Map([a, b].map((pod) => [pod.name, host.count(pod.target, "tcp dport 80 tcp flags syn")]));
      const seen = () => [...at].map(([name, count]) => `${name} ${count()}`);
      host.start();
      const claims = (pod: typeof a) =>
        host.endpoint(pod, { ipv4Nat: [{ external, internal: pod.v4 }], ipv4Nets: [`${pod.v4}/32` as Cidr] });
      const route = () => host.namespace.run("ip", ["route", "get", external]).split("\n")[0] ?? "";
      // The second workload is added first, so that neither order nor interface index decides.
      await host.send(allowProfile, claims(b), claims(a), inSync);
      expect(await host.probe([{ from: host.outside, to: external }])).toEqual(["reached"]);
      expect(seen()).toEqual(["a 1", "b 0"]);
      expect(route()).toContain(a.interfaceName);
      const id = { orchestrator: "k8s", endpoint: "eth0" };
      await host.send({ type: "workloadEndpointRemove", id: { ...id, workload: "ns1/a" } });
      expect(await host.probe([{ from: host.outside, to: external }])).toEqual(["reached"]);
      expect(seen()).toEqual(["a 1", "b 1"]);
      expect(route()).toContain(b.interfaceName);
      await host.send(claims(a));
      expect(await host.probe([{ from: host.outside, to: external }])).toEqual(["reached"]);
      expect(seen()).toEqual(["a 2", "b 1"]);
      // A workload that connects to its own floating address gets replies from it.
      expect(await host.probe([{ from: a.target, to: external }])).toEqual(["reached"]);
    });
  });
