// A kernel that refuses something: one rule, one set, a feature. The rest is written, nothing passes that policy denies,
// and the log names what was refused, what asks for it and what is done instead.
import { describe, expect, test } from "bun:test";
import { IptablesTable } from "../../../src/dataplane/iptables/iptables-table.ts";
import { ALL_FEATURES } from "../../../src/dataplane/iptables/text.ts";
import { NftPlane } from "../../../src/dataplane/nft/nft-plane.ts";
import { NftTables } from "../../../src/dataplane/nft/nft-tables.ts";
import { rulesConfig } from "../../../src/dataplane/parameters.ts";
import {
  accept,
  chain,
  drop,
  inInterface,
  inSet,
  jump,
  protocolIs,
  type Rule,
} from "../../../src/dataplane/rules/rule.ts";
import { Nft, type NftChange } from "../../../src/kernel/index.ts";
import type { Cidr, IpAddress } from "../../../src/lib/ip.ts";
import { createLogger } from "../../../src/lib/log.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import {
  allowProfile,
  BACKENDS,
  DataplaneHost,
  inSync,
  parametersOf,
  PLAIN_FACTS,
  type Pod,
  policy,
  rule,
  tier,
} from "./host.ts";
import { hasExpression, refusing, refusingText, withRuleset } from "./refusing.ts";

const tcp = { name: "tcp" } as const;
const port = (first: number) => ({ first, last: first });
const cells = (a: Pod, b: Pod, ...ports: number[]) => ports.map((p) => ({ from: a.target, to: b.v4, port: p }));

const config = rulesConfig(parametersOf(), PLAIN_FACTS, "nftables");

async function twoPods(backend: (typeof BACKENDS)[number]) {
  const host = await DataplaneHost.create(backend);
  const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
  for (const p of [80, 81, 82]) host.prober.listen(b.target, "tcp", p);
  return { host, a, b };
}

/** A table as the agent keeps it, without an agent. */
function ownTable(host: DataplaneHost, variant: "legacy" | "nft", layer: "nat" | "filter") {
  const lines: string[] = [];
  const logger = createLogger({
    level: "warn",
    write: ({ sentence, fields }) => lines.push(`${sentence} ${JSON.stringify(fields)}`),
  });
  const table = new IptablesTable({
    layer,
    store: host.iptables(4, variant),
    context: { config, version: 4, layer, features: ALL_FEATURES },
    insertMode: "insert",
    logger,
    postWriteMs: 0,
    refreshMs: 0,
  });
  return { table, lines, apply: () => table.apply(new AbortController().signal) };
}

describe("connection limits on a kernel that cannot count connections", () => {
  for (const backend of BACKENDS)
    test(`${backend}: the workload goes without, everything else holds, and the log names the setting`, async () => {
      const { host, a, b } = await twoPods(backend);
      await using _ = host;
      host.wrapKernel = (kernel) =>
        kernel.rules.backend === "nftables"
          ? withRuleset(kernel, (r) => refusing(r, (change) => hasExpression(change, "connlimit")))
          : refusingText(kernel, "-m connlimit");
      host.start();
      await host.send(
        allowProfile,
        policy("p", [rule({ protocol: tcp, dstPorts: [port(80)] })]),
        host.endpoint(a, { qosControls: { egressMaxConnections: 3 } }),
        host.endpoint(b, { tiers: [tier(["p"])], qosControls: { ingressMaxConnections: 2 } }),
        inSync,
      );
      expect(await host.probe(cells(a, b, 80, 81))).toEqual(["reached", "silent"]);
      // The next edit is no less possible.
      await host.send(policy("p", [rule({ protocol: tcp, dstPorts: [port(81)] })]));
      expect(await host.probe(cells(a, b, 80, 81))).toEqual(["silent", "reached"]);
      const said = host.lines.filter((line) => line.startsWith("error") && line.includes("ingressMaxConnections"));
      expect(said).toHaveLength(4); // once for each family and workload, however often it is tried
      expect(said[0]).toMatch(/connlimit/);
    }, 60_000);
});

