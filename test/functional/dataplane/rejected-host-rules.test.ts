// Rejected rules in chains that all packets of the host traverse: their fallbacks drop as little as possible, and never
// block access to the failsafe ports.
import { describe, expect, test } from "bun:test";
import type { LinuxKernel } from "../../../src/dataplane/index.ts";
import { IptablesTable } from "../../../src/dataplane/iptables/iptables-table.ts";
import { ALL_FEATURES } from "../../../src/dataplane/iptables/rule-text.ts";
import { NftTable } from "../../../src/dataplane/nft/nft-table.ts";
import { NftTables } from "../../../src/dataplane/nft/nft-tables.ts";
import { LazyRule } from "../../../src/dataplane/nft/prepared-chain.ts";
import { rulesConfig } from "../../../src/dataplane/parameters.ts";
import { jumpToHostPolicy } from "../../../src/dataplane/rules/fallback/fallback-chains.ts";
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
import type { Cidr, IpAddress } from "../../../src/lib/ip/ip.ts";
import { createLogger } from "../../../src/lib/log/log.ts";
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
import { rejecting, rejectingText, withoutMatch, withRuleset } from "./rejecting-kernel.ts";

const HOST = "192.0.2.10" as IpAddress;
const OUTSIDE = "192.0.2.99" as IpAddress;
const tcp = { name: "tcp" } as const;
const port = (first: number) => ({ first, last: first });
/** Policy for all interfaces of the host: ingress to port 80, and all egress. */
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
    logged: () => host.lines.filter((line) => line.startsWith("error kernel rejected")),
  };
}
const ALLOWED_BY_POLICY = ["reached", "reached", "silent", "reached", "reached", "silent"] as const;

for (const backend of BACKENDS)
  describe(backend, () => {
    test("a rejected jump to DSCP rules is omitted, and everything else works", async () => {
      const { host, messages, opened, logged } = await world(backend, (kernel) =>
        kernel.rules.backend === "nftables"
          ? withRuleset(kernel, (ruleset) =>
              rejecting(
                ruleset,
                (change) =>
                  change instanceof LazyRule &&
                  change.source.action?.kind === "jump" &&
                  change.source.action.chain === "cali-egress-dscp",
              ),
            )
          : rejectingText(kernel, /--match-set cali\d0dscp-src-net/),
      );
      await using _ = host;
      host.start();
      await host.send(...messages);
      expect(await opened()).toEqual([...ALLOWED_BY_POLICY]);
      expect(logged().length).toBeGreaterThan(0);
      for (const line of logged()) expect(line).toContain("the rule is omitted");
    }, 60_000);

    test("without matches on local addresses, only VXLAN is blocked", async () => {
      const { host, messages, opened, logged } = await world(backend, (kernel) =>
        withoutMatch(kernel, "localAddress", "-m addrtype"),
      );
      await using _ = host;
      host.start(undefined, backend, { vxlanEnabled: true });
      await host.send(...messages);
      expect(await opened()).toEqual([...ALLOWED_BY_POLICY]);
      const udp = (p: number) => ({ from: host.outside, to: HOST, port: p, protocol: "udp" as const });
      // 68 is a failsafe port of the host.
      expect(await host.probe([udp(68), udp(4789)])).toEqual(["reached", "silent"]);
      const drops = logged().filter((line) => line.includes("are dropped"));
      expect(drops).toHaveLength(1);
      expect(drops[0]).toContain("match its protocol, ports are dropped");
    }, 60_000);

    test("without matches on the DNAT state, only egress of the host is blocked, except failsafe ports", async () => {
      const { host, messages, opened, logged } = await world(backend, (kernel) =>
        withoutMatch(kernel, "ctDnat", "--ctstate DNAT"),
      );
      await using _ = host;
      host.prober.listen(host.outside, "tcp", 2379);
      host.start();
      await host.send(...messages);
      const expected = [...ALLOWED_BY_POLICY];
      expected[3] = "silent"; // egress of the host, although policy allows it
      expect(await opened()).toEqual(expected);
      expect(await host.probe([{ from: host.hostTarget, to: OUTSIDE, port: 2379 }])).toEqual(["reached"]); // a failsafe port
      // The guard table needs the same match: without it, all packets of workloads to loopback addresses are dropped.
      const [ofGuard, ofHost] = [true, false].map((is) => logged().filter((line) => line.includes("guard") === is));
      for (const line of ofGuard ?? []) expect(line).toContain("all packets that reach the rule are dropped");
      expect(ofHost?.length).toBeGreaterThan(0);
      for (const line of ofHost ?? [])
        expect(line).toContain("host endpoints is dropped, except established connections");
      // Interfaces without a host endpoint are not affected.
      await host.send(
        { type: "hostEndpointRemove", endpointId: "every" },
        hostEndpoint("eth7", { tiers: [tier(["in"], ["out"])] }),
      );
      expect(await host.probe([{ from: host.hostTarget, to: OUTSIDE, port: 80 }])).toEqual(["reached"]);
    }, 60_000);

    test("a deny that is rejected because of its ICMP type drops only its protocol and prefix", async () => {
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
      expect(await opened()).toEqual([...ALLOWED_BY_POLICY]);
    }, 60_000);
  });

