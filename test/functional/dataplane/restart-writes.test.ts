// Tests that a restart without changes writes nothing: no transaction, route or sysctl, and it runs no process that writes.
import { expect, test } from "bun:test";
import type { DataplaneMessage } from "../../../src/calc/index.ts";
import { Nft } from "../../../src/kernel/index.ts";
import { reasonForIptables } from "../../../src/dataplane/nft/probe.ts";
import { allowProfile, BACKENDS, DataplaneHost, inSync, policy, rule, tier } from "./host.ts";
import { watchWrites } from "./watch-writes.ts";

for (const backend of BACKENDS)
  test(`${backend}: a restart without changes sends no write to the kernel`, async () => {
    await using host = await DataplaneHost.create(backend);
    const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
    const state: DataplaneMessage[] = [
      allowProfile,
      { type: "ipSetUpdate", id: "s:one", setType: "net", members: [`${a.v4}/32`, `${a.v6}/128`] },
      policy("p", [rule({ srcIpSetIds: ["s:one"], protocol: { name: "tcp" }, dstPorts: [{ first: 80, last: 90 }] })]),
      host.endpoint(a, { mac: "ee:ee:ee:00:00:01" }),
      host.endpoint(b, { tiers: [tier(["p"])] }),
      inSync,
    ];
    host.start();
    await host.send(...state);
    await host.stop();

    using ruleset = host.inside(() => new Nft());
    const generation = ruleset.generation();
    const writes: string[] = [];
    host.wrapKernel = (kernel) => watchWrites(kernel, (what) => writes.push(what));
    host.start();
    await host.send(...state);
    expect(writes).toEqual([]);
    expect(ruleset.generation()).toBe(generation);

    // The same check detects a write if there is one.
    await host.send(host.endpoint(b, { tiers: [] }));
    expect(writes.length).toBeGreaterThan(0);
  });

test("detecting the features of the kernel does not change its ruleset", async () => {
  await using host = await DataplaneHost.create("nftables");
  using ruleset = host.inside(() => new Nft());
  const before = ruleset.generation();
  expect(reasonForIptables("Auto", { ipvs: false }, ruleset)).toBeUndefined();
  expect(ruleset.generation()).toBe(before);
  expect(ruleset.tables()).toEqual([]);
});
