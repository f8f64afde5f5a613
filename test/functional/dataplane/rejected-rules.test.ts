// A kernel that rejects one rule, one set or one feature: everything else is programmed, no packet passes that policy
// denies, and the log contains the rejected item, the setting that requires it, and the effect of its fallback.
import { describe, expect, test } from "bun:test";
import { IptablesTable } from "../../../src/dataplane/iptables/iptables-table.ts";
import { ALL_FEATURES } from "../../../src/dataplane/iptables/rule-text.ts";
import { NftTable } from "../../../src/dataplane/nft/nft-table.ts";
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
import type { Cidr, IpAddress } from "../../../src/lib/ip/ip.ts";
import { createLogger } from "../../../src/lib/log/log.ts";
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
import { hasExpression, rejecting, rejectingText, withRuleset } from "./rejecting-kernel.ts";

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

/** A table that is reconciled without a whole dataplane. */
function ownTable(host: DataplaneHost, variant: "legacy" | "nft", tableName: "nat" | "filter") {
  const lines: string[] = [];
  const logger = createLogger({
    level: "warn",
    write: ({ message, fields }) => lines.push(`${message} ${JSON.stringify(fields)}`),
  });
  const table = new IptablesTable({
    tableName,
    store: host.iptables(4, variant),
    context: { config, version: 4, tableName, features: ALL_FEATURES },
    insertMode: "insert",
    logger,
    postWriteMs: 0,
    refreshMs: 0,
  });
  return { table, lines, apply: () => table.apply(new AbortController().signal) };
}

describe("connection limits on a kernel without connlimit", () => {
  for (const backend of BACKENDS)
    test(`${backend}: the limit is omitted, all other rules are in force, and the log names the setting`, async () => {
      const { host, a, b } = await twoPods(backend);
      await using _ = host;
      host.wrapKernel = (kernel) =>
        kernel.rules.backend === "nftables"
          ? withRuleset(kernel, (r) => rejecting(r, (change) => hasExpression(change, "connlimit")))
          : rejectingText(kernel, "-m connlimit");
      host.start();
      await host.send(
        allowProfile,
        policy("p", [rule({ protocol: tcp, dstPorts: [port(80)] })]),
        host.endpoint(a, { qosControls: { egressMaxConnections: 3 } }),
        host.endpoint(b, { tiers: [tier(["p"])], qosControls: { ingressMaxConnections: 2 } }),
        inSync,
      );
      expect(await host.probe(cells(a, b, 80, 81))).toEqual(["reached", "silent"]);
      // Later changes are programmed too.
      await host.send(policy("p", [rule({ protocol: tcp, dstPorts: [port(81)] })]));
      expect(await host.probe(cells(a, b, 80, 81))).toEqual(["silent", "reached"]);
      const logged = host.lines.filter((line) => line.startsWith("error") && line.includes("ingressMaxConnections"));
      expect(logged).toHaveLength(4); // once per family and workload, although it is tried more often
      expect(logged[0]).toMatch(/connlimit/);
    }, 60_000);
});

