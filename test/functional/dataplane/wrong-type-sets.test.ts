// Tests an IP set with a reserved name and the wrong type, which cannot be deleted because rules use it.
import { describe, expect, test } from "bun:test";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { allowProfile, DataplaneHost, inSync, policy, rule, tier } from "./host.ts";

const tcp = { name: "tcp" } as const;
const SETTINGS = {
  IptablesPostWriteCheckIntervalSecs: "0.1",
  IptablesRefreshInterval: "1",
  IpsetsRefreshInterval: "1",
};

for (const backend of ["legacy", "nft"] as const)
  describe(backend, () => {
    /** Policy of b: allow tcp 80 from a, but not from c. */
    async function arranged() {
      const host = await DataplaneHost.create(backend, SETTINGS);
      const [a, b, c] = [host.addPod("a", 2), host.addPod("b", 3), host.addPod("c", 4)];
      host.prober.listen(b.target, "tcp", 80);
      const state = [
        allowProfile,
        { type: "ipSetUpdate", id: "s:one", setType: "net", members: [`${a.v4}/32`, `${a.v6}/128`] },
        policy("p", [rule({ protocol: tcp, srcIpSetIds: ["s:one"] })]),
        ...[a, c].map((pod) => host.endpoint(pod)),
        host.endpoint(b, { tiers: [tier(["p"])] }),
        inSync,
      ] as const;
      const shell = (script: string) => host.namespace.run("sh", ["-ec", `T=iptables-${backend}; ${script}`]);
      const held = () =>
        shell("$T-save; ipset save")
          .split("\n")
          .filter((line) => !line.startsWith("#"))
          .map((line) => line.replace(/\[\d+:\d+\]|(hashsize|bucketsize|initval) \S+/g, "").trim())
          .sort()
          .join("\n");
      const passed = () =>
        host.probe(
          [a, c].map((pod) => ({ from: pod.target, to: b.v4 })),
          300,
        );
      return { host, state, shell, held, passed, a, c, b };
    }
    const logged = (host: DataplaneHost, words: string) => host.lines.filter((line) => line.includes(words));

    test("if rules of an earlier run use it, both are replaced, and its members are never allowed", async () => {
      const { host, state, shell, held, passed, c } = await arranged();
      await using _ = host;
      host.start();
      await host.send(...state);
      const before = held();
      await host.stop();
      // Rules of the earlier run, with a set of single addresses that contains the wrong pod.
      shell(`$T-save >/tmp/alien-$$; $T -F; $T -X; ipset destroy cali40s:one; ipset create cali40s:one hash:ip
        ipset add cali40s:one ${c.v4}; $T-restore </tmp/alien-$$; rm /tmp/alien-$$`);
      expect(await passed()).toEqual(["silent", "reached"]);
      host.start();
      await host.send(...state);
      expect(await passed()).toEqual(["reached", "silent"]);
      await eventually(() => held() === before, 20_000).catch(() => expect(held()).toBe(before));
      expect(logged(host, "of another type")).not.toHaveLength(0);
      expect(await passed()).toEqual(["reached", "silent"]);
    }, 60_000);

    test("if a rule of another program uses it, policy is enforced with an alternate name, and the rule is logged", async () => {
      const { host, state, shell, held, passed, b } = await arranged();
      await using _ = host;
      host.start();
      await host.send(...state);
      const before = held();
      shell(`$T -F; $T -X; ipset destroy cali40s:one; ipset create cali40s:one hash:ip
        $T -A INPUT -p udp --dport 7 -m set --match-set cali40s:one src -j DROP`);
      const isEnforced = async () => (await passed()).join() === "reached,silent";
      await eventually(isEnforced, 20_000);
      await eventually(() => logged(host, "rules of other programs use an IP set").length > 0, 20_000);
      const [line] = logged(host, "rules of other programs use an IP set");
      expect(line).toContain(`iptables-${backend} -t filter -A INPUT -p udp`);
      expect(line).toContain("use a set with another name");
      // Members are still updated, and a restart finds the same set.
      await host.send({ type: "ipSetDeltaUpdate", id: "s:one", added: ["10.65.0.77/32"], removed: [] });
      expect(shell("ipset list cali4ts:one")).toContain("10.65.0.77");
      await host.send({ type: "ipSetDeltaUpdate", id: "s:one", added: [], removed: ["10.65.0.77/32"] });
      const blocked = held();
      await host.stop();
      host.start();
      await host.send(...state);
      expect(held()).toBe(blocked);
      expect(await isEnforced()).toBe(true);
      shell("$T -D INPUT -p udp --dport 7 -m set --match-set cali40s:one src -j DROP");
      await host.send(host.endpoint(b, { tiers: [tier(["p"])] }));
      await eventually(() => held() === before, 30_000).catch(() => expect(held()).toBe(before));
      expect(await isEnforced()).toBe(true);
    }, 90_000);
  });

test("the size of a set with more members than MaxIpsetSize is increased, also later", async () => {
  await using host = await DataplaneHost.create("legacy", { ...SETTINGS, MaxIpsetSize: "4" });
  const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
  host.prober.listen(b.target, "tcp", 80);
  const nets = (count: number) => Array.from({ length: count }, (_, i) => `10.70.0.${i}/32`);
  const dataplane = host.start();
  await host.send(
    allowProfile,
    { type: "ipSetUpdate", id: "s:many", setType: "net", members: nets(6) },
    policy("p", [rule({ action: "deny", srcIpSetIds: ["s:many"] }), rule()]),
    host.endpoint(a),
    host.endpoint(b, { tiers: [tier(["p"])] }),
    inSync,
  );
  const listed = () => host.namespace.run("ipset", ["list", "cali40s:many"]);
  expect(listed()).toContain("maxelem 8");
  const probe = () => host.probe([{ from: a.target, to: b.v4 }], 300);
  expect(await probe()).toEqual(["reached"]);
  // The ninth member does not fit into the configured size.
  await host.send({ type: "ipSetDeltaUpdate", id: "s:many", added: [...nets(8), `${a.v4}/32`], removed: [] });
  expect(listed()).toContain("maxelem 16");
  expect(await probe()).toEqual(["silent"]);
  expect(host.lines.join("\n")).toContain("more members than MaxIpsetSize");
  // With few members again the size stays, and the refresh, every second here, finds no change by another program.
  const { calls } = dataplane.stats.ipset;
  await host.send({ type: "ipSetDeltaUpdate", id: "s:many", added: [], removed: nets(8) });
  expect(dataplane.stats.ipset.calls).toBeGreaterThan(calls);
  const linesBefore = host.lines.length;
  await Bun.sleep(2500); // two refreshes
  expect(host.lines.slice(linesBefore).filter((line) => line.includes("another program"))).toEqual([]);
  expect(listed()).toContain("maxelem 16");
  expect(await probe()).toEqual(["silent"]);
}, 60_000);
