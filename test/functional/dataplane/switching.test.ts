// From one backend to the other and back, and through tampering: policy holds all the way, and nothing is left behind.
import { expect, test } from "bun:test";
import { eventually } from "../kernel/support.ts";
import { allowProfile, type Backend, DataplaneHost, inSync, policy, rule, tier } from "./host.ts";

const ORDER: readonly Backend[] = ["legacy", "nftables", "nft", "nftables", "legacy"];

test("FD-035 switching backends keeps policy and removes the old rules", async () => {
  await using host = await DataplaneHost.create("legacy");
  host.sweep();
  const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
  for (const port of [80, 81]) host.prober.listen(b.target, "tcp", port);
  const messages = [
    allowProfile,
    policy("p", [rule({ protocol: { name: "tcp" }, dstPorts: [{ first: 80, last: 80 }] })]),
    host.endpoint(a),
    host.endpoint(b, { tiers: [tier(["p"])] }),
    inSync,
  ];
  const holds = async () =>
    expect(
      await host.probe(
        [
          { from: a.target, to: b.v4, port: 80 },
          { from: a.target, to: b.v4, port: 81 },
        ],
        200,
      ),
    ).toEqual(["reached", "silent"]);
  const traces = () => ({
    legacy: host.namespace.run("iptables-legacy-save", []).includes("cali-"),
    nft: host.namespace.run("iptables-nft-save", []).includes("cali-"),
    nftables: /^table ip6? calico$/m.test(host.namespace.run("nft", ["list", "tables"])), // the ARP table always stays
    sets: host.namespace.run("ipset", ["list", "-n"]).includes("cali40"),
  });
  for (const backend of ORDER) {
    host.start({}, backend);
    await host.send(...messages);
    await holds();
    const wanted = { legacy: false, nft: false, nftables: false, sets: backend !== "nftables", [backend]: true };
    await eventually(() => Bun.deepEquals(traces(), wanted), 15_000).catch(() => expect(traces()).toEqual(wanted));
    await holds();
    await host.stop();
    await holds(); // nothing is detached when the agent ends
  }
});

for (const backend of ["nftables", "legacy"] as const)
  test(`${backend}: rules somebody flushed are written again`, async () => {
    await using host = await DataplaneHost.create(backend, {
      IptablesPostWriteCheckIntervalSecs: "0.1",
      NftablesRefreshInterval: "1",
    });
    const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
    host.prober.listen(b.target, "tcp", 81);
    host.start();
    await host.send(
      allowProfile,
      policy("p", [rule({ protocol: { name: "tcp" }, dstPorts: [{ first: 80, last: 80 }] })]),
      host.endpoint(a),
      host.endpoint(b, { tiers: [tier(["p"])] }),
      inSync,
    );
    const isClosed = async () => (await host.probe([{ from: a.target, to: b.v4, port: 81 }], 150))[0] === "silent";
    expect(await isClosed()).toBe(true);
    if (backend === "nftables") host.namespace.run("nft", ["flush", "ruleset"]);
    else host.namespace.run("iptables-legacy", ["-F"]);
    // Any news brings a round; the next look finds what is gone.
    const end = performance.now() + 15_000;
    let closed = false;
    while (!closed && performance.now() < end) {
      await host.send({ type: "namespaceUpdate", name: "ns1", labels: {} });
      closed = await isClosed();
    }
    expect(closed).toBe(true);
  });