for (const backend of ["legacy", "nft"] as const)
  describe(backend, () => {
    test("a rejected log rule is omitted, a rejected deny drops, and other rules work", async () => {
      const { host, a, b } = await twoPods(backend);
      const c = host.addPod("c", 4);
      host.prober.listen(c.target, "tcp", 80);
      await using _ = host;
      host.wrapKernel = (kernel) => rejectingText(rejectingText(kernel, "--jump LOG"), "--destination 203.0.113.0/24");
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
      const logged = host.lines.filter((line) => line.startsWith("error kernel rejected a rule"));
      expect(logged.filter((line) => line.includes("action Log of a policy"))).toHaveLength(2); // both families
      expect(logged.filter((line) => line.includes("are dropped"))).toHaveLength(1);
      const saved = host.namespace.run(`iptables-${backend}-save`, []);
      expect(saved).toContain("refused by the kernel");
      expect(saved).not.toContain("cali-probe");
      // A change is programmed, and a policy without rejected rules works as configured again.
      await host.send(policy("deny", [rule({ protocol: tcp })]));
      expect(await host.probe(cells(a, c, 80))).toEqual(["reached"]);
    }, 60_000);

    test("a rejected set closes only the rules that use it, until the kernel accepts the set", async () => {
      const { host, a, b } = await twoPods(backend);
      await using _ = host;
      host.prober.listen(a.target, "tcp", 80);
      const dataplane = host.start();
      await host.send(
        allowProfile,
        // The kernel's hash sets cannot contain 0.0.0.0.
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
      const logged = () => host.lines.filter((line) => line.includes("kernel rejected an IP set"));
      expect(logged()).toHaveLength(1);
      expect(logged()[0]).toContain("ipset cali40s:bad");
      expect(dataplane.rejected()).toMatchObject([{ kind: "set", where: "ipset cali40s:bad" }]);
      // Other sets are still updated.
      await host.send({ type: "ipSetDeltaUpdate", id: "s:good", added: [], removed: [b.v4] });
      expect(await bothWays()).toEqual(["silent", "silent"]);
      await host.send({ type: "ipSetDeltaUpdate", id: "s:good", added: [b.v4], removed: [] });
      // Without the invalid member the kernel accepts the set, and the policy works as configured.
      await host.send({ type: "ipSetDeltaUpdate", id: "s:bad", added: [], removed: ["0.0.0.0"] });
      expect(await bothWays()).toEqual(["reached", "reached"]);
      expect(dataplane.rejected()).toEqual([]);
      await host.send({ type: "ipSetDeltaUpdate", id: "s:bad", added: [a.v4], removed: [] });
      expect(await bothWays()).toEqual(["silent", "reached"]);
      expect(logged()).toHaveLength(1);
    }, 60_000);

    test("a rule that is not allowed in a hook is found, not the jump that leads to it", async () => {
      const host = await DataplaneHost.create(backend);
      await using _ = host;
      const { table, lines, apply } = ownTable(host, backend, "nat");
      const masquerade: Rule = { match: [inInterface("eth1")], action: { kind: "masquerade" } };
      const translate: Rule = { match: [inInterface("eth2")], action: { kind: "dnat", to: "10.0.0.1" as IpAddress } };
      table.setChain(chain("cali-inner", [translate, masquerade])); // masquerade is not allowed in PREROUTING
      table.setChain(chain("cali-outer", [{ action: jump("cali-inner") }]));
      table.setHook("PREROUTING", "insert", [{ action: jump("cali-outer") }]);
      await apply();
      const saved = host.namespace.run(`iptables-${backend}-save`, ["-t", "nat"]);
      expect(saved).toMatch(/-A PREROUTING .*-j cali-outer/);
      expect(saved).toMatch(/-A cali-outer .*-j cali-inner/);
      expect(saved).toMatch(/-A cali-inner .*-i eth2 .*-j DNAT/);
      expect(saved).toMatch(/-A cali-inner .*Left out/);
      expect(saved).not.toContain("cali-probe");
      expect(lines.filter((line) => line.includes("kernel rejected a rule"))).toHaveLength(1);
      expect(lines.join("\n")).toContain("cali-inner rule 2");
    }, 30_000);

    test("a rule that uses a missing set is found among 40 others", async () => {
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
      expect(lines.filter((line) => line.includes("kernel rejected a rule"))).toHaveLength(1);
      expect(lines.join("\n")).toContain("cali-many rule 24");
    }, 30_000);
  });

describe("nftables: rejected rules", () => {
  for (const asWhole of [false, true])
    test(`${asWhole ? "not identified by the kernel" : "identified by the kernel"}: a deny drops, an allow is omitted, and other policies work`, async () => {
      const { host, a, b } = await twoPods("nftables");
      const c = host.addPod("c", 4);
      for (const p of [80, 81]) host.prober.listen(c.target, "tcp", p);
      await using _ = host;
      let isRejecting = true;
      // Rules with ports in the policy "bad".
      const isBad = (change: NftChange) =>
        isRejecting &&
        change.op === "appendRule" &&
        change.chain.includes("gnp/bad") &&
        hasExpression(change, "lookup");
      host.wrapKernel = (kernel) => withRuleset(kernel, (r) => rejecting(r, isBad, asWhole));
      host.start();
      await host.send(
        allowProfile,
        // b: deny 81, then allow everything. The kernel rejects the deny.
        policy("bad", [rule({ action: "deny", protocol: tcp, dstPorts: [port(81)] }), rule({ protocol: tcp })]),
        policy("good", [rule({ protocol: tcp, dstPorts: [port(80)] })]),
        host.endpoint(a),
        host.endpoint(b, { tiers: [tier(["bad"])] }),
        host.endpoint(c, { tiers: [tier(["good"])] }),
        inSync,
      );
      expect(await host.probe(cells(a, c, 80, 81))).toEqual(["reached", "silent"]);
      expect(await host.probe(cells(a, b, 80, 81))).toEqual(["silent", "silent"]);
      const logged = host.lines.filter((line) => line.includes("kernel rejected a rule"));
      expect(logged.length).toBeGreaterThan(0);
      expect(logged[0]).toContain("dropped");
      expect(logged[0]).toContain("filter-cali-pi-");
      expect(host.namespace.run("nft", ["list", "table", "ip", "calico"])).toContain("refused by the kernel");
      // Other policies are still updated, and the rejected one works again when the kernel accepts it.
      await host.send(policy("good", [rule({ protocol: tcp, dstPorts: [port(81)] })]));
      expect(await host.probe(cells(a, c, 80, 81))).toEqual(["silent", "reached"]);
      isRejecting = false;
      await host.send(
        policy("bad", [
          rule({ action: "deny", protocol: tcp, dstPorts: [port(81)] }),
          rule({ protocol: tcp, dstPorts: [port(82), port(80)] }),
        ]),
      );
      expect(await host.probe(cells(a, b, 80, 81))).toEqual(["reached", "silent"]);
      expect(host.lines.join("\n")).toContain("kernel accepts all rules again");
    }, 60_000);

  test("a rejected set closes only the rules that use it", async () => {
    const { host, a, b } = await twoPods("nftables");
    await using _ = host;
    const isBad = (change: NftChange) => "set" in change && change.op !== "deleteSet" && change.set.includes("s-bad");
    host.wrapKernel = (kernel) => withRuleset(kernel, (r) => rejecting(r, isBad));
    host.start();
    await host.send(
      allowProfile,
      { type: "ipSetUpdate", id: "s:bad", setType: "net", members: ["192.0.2.0/24"] },
      // The negated match cannot be evaluated without the set.
      policy("p", [rule({ action: "deny", protocol: tcp, notSrcIpSetIds: ["s:bad"] }), rule({ protocol: tcp })]),
      policy("q", [rule({ protocol: tcp })]),
      host.endpoint(a, { tiers: [tier(["q"])] }),
      host.endpoint(b, { tiers: [tier(["p"])] }),
      inSync,
    );
    host.prober.listen(a.target, "tcp", 80);
    expect(await host.probe([...cells(a, b, 80), ...cells(b, a, 80)])).toEqual(["silent", "reached"]);
    expect(host.lines.filter((line) => line.includes("kernel rejected an IP set")).length).toBeGreaterThan(0);
  }, 60_000);
});

describe("the real kernel", () => {
  /** Tables that are reconciled without a whole dataplane. */
  async function tables() {
    const host = await DataplaneHost.create("nftables");
    const ruleset = host.inside(() => new Nft());
    const nftTable = new NftTable(4, config);
    const lines: string[] = [];
    const logger = createLogger({
      level: "debug",
      write: ({ level, message, fields }) => lines.push(`${level} ${message} ${JSON.stringify(fields)}`),
    });
    const reconciler = new NftTables({ tables: [nftTable], ruleset, logger, refreshMs: 0, retryMs: 50 });
    const apply = () => reconciler.apply(new AbortController().signal);
    const shown = () => host.namespace.run("nft", ["-s", "list", "table", "ip", "calico"]);
    return { host, nftTable, apply, shown, lines, ruleset };
  }

  test("a DNAT to an address of the other family is omitted", async () => {
    const { host, nftTable, apply, shown, lines, ruleset } = await tables();
    await using _ = host;
    using _ruleset = ruleset;
    const { nat, filter } = nftTable.tables;
    nat.setHook("PREROUTING", "insert", [
      { match: [inInterface("eth1")], action: { kind: "dnat", to: "fd00::1" as IpAddress } },
      { match: [inInterface("eth2")], action: { kind: "dnat", to: "10.0.0.1" as IpAddress } },
    ]);
    filter.setHook("FORWARD", "insert", [{ match: [inInterface("eth3")], action: drop }]);
    await apply();
    expect(shown()).toContain("dnat to 10.0.0.1");
    expect(shown()).toContain('iifname "eth3"');
    expect(shown()).toContain("Left out");
    const logged = lines.filter((line) => line.startsWith("error"));
    expect(logged).toHaveLength(1);
    expect(logged[0]).toContain("floating IPs");
    const before = shown();
    await eventually(async () => {
      await apply();
      return lines.filter((line) => line.startsWith("debug kernel rejected a rule")).length > 0; // tried again
    }, 5000);
    expect(shown()).toBe(before);
    expect(lines.filter((line) => line.startsWith("error"))).toHaveLength(1);
  }, 30_000);

  test("a rule that is not allowed in a hook is found, although the kernel reports the jump", async () => {
    const { host, nftTable, apply, shown, lines, ruleset } = await tables();
    await using _ = host;
    using _ruleset = ruleset;
    const { raw, filter } = nftTable.tables;
    filter.setChain(chain("cali-other", [{ match: [inInterface("eth3")], action: drop }]));
    filter.setHook("FORWARD", "insert", [{ action: jump("cali-other") }]);
    const inner: Rule[] = [
      { match: [inInterface("eth1")], action: accept },
      // fib rpf checks are only allowed in hooks of incoming packets.
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
    const logged = lines.filter((line) => line.startsWith("error"));
    expect(logged).toHaveLength(1);
    expect(logged[0]).toContain("raw-cali-inner rule 2");
    expect(logged[0]).toContain("match its protocol are dropped");
  }, 60_000);

  test("jumps that are nested too deeply are found by bisection and replaced by a drop", async () => {
    const { host, nftTable, apply, shown, lines, ruleset } = await tables();
    await using _ = host;
    using _ruleset = ruleset;
    const { filter } = nftTable.tables;
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
    const logged = lines.filter((line) => line.startsWith("error"));
    expect(logged).toHaveLength(1);
    expect(logged[0]).toContain("cali-deep-");
    await apply();
    expect(lines.filter((line) => line.startsWith("error"))).toHaveLength(1);
  }, 60_000);
});
