import { describe, expect, test } from "bun:test";
import type { IpAddress } from "../../lib/ip.ts";
import { Aside } from "./aside.ts";
import type { RulesConfig } from "./config.ts";
import { endpointChain } from "./endpoint-chains.ts";
import { askHostPolicy } from "./detours.ts";
import { allocateMarks } from "./marks.ts";
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
} from "./rule.ts";
import { describeStandIn, mayBeLeftOut, neededFor, placeIn, standInsFor, withStandIns } from "./stand-in.ts";
import { filterChains, filterHooks } from "./filter-chains.ts";
import { mangleChains, mangleHooks, natChains, rawChains, rawHooks } from "./static-chains.ts";

const filter = { layer: "filter", isHostWide: false } as const;
const hostWide = { layer: "filter", isHostWide: true } as const;
const logged = (decision: "allow" | "deny" | "pass"): Rule => ({
  match: [inInterface("cali1"), protocolIs("tcp"), inSet("source", "s:x")],
  action: { kind: "decide", decision, nflog: { group: 1, prefix: "p" } },
});
const actions = (rule: Rule, place = filter as { readonly layer: "filter"; readonly isHostWide: boolean }) =>
  standInsFor(rule, place).map(({ action }) => action?.kind ?? "nothing");

test("a refused rule of a policy is blamed on flow logs when it records flows", () => {
  expect(neededFor(logged("deny"))).toContain("flow logs");
  expect(neededFor({ action: { kind: "decide", decision: "deny" } })).toBeUndefined();
});

test("a decision that is recorded is first tried without the record, and decides the same", () => {
  for (const decision of ["allow", "deny", "pass"] as const) {
    const [nearest] = standInsFor(logged(decision), filter);
    expect(nearest?.action).toEqual({ kind: "decide", decision });
    expect(nearest?.match).toEqual(logged(decision).match!);
  }
});

test("without what lets pass nothing is written; what stops, or sends on, stops the less the better", () => {
  const kinds = ["allow", "deny", "pass"].map((d) => actions(logged(d as "allow")));
  expect(kinds).toEqual([
    ["decide", "nothing"],
    ["decide", "drop", "drop", "drop"],
    ["decide", "drop", "drop", "drop"],
  ]);
  expect(mayBeLeftOut({ action: accept }, filter)).toBe(true);
  const widths = standInsFor(logged("deny"), filter).slice(1);
  expect(widths.map(({ match }) => match?.map(({ kind }) => kind))).toEqual([
    ["interface", "protocol", "ipSet"],
    ["interface", "protocol"],
    ["interface"],
  ]);
  expect(widths.map(describeStandIn)[1]).toBe(
    "packets that come to its place with the same interface, protocol are dropped",
  );
});

test("a refusal of REJECT is answered by a drop of the very same packets", () => {
  const rule: Rule = { match: [protocolIs("tcp")], action: { kind: "reject" } };
  expect(standInsFor(rule, filter)[0]).toMatchObject({ match: rule.match, action: drop });
  const limit: Rule = {
    match: [{ kind: "connectionsAbove", count: 3 }],
    action: { kind: "reject", with: "tcp-reset" },
  };
  expect(actions(limit)).toEqual(["drop", "nothing"]);
});

test("a mark that cannot be set stops only packets that lack it", () => {
  expect(standInsFor({ action: { kind: "setMark", value: 0, mask: 0x30 } }, hostWide)[0]).toMatchObject({
    match: [markNotClear(0x30)],
    action: drop,
  });
});

test("a set that is refused closes by what else the rule says, and each refusal goes one step further", () => {
  const aside = new Aside();
  const at = { chain: "c", index: 0 };
  const rule: Rule = { match: [protocolIs("tcp"), inSet("source", "s:x")], action: drop };
  expect(aside.standIn(at, rule, filter)).toBeUndefined();
  aside.addSet("s:x");
  expect(aside.standIn(at, rule, filter)?.match).toEqual([protocolIs("tcp")]);
  expect(aside.raise(at, rule, filter)).toBe(true);
  expect(aside.standIn(at, rule, filter)?.match).toEqual([]);
  expect(aside.raise(at, rule, filter)).toBe(false);
  const closed = withStandIns(chain("c", [rule, { action: accept }]), (index, each) =>
    aside.standIn({ chain: "c", index }, each, filter),
  );
  expect(closed.rules.map(({ action }) => action)).toEqual([drop, accept]);
});