for (const backend of ["legacy", "nft"] as const)
  describe(backend, () => {
    test("rules the kernel refuses: a log is left out, a deny closes its place, others work", async () => {
      const { host, a, b } = await twoPods(backend);
      const c = host.addPod("c", 4);
      host.prober.listen(c.target, "tcp", 80);
      await using _ = host;
      host.wrapKernel = (kernel) => refusingText(refusingText(kernel, "--jump LOG"), "--destination 203.0.113.0/24");
      host.start();
      await host.send(
        allowProfile,
        policy("log", [rule({ action: "log", protocol: tcp }), rule({ protocol: tcp, dstPorts: [port(80)] })]),
        policy("deny", [rule({ action: "deny", dstNet: ["203.0.113.0/24" as Cidr] }), rule({ protocol: tcp })]),
        host.endpoint(a),
        host.endpoint(b, { tiers: [tier(["log"])] }),
        host.endpoint(c, { tiers: [tier(["deny"])] }),
        inSync,
      );
      expect(await host.probe(cells(a, b, 80, 81))).toEqual(["reached", "silent"]);
      expect(await host.probe(cells(a, c, 80))).toEqual(["silent"]);
      const said = host.lines.filter((line) => line.startsWith("error the kernel refuses a rule"));
      expect(said.filter((line) => line.includes("action Log of a policy"))).toHaveLength(2); // both families
      expect(said.filter((line) => line.includes("are dropped"))).toHaveLength(1);
      const saved = host.namespace.run(`iptables-${backend}-save`, []);
      expect(saved).toContain("refused by the kernel");
      expect(saved).not.toContain("cali-probe");
      // Another policy's edit is written, and a policy that the kernel takes is whole again.
      await host.send(policy("deny", [rule({ protocol: tcp })]));
      expect(await host.probe(cells(a, c, 80))).toEqual(["reached"]);
    }, 60_000);

    test("a set the kernel refuses closes the rules that name it, and no others, until it is taken", async () => {
      const { host, a, b } = await twoPods(backend);
      await using _ = host;
      host.prober.listen(a.target, "tcp", 80);
      const dataplane = host.start();
      await host.send(
        allowProfile,
        // No hash of the kernel's holds the address of zeros.
        { type: "ipSetUpdate", id: "s:bad", setType: "ip", members: ["0.0.0.0", "192.0.2.1"] },
        { type: "ipSetUpdate", id: "s:good", setType: "ip", members: [b.v4] },
        policy("p", [rule({ action: "deny", protocol: tcp, srcIpSetIds: ["s:bad"] }), rule({ protocol: tcp })]),
        policy("q", [rule({ protocol: tcp, srcIpSetIds: ["s:good"] })]),
        host.endpoint(a, { tiers: [tier(["q"])] }),
        host.endpoint(b, { tiers: [tier(["p"])] }),
        inSync,
      );
      const bothWays = () => host.probe([...cells(a, b, 80), ...cells(b, a, 80)]);
      expect(await bothWays()).toEqual(["silent", "reached"]);
      const said = () => host.lines.filter((line) => line.includes("the kernel refuses an IP set"));
      expect(said()).toHaveLength(1);
      expect(said()[0]).toContain("ipset cali40s:bad");
      expect(dataplane.refused()).toMatchObject([{ kind: "set", where: "ipset cali40s:bad" }]);
      // Everything else goes on.
      await host.send({ type: "ipSetDeltaUpdate", id: "s:good", added: [], removed: [b.v4] });
      expect(await bothWays()).toEqual(["silent", "silent"]);
      await host.send({ type: "ipSetDeltaUpdate", id: "s:good", added: [b.v4], removed: [] });
      // Without the member nobody can have, the set is taken and the policy is whole.
      await host.send({ type: "ipSetDeltaUpdate", id: "s:bad", added: [], removed: ["0.0.0.0"] });
      expect(await bothWays()).toEqual(["reached", "reached"]);
      expect(dataplane.refused()).toEqual([]);
      await host.send({ type: "ipSetDeltaUpdate", id: "s:bad", added: [a.v4], removed: [] });
      expect(await bothWays()).toEqual(["silent", "reached"]);
      expect(said()).toHaveLength(1);
    }, 60_000);

    test("a rule that does not fit where packets come from is found behind the kernel's chain, and not its jump", async () => {
      const host = await DataplaneHost.create(backend);
      await using _ = host;
      const { table, lines, apply } = ownTable(host, backend, "nat");
      const masquerade: Rule = { match: [inInterface("eth1")], action: { kind: "masquerade" } };
      const translate: Rule = { match: [inInterface("eth2")], action: { kind: "dnat", to: "10.0.0.1" as IpAddress } };
      table.setChain(chain("cali-inner", [translate, masquerade])); // before routing nobody can masquerade
      table.setChain(chain("cali-outer", [{ action: jump("cali-inner") }]));
      table.setHook("PREROUTING", "insert", [{ action: jump("cali-outer") }]);
      await apply();
      const saved = host.namespace.run(`iptables-${backend}-save`, ["-t", "nat"]);
      expect(saved).toMatch(/-A PREROUTING .*-j cali-outer/);
      expect(saved).toMatch(/-A cali-outer .*-j cali-inner/);
      expect(saved).toMatch(/-A cali-inner .*-i eth2 .*-j DNAT/);
      expect(saved).toMatch(/-A cali-inner .*Left out/);
      expect(saved).not.toContain("cali-probe");
      expect(lines.filter((line) => line.includes("the kernel refuses a rule"))).toHaveLength(1);
      expect(lines.join("\n")).toContain("cali-inner, number 2");
    }, 30_000);

    test("a rule that names a set which is not there is found among the others by the real tools", async () => {
      const host = await DataplaneHost.create(backend);
      await using _ = host;
      const { table, lines, apply } = ownTable(host, backend, "filter");
      const many = Array.from({ length: 40 }, (_, i): Rule => ({ match: [inInterface(`eth${i}`)], action: accept }));
      table.setChain(
        chain("cali-many", [
          ...many.slice(0, 23),
          { match: [inSet("source", "s:none")], action: drop },
          ...many.slice(23),
        ]),
      );
      table.setHook("FORWARD", "insert", [{ action: jump("cali-many") }]);
      await apply();
      const saved = host.namespace.run(`iptables-${backend}-save`, ["-t", "filter"]);
      expect(saved.match(/-A cali-many .*-i eth\d+ .*-j ACCEPT/g)).toHaveLength(40);
      expect(saved).toMatch(/Closed: the rule here was refused by the kernel.* -j DROP/);
      expect(lines.filter((line) => line.includes("the kernel refuses a rule"))).toHaveLength(1);
      expect(lines.join("\n")).toContain("cali-many, number 24");
    }, 30_000);
  });

