// Tests a profile with a pass rule after a tier that passes all packets: packets that the profile allows are accepted.
import { expect, test } from "bun:test";
import { allowProfile, BACKENDS, DataplaneHost, inSync, policy, rule, tier } from "./host.ts";

for (const backend of BACKENDS)
  test(`${backend}: the pass of a tier does not count as a pass of the profile`, async () => {
    await using host = await DataplaneHost.create(backend);
    const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
    host.prober.listen(b.target, "tcp", 80);
    host.start();
    await host.send(
      allowProfile,
      policy("p", [rule({ action: "next-tier" })]),
      {
        type: "activeProfileUpdate",
        name: "some",
        profile: {
          inboundRules: [rule({ action: "next-tier", protocol: { name: "udp" } }), rule({})],
          outboundRules: [rule({})],
        },
      },
      host.endpoint(a),
      host.endpoint(b, { tiers: [tier(["p"])], profileIds: ["some"] }),
      inSync,
    );
    expect(await host.probe([{ from: a.target, to: b.v4, port: 80 }], 300)).toEqual(["reached"]);
  });