describe("the host's own access", () => {
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

  const layers = {
    raw: { chains: rawChains, hooks: rawHooks },
    mangle: { chains: mangleChains, hooks: mangleHooks },
    nat: { chains: natChains, hooks: () => ({ insert: new Map(), append: new Map() }) },
    filter: { chains: filterChains, hooks: filterHooks },
  } as const;
  /** Every rule that all packets of the host may come to, with what may be written instead. */
  const rulesOfTheHost = (of: RulesConfig) =>
    (["raw", "mangle", "nat", "filter"] as const).flatMap((layer) =>
      ([4, 6] as const).flatMap((version) => {
        const hooks = layers[layer].hooks(of);
        const kernelChains = [...hooks.insert, ...hooks.append].map(([name, rules]) => hostChain(name, rules));
        const chains = [...layers[layer].chains(of, version), ...kernelChains].filter((each) => each.isHostWide);
        return chains.flatMap((each) =>
          each.rules.map((rule) => ({
            where: `${layer} ${each.name}`,
            rule,
            standIns: standInsFor(rule, placeIn(layer, each)),
          })),
        );
      }),
    );

  /** Packets of workloads, of tunnels, or with a mark that nobody but we set. */
  const isNarrow = (match: readonly Match[], of: RulesConfig): boolean =>
    match.some(
      (m) =>
        (m.kind === "interface" && m.name === "cali*") ||
        (m.kind === "protocol" && (m.protocol === 4 || match.some(({ kind }) => kind === "ports"))) ||
        (m.kind === "mark" && m.value === of.marks.scratch0 && m.negated !== true) ||
        (m.kind === "mark" && m.value === 0 && m.negated === true),
    );

  for (const allow of ["accept", "return"] as const)
    test(`no stand-in in a chain of the whole host stops more than workloads, tunnels or marked packets (${allow})`, () => {
      const of = config(allow);
      const found = rulesOfTheHost(of);
      expect(found.length).toBeGreaterThan(60);
      for (const { where, rule, standIns } of found)
        for (const { action, match = [] } of standIns)
          if (action?.kind === "drop" && !isNarrow(match, of)) expect({ where, rule, match }).toBeUndefined();
    });

  /** Chains that stand-ins of jumps to the chain lead to. */
  const leadsTo = (of: string): string[] =>
    rulesOfTheHost(config("accept"))
      .filter(({ rule: { action } }) => action?.kind === "jump" && action.chain === of)
      .flatMap(({ standIns }) => standIns.map(({ action }) => (action?.kind === "jump" ? action.chain : "nowhere")));

  test("policy is never passed by: where it cannot be asked its endpoints are closed, and else nothing is written", () => {
    for (const [name, instead] of [
      ["cali-from-host-endpoint", "cali-from-host-closed"],
      ["cali-to-host-endpoint", "cali-to-host-closed"],
      ["cali-from-hep-forward", "cali-from-hep-closed"],
      ["cali-to-hep-forward", "cali-to-hep-closed"],
    ] as const)
      expect(new Set(leadsTo(name))).toEqual(new Set([instead]));
    for (const name of ["cali-INPUT", "cali-FORWARD", "cali-forward-check"]) expect(leadsTo(name)).toEqual([]);
    for (const name of ["cali-egress-dscp", "cali-rpf-skip", "cali-wireguard-incoming-mark", "cali-cidr-block"])
      expect(new Set(leadsTo(name))).toEqual(new Set(["nowhere"]));
  });

  test("a jump that is refused for its match is led elsewhere without it", () => {
    const rule = askHostPolicy("cali-to-host-endpoint", { kind: "ctDnat", negated: true });
    const standIns = standInsFor(rule, hostWide);
    expect(standIns.map(({ match }) => match)).toEqual([rule.match, undefined]);
    expect(standIns.map(describeStandIn)[1]).toContain("closed but for known connections and failsafe ports");
  });

  test("where the way back cannot be asked for, a workload's sources are asked for, and at worst all its packets stop", () => {
    const check = rulesOfTheHost(config("accept")).find(({ rule: { match } }) =>
      match?.some(({ kind }) => kind === "reversePathFails"),
    );
    const marked = [markSet(config("accept").marks.scratch0)];
    expect(check?.standIns).toMatchObject([
      { match: marked, action: jump("cali-rpf-known") },
      { match: marked, action: drop },
    ]);
  });

  test("the DSCP jump, returns and the mark of forwarded packets are left out", () => {
    const found = rulesOfTheHost(config("return"));
    const dscp = found.find(({ rule: { action } }) => action?.kind === "jump" && action.chain === "cali-egress-dscp");
    expect(dscp?.standIns.map(({ action }) => action)).toEqual([undefined]);
    const returns = found.filter(({ rule: { action } }) => action?.kind === "return");
    expect(returns.length).toBeGreaterThan(10);
    for (const { standIns } of returns) expect(standIns.map(({ action }) => action)).toEqual([undefined]);
    const marked = found.filter(
      ({ where, rule: { action } }) => where === "filter FORWARD" && action?.kind === "setMark",
    );
    for (const { standIns } of marked) expect(standIns.map(({ action }) => action)).toEqual([undefined]);
  });

  test("of a host endpoint nothing stands before the failsafe ports that stops anything else than it was written for", () => {
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
        for (const standIn of standInsFor(rule, placeIn("filter", built)))
          if (standIn.action !== undefined) expect(standIn.match).toEqual(rule.match!);
      // Behind them a policy that cannot be asked closes.
      const policy = built.rules.find(({ action }) => Bun.deepEquals(action, jump("cali-pi-p")))!;
      expect(standInsFor(policy, placeIn("filter", built)).at(-1)).toMatchObject({ action: drop });
    }
  });
});

test("established connections and a verdict's mark are not what a stand-in is for", () => {
  const rule: Rule = { match: [established, markSet(1)], action: { kind: "return" } };
  expect(actions(rule, hostWide)).toEqual(["nothing"]);
  expect(actions(rule)).toEqual(["drop", "drop"]);
});
