import { describe, expect, test } from "bun:test";
import { policyProcessor } from "../processors/policies.ts";
import { API_VERSION, type Resource } from "../resource.ts";
import { ParsedSelector } from "../selector/selector.ts";
import { convertClusterNetworkPolicy } from "./cluster-network-policy.ts";

const policy = (spec: object): Resource => ({
  apiVersion: API_VERSION,
  kind: "KubernetesClusterNetworkPolicy",
  metadata: { name: "p" },
  spec: { tier: "Admin", priority: 10, subject: { namespaces: {} }, ...spec },
});
const convert = (spec: object, problems: string[] = []) =>
  convertClusterNetworkPolicy(policy(spec), (p) => problems.push(p));
const orchestrator = "projectcalico.org/orchestrator == 'k8s'";

describe("DM-074 a ClusterNetworkPolicy", () => {
  test("is in the tier before or after all others, ordered by priority", () => {
    expect(convert({})).toEqual({
      tier: "kube-admin",
      order: 10,
      selector: orchestrator,
      namespaceSelector: "all()",
      types: [],
    });
    expect(convert({ tier: "Baseline" })?.tier).toBe("kube-baseline");
  });

  test("converts actions, peers, protocols, ports and names", () =>
    expect(
      convert({
        subject: {
          pods: { namespaceSelector: { matchLabels: { t: "a" } }, podSelector: { matchLabels: { app: "web" } } },
        },
        ingress: [
          {
            name: "in",
            action: "Accept",
            from: [{ namespaces: { matchLabels: { t: "b" } } }],
            protocols: [
              { udp: { destinationPort: { number: 53 } } },
              { tcp: { destinationPort: { range: { start: 1, end: 3 } } } },
              { tcp: { destinationPort: { number: 4 } } },
              { destinationNamedPort: "web" },
              { sctp: {} },
            ],
          },
        ],
        egress: [{ action: "Pass", to: [{ networks: ["10.0.0.1/8"] }, { pods: { podSelector: {} } }] }],
      }),
    ).toEqual({
      tier: "kube-admin",
      order: 10,
      selector: `${orchestrator} && app == 'web'`,
      namespaceSelector: "t == 'a'",
      ingress: [
        { ports: ["web"] },
        { protocol: "SCTP" },
        { protocol: "TCP", ports: ["1:4"] },
        { protocol: "UDP", ports: [53] },
      ].map(({ protocol, ports }) => ({
        action: "Allow",
        protocol,
        source: { namespaceSelector: "t == 'b'" },
        destination: ports === undefined ? undefined : { ports },
        metadata: { annotations: { name: "in" } },
      })),
      egress: [
        { action: "Pass", destination: { nets: ["10.0.0.0/8"] as never } },
        { action: "Pass", destination: { selector: orchestrator, namespaceSelector: "all()" } },
      ],
      types: ["Ingress", "Egress"],
    } as never));

  const bad = [
    { from: [{ networks: ["10.0.0.0/8"] }] }, // not possible for ingress
    { from: [{}] },
    { from: [] },
    { from: [{ namespaces: { matchExpressions: [{ key: "a", operator: "Near" }] } }] },
    { from: [{ namespaces: {} }], protocols: [{ gre: {} }] },
    { from: [{ namespaces: {} }], protocols: [{ tcp: { destinationPort: { number: 0 } } }] },
  ];
  for (const rule of bad)
    test(`${JSON.stringify(rule)} allows no traffic`, () => {
      const problems: string[] = [];
      expect(convert({ ingress: [{ action: "Accept", ...rule }] }, problems)?.ingress).toBeUndefined();
      expect(convert({ ingress: [{ action: "Deny", name: "d", ...rule }] }, problems)?.ingress).toEqual([
        { action: "Deny" },
      ]);
      expect(convert({ ingress: [{ action: "Pass", ...rule }] }, problems)?.ingress).toEqual([{ action: "Deny" }]);
      expect(problems).toHaveLength(3);
    });

  test("with an unknown tier or without a subject is deleted, without an exception", () => {
    const key = { type: "resource", kind: "KubernetesClusterNetworkPolicy", name: "p" } as const;
    for (const spec of [{ tier: "Other" }, { subject: {} }]) {
      const problems: string[] = [];
      expect(policyProcessor.process({ key, value: policy(spec) }, (p) => problems.push(p))).toEqual([
        { key: { type: "policy", kind: "KubernetesClusterNetworkPolicy", namespace: "", name: "p" }, value: undefined },
      ]);
      expect(problems).toHaveLength(1);
    }
  });
});

test("DM-075 policies that older versions converted from AdminNetworkPolicies keep their tier and name", () => {
  const key = { type: "resource", kind: "GlobalNetworkPolicy", name: "kanp.adminnetworkpolicy.p" } as const;
  const value: Resource = {
    apiVersion: API_VERSION,
    kind: "GlobalNetworkPolicy",
    metadata: { name: "kanp.adminnetworkpolicy.p" },
    spec: { tier: "adminnetworkpolicy", order: 5 },
  };
  expect(policyProcessor.process({ key, value }, () => {})).toMatchObject([
    { key: { name: "kanp.adminnetworkpolicy.p" }, value: { tier: "adminnetworkpolicy", order: 5 } },
  ]);
});

test("DM-105 a Kubernetes NetworkPolicy keeps its name and has its own kind", () => {
  const key = { type: "resource", kind: "KubernetesNetworkPolicy", namespace: "ns1", name: "web" } as const;
  const value: Resource = {
    apiVersion: API_VERSION,
    kind: key.kind,
    metadata: { name: "web", namespace: "ns1" },
    spec: { podSelector: {} },
  };
  expect(policyProcessor.process({ key, value }, () => {})).toMatchObject([
    {
      key: { type: "policy", kind: "KubernetesNetworkPolicy", namespace: "ns1", name: "web" },
      value: {
        tier: "default",
        order: 1000,
        selector: ParsedSelector.parse(
          '(projectcalico.org/orchestrator == "k8s" && projectcalico.org/namespace == "ns1")',
        ),
      },
    },
  ]);
});
