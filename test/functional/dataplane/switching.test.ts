// Tests changes of the backend and changes by other programs: policy is always enforced, and no old rules are left.
import { expect, test } from "bun:test";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { allowProfile, type Backend, DataplaneHost, inSync, policy, rule, tier } from "./host.ts";

const ORDER: readonly Backend[] = ["legacy", "nftables", "nft", "nftables", "legacy"];

/** Two pods: `b` allows connections to port 80, and also has a listener on port 81. */
function arrange(host: DataplaneHost) {
  const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
  for (const port of [80, 81]) host.prober.listen(b.target, "tcp", port);
  const messages = [
    allowProfile,
    policy("p", [rule({ protocol: { name: "tcp" }, dstPorts: [{ first: 80, last: 80 }] })]),
    host.endpoint(a),
    host.endpoint(b, { tiers: [tier(["p"])] }),
    inSync,
  ];
  return { a, b, messages };
}

test("FD-035 switching backends keeps policy and removes the old rules", async () => {
  await using host = await DataplaneHost.create("legacy");
  host.sweep();
  const { a, b, messages } = arrange(host);
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
    const desired = { legacy: false, nft: false, nftables: false, sets: backend !== "nftables", [backend]: true };
    await eventually(() => Bun.deepEquals(traces(), desired), 15_000).catch(() => expect(traces()).toEqual(desired));
    await holds();
    await host.stop();
    await holds(); // the rules stay when the agent ends
  }
});

for (const backend of ["nftables", "legacy"] as const)
  test(`FD-035 from nft to ${backend}: Calico's rules are removed from shared tables also if they contain native rules, which are kept`, async () => {
    await using host = await DataplaneHost.create("nft");
    host.sweep();
    const { a, b, messages } = arrange(host);
    host.start({}, "nft");
    await host.send(...messages);
    await host.stop();
    // The iptables tools cannot list this table any more; another table has an ordinary iptables rule.
    const native = "add rule ip filter FORWARD ct mark 0x7 counter drop";
    host.namespace.run("nft", [native]);
    host.namespace.run("iptables-nft", ["-t", "nat", "-A", "POSTROUTING", "-s", "203.0.113.7", "-j", "ACCEPT"]);
    expect(host.namespace.run("sh", ["-c", "iptables-nft-save 2>&1 | grep -c incompatible; true"]).trim()).toBe("1");
    host.start({}, backend);
    await host.send(...messages);
    const shared = () =>
      ["ip", "ip6"].flatMap((family) =>
        host.namespace
          .run("nft", ["list", "ruleset", family])
          .split("\ntable ")
          .filter((table) => /^(table )?ip6? (raw|mangle|nat|filter) /.test(table)),
      );
    await eventually(() => !shared().join().includes("cali"), 15_000).catch(() => expect(shared()).toEqual([]));
    expect(shared().join()).toMatch(/ct mark 0x0*7 counter packets \d+ bytes \d+ drop/);
    expect(shared().join()).toContain("ip saddr 203.0.113.7");
    expect(await host.probe([80, 81].map((port) => ({ from: a.target, to: b.v4, port })))).toEqual([
      "reached",
      "silent",
    ]);
  }, 60_000);

for (const backend of ["nftables", "legacy"] as const)
  test(`${backend}: rules that another program flushed are restored`, async () => {
    await using host = await DataplaneHost.create(backend, {
      IptablesPostWriteCheckIntervalSecs: "0.1",
      NftablesRefreshInterval: "1",
    });
    const { a, b, messages } = arrange(host);
    host.start();
    await host.send(...messages);
    const isClosed = async () => (await host.probe([{ from: a.target, to: b.v4, port: 81 }], 150))[0] === "silent";
    expect(await isClosed()).toBe(true);
    if (backend === "nftables") host.namespace.run("nft", ["flush", "ruleset"]);
    else host.namespace.run("iptables-legacy", ["-F"]);
    // Any message causes an apply; the next refresh detects the missing rules.
    const end = performance.now() + 15_000;
    let closed = false;
    while (!closed && performance.now() < end) {
      await host.send({ type: "namespaceUpdate", name: "ns1", labels: {} });
      closed = await isClosed();
    }
    expect(closed).toBe(true);
  });

for (const backend of ["nftables", "nft"] as const)
  test(`${backend}: if the host's firewall flushes all rules, denied traffic is blocked again immediately`, async () => {
    await using host = await DataplaneHost.create(backend); // with the default intervals
    const { a, b, messages } = arrange(host);
    host.start();
    await host.send(...messages);
    const denied = [b.v4, b.v6].map((to) => ({ from: a.target, to, port: 81 }));
    const isClosed = async () => (await host.probe(denied, 150)).every((outcome) => outcome === "silent");
    await eventually(isClosed, 20_000);
    // The checks after a write end soon; the next refresh is minutes later.
    const table = "table inet firewall { chain c { type filter hook input priority 0; tcp dport 7 drop\n }\n }";
    for (const script of [`flush ruleset\n${table}`, "delete table ip6 calico"].slice(0, backend === "nft" ? 1 : 2)) {
      await new Promise((resolve) => setTimeout(resolve, 1500)); // not within a second of our own write
      const linesBefore = host.lines.length;
      host.namespace.run("nft", ["-f", "-"], script);
      const isLogged = () =>
        host.lines.slice(linesBefore).some((line) => line.startsWith("warn another program changed"));
      await eventually(isLogged, 20_000); // about a second; without events it would be minutes
      await eventually(isClosed, 20_000);
      expect(await host.probe([{ from: a.target, to: b.v4, port: 80 }], 5000)).toEqual(["reached"]);
    }
    expect(host.namespace.run("nft", ["list", "tables"])).toContain("inet firewall");
  }, 120_000);
