// Tests policy by sending packets, with both renderers and both iptables variants.
import { describe, expect, test } from "bun:test";
import type { LinuxKernel } from "../../../src/dataplane/index.ts";
import type { Cidr, IpAddress } from "../../../src/lib/ip/ip.ts";
import { allowProfile, BACKENDS, DataplaneHost, inSync, policy, rule, tier } from "./host.ts";
import { withoutMatch } from "./rejecting-kernel.ts";
import { pollUntil } from "../../../src/lib/testing/eventually.ts";

const tcp = { name: "tcp" };
const port = (first: number, last = first) => ({ first, last });

for (const backend of BACKENDS)
  describe(backend, () => {
    test("FD-075 an interface without an endpoint is blocked, one with a profile is allowed, with both IP versions", async () => {
      await using host = await DataplaneHost.create(backend);
      const [a, b, stranger] = [host.addPod("a", 2), host.addPod("b", 3), host.addPod("x", 4)];
      for (const pod of [a, b, stranger]) host.prober.listen(pod.target, "tcp", 80);
      host.start();
      await host.send(allowProfile, host.endpoint(a), host.endpoint(b), inSync);
      expect(
        await host.probe([
          { from: a.target, to: b.v4 },
          { from: a.target, to: b.v6 },
          { from: b.target, to: a.v4, protocol: "icmp" },
          { from: b.target, to: a.v6, protocol: "icmp" },
          { from: a.target, to: stranger.v4 },
          { from: stranger.target, to: a.v4 },
          { from: stranger.target, to: a.v6 },
          { from: host.hostTarget, to: a.v4 },
          { from: host.outside, to: a.v4 },
        ]),
      ).toEqual(["reached", "reached", "reached", "reached", "silent", "silent", "silent", "reached", "reached"]);
    });

    test("policy allows by port and source, and nothing else passes", async () => {
      await using host = await DataplaneHost.create(backend);
      const [a, b, c] = [host.addPod("a", 2), host.addPod("b", 3), host.addPod("c", 4)];
      for (const p of [80, 81, 443]) host.prober.listen(b.target, "tcp", p);
      host.prober.listen(b.target, "udp", 80);
      host.start();
      await host.send(
        allowProfile,
        { type: "ipSetUpdate", id: "s:a", setType: "net", members: [`${a.v4}/32`, `${a.v6}/128`] },
        policy("p", [rule({ protocol: tcp, srcIpSetIds: ["s:a"], dstPorts: [port(80), port(443, 450)] })]),
        host.endpoint(a),
        host.endpoint(b, { tiers: [tier(["p"])] }),
        host.endpoint(c),
        inSync,
      );
      expect(
        await host.probe([
          { from: a.target, to: b.v4, port: 80 },
          { from: a.target, to: b.v6, port: 443 },
          { from: a.target, to: b.v4, port: 81 },
          { from: a.target, to: b.v4, port: 80, protocol: "udp" },
          { from: a.target, to: b.v4, protocol: "icmp" },
          { from: c.target, to: b.v4, port: 80 },
          { from: c.target, to: b.v6, port: 80 },
        ]),
      ).toEqual(["reached", "reached", "silent", "silent", "silent", "silent", "silent"]);
      // After another member is added, the same packet passes.
      await host.send({ type: "ipSetDeltaUpdate", id: "s:a", added: [`${c.v4}/32`], removed: [`${a.v4}/32`] });
      expect(
        await host.probe([
          { from: c.target, to: b.v4, port: 80 },
          { from: a.target, to: b.v4, port: 80 },
          { from: a.target, to: b.v6, port: 80 },
        ]),
      ).toEqual(["reached", "silent", "reached"]);
      // A prefix changes the type of the set.
      await host.send({ type: "ipSetDeltaUpdate", id: "s:a", added: ["10.65.0.0/30" as Cidr], removed: [] });
      expect(
        await host.probe([
          { from: a.target, to: b.v4, port: 80 },
          { from: c.target, to: b.v4, port: 80 },
        ]),
      ).toEqual(["reached", "reached"]);
      await host.send({ type: "ipSetDeltaUpdate", id: "s:a", added: [], removed: ["10.65.0.0/30" as Cidr] });
      expect(await host.probe([{ from: a.target, to: b.v4, port: 80 }])).toEqual(["silent"]);
    });

    const sourcesAreChecked = async (wrapKernel?: (kernel: LinuxKernel) => LinuxKernel): Promise<void> => {
      await using host = await DataplaneHost.create(backend, { WorkloadSourceSpoofing: "Any" });
      if (wrapKernel !== undefined) host.wrapKernel = wrapKernel;
      const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
      host.start();
      const prefixes = ["10.65.7.0/24", "fd00:65:7::/64"] as Cidr[];
      const allowed = host.endpoint(b, { allowSpoofedSourcePrefixes: prefixes });
      await host.send(allowProfile, host.endpoint(a), allowed, inSync);
      const ends = { "10.65.7": "192.0.2.99", "fd00:65:7:": "2001:db8::99" } as const;
      host.exec(host.outside, "ip", "route", "add", "fd00:65:7::/64", "via", "2001:db8::10");
      for (const [prefix, outside] of Object.entries(ends)) {
        const family = prefix.includes(":") ? "ip6" : "ip";
        const length = family === "ip6" ? 128 : 32;
        const seen = host.count(
          host.outside,
          `${family} saddr ${family === "ip6" ? "fd00:65:7::/64" : "10.65.7.0/24"} udp dport 53`,
        );
        for (const [pod, last, desired] of [
          [a, family === "ip6" ? ":7" : ".7", 0],
          [b, family === "ip6" ? ":8" : ".8", 1],
        ] as const) {
          const source = `${prefix}${last}` as IpAddress;
          host.exec(pod.target, "ip", "addr", "add", `${source}/${length}`, "dev", "eth0");
          // The packet is not answered; only its arrival is checked.
          await host.probe([{ from: pod.target, to: outside as IpAddress, protocol: "udp", port: 53, source }], 100);
          // The neighbour may have to be resolved first.
          await pollUntil(seen, (count) => count >= desired, 2000);
          expect([source, seen()]).toEqual([source, desired]);
        }
      }
      expect(
        await host.probe([
          { from: a.target, to: b.v4 },
          { from: b.target, to: a.v6 },
        ]),
      ).toEqual(["refused", "refused"]);
      // The address of another workload is rejected like an unassigned one.
      const seen = host.count(host.outside, `ip saddr ${b.v4} udp dport 54`);
      host.exec(a.target, "ip", "addr", "add", `${b.v4}/32`, "dev", "eth0");
      await host.probe(
        [{ from: a.target, to: "192.0.2.99" as IpAddress, protocol: "udp", port: 54, source: b.v4 }],
        100,
      );
      expect(seen()).toBe(0);
    };

    test("FD-041 FD-042 packets with a source address that is not the workload's are dropped, unless it is allowed", () =>
      sourcesAreChecked());

    test("on a kernel without the reverse-path filter match, sources are checked by the addresses of endpoints", () =>
      sourcesAreChecked((kernel) => withoutMatch(kernel, "reversePathFails", "-m rpfilter")));

    test("FD-076 policies with the same selector share a chain, and are evaluated in order", async () => {
      await using host = await DataplaneHost.create(backend);
      const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
      for (const p of [80, 81, 82, 83]) host.prober.listen(b.target, "tcp", p);
      host.start();
      const to = (first: number, action: "allow" | "deny" | "next-tier") =>
        rule({ protocol: tcp, dstPorts: [port(first)], action });
      const names = Array.from({ length: 12 }, (_, i) => `p${i}`);
      const said: Readonly<Record<string, ReturnType<typeof rule>[]>> = {
        p2: [to(80, "allow")],
        p4: [to(81, "deny")],
        p6: [to(82, "next-tier")],
        p9: [to(83, "allow")],
        p11: [rule({ action: "deny" })],
      };
      const after = policy("later", [to(82, "allow")]);
      await host.send(
        allowProfile,
        ...names.map((name) => policy(name, said[name] ?? [], [], { selector: "all()" })),
        after,
        host.endpoint(a),
        host.endpoint(b, { tiers: [tier(names, [], { name: "many" }), tier(["later"])] }),
        inSync,
      );
      const cells = [80, 81, 82, 83, 84].map((p) => ({ from: a.target, to: b.v4, port: p }));
      expect(await host.probe(cells)).toEqual(["reached", "silent", "reached", "reached", "silent"]);
      const rules = host.ruleCounters().map(({ text }) => text);
      expect(rules.some((text) => text.includes("Return on verdict"))).toBe(true);
      // A change of one of them is applied immediately.
      await host.send(policy("p0", [to(80, "deny"), to(84, "next-tier")], [], { selector: "all()" }));
      expect((await host.probe(cells))[0]).toBe("silent");
    });

    test("three match blocks in one rule must all match", async () => {
      await using host = await DataplaneHost.create(backend);
      const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
      for (const p of [80, 81]) host.prober.listen(b.target, "tcp", p);
      host.start();
      const nets = (...list: string[]) => list as Cidr[];
      const manyPorts = (first: number) => Array.from({ length: 20 }, (_, i) => port(first + 2 * i));
      const blocks = {
        protocol: tcp,
        srcPorts: [port(1, 65535)],
        dstPorts: manyPorts(80),
        srcNet: nets("10.65.0.2/32", "10.66.0.0/16"),
      };
      await host.send(
        allowProfile,
        // Ports and source match, but not the destination.
        policy("p", [rule({ ...blocks, dstNet: nets("10.70.0.0/16", "10.71.0.0/16") })]),
        host.endpoint(a),
        host.endpoint(b, { tiers: [tier(["p"])] }),
        inSync,
      );
      expect(await host.probe([{ from: a.target, to: b.v4, port: 80 }])).toEqual(["silent"]);
      await host.send(policy("p", [rule({ ...blocks, dstNet: nets("10.70.0.0/16", "10.65.0.0/16") })]));
      expect(
        await host.probe([
          { from: a.target, to: b.v4, port: 80 },
          { from: a.target, to: b.v4, port: 81 },
        ]),
      ).toEqual(["reached", "silent"]);
      // The other IP version.
      const six = { ...blocks, srcNet: nets("fd00:65::2/128", "fd00:66::/64") };
      const to6 = (p: number) => ({ from: a.target, to: b.v6, port: p });
      await host.send(policy("p", [rule({ ...six, dstNet: nets("fd00:70::/64", "fd00:71::/64") })]));
      expect(await host.probe([to6(80)])).toEqual(["silent"]);
      await host.send(policy("p", [rule({ ...six, dstNet: nets("fd00:70::/64", "fd00:65::/64") })]));
      expect(await host.probe([to6(80), to6(81)])).toEqual(["reached", "silent"]);
    });

    test("FD-126 connections of a removed address are deleted, and no others", async () => {
      await using host = await DataplaneHost.create(backend);
      const [a, b, c] = [host.addPod("a", 2), host.addPod("b", 3), host.addPod("c", 4)];
      for (const pod of [b, c]) host.prober.listen(pod.target, "udp", 53);
      host.start();
      await host.send(allowProfile, host.endpoint(a), host.endpoint(b), host.endpoint(c), inSync);
      const ask = [b.v4, b.v6, c.v4, c.v6].map((to) => ({ from: a.target, to, port: 53, protocol: "udp" as const }));
      expect(await host.probe(ask, 3000)).toEqual(ask.map(() => "reached"));
      const known = () => {
        const flows = ["ipv4", "ipv6"].map((f) => host.namespace.run("conntrack", ["-L", "-f", f, "-p", "udp"])).join();
        return [b.v4, b.v6, c.v4, c.v6].map((address) => flows.includes(`dst=${address} `));
      };
      expect(known()).toEqual([true, true, true, true]);
      const id = { orchestrator: "k8s", workload: "ns1/b", endpoint: "eth0" };
      await host.send({ type: "workloadEndpointRemove", id });
      expect(known()).toEqual([false, false, true, true]);
    });

    test("FD-049 traffic of a pool is translated to the host's address, except between pools", async () => {
      await using host = await DataplaneHost.create(backend);
      const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
      host.prober.listen(host.outside, "tcp", 80);
      host.prober.listen(b.target, "tcp", 80);
      host.start();
      const pool = (masquerade: boolean) =>
        ({
          type: "poolUpdate",
          id: "10.65.0.0-16",
          cidr: "10.65.0.0/16" as Cidr,
          masquerade,
          ipipMode: "",
          vxlanMode: "",
          allowedUses: ["Workload"],
        }) as const;
      await host.send(allowProfile, host.endpoint(a), host.endpoint(b), pool(true), inSync);
      // There is no route from outside to the pod any more, so only translated packets are answered.
      host.namespace.run("true", []);
      const flows = () => host.namespace.run("conntrack", ["-L", "-p", "tcp"]);
      expect(await host.probe([{ from: a.target, to: "192.0.2.99" as IpAddress }])).toEqual(["reached"]);
      expect(flows()).toContain("src=192.0.2.99 dst=192.0.2.10");
      expect(await host.probe([{ from: a.target, to: b.v4 }])).toEqual(["reached"]);
      expect(flows()).toContain(`src=${b.v4} dst=${a.v4}`);
    });
  });
