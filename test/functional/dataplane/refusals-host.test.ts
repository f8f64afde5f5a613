// What a refused rule closes in the chains that all of the host's packets walk: no more than it must, and never the
// host's own access.
import { describe, expect, test } from "bun:test";
import type { LinuxKernel } from "../../../src/dataplane/index.ts";
import { IptablesTable } from "../../../src/dataplane/iptables/iptables-table.ts";
import { ALL_FEATURES } from "../../../src/dataplane/iptables/text.ts";
import { NftPlane } from "../../../src/dataplane/nft/nft-plane.ts";
import { NftTables } from "../../../src/dataplane/nft/nft-tables.ts";
import { LateRule } from "../../../src/dataplane/nft/prepared-chain.ts";
import { rulesConfig } from "../../../src/dataplane/parameters.ts";
import { askHostPolicy } from "../../../src/dataplane/rules/detours.ts";
import {
  accept,
  chain,
  drop,
  goto,
  hostChain,
  inSet,
  jump,
  outInterface,
  protocolIs,
} from "../../../src/dataplane/rules/rule.ts";
import { Nft, type NftChange } from "../../../src/kernel/index.ts";
import type { Cidr, IpAddress } from "../../../src/lib/ip.ts";
import { createLogger } from "../../../src/lib/log.ts";
import {
  allowProfile,
  BACKENDS,
  DataplaneHost,
  hostEndpoint,
  inSync,
  parametersOf,
  PLAIN_FACTS,
  policy,
  rule,
  tier,
} from "./host.ts";
import { refusing, refusingText, withoutMatch, withRuleset } from "./refusing.ts";

const HOST = "192.0.2.10" as IpAddress;
const OUTSIDE = "192.0.2.99" as IpAddress;
const tcp = { name: "tcp" } as const;
const port = (first: number) => ({ first, last: first });
/** Policy for every interface of the host: 80 from outside and everything outward. */
const everywhere = [
  policy("in", [rule({ protocol: tcp, dstPorts: [port(80)] }), rule({ protocol: { name: "icmpv6" } })]),
  policy("out", [], [rule()]),
  hostEndpoint("*", { tiers: [tier(["in"], ["out"])] }),
] as const;

async function world(backend: (typeof BACKENDS)[number], wrap: (kernel: LinuxKernel) => LinuxKernel) {
  const host = await DataplaneHost.create(backend, {
    IptablesFilterAllowAction: "RETURN",
    NftablesFilterAllowAction: "RETURN",
  });
  const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
  for (const p of [22, 80, 81]) host.prober.listen(host.hostTarget, "tcp", p);
  for (const p of [4789, 68]) host.prober.listen(host.hostTarget, "udp", p);
  host.prober.listen(host.outside, "tcp", 80);
  for (const p of [80, 81]) host.prober.listen(b.target, "tcp", p);
  host.wrapKernel = wrap;
  const opened = async () =>
    host.probe([
      { from: host.outside, to: HOST, port: 22 }, // a failsafe port
      { from: host.outside, to: HOST, port: 80 },
      { from: host.outside, to: HOST, port: 81 },
      { from: host.hostTarget, to: OUTSIDE, port: 80 },
      { from: a.target, to: b.v4, port: 80 },
      { from: a.target, to: b.v4, port: 81 },
    ]);
  const messages = [
    allowProfile,
    policy("p", [rule({ protocol: tcp, dstPorts: [port(80)] })]),
    host.endpoint(a, { qosPolicies: [{ destination: "", dscp: 10 }] }),
    host.endpoint(b, { tiers: [tier(["p"])] }),
    ...everywhere,
    inSync,
  ] as const;
  return {
    host,
    messages,
    opened,
    said: () => host.lines.filter((line) => line.startsWith("error the kernel refuses")),
  };
}
const AS_POLICY_SAYS = ["reached", "reached", "silent", "reached", "reached", "silent"] as const;