describe("nftables: rules the kernel refuses", () => {
  for (const asWhole of [false, true])
    test(`${asWhole ? "without saying which" : "by name"}: one policy's deny closes its place, its allow is left out, others work`, async () => {
      const { host, a, b } = await twoPods("nftables");
      const c = host.addPod("c", 4);
      for (const p of [80, 81]) host.prober.listen(c.target, "tcp", p);
      await using _ = host;
      let isRefusing = true;
      // Of the policy "bad", rules with ports.
      const isBad = (change: NftChange) =>
        isRefusing && change.op === "appendRule" && change.chain.includes("gnp/bad") && hasExpression(change, "lookup");
      host.wrapKernel = (kernel) => withRuleset(kernel, (r) => refusing(r, isBad, asWhole));
      host.start();
      await host.send(
        allowProfile,
        // b: deny 81, then allow everything. The deny is refused.
        policy("bad", [rule({ action: "deny", protocol: tcp, dstPorts: [port(81)] }), rule({ protocol: tcp })]),
        policy("good", [rule({ protocol: tcp, dstPorts: [port(80)] })]),
        host.endpoint(a),
        host.endpoint(b, { tiers: [tier(["bad"])] }),
        host.endpoint(c, { tiers: [tier(["good"])] }),
        inSync,
      );
      expect(await host.probe(cells(a, c, 80, 81))).toEqual(["reached", "silent"]);
      expect(await host.probe(cells(a, b, 80, 81))).toEqual(["silent", "silent"]);
      const said = host.lines.filter((line) => line.includes("the kernel refuses a rule"));
      expect(said.length).toBeGreaterThan(0);
      expect(said[0]).toContain("dropped");
      expect(said[0]).toContain("filter-cali-pi-");
      expect(host.namespace.run("nft", ["list", "table", "ip", "calico"])).toContain("refused by the kernel");
      // Other policies are still edited, and the refused one is whole again when the kernel takes it.
      await host.send(policy("good", [rule({ protocol: tcp, dstPorts: [port(81)] })]));
      expect(await host.probe(cells(a, c, 80, 81))).toEqual(["silent", "reached"]);
      isRefusing = false;
      await host.send(
        policy("bad", [
          rule({ action: "deny", protocol: tcp, dstPorts: [port(81)] }),
          rule({ protocol: tcp, dstPorts: [port(82), port(80)] }),
        ]),
      );
      expect(await host.probe(cells(a, b, 80, 81))).toEqual(["reached", "silent"]);
      expect(host.lines.join("\n")).toContain("the kernel takes all rules again");
    }, 60_000);

  test("a set the kernel refuses closes the rules that name it, and no others", async () => {
    const { host, a, b } = await twoPods("nftables");
    await using _ = host;
    const isBad = (change: NftChange) => "set" in change && change.op !== "deleteSet" && change.set.includes("s-bad");
    host.wrapKernel = (kernel) => withRuleset(kernel, (r) => refusing(r, isBad));
    host.start();
    await host.send(
      allowProfile,
      { type: "ipSetUpdate", id: "s:bad", setType: "net", members: ["192.0.2.0/24"] },
      // Not from the set: without the set nobody knows who that is.
      policy("p", [rule({ action: "deny", protocol: tcp, notSrcIpSetIds: ["s:bad"] }), rule({ protocol: tcp })]),
      policy("q", [rule({ protocol: tcp })]),
      host.endpoint(a, { tiers: [tier(["q"])] }),
      host.endpoint(b, { tiers: [tier(["p"])] }),
      inSync,
    );
    host.prober.listen(a.target, "tcp", 80);
    expect(await host.probe([...cells(a, b, 80), ...cells(b, a, 80)])).toEqual(["silent", "reached"]);
    expect(host.lines.filter((line) => line.includes("the kernel refuses an IP set")).length).toBeGreaterThan(0);
  }, 60_000);
});