const jumpTo = (change: NftChange, chain: string): boolean =>
  change instanceof LazyRule && change.source.action?.kind === "jump" && change.source.action.chain === chain;

test("nftables: rejected jumps to host policy block the host except failsafe ports, and do not affect workloads", async () => {
  const { host, messages, opened, logged } = await world("nftables", (kernel) =>
    withRuleset(kernel, (ruleset) => rejecting(ruleset, (change) => jumpTo(change, "cali-from-host-endpoint"))),
  );
  await using _ = host;
  host.start();
  await host.send(...messages);
  expect(await opened()).toEqual(["reached", "silent", "silent", "reached", "reached", "silent"]);
  expect(logged().length).toBeGreaterThan(0);
  // Without host endpoints nothing is blocked.
  await host.send({ type: "hostEndpointRemove", endpointId: "every" });
  expect(await opened()).toEqual(["reached", "reached", "reached", "reached", "reached", "silent"]);
}, 60_000);

test("nftables: forwarded traffic is blocked only if a policy applies to it", async () => {
  const { host, messages, opened } = await world("nftables", (kernel) =>
    withRuleset(kernel, (ruleset) => rejecting(ruleset, (change) => jumpTo(change, "cali-from-hep-forward"))),
  );
  await using _ = host;
  const b = host.pods.get("b");
  if (b === undefined) throw new Error("no pod b");
  const fromOutside = () => host.probe([{ from: host.outside, to: b.v4, port: 80 }]);
  host.start();
  await host.send(...messages);
  expect(await opened()).toEqual([...ALLOWED_BY_POLICY]);
  expect(await fromOutside()).toEqual(["reached"]);
  await host.send(hostEndpoint("*", { tiers: [tier(["in"], ["out"])], forwardTiers: [tier(["in"])] }));
  expect(await fromOutside()).toEqual(["silent"]);
  expect((await opened()).slice(0, 4)).toEqual(ALLOWED_BY_POLICY.slice(0, 4));
}, 60_000);

describe("the real kernel", () => {
  const config = rulesConfig(parametersOf(), PLAIN_FACTS, "nftables");
  const silent = createLogger({ level: "error", write: () => {} });
  /** The policy chain and its fallback chains. */
  const chains = [
    chain("cali-to-host-endpoint", [{ match: [outInterface("eth0")], action: drop }]),
    chain("cali-to-host-closed", [{ match: [outInterface("eth0")], action: goto("cali-closed-out") }]),
    chain("cali-closed-out", [{ match: [protocolIs("udp")], action: accept }, { action: drop }]),
  ];

  test("nftables: a jump with a match that is not allowed in its hook is replaced by a jump to the closed chain", async () => {
    await using host = await DataplaneHost.create("nftables");
    using ruleset = host.inside(() => new Nft());
    const nftTable = new NftTable(4, config);
    const { raw } = nftTable.tables;
    for (const each of chains) raw.setChain(each);
    // fib rpf checks are only allowed in hooks of incoming packets.
    raw.setChain(hostChain("cali-OUTPUT", [jumpToHostPolicy("cali-to-host-endpoint", { kind: "reversePathFails" })]));
    raw.setHook("OUTPUT", "insert", [{ action: jump("cali-OUTPUT") }]);
    const tables = new NftTables({ tables: [nftTable], ruleset, logger: silent, refreshMs: 0 });
    await tables.apply(new AbortController().signal);
    const shown = host.namespace.run("nft", ["-s", "list", "table", "ip", "calico"]);
    expect(shown).toMatch(/jump raw-cali-to-host-closed comment "cali:\w+; Led elsewhere/);
    expect(shown).toContain("chain raw-cali-closed-out");
    expect(tables.rejected()).toMatchObject([{ kind: "rule", where: "ip calico raw-cali-OUTPUT rule 1" }]);
  }, 30_000);

  for (const variant of ["legacy", "nft"] as const)
    test(`iptables-${variant}: a jump that uses a missing set is replaced by a jump to the closed chain`, async () => {
      await using host = await DataplaneHost.create(variant);
      const table = new IptablesTable({
        tableName: "filter",
        store: host.iptables(4, variant),
        context: { config, version: 4, tableName: "filter", features: ALL_FEATURES },
        insertMode: "insert",
        logger: silent,
        postWriteMs: 0,
        refreshMs: 0,
      });
      for (const each of chains) table.setChain(each);
      table.setChain(hostChain("cali-OUTPUT", [jumpToHostPolicy("cali-to-host-endpoint", inSet("source", "s:none"))]));
      table.setHook("OUTPUT", "insert", [{ action: jump("cali-OUTPUT") }]);
      await table.apply(new AbortController().signal);
      const saved = host.namespace.run(`iptables-${variant}-save`, ["-t", "filter"]);
      expect(saved).toMatch(/-A cali-OUTPUT .*Led elsewhere.* -j cali-to-host-closed/);
      expect(saved).toMatch(/-A cali-to-host-closed .*-g cali-closed-out/);
      expect(table.rejected()).toMatchObject([{ kind: "rule", where: "iptables filter cali-OUTPUT rule 1" }]);
    }, 30_000);
});
