import { describe, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Resource } from "../resource.ts";
import { convertKubernetesPolicySpec, networkPolicyFromKubernetes } from "./network-policy.ts";
import { type PortMatch, simplifyPorts } from "./port-list.ts";

const problems: string[] = [];
const cidr = (i: number): string => `10.${i >> 8}.${i & 255}.0/24`;
const convert = (spec: unknown) => convertKubernetesPolicySpec(spec, (problem) => problems.push(problem));

describe("DM-071 a Kubernetes NetworkPolicy", () => {
  test("allows by labels: each operator, matchLabels sorted", () =>
    expect(
      convert({
        podSelector: {
          matchLabels: { z: "1", a: "x" },
          matchExpressions: [
            { key: "t", operator: "In", values: ["b", "a"] },
            { key: "e", operator: "NotIn", values: ["dev"] },
            { key: "h", operator: "Exists" },
            { key: "n", operator: "DoesNotExist" },
          ],
        },
      }),
    ).toEqual({
      tier: "default",
      order: 1000,
      selector:
        "projectcalico.org/orchestrator == 'k8s' && a == 'x' && z == '1' && t in { 'b', 'a' } && e not in { 'dev' } && has(h) && ! has(n)",
      types: ["Ingress"],
    }));

  test("distinguishes no peers, empty peers and empty selectors; an empty peer matches nothing", () =>
    expect(
      convert({
        podSelector: {},
        ingress: [{}, { from: [{ podSelector: {} }] }, { from: [{ namespaceSelector: {} }] }, { from: [{}] }],
      }).ingress,
    ).toEqual([
      { action: "Allow" },
      { action: "Allow", source: { selector: "projectcalico.org/orchestrator == 'k8s'" } },
      {
        action: "Allow",
        source: { selector: "projectcalico.org/orchestrator == 'k8s'", namespaceSelector: "all()" },
      },
    ]));

  test("with more than a thousand peers has one rule for all prefixes and one for each other peer", () => {
    const blocks = (count: number) => Array.from({ length: count }, (_, i) => ({ ipBlock: { cidr: cidr(i) } }));
    const ingress = (from: readonly object[]) =>
      convert({ podSelector: {}, ingress: [{ from, ports: [{ port: 80 }] }] }).ingress ?? [];
    expect(ingress(blocks(1000))).toHaveLength(1000);
    const many = ingress([
      ...blocks(1000),
      { podSelector: {} },
      { ipBlock: { cidr: "10.0.0.0/8", except: ["10.1.0.0/16"] } },
      { ipBlock: { cidr: "fd00::/8" } },
    ]);
    const [merged, pods, block] = many;
    expect(many).toHaveLength(3);
    expect(merged?.source?.nets).toHaveLength(1001);
    expect(merged?.source?.nets).toContain("fd00::/8" as never);
    expect(pods?.source).toEqual({ selector: "projectcalico.org/orchestrator == 'k8s'" });
    expect(block?.source).toEqual({ nets: ["10.0.0.0/8"], notNets: ["10.1.0.0/16"] } as never);
    for (const { destination, protocol } of many) expect([destination, protocol]).toEqual([{ ports: [80] }, "TCP"]);
  });

  test("loses the rules beyond the limits, which is reported once", () => {
    const limited = (rules: readonly object[]) => {
      problems.length = 0;
      return convert({ podSelector: {}, ingress: rules }).ingress?.length ?? 0;
    };
    const ports = (count: number) => Array.from({ length: count }, (_, i) => ({ port: 1 + 2 * i }));
    const pods = (count: number) =>
      Array.from({ length: count }, (_, i) => ({ podSelector: { matchLabels: { app: `a${i}` } } }));
    const allProtocols = ["TCP", "UDP", "SCTP"].map((protocol) => ({ protocol }));
    for (const [rules, converted, reports] of [
      [[{ from: pods(1000), ports: ports(100) }], 1000, 0],
      [[{ from: pods(1000), ports: ports(101) }], 0, 1],
      [[...Array(2)].map(() => ({ from: pods(10), ports: ports(5001) })), 10, 1],
      [[{ ports: ports(30_000) }], 1, 0],
      [[{ from: pods(5000) }], 5000, 0],
      [[{ from: pods(5001) }, {}], 0, 1],
      [[...Array(6)].map(() => ({ from: pods(900) })), 4500, 1],
      [[...Array(6000)].map(() => ({ ports: ports(1) })), 5000, 1],
      [[{ from: pods(1666), ports: allProtocols }], 4998, 0],
      [[{ from: pods(1667), ports: allProtocols }], 0, 1],
    ] as const) {
      expect([limited(rules), problems.length]).toEqual([converted, reports]);
    }
    expect(problems[0]).toContain("spec.ingress[0].from: want at most 5000 rules and 100000 ports times peers");
  });

  test("cannot inject selector syntax with labels, values and ports", () => {
    const from = (podSelector: object) => convert({ podSelector: {}, ingress: [{ from: [{ podSelector }] }] }).ingress;
    const evil = "x' || all() || a == 'y";
    const spelled = `projectcalico.org/orchestrator == 'k8s' && app == "${evil}"`;
    expect(from({ matchLabels: { app: evil } })).toEqual([{ action: "Allow", source: { selector: spelled } }]);
    expect(from({ matchLabels: { "a) || has(b": "x" } })).toBeUndefined();
    expect(from({ matchExpressions: [{ key: "a", operator: "In", values: [`'"`] }] })).toBeUndefined();
    expect(from({ matchExpressions: [{ key: "a) || all(", operator: "Exists" }] })).toBeUndefined();
    const ports = (port: object) => convert({ podSelector: {}, ingress: [{ ports: [port] }] }).ingress;
    expect(ports({ endPort: 90 })).toBeUndefined();
    expect(ports({ port: "http", endPort: 90 })).toBeUndefined();
  });

  test("is split by protocol, then by peer; egress rules have both in the destination", () =>
    expect(
      convert({
        podSelector: {},
        policyTypes: ["Egress"],
        egress: [
          {
            to: [
              { ipBlock: { cidr: "10.0.0.0/8", except: ["10.1.0.0/16"] } },
              { podSelector: { matchLabels: { a: "b" } } },
            ],
            ports: [{ protocol: "UDP", port: 53 }, { port: 53 }],
          },
        ],
      }).egress,
    ).toEqual([
      {
        action: "Allow",
        protocol: "TCP",
        destination: { nets: ["10.0.0.0/8"], notNets: ["10.1.0.0/16"], ports: [53] } as never,
      },
      {
        action: "Allow",
        protocol: "TCP",
        destination: { selector: "projectcalico.org/orchestrator == 'k8s' && a == 'b'", ports: [53] },
      },
      {
        action: "Allow",
        protocol: "UDP",
        destination: { nets: ["10.0.0.0/8"], notNets: ["10.1.0.0/16"], ports: [53] } as never,
      },
      {
        action: "Allow",
        protocol: "UDP",
        destination: { selector: "projectcalico.org/orchestrator == 'k8s' && a == 'b'", ports: [53] },
      },
    ]));

  test("has the given types, sorted, or those of its rules", () => {
    expect(convert({ policyTypes: ["Egress", "Ingress"] }).types).toEqual(["Ingress", "Egress"]);
    expect(convert({}).types).toEqual(["Ingress"]);
    expect(convert({ egress: [{}] }).types).toEqual(["Ingress", "Egress"]);
  });

  test("a rule with an invalid CIDR is ignored and reported", () => {
    problems.length = 0;
    const spec = convert({ ingress: [{ from: [{ ipBlock: { cidr: "10.0.0.0/99" } }] }, { ports: [{ port: 80 }] }] });
    expect(spec.ingress).toEqual([{ action: "Allow", protocol: "TCP", destination: { ports: [80] } }]);
    expect(problems).toEqual(['spec.ingress[0].from[0].ipBlock.cidr: want a CIDR, not "10.0.0.0/99": rule ignored']);
  });
});

