import { expect, test } from "bun:test";
import type { Cidr } from "../../lib/ip/ip.ts";
import { type Rule } from "../../model/index.ts";
import type { IpSetSpec } from "../ipsets/ip-set.ts";
import { rule } from "../testing/build.ts";
import { convertRule } from "./convert.ts";
import type { ProtoRule } from "../messages.ts";
import { assignRuleIds } from "./rule-ids.ts";

/** Converts a rule, with readable text instead of set IDs. */
function convert(source: Rule) {
  const used: IpSetSpec[] = [];
  const proto = convertRule(source, {
    use: (set) => {
      used.push(set);
      const { content } = set;
      if (content.kind === "service") return `${content.ports ? "svc" : "svcnoport"} ${content.service}`;
      return content.kind === "selector"
        ? content.selector.text
        : `${content.selector.text} | ${content.protocol}:${content.port}`;
    },
  });
  return { proto, used };
}
const cidrs = (...list: string[]) => list as Cidr[];

test("FC-088 converts all fields of a rule", () => {
  const { proto } = convert({
    action: "next-tier",
    ipVersion: 6,
    protocol: 58,
    notProtocol: "udp",
    icmp: { type: 8, code: 0 },
    notIcmp: { type: 3 },
    source: {
      nets: cidrs("10.0.0.0/8"),
      notNets: cidrs("10.1.0.0/16"),
      ports: [{ min: 1, max: 2 }],
      notPorts: [{ min: 3, max: 3 }],
      original: {
        selector: "a",
        namespaceSelector: "b",
        notSelector: "c",
        serviceAccountNames: ["robot"],
        serviceAccountSelector: "d",
      },
    },
    destination: { nets: cidrs("fd00::/8"), original: { selector: "e", serviceAccountSelector: "f" } },
  });
  expect(proto).toMatchObject({
    action: "next-tier",
    ipVersion: 6,
    protocol: { number: 58 },
    notProtocol: { name: "udp" },
    icmp: { type: 8, code: 0 },
    notIcmp: { type: 3 },
    srcNet: ["10.0.0.0/8"],
    notSrcNet: ["10.1.0.0/16"],
    srcPorts: [{ first: 1, last: 2 }],
    notSrcPorts: [{ first: 3, last: 3 }],
    dstNet: ["fd00::/8"],
    original: {
      srcSelector: "a",
      srcNamespaceSelector: "b",
      notSrcSelector: "c",
      srcServiceAccount: { names: ["robot"], selector: "d" },
      dstSelector: "e",
      dstServiceAccount: { names: [], selector: "f" },
    },
  });
});

const versions = [
  { protocol: "icmp", want: 4 },
  { protocol: "icmpv6", want: 6 },
  { protocol: "tcp", want: undefined },
] as const;
for (const { protocol, want } of versions)
  test(`FC-088 ${protocol} implies IP version ${want ?? "any"}`, () =>
    expect(convert(rule({ protocol })).proto.ipVersion).toBe(want));

test("FC-089 a negated selector is merged with a positive one; alone it becomes a negated set match", () => {
  const { proto } = convert(
    rule({ from: { selector: "has(a)", notSelector: "has(b)" }, to: { notSelector: "has(c)" } }),
  );
  expect(proto.srcIpSetIds).toEqual(["(has(a) && !has(b))"]);
  expect(proto.notSrcIpSetIds).toEqual([]);
  expect(proto.dstIpSetIds).toEqual([]);
  expect(proto.notDstIpSetIds).toEqual(["has(c)"]);
});

test("FC-089 named ports become sets of the selected endpoints; with numeric ports, the selector has its own set", () => {
  const only = convert(rule({ protocol: "tcp", to: { selector: "has(a)", ports: [{ name: "http" }] } })).proto;
  expect(only.dstNamedPortIpSetIds).toEqual(["has(a) | tcp:http"]);
  expect(only.dstIpSetIds).toEqual([]);
  const both = convert(
    rule({ protocol: "udp", from: { selector: "has(a)", ports: [{ name: "dns" }, { min: 53, max: 54 }] } }),
  ).proto;
  expect(both.srcNamedPortIpSetIds).toEqual(["has(a) | udp:dns"]);
  expect(both.srcPorts).toEqual([{ first: 53, last: 54 }]);
  expect(both.srcIpSetIds).toEqual(["has(a)"]);
  const negated = convert(rule({ to: { notPorts: [{ name: "http" }] } })).proto;
  expect(negated.notDstNamedPortIpSetIds).toEqual(["all() | any:http"]);
  expect(convert(rule({ protocol: 132, to: { ports: [{ name: "x" }] } })).proto.dstNamedPortIpSetIds).toEqual([
    "all() | sctp:x",
  ]);
  expect(convert(rule({ protocol: 99, to: { ports: [{ name: "x" }] } })).proto.dstNamedPortIpSetIds).toEqual([
    "all() | tcp:x",
  ]);
});

test("FC-090 copies HTTP matches and annotations", () => {
  const http = { methods: ["GET"], paths: [{ exact: "/a" }, { prefix: "/b" }] };
  const { proto } = convert(rule({ http, annotations: { why: "because" } }));
  expect(proto.httpMatch).toEqual(http);
  expect(proto.annotations).toEqual({ why: "because" });
});

test("FC-091 a source service becomes a set of addresses, a destination service a set of addresses with ports", () => {
  const service = { name: "nginx", namespace: "web" };
  const { proto } = convert(rule({ from: { service }, to: { service } }));
  expect(proto.srcIpSetIds).toEqual(["svcnoport web/nginx"]);
  expect(proto.dstIpPortSetIds).toEqual(["svc web/nginx"]);
  expect(proto.original.srcService).toEqual(service);
});

test("FC-093 the ID of a rule depends on its content, its position, the preceding rules and its owner", () => {
  const idsOf = (seed: string, ...rules: Rule[]) =>
    assignRuleIds(
      rules.map((each) => convert(each).proto),
      seed,
    ).map(({ ruleId }) => ruleId);
  const [allow, deny] = [rule(), rule({ action: "deny" })];
  const ids = idsOf("pol-in-default/a", allow, allow, deny);
  expect(new Set(ids).size).toBe(3);
  expect(ids.every((id) => /^[\w-]{16}$/.test(id))).toBe(true);
  expect(idsOf("pol-in-default/a", allow, allow, deny)).toEqual(ids);
  expect(idsOf("pol-in-default/b", allow)[0]).not.toBe(ids[0]!);
  expect(idsOf("pol-in-default/a", deny, allow)[1]).not.toBe(ids[1]!);
});

test("FC-093 the ID of a rule with an ICMP type and a selector equals Calico's", () => {
  const { proto } = convert(rule());
  const named: ProtoRule = {
    ...proto,
    action: "allow",
    ipVersion: 6,
    protocol: { name: "icmpv6" },
    icmp: { type: 128 },
    dstIpSetIds: ["s:2dAotJA2sZ5pOhC_BaBuAFekzFsoGV350DfHsw"],
    original: { ...proto.original, dstNamespaceSelector: "all()" },
  };
  expect(assignRuleIds([named], "pol-in-default/gnp1")[0]?.ruleId).toBe("GE8JtS52KjKLRFbO");
});
