import { describe, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import type { Policy, Rule, RuleSide } from "../stored/derived.ts";
import { type KindName, kindOf } from "../kinds.ts";
import { API_VERSION, type Resource } from "../resource.ts";
import { convertRule } from "../rule-conversion.ts";
import { ParsedSelector } from "../selector/selector.ts";
import { convertPolicy, policyProcessor, profileProcessor, tierProcessor } from "./policies.ts";

const resource = (kind: KindName, spec: unknown, namespace?: string): Resource => ({
  apiVersion: API_VERSION,
  kind,
  metadata: { name: "p", namespace },
  spec,
});
const selectorOf = (kind: KindName, spec: object, namespace?: string): string | undefined =>
  convertPolicy(resource(kind, spec, namespace), () => {})?.selector.text;

describe("DM-054 a namespaced policy's selector", () => {
  const cases = [
    [{}, 'projectcalico.org/namespace == "ns1"'],
    [{ selector: "all()" }, '(all() && projectcalico.org/namespace == "ns1")'],
    [{ selector: "a == 'b' || has(c)" }, '((a == "b" || has(c)) && projectcalico.org/namespace == "ns1")'],
    [
      { selector: "a == 'b'", serviceAccountSelector: "role == 'x' && has(y)" },
      '((a == "b" && projectcalico.org/namespace == "ns1") && (pcsa.role == "x" && has(pcsa.y)))',
    ],
    [{ serviceAccountSelector: "all()" }, '(projectcalico.org/namespace == "ns1" && all())'],
    // Double negations with parentheses are kept, because IP sets are named after the text; adding a prefix cancels them.
    [{ selector: "!(!has(a))" }, '(!(!has(a)) && projectcalico.org/namespace == "ns1")'],
    [
      { selector: "all()", serviceAccountSelector: "!(!has(a))" },
      '((all() && projectcalico.org/namespace == "ns1") && has(pcsa.a))',
    ],
    [
      { selector: "a == 'b'", serviceAccountSelector: "rub bish" },
      '(a == "b" && projectcalico.org/namespace == "ns1")',
    ],
  ] as const;
  for (const [spec, want] of cases)
    test(JSON.stringify(spec), () => expect(selectorOf("NetworkPolicy", spec, "ns1")).toBe(want));
});

test("only global policies can have doNotTrack, preDNAT and applyOnForward", () => {
  const spec = { selector: "all()", doNotTrack: true, preDNAT: true, applyOnForward: true };
  const flags = { untracked: true, preDnat: true, applyOnForward: true };
  expect(convertPolicy(resource("GlobalNetworkPolicy", spec), () => {})).toMatchObject(flags);
  for (const kind of ["NetworkPolicy", "StagedNetworkPolicy"] as const) {
    const policy = convertPolicy(resource(kind, spec, "ns1"), () => {});
    for (const flag of Object.keys(flags)) expect(policy).not.toHaveProperty(flag);
  }
});

describe("DM-055 a global policy's selector", () => {
  const cases = [
    [{}, "all()"],
    [{ selector: "all()" }, "all()"],
    [{ selector: "a == 'all()'", namespaceSelector: "b == 'c'" }, '(a == "all()" && pcns.b == "c")'],
    [{ selector: "all()", namespaceSelector: "b == 'c'" }, '(has(projectcalico.org/namespace) && pcns.b == "c")'],
    [{ selector: "a == 'b'", namespaceSelector: "all()" }, '(a == "b" && has(projectcalico.org/namespace))'],
    [{ namespaceSelector: "all()" }, "has(projectcalico.org/namespace)"],
    [{ serviceAccountSelector: "all()" }, "has(projectcalico.org/serviceaccount)"],
    [
      { selector: "all()", serviceAccountSelector: "r == 'x'" },
      '(has(projectcalico.org/serviceaccount) && pcsa.r == "x")',
    ],
    [
      { selector: "a == 'b'", namespaceSelector: "c == 'd'", serviceAccountSelector: "e == 'f'" },
      '((a == "b" && pcns.c == "d") && pcsa.e == "f")',
    ],
    [{ selector: "a == 'b'", namespaceSelector: "rub bish" }, 'a == "b"'],
  ] as const;
  for (const [spec, want] of cases)
    test(JSON.stringify(spec), () => expect(selectorOf("GlobalNetworkPolicy", spec)).toBe(want));
});

describe("DM-056 one side of a rule", () => {
  const side = (entity: object, namespace?: string): RuleSide | undefined =>
    convertRule(new JsonReader({ action: "Allow", source: entity }), namespace, () => {})?.source;
  const cases = [
    [{}, "ns1", undefined],
    [{ ports: [80], nets: ["10.0.0.0/8"] }, "ns1", undefined],
    [{ selector: "a == 'b'" }, undefined, 'a == "b"'],
    [{ selector: "a == 'b'" }, "ns1", '(projectcalico.org/namespace == "ns1" && a == "b")'],
    [{ selector: "a == 'b' && c == 'd'" }, "ns1", '(projectcalico.org/namespace == "ns1" && (a == "b" && c == "d"))'],
    [{ notSelector: "a == 'b'" }, "ns1", 'projectcalico.org/namespace == "ns1"'],
    [{ notSelector: "a == 'b'" }, undefined, undefined],
    [{ namespaceSelector: "a == 'b'" }, "ns1", 'pcns.a == "b"'],
    [{ namespaceSelector: "all()" }, "ns1", "has(projectcalico.org/namespace)"],
    [{ namespaceSelector: "global()" }, "ns1", "!has(projectcalico.org/namespace)"],
    [
      { namespaceSelector: "global()", selector: "a == 'b'" },
      undefined,
      '(!has(projectcalico.org/namespace) && a == "b")',
    ],
    [{ serviceAccounts: { names: ["y", "x"] } }, undefined, 'projectcalico.org/serviceaccount in {"x", "y"}'],
    [
      { serviceAccounts: { names: ["x"] } },
      "ns1",
      '(projectcalico.org/namespace == "ns1" && projectcalico.org/serviceaccount in {"x"})',
    ],
    [{ serviceAccounts: { selector: "r == 's'" } }, undefined, 'pcsa.r == "s"'],
    [
      { serviceAccounts: { names: ["x"], selector: "r == 's'" }, selector: "a == 'b'", namespaceSelector: "n == 'm'" },
      "ns1",
      '(pcns.n == "m" && ((pcsa.r == "s" && projectcalico.org/serviceaccount in {"x"}) && a == "b"))',
    ],
  ] as const;
  for (const [entity, namespace, want] of cases)
    test(`${JSON.stringify(entity)} in ${namespace ?? "no namespace"}`, () =>
      expect(side(entity, namespace)?.selector?.text).toBe(want));

  test("notSelector is a separate selector, and the original fields are kept", () =>
    expect(side({ notSelector: "a=='b'", namespaceSelector: "n=='m'" }, "ns1")).toEqual({
      selector: ParsedSelector.parse('pcns.n == "m"'),
      notSelector: ParsedSelector.parse('a == "b"'),
      original: { notSelector: "a=='b'", namespaceSelector: "n=='m'" },
    }));
});

describe("DM-133 rules", () => {
  const convert = (rule: object, problems: string[] = []): Rule | undefined =>
    convertRule(new JsonReader(rule, "rule"), "ns1", (problem) => problems.push(problem));

  test("actions, protocols, ports, ICMP, HTTP, annotations, services", () => {
    expect(
      convert({
        action: "Pass",
        ipVersion: 6,
        protocol: "ICMPv6",
        notProtocol: "17",
        icmp: { type: 8, code: 0 },
        notICMP: { type: 3 },
        source: { notNets: ["fd00::1/64"], notPorts: ["1:10", "22", "http", 8] },
        http: { methods: ["GET"], paths: [{ exact: "/a" }, { prefix: "/b" }] },
        metadata: { annotations: { why: "x" } },
      }),
    ).toEqual({
      action: "next-tier",
      ipVersion: 6,
      protocol: "icmpv6",
      notProtocol: 17,
      icmp: { type: 8, code: 0 },
      notIcmp: { type: 3 },
      source: {
        notNets: ["fd00::/64"],
        notPorts: [{ min: 1, max: 10 }, { min: 22, max: 22 }, { name: "http" }, { min: 8, max: 8 }],
      } as never,
      destination: {},
      http: { methods: ["GET"], paths: [{ exact: "/a" }, { prefix: "/b" }] },
      annotations: { why: "x" },
    });
    expect(convert({ action: "Allow", destination: { services: { name: "s" } } })?.destination).toEqual({
      service: { name: "s", namespace: "ns1" },
      original: { service: { name: "s" } },
    });
    expect(
      convert({ action: "Allow", destination: { services: { name: "s", namespace: "other" } } })?.destination.service,
    ).toEqual({ name: "s", namespace: "other" });
  });

  const bad = [
    { source: { nets: ["10.0.0.0/99"] } },
    { source: { notNets: ["x"] } },
    { source: { selector: "a = 'b'" } },
    { source: { notSelector: "a = 'b'" } },
    { source: { namespaceSelector: "a = 'b'" } },
    { source: { serviceAccounts: { selector: "a = 'b'" } } },
    { protocol: "TCP", destination: { ports: ["10:1"] } },
    { protocol: "TCP", destination: { ports: [70000] } },
    { destination: { ports: [80] } },
    { protocol: "ICMP", destination: { ports: [80] } },
    { protocol: 47, source: { ports: ["80:90", "http"] } },
    { protocol: "GRE" },
    { icmp: { type: 300 } },
    { ipVersion: 5 },
    { source: { nets: "10.0.0.0/8" } },
    { source: { services: { namespace: "x" } } },
    { destination: { services: { name: 5 } } },
    { source: { serviceAccounts: { names: ["a\"' } || all() || b in {'"] } } },
  ];
  for (const part of bad)
    test(`${JSON.stringify(part)}: an Allow rule is ignored, a Deny rule denies more packets`, () => {
      const problems: string[] = [];
      expect(convert({ action: "Allow", ...part }, problems)).toBeUndefined();
      expect(convert({ action: "Deny", ...part }, problems)?.action).toBe("deny");
      expect(problems).toHaveLength(2);
      expect(problems[0]).toMatch(/: rule ignored$/);
      expect(problems[1]).toMatch(/: condition ignored, the rule denies more packets$/);
    });

  test("an Allow rule with http allows the whole connection, which is reported", () => {
    const problems: string[] = [];
    expect(convert({ action: "Allow", protocol: "TCP", http: { methods: ["GET"] } }, problems)?.action).toBe("allow");
    expect(problems).toEqual(["rule.http is not enforced: the rule allows the whole connection"]);
  });

  test("a Pass rule with an invalid condition denies, because later rules were not meant for its packets", () => {
    const problems: string[] = [];
    expect(convert({ action: "Pass", protocol: "GRE", source: { nets: ["10.0.0.0/8"] } }, problems)).toEqual({
      action: "deny",
      source: { nets: ["10.0.0.0/8"] } as never,
      destination: {},
    });
    expect(problems[0]).toMatch(/: condition ignored, the rule denies more packets$/);
    expect(convert({ action: "Log", protocol: "GRE" })).toBeUndefined();
  });

  for (const action of ["deny", "ALLOW", "constructor", "__proto__", 5, null, undefined])
    test(`the action ${String(action)} is treated as Deny; other rules of the policy are not affected`, () => {
      const problems: string[] = [];
      const spec = { ingress: [{ action, protocol: "TCP" }, { action: "Allow" }] };
      const policy = convertPolicy(resource("GlobalNetworkPolicy", spec), (problem) => problems.push(problem));
      expect(policy?.inboundRules).toEqual([
        { action: "deny", protocol: "tcp", source: {}, destination: {} },
        { action: "allow", source: {}, destination: {} },
      ]);
      expect(problems).toEqual(["spec.ingress[0].action: want Allow, Deny, Log or Pass: treated as Deny"]);
    });

  test("if namespaceSelector or serviceAccountSelector does not parse, only Deny rules of the policy are used", () => {
    const ingress = [{ action: "Allow" }, { action: "Pass" }, { action: "Deny", protocol: "UDP" }];
    for (const field of ["namespaceSelector", "serviceAccountSelector"]) {
      const problems: string[] = [];
      const spec = { selector: "a == 'b'", [field]: "rub bish", ingress };
      const policy = convertPolicy(resource("GlobalNetworkPolicy", spec), (problem) => problems.push(problem));
      expect(policy?.inboundRules).toEqual([{ action: "deny", protocol: "udp", source: {}, destination: {} }]);
      expect(problems).toEqual([`spec.${field} is not a selector: only Deny rules of the policy are used`]);
    }
  });
});

test("DM-039 types default to the directions that have rules", () => {
  const types = (spec: object) => convertPolicy(resource("GlobalNetworkPolicy", spec), () => {})?.types;
  expect(types({})).toEqual(["ingress"]);
  expect(types({ egress: [{ action: "Allow" }] })).toEqual(["egress"]);
  expect(types({ ingress: [{ action: "Allow" }], egress: [{ action: "Allow" }] })).toEqual(["ingress", "egress"]);
  expect(types({ types: ["Egress"], ingress: [{ action: "Allow" }] })).toEqual(["egress"]);
});

describe("policies, tiers and profiles as updates", () => {
  const key = { type: "resource", kind: "StagedNetworkPolicy", namespace: "ns1", name: "p" } as const;
  test("a staged deletion emits no policy, other staged policies contain their action", () => {
    const staged = (stagedAction: string) =>
      policyProcessor.process({ key, value: resource("StagedNetworkPolicy", { stagedAction }, "ns1") }, () => {});
    expect(staged("Delete")).toEqual([
      { key: { type: "policy", kind: "StagedNetworkPolicy", namespace: "ns1", name: "p" }, value: undefined },
    ]);
    expect((staged("Learn")[0]!.value as Policy).stagedAction).toBe("Learn");
  });

  test("a policy whose selector does not parse is reported and counts as deleted", () => {
    const problems: string[] = [];
    const [update] = policyProcessor.process(
      { key, value: resource("StagedNetworkPolicy", { selector: "a b" }, "ns1") },
      (p) => problems.push(p),
    );
    expect(update?.value).toBeUndefined();
    expect(problems[0]).toContain('selector "a b"');
  });

  test("the default action of a tier is Deny, unless it is set to Pass", () => {
    const tier = (spec: object) =>
      tierProcessor.process(
        { key: { type: "resource", kind: "Tier", name: "t" }, value: resource("Tier", spec) },
        () => {},
      )[0];
    expect(tier({ order: 5, defaultAction: "Pass" })?.value).toEqual({ order: 5, defaultAction: "Pass" });
    expect(tier({ defaultAction: "Other" })?.value).toEqual({ defaultAction: "Deny" });
  });

  test("DM-057 a profile is emitted as rules, labels and the resource itself", () => {
    const profile = resource("Profile", { ingress: [{ action: "Allow" }], labelsToApply: { "pcns.a": "b" } });
    const key = { type: "resource", kind: "Profile", name: "kns.x" } as const;
    expect(profileProcessor.process({ key, value: profile }, () => {})).toEqual([
      {
        key: { type: "profileRules", name: "kns.x" },
        value: { inboundRules: [{ action: "allow", source: {}, destination: {} }], outboundRules: [] },
      },
      { key: { type: "profileLabels", name: "kns.x" }, value: { "pcns.a": "b" } },
      { key, value: profile },
    ]);
    expect(profileProcessor.process({ key, value: undefined }, () => {}).map((u) => u.value)).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
  });
});

// --- recordings --------------------------------------------------------------------------------------------------
interface PolicyMessage {
  readonly "1.id": { readonly "2.name": string; readonly "3.namespace"?: string; readonly "4.kind": string };
  readonly "2.policy": {
    readonly "1.inbound_rules"?: readonly RuleMessage[];
    readonly "2.outbound_rules"?: readonly RuleMessage[];
    readonly "6.original_selector"?: string;
    readonly "8.tier": string;
  };
}
type RuleMessage = Readonly<Record<string, unknown>>;

const golden = join(import.meta.dir, "../../../../shared/golden");
if (!existsSync(golden)) console.log("policies: no recordings next to the checkout, not compared");
else
  describe("recorded policies", () => {
    for (const file of ["felix-policies.json", "felix-cluster-network-policies.json"])
      test(file, () => {
        const recorded = JSON.parse(readFileSync(join(golden, "kubernetes/conversion", file), "utf8")) as {
          cases: { kubernetes: Resource; onCreate?: { type: string; body: PolicyMessage }[] }[];
        };
        let compared = 0;
        for (const { kubernetes, onCreate = [] } of recorded.cases)
          for (const { type, body } of onCreate)
            if (type === "ActivePolicyUpdate") {
              const kind = body["1.id"]["4.kind"] as KindName;
              compare(
                convertPolicy({ ...kubernetes, kind }, () => {}),
                body,
              );
              compared++;
            }
        expect(compared).toBeGreaterThan(10);
      });

    test("felix/messages", () => {
      let compared = 0;
      for (const state of readdirSync(join(golden, "felix/states"))) {
        const messages = join(golden, "felix/messages", `${state}.jsonl`);
        if (!existsSync(messages)) continue;
        const stored = JSON.parse(readFileSync(join(golden, "felix/states", state, "etcd.json"), "utf8")) as Record<
          string,
          unknown
        >;
        for (const line of readFileSync(messages, "utf8").trim().split("\n")) {
          const { type, body } = JSON.parse(line) as { type: string; body: PolicyMessage };
          if (type !== "ActivePolicyUpdate") continue;
          const { "2.name": name, "3.namespace": namespace, "4.kind": kind } = body["1.id"];
          const path = `/calico/resources/v3/projectcalico.org/${kindOf(kind as KindName).plural}/${namespace === undefined ? "" : `${namespace}/`}${name}`;
          const value = stored[path];
          if (value === undefined) continue;
          compare(
            convertPolicy((typeof value === "string" ? JSON.parse(value) : value) as Resource, () => {}),
            body,
          );
          compared++;
        }
      }
      expect(compared).toBeGreaterThan(20);
    });
  });

function compare(policy: Policy | undefined, message: PolicyMessage): void {
  const want = message["2.policy"];
  const name = message["1.id"]["2.name"];
  expect({ name, tier: policy?.tier }).toEqual({ name, tier: want["8.tier"] });
  if (want["6.original_selector"] !== undefined) expect(policy?.selector.canonical).toBe(want["6.original_selector"]);
  compareRules(name, policy?.inboundRules ?? [], want["1.inbound_rules"] ?? []);
  compareRules(name, policy?.outboundRules ?? [], want["2.outbound_rules"] ?? []);
}

function compareRules(policy: string, rules: readonly Rule[], messages: readonly RuleMessage[]): void {
  expect({ policy, count: rules.length }).toEqual({ policy, count: messages.length });
  for (const [i, rule] of rules.entries()) {
    const message = messages[i]!;
    expect({ policy, i, ...shown(rule) }).toEqual({
      policy,
      i,
      action: message["1.action"],
      srcSelector: message["114.original_src_selector"],
      dstSelector: message["115.original_dst_selector"],
      srcNamespaces: message["116.original_src_namespace_selector"],
      dstNamespaces: message["117.original_dst_namespace_selector"],
      srcNets: message["4.src_net"],
      dstNets: message["6.dst_net"],
    } as never);
    for (const [side, field] of [
      [rule.source, "10.src_ip_set_ids"],
      [rule.destination, "12.dst_ip_set_ids"],
    ] as const) {
      const ids = ((message[field] ?? []) as string[]).filter((id) => id.startsWith("s:"));
      if (side.notSelector !== undefined || ids.length === 0) continue;
      expect({ policy, i, field, ids }).toEqual({
        policy,
        i,
        field,
        ids: [side.selector?.id ?? "none"],
      });
    }
  }
}

const shown = ({ action, source, destination }: Rule): object => ({
  action,
  srcSelector: source.original?.selector,
  dstSelector: destination.original?.selector,
  srcNamespaces: source.original?.namespaceSelector,
  dstNamespaces: destination.original?.namespaceSelector,
  srcNets: source.nets,
  dstNets: destination.nets,
});
