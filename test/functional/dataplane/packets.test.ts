// What reaches whom: real packets through real rules, on both renderers and both iptables tools.
import { describe, expect, test } from "bun:test";
import type { Cidr, IpAddress } from "../../../src/lib/ip.ts";
import { allowProfile, BACKENDS, DataplaneHost, inSync, policy, rule, tier } from "./host.ts";

const tcp = { name: "tcp" };
const port = (first: number, last = first) => ({ first, last });

for (const backend of BACKENDS)
  describe(backend, () => {
    test("an interface without an endpoint is closed, one with a profile is open, both families", async () => {
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

    test("policy decides by port and source, and nothing else gets in", async () => {
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
      // A member more, and the same packet passes.
      await host.send({ type: "ipSetDeltaUpdate", id: "s:a", added: [`${c.v4}/32`], removed: [`${a.v4}/32`] });
      expect(
        await host.probe([
          { from: c.target, to: b.v4, port: 80 },
          { from: a.target, to: b.v4, port: 80 },
          { from: a.target, to: b.v6, port: 80 },
        ]),
      ).toEqual(["reached", "silent", "reached"]);
      // A prefix makes the set one of another kind.
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

    test("FD-041 FD-042 a source that is not the workload's own goes nowhere, unless it is allowed", async () => {
      await using host = await DataplaneHost.create(backend, { WorkloadSourceSpoofing: "Any" });
      const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
      host.start();
      const allowed = host.endpoint(b, { allowSpoofedSourcePrefixes: ["10.65.7.0/24" as Cidr] });
      await host.send(allowProfile, host.endpoint(a), allowed, inSync);
      const outside = "192.0.2.99" as IpAddress;
      const seen = host.count(host.outside, "ip saddr 10.65.7.0/24");
      for (const [pod, source, wanted] of [
        [a, "10.65.7.7", 0],
        [b, "10.65.7.8", 1],
      ] as const) {
        host.exec(pod.target, "ip", "addr", "add", `${source}/32`, "dev", "eth0");
        // Nobody answers: only whether the packet got through is asked.
        await host.probe(
          [{ from: pod.target, to: outside, protocol: "udp", port: 53, source: source as IpAddress }],
          100,
        );
        expect(seen()).toBe(wanted);
      }
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
        // Ports and source match; the destination is elsewhere.
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
    });

    test("FD-049 a pool's traffic leaves with the host's address, but not inside the pools", async () => {
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
      // Nobody outside knows the way back to the pod any more: only a translated packet is answered.
      host.namespace.run("true", []);
      const flows = () => host.namespace.run("conntrack", ["-L", "-p", "tcp"]);
      expect(await host.probe([{ from: a.target, to: "192.0.2.99" as IpAddress }])).toEqual(["reached"]);
      expect(flows()).toContain("src=192.0.2.99 dst=192.0.2.10");
      expect(await host.probe([{ from: a.target, to: b.v4 }])).toEqual(["reached"]);
      expect(flows()).toContain(`src=${b.v4} dst=${a.v4}`);
    });
  });
