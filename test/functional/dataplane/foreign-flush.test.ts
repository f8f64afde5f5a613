// Tests that rules flushed by another program are restored within seconds, with every backend, although the next periodic
// refresh is far away. The kernel sends no events for legacy tables; there a changed fingerprint of the table shows the change.
import { expect, test } from "bun:test";
import { LegacyTableFingerprints } from "../../../src/kernel/index.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { allowProfile, type Backend, BACKENDS, DataplaneHost, inSync, policy, rule, tier } from "./host.ts";

/** The periodic refreshes are far away. */
const SETTINGS = {
  IptablesPostWriteCheckIntervalSecs: "600",
  IptablesRefreshInterval: "600",
  NftablesRefreshInterval: "600",
};
const tcp = { name: "tcp" } as const;
const port = (first: number) => ({ first, last: first });

async function world(backend: Backend) {
  const host = await DataplaneHost.create(backend, SETTINGS);
  const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
  for (const p of [80, 81]) host.prober.listen(b.target, "tcp", p);
  const dataplane = host.start();
  await host.send(
    allowProfile,
    policy("p", [rule({ protocol: tcp, dstPorts: [port(80)] })]),
    host.endpoint(a),
    host.endpoint(b, { tiers: [tier(["p"])] }),
    inSync,
  );
  const probe = () => host.probe([a, a].map((from, i) => ({ from: from.target, to: b.v4, port: 80 + i })));
  const shell = (script: string) => host.namespace.run("sh", ["-ec", script]);
  const saved = () => shell("iptables-legacy-save; ip6tables-legacy-save").replace(/\[\d+:\d+\]|^#.*\n/gm, "");
  return { host, dataplane, probe, shell, saved };
}

test("legacy: rules that another program flushes or adds are repaired within seconds, long before the refresh", async () => {
  const { host, probe, shell, saved } = await world("legacy");
  await using _ = host;
  const before = saved();
  const faults = [
    "iptables-legacy -F; iptables-legacy -t raw -F; iptables-legacy -t mangle -F",
    "iptables-legacy -F FORWARD",
    "ip6tables-legacy -t raw -F cali-PREROUTING",
    "iptables-legacy -t nat -A cali-fip-dnat -j ACCEPT",
    "iptables-legacy -I FORWARD -j cali-cidr-block",
  ];
  for (const fault of faults) {
    const linesBefore = host.lines.length;
    const started = performance.now();
    shell(fault);
    await eventually(() => saved() === before, 8000).catch(() => expect(saved()).toBe(before));
    const tookMs = performance.now() - started;
    if (tookMs > 5000) throw new Error(`${fault}: repaired only after ${tookMs} ms`);
    await host.send(inSync); // the apply that repaired it has ended
    expect(host.lines.slice(linesBefore).join("\n")).toContain(
      "another program changed iptables rules; restoring them",
    );
  }
  expect(await probe()).toEqual(["reached", "silent"]);
}, 60_000);

const FLUSHES = {
  nft: ["iptables-nft -F", "iptables-nft -F FORWARD", "ip6tables-nft -t raw -F"],
  nftables: ["nft flush table ip calico", "nft flush chain ip6 calico filter-INPUT", "nft flush ruleset"],
} as const;
for (const backend of ["nft", "nftables"] as const)
  test(`${backend}: jumps and hooks that another program removes are restored within seconds`, async () => {
    const { host, probe, shell } = await world(backend);
    await using _ = host;
    const saved = () =>
      backend === "nft"
        ? shell("iptables-nft-save; ip6tables-nft-save").replace(/\[\d+:\d+\]|^#.*\n/gm, "")
        : shell("nft -s list table ip calico; nft -s list table ip6 calico").split("\n").sort().join("\n");
    const before = saved();
    for (const flush of FLUSHES[backend]) {
      const started = performance.now();
      shell(flush);
      const isBack = () => {
        try {
          return saved() === before;
        } catch {
          return false; // a table is temporarily missing
        }
      };
      await eventually(isBack, 8000).catch(() => expect(saved()).toBe(before));
      const tookMs = performance.now() - started;
      if (tookMs > 5000) throw new Error(`${flush}: repaired only after ${tookMs} ms`);
      await host.send(inSync); // the apply that repaired it has ended
    }
    expect(await probe()).toEqual(["reached", "silent"]);
  }, 60_000);

test("legacy: tables are not read again after our own writes, or while nothing changes", async () => {
  const { host, dataplane } = await world("legacy");
  await using _ = host;
  const before = dataplane.stats.iptablesSave.calls;
  await host.send(policy("p", [rule({ protocol: tcp, dstPorts: [port(80), port(81)] }), rule({ protocol: tcp })]));
  expect(dataplane.stats.iptablesSave.calls).toBeGreaterThan(before); // before each write
  const written = dataplane.stats.iptablesSave.calls;
  await Bun.sleep(2300); // two polls, and their effects
  expect(dataplane.stats.iptablesSave.calls).toBe(written);
}, 60_000);

test("legacy: the fingerprint of a table changes with its length and takes microseconds", async () => {
  await using host = await DataplaneHost.create("legacy");
  using tables = host.inside(() => new LegacyTableFingerprints([4, 6]));
  const shell = (script: string) => host.namespace.run("sh", ["-ec", script]);
  shell("iptables-legacy -A FORWARD -j ACCEPT; ip6tables-legacy -A FORWARD -j ACCEPT");
  const fingerprint = () => [tables.fingerprint(4, "filter"), tables.fingerprint(6, "filter")];
  const before = fingerprint();
  expect(before.every((each) => each !== undefined)).toBe(true);
  expect(fingerprint()).toEqual(before);
  shell("iptables-legacy -A FORWARD -j DROP");
  const after = fingerprint();
  expect(after[0]).not.toBe(before[0]);
  expect(after[1]).toBe(before[1]);
  shell("iptables-legacy -F");
  expect(fingerprint()[0]).not.toBe(after[0]);
  const started = performance.now();
  for (let i = 0; i < 1000; i++) tables.fingerprint(4, "filter");
  expect((performance.now() - started) / 1000).toBeLessThan(1); // less than a millisecond each
}, 30_000);

for (const backend of BACKENDS)
  test(`${backend}: a guard table that another program deletes or flushes is restored within seconds`, async () => {
    const { host, shell } = await world(backend);
    await using _ = host;
    const saved = () => shell("nft -s list table inet calico-guard || true");
    const before = saved();
    expect(before).toContain("127.0.0.0/8");
    for (const fault of ["nft delete table inet calico-guard", "nft flush table inet calico-guard"]) {
      const started = performance.now();
      shell(fault);
      await eventually(() => saved() === before, 8000).catch(() => expect(saved()).toBe(before));
      expect(performance.now() - started).toBeLessThan(5000);
    }
  }, 60_000);