for (const backend of BACKENDS)
  describe(backend, () => {
    test("a DSCP jump that is refused is left out, and everything else is as it should be", async () => {
      const { host, messages, opened, said } = await world(backend, (kernel) =>
        kernel.rules.backend === "nftables"
          ? withRuleset(kernel, (ruleset) =>
              refusing(
                ruleset,
                (change) =>
                  change instanceof LateRule &&
                  change.tree.action?.kind === "jump" &&
                  change.tree.action.chain === "cali-egress-dscp",
              ),
            )
          : refusingText(kernel, /--match-set cali\d0dscp-src-net/),
      );
      await using _ = host;
      host.start();
      await host.send(...messages);
      expect(await opened()).toEqual([...AS_POLICY_SAYS]);
      expect(said().length).toBeGreaterThan(0);
      for (const line of said()) expect(line).toContain("it is left out");
    }, 60_000);

    test("without a way to ask for local addresses VXLAN is closed, and neither the host nor its workloads", async () => {
      const { host, messages, opened, said } = await world(backend, (kernel) =>
        withoutMatch(kernel, "localAddress", "-m addrtype"),
      );
      await using _ = host;
      host.start(undefined, backend, { vxlanEnabled: true });
      await host.send(...messages);
      expect(await opened()).toEqual([...AS_POLICY_SAYS]);
      const udp = (p: number) => ({ from: host.outside, to: HOST, port: p, protocol: "udp" as const });
      // 68 is a failsafe port of the host.
      expect(await host.probe([udp(68), udp(4789)])).toEqual(["reached", "silent"]);
      const closed = said().filter((line) => line.includes("are dropped"));
      expect(closed).toHaveLength(1);
      expect(closed[0]).toContain("the same protocol, ports are dropped");
    }, 60_000);

    test("without a way to ask for translated packets the host's way out is closed but for failsafe ports, and nothing else", async () => {
      const { host, messages, opened, said } = await world(backend, (kernel) =>
        withoutMatch(kernel, "ctDnat", "--ctstate DNAT"),
      );
      await using _ = host;
      host.prober.listen(host.outside, "tcp", 2379);
      host.start();
      await host.send(...messages);
      const expected = [...AS_POLICY_SAYS];
      expected[3] = "silent"; // outward, though policy allows it
      expect(await opened()).toEqual(expected);
      expect(await host.probe([{ from: host.hostTarget, to: OUTSIDE, port: 2379 }])).toEqual(["reached"]); // a failsafe port
      // The guard table needs the same match: without it, all packets of workloads to loopback addresses are dropped.
      const [ofGuard, ofHost] = [true, false].map((is) => said().filter((line) => line.includes("guard") === is));
      for (const line of ofGuard ?? []) expect(line).toContain("packets that come to its place are dropped");
      expect(ofHost?.length).toBeGreaterThan(0);
      for (const line of ofHost ?? []) expect(line).toContain("host endpoints are closed but for known connections");
      // Interfaces without a host endpoint are nobody's business.
      await host.send(
        { type: "hostEndpointRemove", endpointId: "every" },
        hostEndpoint("eth7", { tiers: [tier(["in"], ["out"])] }),
      );
      expect(await host.probe([{ from: host.hostTarget, to: OUTSIDE, port: 80 }])).toEqual(["reached"]);
    }, 60_000);

    test("a deny of a policy that is refused for its ICMP type closes its protocol and prefix only", async () => {
      const { host, messages, opened } = await world(backend, (kernel) => withoutMatch(kernel, "icmp", "--icmp-type"));
      await using _ = host;
      host.start();
      const icmp = rule({
        action: "deny",
        protocol: { name: "icmp" },
        icmp: { type: 8 },
        srcNet: ["10.65.0.0/16" as Cidr],
      });
      const allowed = rule({ protocol: tcp, dstPorts: [port(80)] });
      await host.send(...messages, policy("p", [icmp, allowed]));
      expect(await opened()).toEqual([...AS_POLICY_SAYS]);
    }, 60_000);
  });

const jumpTo = (change: NftChange, chain: string): boolean =>
  change instanceof LateRule && change.tree.action?.kind === "jump" && change.tree.action.chain === chain;

test("nftables: jumps to host policy that are refused close the host but for failsafe ports, and not its workloads", async () => {
  const { host, messages, opened, said } = await world("nftables", (kernel) =>
    withRuleset(kernel, (ruleset) => refusing(ruleset, (change) => jumpTo(change, "cali-from-host-endpoint"))),
  );
  await using _ = host;
  host.start();
  await host.send(...messages);
  expect(await opened()).toEqual(["reached", "silent", "silent", "reached", "reached", "silent"]);
  expect(said().length).toBeGreaterThan(0);
  // Without host endpoints nothing is closed.
  await host.send({ type: "hostEndpointRemove", endpointId: "every" });
  expect(await opened()).toEqual(["reached", "reached", "reached", "reached", "reached", "silent"]);
}, 60_000);

