// Checks by packets that rules of one policy which the kernel would reject do not affect the rules of another policy.
import { describe, expect, test } from "bun:test";
import { allowProfile, BACKENDS, DataplaneHost, inSync, policy, rule, tier } from "./host.ts";

const setIds = (name: string, count: number): string[] =>
  Array.from({ length: count }, (_, i) => `n:${name}${i}AAAAAAAAAAAA`);

for (const backend of BACKENDS)
  describe.skipIf(process.getuid?.() !== 0)(backend, () => {
    test("forty rules with a hundred negated ports do not close the rule of a neighbour", async () => {
      await using host = await DataplaneHost.create(backend);
      const [client, tenant, neighbour] = [host.addPod("a", 2), host.addPod("b", 3), host.addPod("c", 4)];
      for (const pod of [tenant, neighbour]) host.prober.listen(pod.target, "tcp", 80);
      host.start();
      const tcp = { protocol: { name: "tcp" } };
      await host.send(
        allowProfile,
        policy("prod", [rule({ ...tcp, dstPorts: [{ first: 80, last: 80 }] })]),
        host.endpoint(client),
        host.endpoint(tenant),
        host.endpoint(neighbour, { tiers: [tier(["prod"])] }),
        inSync,
      );
      const probe = () => host.probe([{ from: client.target, to: neighbour.v4 }]);
      expect(await probe()).toEqual(["reached"]);
      const [sources, destinations] = [setIds("s", 50), setIds("d", 49)];
      const rules = Array.from({ length: 40 }, (_, i) =>
        rule({
          ...tcp,
          notSrcNamedPortIpSetIds: sources,
          notDstNamedPortIpSetIds: destinations,
          notDstPorts: [{ first: 1000 + i, last: 1000 + i }],
        }),
      );
      await host.send(
        ...[...sources, ...destinations].map(
          (id) => ({ type: "ipSetUpdate", id, setType: "ipAndPort", members: [] }) as const,
        ),
        policy("tenant", rules),
        host.endpoint(tenant, { tiers: [tier(["tenant"])] }),
      );
      expect(await probe()).toEqual(["reached"]);
      expect(host.lines.filter((line) => line.includes("kernel rejected"))).toEqual([]);
      // The tenant's own rules are closed: none of them allows a packet.
      const probeTenant = () => host.probe([{ from: client.target, to: tenant.v4 }]);
      expect(await probeTenant()).toEqual(["silent"]);
      const longest = rule({
        ...tcp,
        dstPorts: [{ first: 80, last: 80 }],
        notSrcNamedPortIpSetIds: sources.slice(0, 10),
        notDstNamedPortIpSetIds: destinations.slice(0, 10),
      });
      await host.send(policy("tenant", [longest]));
      expect(await probeTenant()).toEqual(["reached"]);
      expect(host.lines.filter((line) => line.includes("kernel rejected"))).toEqual([]);
    }, 90_000);
  });
