import { describe, expect, test } from "bun:test";
import type { IpAddress } from "../../../lib/ip/ip.ts";
import { ActiveFallbacks } from "./active-fallbacks.ts";
import type { RulesConfig } from "../config.ts";
import { endpointChain } from "../endpoint-chains.ts";
import { jumpToHostPolicy } from "./fallback-chains.ts";
import { allocateMarks } from "../marks.ts";
import {
  accept,
  chain,
  drop,
  established,
  hostChain,
  inInterface,
  inSet,
  jump,
  type Match,
  markNotClear,
  markSet,
  protocolIs,
  type Rule,
} from "../rule.ts";
import {
  describeFallback,
  isOmittable,
  requiringSettings,
  ruleContext,
  fallbacksFor,
  withFallbacks,
} from "./fallback-rules.ts";
import { filterChains, filterHooks } from "../filter-chains.ts";
import { mangleChains, mangleHooks, natChains, rawChains, rawHooks } from "../static-chains.ts";

const filter = { tableName: "filter", isHostWide: false } as const;
const hostWide = { tableName: "filter", isHostWide: true } as const;
const logged = (decision: "allow" | "deny" | "pass"): Rule => ({
  match: [inInterface("cali1"), protocolIs("tcp"), inSet("source", "s:x")],
  action: { kind: "decide", decision, nflog: { group: 1, prefix: "p" } },
});
const actions = (rule: Rule, place = filter as { readonly tableName: "filter"; readonly isHostWide: boolean }) =>
  fallbacksFor(rule, place).map(({ action }) => action?.kind ?? "nothing");

test("a policy rule that logs flows requires the settings of flow logs", () => {
  expect(requiringSettings(logged("deny"))).toContain("flow logs");
  expect(requiringSettings({ action: { kind: "decide", decision: "deny" } })).toBeUndefined();
});

test("the closest fallback of a decision with a flow log is the same decision without the log", () => {
  for (const decision of ["allow", "deny", "pass"] as const) {
    const [closest] = fallbacksFor(logged(decision), filter);
    expect(closest?.action).toEqual({ kind: "decide", decision });
    expect(closest?.match).toEqual(logged(decision).match!);
  }
});

test("an allow is omitted; a deny or pass becomes a drop, with fewer and fewer matches", () => {
  const kinds = ["allow", "deny", "pass"].map((d) => actions(logged(d as "allow")));
  expect(kinds).toEqual([
    ["decide", "nothing"],
    ["decide", "drop", "drop", "drop"],
    ["decide", "drop", "drop", "drop"],
  ]);
  expect(isOmittable({ action: accept }, filter)).toBe(true);
  const drops = fallbacksFor(logged("deny"), filter).slice(1);
  expect(drops.map(({ match }) => match?.map(({ kind }) => kind))).toEqual([
    ["interface", "protocol", "ipSet"],
    ["interface", "protocol"],
    ["interface"],
  ]);
  expect(drops.map(describeFallback)[1]).toBe(
    "packets that reach the rule and match its interface, protocol are dropped",
  );
});

test("the fallback of a reject is a drop of the same packets", () => {
  const rule: Rule = { match: [protocolIs("tcp")], action: { kind: "reject" } };
  expect(fallbacksFor(rule, filter)[0]).toMatchObject({ match: rule.match, action: drop });
  const limit: Rule = {
    match: [{ kind: "connectionsAbove", count: 3 }],
    action: { kind: "reject", with: "tcp-reset" },
  };
  expect(actions(limit)).toEqual(["drop", "nothing"]);
});

test("the fallback of a rule that sets a mark drops only packets without the mark", () => {
  expect(fallbacksFor({ action: { kind: "setMark", value: 0, mask: 0x30 } }, hostWide)[0]).toMatchObject({
    match: [markNotClear(0x30)],
    action: drop,
  });
});

test("a rule that uses a rejected set is replaced by a drop without the set, and each further rejection by the next fallback", () => {
  const active = new ActiveFallbacks();
  const position = { chain: "c", index: 0 };
  const rule: Rule = { match: [protocolIs("tcp"), inSet("source", "s:x")], action: drop };
  expect(active.fallbackAt(position, rule, filter)).toBeUndefined();
  active.addRejectedSet("s:x");
  expect(active.fallbackAt(position, rule, filter)?.match).toEqual([protocolIs("tcp")]);
  expect(active.useNext(position, rule, filter)).toBe(true);
  expect(active.fallbackAt(position, rule, filter)?.match).toEqual([]);
  expect(active.useNext(position, rule, filter)).toBe(false);
  const programmed = withFallbacks(chain("c", [rule, { action: accept }]), (index, each) =>
    active.fallbackAt({ chain: "c", index }, each, filter),
  );
  expect(programmed.rules.map(({ action }) => action)).toEqual([drop, accept]);
});