test("nftables: forwarded traffic is closed where policy speaks of it, and goes on where none does", async () => {
  const { host, messages, opened } = await world("nftables", (kernel) =>
    withRuleset(kernel, (ruleset) => refusing(ruleset, (change) => jumpTo(change, "cali-from-hep-forward"))),
  );
  await using _ = host;
  const b = host.pods.get("b");
  if (b === undefined) throw new Error("no pod b");
  const fromOutside = () => host.probe([{ from: host.outside, to: b.v4, port: 80 }]);
  host.start();
  await host.send(...messages);
  expect(await opened()).toEqual([...AS_POLICY_SAYS]);
  expect(await fromOutside()).toEqual(["reached"]);
  await host.send(hostEndpoint("*", { tiers: [tier(["in"], ["out"])], forwardTiers: [tier(["in"])] }));
  expect(await fromOutside()).toEqual(["silent"]);
  expect((await opened()).slice(0, 4)).toEqual(AS_POLICY_SAYS.slice(0, 4));
}, 60_000);

describe("the real kernel", () => {
  const config = rulesConfig(parametersOf(), PLAIN_FACTS, "nftables");
  const silent = createLogger({ level: "error", write: () => {} });
  /** Policy, and what shall stand for it. */
  const chains = [
    chain("cali-to-host-endpoint", [{ match: [outInterface("eth0")], action: drop }]),
    chain("cali-to-host-closed", [{ match: [outInterface("eth0")], action: goto("cali-closed-out") }]),
    chain("cali-closed-out", [{ match: [protocolIs("udp")], action: accept }, { action: drop }]),
  ];

  test("nftables: a jump whose match does not fit its place is led to the closed chain", async () => {
    await using host = await DataplaneHost.create("nftables");
    using ruleset = host.inside(() => new Nft());
    const plane = new NftPlane(4, config);
    const { raw } = plane.tables;
    for (const each of chains) raw.setChain(each);
    // Only where packets come in can be asked whether they came the right way.
    raw.setChain(hostChain("cali-OUTPUT", [askHostPolicy("cali-to-host-endpoint", { kind: "reversePathFails" })]));
    raw.setHook("OUTPUT", "insert", [{ action: jump("cali-OUTPUT") }]);
    const tables = new NftTables({ planes: [plane], ruleset, logger: silent, refreshMs: 0 });
    await tables.apply(new AbortController().signal);
    const shown = host.namespace.run("nft", ["-s", "list", "table", "ip", "calico"]);
    expect(shown).toMatch(/jump raw-cali-to-host-closed comment "cali:\w+; Led elsewhere/);
    expect(shown).toContain("chain raw-cali-closed-out");
    expect(tables.refused()).toMatchObject([{ kind: "rule", where: "ip calico raw-cali-OUTPUT, number 1" }]);
  }, 30_000);

  for (const variant of ["legacy", "nft"] as const)
    test(`iptables-${variant}: a jump that names a set which is not there is led to the closed chain`, async () => {
      await using host = await DataplaneHost.create(variant);
      const table = new IptablesTable({
        layer: "filter",
        store: host.iptables(4, variant),
        context: { config, version: 4, layer: "filter", features: ALL_FEATURES },
        insertMode: "insert",
        logger: silent,
        postWriteMs: 0,
        refreshMs: 0,
      });
      for (const each of chains) table.setChain(each);
      table.setChain(hostChain("cali-OUTPUT", [askHostPolicy("cali-to-host-endpoint", inSet("source", "s:none"))]));
      table.setHook("OUTPUT", "insert", [{ action: jump("cali-OUTPUT") }]);
      await table.apply(new AbortController().signal);
      const saved = host.namespace.run(`iptables-${variant}-save`, ["-t", "filter"]);
      expect(saved).toMatch(/-A cali-OUTPUT .*Led elsewhere.* -j cali-to-host-closed/);
      expect(saved).toMatch(/-A cali-to-host-closed .*-g cali-closed-out/);
      expect(table.refused()).toMatchObject([{ kind: "rule", where: "iptables filter cali-OUTPUT, number 1" }]);
    }, 30_000);
});