describe("the real kernel", () => {
  /** Tables as the agent keeps them, without an agent. */
  async function tables() {
    const host = await DataplaneHost.create("nftables");
    const ruleset = host.inside(() => new Nft());
    const plane = new NftPlane(4, config);
    const lines: string[] = [];
    const logger = createLogger({
      level: "debug",
      write: ({ level, sentence, fields }) => lines.push(`${level} ${sentence} ${JSON.stringify(fields)}`),
    });
    const reconciler = new NftTables({ planes: [plane], ruleset, logger, refreshMs: 0, retryMs: 50 });
    const apply = () => reconciler.apply(new AbortController().signal);
    const shown = () => host.namespace.run("nft", ["-s", "list", "table", "ip", "calico"]);
    return { host, plane, apply, shown, lines, ruleset };
  }

  test("a translation to the other family is refused by name and left out", async () => {
    const { host, plane, apply, shown, lines, ruleset } = await tables();
    await using _ = host;
    using _ruleset = ruleset;
    const { nat, filter } = plane.tables;
    nat.setHook("PREROUTING", "insert", [
      { match: [inInterface("eth1")], action: { kind: "dnat", to: "fd00::1" as IpAddress } },
      { match: [inInterface("eth2")], action: { kind: "dnat", to: "10.0.0.1" as IpAddress } },
    ]);
    filter.setHook("FORWARD", "insert", [{ match: [inInterface("eth3")], action: drop }]);
    await apply();
    expect(shown()).toContain("dnat to 10.0.0.1");
    expect(shown()).toContain('iifname "eth3"');
    expect(shown()).toContain("Left out");
    const said = lines.filter((line) => line.startsWith("error"));
    expect(said).toHaveLength(1);
    expect(said[0]).toContain("floating IPs");
    const before = shown();
    await eventually(async () => {
      await apply();
      return lines.filter((line) => line.startsWith("debug the kernel refuses a rule")).length > 0; // asked again
    }, 5000);
    expect(shown()).toBe(before);
    expect(lines.filter((line) => line.startsWith("error"))).toHaveLength(1);
  }, 30_000);

  test("a rule that does not fit where packets come from is blamed by the kernel on the jump, and found by us", async () => {
    const { host, plane, apply, shown, lines, ruleset } = await tables();
    await using _ = host;
    using _ruleset = ruleset;
    const { raw, filter } = plane.tables;
    filter.setChain(chain("cali-other", [{ match: [inInterface("eth3")], action: drop }]));
    filter.setHook("FORWARD", "insert", [{ action: jump("cali-other") }]);
    const inner: Rule[] = [
      { match: [inInterface("eth1")], action: accept },
      // Only where packets come in can be asked whether they came the right way.
      { match: [protocolIs("udp"), { kind: "reversePathFails" }], action: drop },
    ];
    raw.setChain(chain("cali-inner", inner));
    raw.setChain(chain("cali-outer", [{ action: jump("cali-inner") }]));
    raw.setHook("OUTPUT", "insert", [{ action: jump("cali-outer") }]);
    await apply();
    expect(shown()).toContain("jump raw-cali-outer");
    expect(shown()).toContain("jump raw-cali-inner");
    expect(shown()).toContain('iifname "eth3"');
    expect(shown()).toMatch(/l4proto udp .*drop comment "cali:\w+; Closed/);
    const said = lines.filter((line) => line.startsWith("error"));
    expect(said).toHaveLength(1);
    expect(said[0]).toContain("raw-cali-inner, number 2");
    expect(said[0]).toContain("the same protocol are dropped");
  }, 60_000);

  test("what only the whole transaction shows, such as chains that lead too deep, is found by halving and closed", async () => {
    const { host, plane, apply, shown, lines, ruleset } = await tables();
    await using _ = host;
    using _ruleset = ruleset;
    const { filter } = plane.tables;
    const depth = 24;
    for (let i = 0; i < depth; i++) {
      const rules: Rule[] = [
        { match: [inInterface(`eth${i}`)], action: accept },
        ...(i + 1 < depth ? [{ match: [inInterface("deep")], action: jump(`cali-deep-${i + 1}`) }] : []),
      ];
      filter.setChain(chain(`cali-deep-${i}`, rules));
    }
    const hook: Rule[] = [{ match: [inInterface("other")], action: drop }, { action: jump("cali-deep-0") }];
    filter.setHook("FORWARD", "insert", hook);
    await apply();
    expect(shown()).toContain('iifname "other"');
    expect(shown()).toContain('iifname "eth0"');
    expect(shown()).toMatch(/iifname "deep" .*drop comment "cali:\w+; Closed/);
    const said = lines.filter((line) => line.startsWith("error"));
    expect(said).toHaveLength(1);
    expect(said[0]).toContain("cali-deep-");
    await apply();
    expect(lines.filter((line) => line.startsWith("error"))).toHaveLength(1);
  }, 60_000);
});