describe("access to the host", () => {
  const config = (allow: "accept" | "return"): RulesConfig => ({
    workloadPrefixes: ["cali"],
    marks: allocateMarks(0xffff0000, { withWireguard: true }),
    filterAllow: allow,
    mangleAllow: allow,
    deny: "reject",
    endpointToHost: "return",
    failsafeIn: [{ protocol: "tcp", port: 22 }],
    failsafeOut: [{ protocol: "udp", port: 53 }],
    disableConntrackInvalidCheck: false,
    allowVxlanFromWorkloads: false,
    allowIpipFromWorkloads: false,
    ipipEnabled: true,
    ipipTunnelAddress: "10.0.0.1" as IpAddress,
    vxlanEnabled: true,
    vxlanEnabledV6: true,
    vxlanPort: 4789,
    vxlanTunnelAddress: "10.0.0.2" as IpAddress,
    wireguardEnabled: true,
    wireguardEnabledV6: true,
    wireguardInterface: "wireguard.cali",
    wireguardInterfaceV6: "wg-v6.cali",
    wireguardPort: 51820,
    wireguardPortV6: 51821,
    wireguardHostEncryption: true,
    natExcludesHosts: false,
    serviceLoop: "drop",
    openstack: { metadataPort: 8775, metadataAddress: "192.0.2.1" as IpAddress },
    istioDscp: 23,
    logPrefix: "calico",
    logBurst: 5,
    flowLogs: true,
    ipvs: true,
    nodePortRanges: [{ first: 30000, last: 32767 }],
  });

  const tableNames = {
    raw: { chains: rawChains, hooks: rawHooks },
    mangle: { chains: mangleChains, hooks: mangleHooks },
    nat: { chains: natChains, hooks: () => ({ insert: new Map(), append: new Map() }) },
    filter: { chains: filterChains, hooks: filterHooks },
  } as const;
  /** Every rule in host-wide chains, with its fallbacks. */
  const hostWideRules = (of: RulesConfig) =>
    (["raw", "mangle", "nat", "filter"] as const).flatMap((tableName) =>
      ([4, 6] as const).flatMap((version) => {
        const hooks = tableNames[tableName].hooks(of);
        const kernelChains = [...hooks.insert, ...hooks.append].map(([name, rules]) => hostChain(name, rules));
        const chains = [...tableNames[tableName].chains(of, version), ...kernelChains].filter(
          (each) => each.isHostWide,
        );
        return chains.flatMap((each) =>
          each.rules.map((rule) => ({
            where: `${tableName} ${each.name}`,
            rule,
            fallbacks: fallbacksFor(rule, ruleContext(tableName, each)),
          })),
        );
      }),
    );

  /** Matches only packets of workloads or tunnels, or packets with a mark of calico-ts. */
  const isNarrow = (match: readonly Match[], of: RulesConfig): boolean =>
    match.some(
      (m) =>
        (m.kind === "interface" && m.name === "cali*") ||
        (m.kind === "protocol" && (m.protocol === 4 || match.some(({ kind }) => kind === "ports"))) ||
        (m.kind === "mark" && m.value === of.marks.scratch0 && m.negated !== true) ||
        (m.kind === "mark" && m.value === 0 && m.negated === true),
    );

  for (const allow of ["accept", "return"] as const)
    test(`fallbacks in host-wide chains drop only packets of workloads or tunnels, or marked packets (${allow})`, () => {
      const of = config(allow);
      const found = hostWideRules(of);
      expect(found.length).toBeGreaterThan(60);
      for (const { where, rule, fallbacks } of found)
        for (const { action, match = [] } of fallbacks)
          if (action?.kind === "drop" && !isNarrow(match, of)) expect({ where, rule, match }).toBeUndefined();
    });

  /** The target chains of the fallbacks of all jumps to a chain; "none" for a fallback without a jump. */
  const fallbackTargets = (of: string): string[] =>
    hostWideRules(config("accept"))
      .filter(({ rule: { action } }) => action?.kind === "jump" && action.chain === of)
      .flatMap(({ fallbacks }) => fallbacks.map(({ action }) => (action?.kind === "jump" ? action.chain : "none")));

  test("a jump to policy is replaced by a jump to a closed chain, or has no fallback", () => {
    for (const [name, closed] of [
      ["cali-from-host-endpoint", "cali-from-host-closed"],
      ["cali-to-host-endpoint", "cali-to-host-closed"],
      ["cali-from-hep-forward", "cali-from-hep-closed"],
      ["cali-to-hep-forward", "cali-to-hep-closed"],
    ] as const)
      expect(new Set(fallbackTargets(name))).toEqual(new Set([closed]));
    for (const name of ["cali-INPUT", "cali-FORWARD", "cali-forward-check"]) expect(fallbackTargets(name)).toEqual([]);
    for (const name of ["cali-egress-dscp", "cali-rpf-skip", "cali-wireguard-incoming-mark", "cali-cidr-block"])
      expect(new Set(fallbackTargets(name))).toEqual(new Set(["none"]));
  });

  test("the second fallback of a jump to host policy has no match", () => {
    const rule = jumpToHostPolicy("cali-to-host-endpoint", { kind: "ctDnat", negated: true });
    const fallbacks = fallbacksFor(rule, hostWide);
    expect(fallbacks.map(({ match }) => match)).toEqual([rule.match, undefined]);
    expect(fallbacks.map(describeFallback)[1]).toContain("dropped, except established connections and failsafe ports");
  });

  test("the fallback of the reverse-path filter compares with known sources, and finally drops all packets of the workload", () => {
    const check = hostWideRules(config("accept")).find(({ rule: { match } }) =>
      match?.some(({ kind }) => kind === "reversePathFails"),
    );
    const marked = [markSet(config("accept").marks.scratch0)];
    expect(check?.fallbacks).toMatchObject([
      { match: marked, action: jump("cali-rpf-known") },
      { match: marked, action: drop },
    ]);
  });

  test("the jump to DSCP rules, returns, and the mark of forwarded packets are omitted", () => {
    const found = hostWideRules(config("return"));
    const dscp = found.find(({ rule: { action } }) => action?.kind === "jump" && action.chain === "cali-egress-dscp");
    expect(dscp?.fallbacks.map(({ action }) => action)).toEqual([undefined]);
    const returns = found.filter(({ rule: { action } }) => action?.kind === "return");
    expect(returns.length).toBeGreaterThan(10);
    for (const { fallbacks } of returns) expect(fallbacks.map(({ action }) => action)).toEqual([undefined]);
    const marked = found.filter(
      ({ where, rule: { action } }) => where === "filter FORWARD" && action?.kind === "setMark",
    );
    for (const { fallbacks } of marked) expect(fallbacks.map(({ action }) => action)).toEqual([undefined]);
  });

  test("before the failsafe ports, the fallbacks of a host endpoint's rules keep all matches", () => {
    for (const allow of ["accept", "return"] as const) {
      const built = endpointChain(config(allow), {
        name: "cali-fh-eth0",
        direction: "ingress",
        use: "normal",
        isWorkload: false,
        adminUp: true,
        tiers: [{ name: "default", chains: ["cali-pi-p"], endsInDrop: true }],
        profileChains: [],
        allow,
        failsafeChain: "cali-failsafe-in",
      });
      const failsafe = built.rules.findIndex(({ action }) => Bun.deepEquals(action, jump("cali-failsafe-in")));
      expect(failsafe).toBeGreaterThan(0);
      for (const rule of built.rules.slice(0, failsafe + 1))
        for (const fallback of fallbacksFor(rule, ruleContext("filter", built)))
          if (fallback.action !== undefined) expect(fallback.match).toEqual(rule.match!);
      // After them, a jump to policy may be replaced by a drop.
      const policy = built.rules.find(({ action }) => Bun.deepEquals(action, jump("cali-pi-p")))!;
      expect(fallbacksFor(policy, ruleContext("filter", built)).at(-1)).toMatchObject({ action: drop });
    }
  });
});

test("a return is omitted in a host-wide chain, and replaced by drops elsewhere", () => {
  const rule: Rule = { match: [established, markSet(1)], action: { kind: "return" } };
  expect(actions(rule, hostWide)).toEqual(["nothing"]);
  expect(actions(rule)).toEqual(["drop", "drop"]);
});
