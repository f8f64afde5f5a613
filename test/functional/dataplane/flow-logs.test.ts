// Tests the records for flow logs: the rule, tier or profile that decided about a packet, in both directions.
import { describe, expect, test } from "bun:test";
import type { IpAddress } from "../../../src/lib/ip/ip.ts";
import { allowProfile, BACKENDS, DataplaneHost, hostEndpoint, inSync, policy, rule, tier } from "./host.ts";
import { NflogListener } from "./nflog-listener.ts";

const tcp = { name: "tcp" };
const to = (first: number, action: "allow" | "deny" | "next-tier") =>
  rule({ protocol: tcp, dstPorts: [{ first, last: first }], action });

for (const backend of BACKENDS)
  describe(backend, () => {
    test("FD-170 each verdict is recorded with the deciding rule, once per packet, and only while flow logs are enabled", async () => {
      await using host = await DataplaneHost.create(backend, { FlowLogsLocalReporter: "Enabled" });
      const [a, b, c] = [host.addPod("a", 2), host.addPod("b", 3), host.addPod("c", 4)];
      for (const port of [80, 82]) host.prober.listen(b.target, "tcp", port);
      host.start();
      const long = "a-policy-with-a-name-that-does-not-fit-into-a-prefix-of-sixty-three-characters";
      await host.send(
        allowProfile,
        policy("sec", [to(80, "next-tier"), to(81, "deny"), to(82, "allow")]),
        policy("app", [to(80, "allow")]),
        policy(long, [to(90, "allow")]),
        host.endpoint(a),
        host.endpoint(b, { tiers: [tier(["sec"], [], { name: "security" }), tier(["app"])] }),
        host.endpoint(c, { profileIds: [] }),
        inSync,
      );
      using log = host.inside(() => new NflogListener([1, 2]));
      const probe = async (pod: typeof b, port: number) => {
        await host.probe([{ from: a.target, to: pod.v4, port }], 120);
        return log.take();
      };
      const left = "ARE0|allow"; // egress of a
      expect(await probe(b, 80)).toEqual([left, "PPI0|gnp/sec", "API0|gnp/app"]);
      expect(await probe(b, 81)).toEqual([left, "DPI1|gnp/sec"]);
      expect(await probe(b, 82)).toEqual([left, "API2|gnp/sec"]);
      expect(await probe(b, 83)).toEqual([left, "DPI|security"]);
      expect(await probe(c, 80)).toEqual([left, "DRI"]);
      await host.send(host.endpoint(b, { tiers: [tier(["app"], [], { defaultAction: "Pass" })] }));
      expect(await probe(b, 82)).toEqual([left, "PPI|default", "ARI0|allow"]);
      await host.send(host.endpoint(b, { tiers: [tier([long])] }));
      const [, shortened = ""] = await probe(b, 90);
      expect(shortened).toMatch(/^API0\|gnp\/a_.{41}_characters$/);
      expect(shortened.length).toBeLessThanOrEqual(63);

      await host.stop();
      host.start({});
      await host.send(allowProfile, host.endpoint(a), host.endpoint(b), inSync);
      expect(await probe(b, 80)).toEqual([]);
    });

    test("FD-170 a staged policy for traffic forwarded through a host endpoint records the end of its tier", async () => {
      await using host = await DataplaneHost.create(backend, { FlowLogsLocalReporter: "Enabled" });
      const a = host.addPod("a", 2);
      host.prober.listen(a.target, "tcp", 80);
      host.start();
      const staged = { kind: "StagedGlobalNetworkPolicy", namespace: "", name: "preview" } as const;
      const forwardTiers = [tier([], [], { ingressPolicies: [staged], egressPolicies: [staged] })];
      await host.send(allowProfile, host.endpoint(a), hostEndpoint("eth0", { forwardTiers }), inSync);
      using log = host.inside(() => new NflogListener([1, 2]));
      expect(await host.probe([{ from: host.outside, to: a.v4, port: 80 }])).toEqual(["reached"]);
      expect(log.take()).toEqual(["PPI|default", "ARI0|allow"]);
      expect(await host.probe([{ from: a.target, to: "192.0.2.99" as IpAddress, port: 80 }], 120)).toHaveLength(1);
      expect(log.take()).toEqual(["ARE0|allow", "PPE|default"]);
    });
  });
