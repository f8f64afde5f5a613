import { expect, test } from "bun:test";
import type { PolicyId, ProtoRule } from "../../calc/index.ts";
import type { Cidr } from "../../lib/ip/ip.ts";
import type { RulesConfig } from "./config.ts";
import { ChainNames, IPTABLES_CHAIN_LENGTH } from "./names.ts";
import { policyChain, profileChain } from "./policy-chains.ts";
import { chainText, plainConfig } from "./testing.ts";

const names = new ChainNames(IPTABLES_CHAIN_LENGTH);
const nets = (...list: string[]) => list as Cidr[];
const comment = (text: string) => `-m comment --comment "${text}"`;
const ACCEPT = "--jump MARK --set-mark 0x10000/0x10000";

const rule = (more: Partial<ProtoRule> = {}): ProtoRule => ({
  action: "allow",
  ...{ srcNet: [], srcPorts: [], dstNet: [], dstPorts: [], srcIpSetIds: [], dstIpSetIds: [] },
  ...{ srcNamedPortIpSetIds: [], dstNamedPortIpSetIds: [], dstIpPortSetIds: [], notSrcNet: [], notSrcPorts: [] },
  ...{ notDstNet: [], notDstPorts: [], notSrcIpSetIds: [], notDstIpSetIds: [], notSrcNamedPortIpSetIds: [] },
  ...{ notDstNamedPortIpSetIds: [], original: {}, ruleId: "" },
  ...more,
});

function text(
  rules: readonly ProtoRule[],
  options: { version?: 4 | 6; direction?: "ingress" | "egress"; id?: PolicyId; config?: Partial<RulesConfig> } = {},
): string[] {
  const { version = 4, direction = "ingress" } = options;
  const id = options.id ?? { kind: "GlobalNetworkPolicy", namespace: "", name: "p" };
  const config = plainConfig(options.config);
  const policy = {
    ...{ inboundRules: direction === "ingress" ? rules : [], outboundRules: direction === "egress" ? rules : [] },
    ...{ untracked: false, preDnat: false, namespace: "", originalSelector: "", performanceHints: [], tier: "default" },
  };
  return chainText(policyChain({ config, names, version, direction }, id, policy), "filter", config, version);
}
const TITLE = comment("GlobalNetworkPolicy p ingress");

test("FD-085 a rule that excludes all addresses is not written, in either family", () => {
  for (const side of ["notSrcNet", "notDstNet"] as const) {
    expect(text([rule({ [side]: nets("0.0.0.0/0") })])).toEqual([TITLE]);
    expect(text([rule({ [side]: nets("10.0.0.0/8", "0.0.0.0/0") })])).toEqual([TITLE]);
    expect(text([rule({ [side]: nets("::/0") })], { version: 6 })).toEqual([TITLE]);
    // A prefix of the other family: the rule applies to that family only.
    expect(text([rule({ [side]: nets("::/0") })])).toEqual([TITLE]);
    expect(text([rule({ [side]: nets("::/0", "10.0.0.0/8") })])[0]).toContain("! --");
  }
  // What is not negated means every address.
  expect(text([rule({ srcNet: nets("0.0.0.0/0") })])).toEqual([`${TITLE} --source 0.0.0.0/0 ${ACCEPT}`]);
});

test("a rule with more negated ports than a kernel rule can contain is closed", () => {
  const sets = (count: number) => Array.from({ length: count }, (_, i) => `n:set${i}`);
  const tcp = { protocol: { name: "tcp" } };
  const long = { ...tcp, dstPorts: [{ first: 80, last: 80 }], notSrcNamedPortIpSetIds: sets(11) };
  const tooLong = { ...long, notDstNamedPortIpSetIds: sets(10) };
  expect(text([rule(long)])[0]).toContain("n:set10");
  expect(text([rule(tooLong)])).toEqual([TITLE]);
  expect(text([rule({ ...tooLong, action: "log" })])).toEqual([TITLE]);
  const closed = text([rule({ ...tcp, dstPorts: [{ first: 80, last: 80 }], action: "deny" })]);
  expect(text([rule({ ...tooLong, action: "deny" })])).toEqual(closed);
  expect(text([rule({ ...tooLong, action: "next-tier" })])).toEqual(closed);
});