test("DM-072 endPort makes a range", () =>
  expect(convert({ ingress: [{ ports: [{ protocol: "TCP", port: 8000, endPort: 8080 }] }] }).ingress).toEqual([
    { action: "Allow", protocol: "TCP", destination: { ports: ["8000:8080"] } },
  ]));

test("DM-073 ports are merged: names first, then joined ranges; with at most one number they are unchanged", () => {
  const simplify = (ports: readonly (number | string)[]) =>
    simplifyPorts(
      ports.map((port): PortMatch => {
        if (typeof port === "number") return { first: port, last: port };
        const [first, last] = port.split(":").map(Number);
        return last === undefined ? { name: port } : { first: first!, last };
      }),
    );
  expect(simplify(["81:90", 4, 2, "foo", "80:81", 3, 1, 9090, "http"])).toEqual(["foo", "http", "1:4", "80:90", 9090]);
  expect(simplify([81, "web", "dns"])).toEqual([81, "web", "dns"]);
  expect(simplify(["81:82", "web"])).toEqual(["web", "81:82"]);
  expect(simplify(["web", "dns"])).toEqual(["web", "dns"]);
});

const recording = join(import.meta.dir, "../../../../shared/golden/kubernetes/controllers/networkpolicies.json");
if (!existsSync(recording)) console.log("NetworkPolicy: no recordings next to the checkout, not compared");
else {
  const { cases } = JSON.parse(readFileSync(recording, "utf8")) as {
    cases: { name: string; kubernetes: Resource; stored?: Record<string, Resource> }[];
  };
  describe("recorded NetworkPolicies", () => {
    for (const { name, kubernetes, stored } of cases) {
      const [want] = Object.values(stored ?? {});
      if (want === undefined) continue;
      test(name, () => {
        const made = networkPolicyFromKubernetes(kubernetes, () => {});
        expect({ name: made.metadata.name, spec: made.spec }).toEqual({
          name: want.metadata.name,
          spec: want.spec as never,
        });
      });
    }
  });
}