test("of thousands of annotations, only the first sixteen are written, because each kernel rule repeats them", () => {
  const annotations = Object.fromEntries(Array.from({ length: 5000 }, (_, i) => [`k${i}`, "v"]));
  const prefixes = Array.from({ length: 200 }, (_, i) => `10.0.${i}.0/24`);
  const lines = text([rule({ srcNet: nets(...prefixes), annotations })]);
  expect(lines.length).toBeGreaterThan(200);
  for (const line of lines) expect(line.split("--comment").length).toBeLessThan(20);
});

test("FD-088 annotations are comments of every kernel rule, sorted, truncated, and without unsafe characters", () => {
  const annotations = { zone: "a", note: 'say "hi"; $(x)\n', long: "x".repeat(300) };
  const lines = text([rule({ srcNet: nets("10.0.0.0/8", "11.0.0.0/8"), annotations }), rule()]);
  const notes = [`long=${"x".repeat(251)}`, "note=say _hi__ __x__", "zone=a"].map(comment).join(" ");
  expect(lines.slice(0, -1).every((line) => line.startsWith(`${notes} `))).toBe(true);
  expect(lines).toHaveLength(6); // a block of three, the rule, its return; then the other rule
  expect(lines.at(-1)).toBe(ACCEPT); // which has no notes
  for (const [, text = ""] of lines.join(" ").matchAll(/--comment "([^"]*)"/g)) expect(text.length).toBeLessThan(257);
});

for (const [id, title] of [
  [{ kind: "GlobalNetworkPolicy", namespace: "", name: "web" }, "GlobalNetworkPolicy web"],
  [{ kind: "NetworkPolicy", namespace: "ns1", name: "web" }, "NetworkPolicy ns1/web"],
  [{ kind: "KubernetesNetworkPolicy", namespace: "ns1", name: "web" }, "KubernetesNetworkPolicy ns1/web"],
] as const)
  test(`FD-089 the comment of the first rule names the policy: ${title}`, () => {
    for (const direction of ["ingress", "egress"] as const) {
      const lines = text([rule(), rule()], { id, direction });
      expect(lines[0]).toBe(`${comment(`${title} ${direction}`)} ${ACCEPT}`);
      expect(lines.slice(1).join()).not.toContain("--comment");
      // An empty one has a rule for that alone, which does nothing.
      expect(text([], { id, direction })).toEqual([comment(`${title} ${direction}`)]);
    }
  });

test("FD-089 the comment of a profile's chain names the profile, after the annotations", () => {
  const config = plainConfig();
  const profile = { inboundRules: [rule({ annotations: { why: "dns" } })], outboundRules: [] };
  const lines = (direction: "ingress" | "egress") =>
    chainText(profileChain({ config, names, version: 4, direction }, "kns.ns1", profile), "filter", config);
  expect(lines("ingress")).toEqual([`${comment("why=dns")} ${comment("Profile kns.ns1 ingress")} ${ACCEPT}`]);
  expect(lines("egress")).toEqual([comment("Profile kns.ns1 egress")]);
});

test("FD-090 a deny sets a mark, logs, and drops packets with the mark", () => {
  const deny = rule({ action: "deny", protocol: { name: "tcp" } });
  const marked = "-m mark --mark 0x40000/0x40000";
  const mark = `${TITLE} -p tcp --jump MARK --set-mark 0x40000/0x40000`;
  expect(text([deny])).toEqual([mark, `${marked} --jump DROP`]);
  expect(text([deny], { config: { deny: "reject" } })).toEqual([mark, `${marked} --jump REJECT`]);
  expect(text([deny], { config: { flowLogs: true } })).toEqual([
    mark,
    `${marked} --jump NFLOG --nflog-group 1 --nflog-prefix DPI0|gnp/p --nflog-size 80`,
    `${marked} --jump DROP`,
  ]);
});
