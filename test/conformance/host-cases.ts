// Defines cases with host endpoints on node1 and node2; node3 has none. Failsafe ports are always allowed, so BGP and the
// datastore keep working. Each policy allows ICMPv6, because without neighbour discovery a host cannot send IPv6 packets.
import { API_VERSION, type Resource } from "../../src/model/index.ts";
import { type AddressOf, type Case, globalPolicy, type Rule } from "./cases.ts";

const PROTECTED = ["node1", "node2"] as const;
const SELECTOR = "role == 'gate'";
const ALLOW: Rule = { action: "Allow" };
const NEIGHBOUR_DISCOVERY: Rule = { action: "Allow", protocol: "ICMPv6" };
const ALLOW_PROFILE = "projectcalico-default-allow";

interface Rules {
  readonly ingress?: readonly Rule[];
  readonly egress?: readonly Rule[];
}
const allowOnly = (match: Rule): readonly Rule[] => [{ action: "Allow", ...match }];
const allowExcept = (match: Rule): readonly Rule[] => [{ action: "Deny", ...match }, ALLOW];

/** Applies to both directions; a direction without rules is allowed. */
function hostPolicy(name: string, { ingress = [ALLOW], egress = [ALLOW] }: Rules, more: object = {}): Resource {
  const types = ["Ingress", "Egress"];
  const rules = { ingress: [NEIGHBOUR_DISCOVERY, ...ingress], egress: [NEIGHBOUR_DISCOVERY, ...egress] };
  return globalPolicy(name, { selector: SELECTOR, order: 100, types, ...rules, ...more });
}

const preDnat = (ingress: readonly Rule[]): Resource =>
  globalPolicy("early", {
    selector: SELECTOR,
    order: 10,
    preDNAT: true,
    applyOnForward: true,
    types: ["Ingress"],
    ingress,
  });

export function hostCases(addressOf: AddressOf): readonly Case[] {
  const endpoint = (node: string, spec: object): Resource => ({
    apiVersion: API_VERSION,
    kind: "HostEndpoint",
    metadata: { name: `${node}-gate`, labels: { role: "gate", node } },
    spec: { node, expectedIPs: [addressOf(node, 4), addressOf(node, 6)], ...spec },
  });
  const named = PROTECTED.map((node) => endpoint(node, { interfaceName: "eth0" }));
  const everywhere = PROTECTED.map((node) => endpoint(node, { interfaceName: "*", profiles: [ALLOW_PROFILE] }));
  /** A rule can contain addresses of one family only. */
  const onlyHost = (side: "source" | "destination", node: string): readonly Rule[] =>
    [`${addressOf(node, 4)}/32`, `${addressOf(node, 6)}/128`].flatMap((net) => allowOnly({ [side]: { nets: [net] } }));
  // Policies first, because a host endpoint without policies denies all traffic.
  const one = (name: string, policies: readonly Resource[], endpoints: readonly Resource[] = named): Case => ({
    name: `hosts: ${name}`,
    withHosts: true,
    steps: [{ apply: [...policies, ...endpoints] }],
  });
  return [
    { name: "hosts: no host endpoint", withHosts: true, everyFamily: true, steps: [{}] },
    one(
      "a profile that allows everything",
      [],
      PROTECTED.map((node) => endpoint(node, { interfaceName: "eth0", profiles: [ALLOW_PROFILE] })),
    ),
    { ...one("nothing comes in", [hostPolicy("p", { ingress: [] })]), everyFamily: true },
    { ...one("nothing goes out", [hostPolicy("p", { egress: [] })]), everyFamily: true },
    one("nothing comes in or goes out", [hostPolicy("p", { ingress: [], egress: [] })]),
    one("in from pods b", [hostPolicy("p", { ingress: allowOnly({ source: { selector: "pod == 'b'" } }) })]),
    one("in from namespace y", [
      hostPolicy("p", { ingress: allowOnly({ source: { namespaceSelector: "ns == 'y'" } }) }),
    ]),
    one("in from other host endpoints", [hostPolicy("p", { ingress: allowOnly({ source: { selector: SELECTOR } }) })]),
    one("in from a host by its addresses", [hostPolicy("p", { ingress: onlyHost("source", "node3") })]),
    one("in by TCP 80", [hostPolicy("p", { ingress: allowOnly({ protocol: "TCP", destination: { ports: [80] } }) })]),
    one("in except UDP 81", [
      hostPolicy("p", { ingress: allowExcept({ protocol: "UDP", destination: { ports: [81] } }) }),
    ]),
    one("out to pods a", [hostPolicy("p", { egress: allowOnly({ destination: { selector: "pod == 'a'" } }) })]),
    one("out to all except host endpoints", [
      hostPolicy("p", { egress: allowExcept({ destination: { selector: SELECTOR } }) }),
    ]),
    one("out to a host by its addresses", [hostPolicy("p", { egress: onlyHost("destination", "node3") })]),
    one("out by SCTP and TCP 81", [
      hostPolicy("p", {
        egress: [...allowOnly({ protocol: "SCTP" }), ...allowOnly({ protocol: "TCP", destination: { ports: [81] } })],
      }),
    ]),
    one("one host's own policy before that of all", [
      globalPolicy("own", {
        selector: "node == 'node1'",
        order: 1,
        types: ["Ingress"],
        ingress: allowOnly({ protocol: "TCP" }),
      }),
      hostPolicy("p", { ingress: [] }),
    ]),
    one("forwarded: none comes in from pods b", [
      hostPolicy("p", { ingress: allowExcept({ source: { selector: "pod == 'b'" } }) }, { applyOnForward: true }),
    ]),
    one("forwarded: only TCP goes out", [
      hostPolicy("p", { egress: allowOnly({ protocol: "TCP" }) }, { applyOnForward: true }),
    ]),
    one("forwarded: nothing comes in", [hostPolicy("p", { ingress: [] }, { applyOnForward: true })]),
    one("before DNAT: none from pods c", [
      preDnat([{ action: "Deny", source: { selector: "pod == 'c'" } }]),
      hostPolicy("p", {}),
    ]),
    one("before DNAT: allowed packets skip other policies", [
      preDnat(allowOnly({ protocol: "TCP", destination: { ports: [80] } })),
      hostPolicy("p", { ingress: [] }),
    ]),
    one("all interfaces: a profile that allows everything", [], everywhere),
    one("all interfaces: nothing comes in", [hostPolicy("p", { ingress: [] })], everywhere),
    one("all interfaces: out by TCP", [hostPolicy("p", { egress: allowOnly({ protocol: "TCP" }) })], everywhere),
    one(
      "all interfaces, forwarded: none from pods b",
      [hostPolicy("p", { ingress: allowExcept({ source: { selector: "pod == 'b'" } }) }, { applyOnForward: true })],
      everywhere,
    ),
    one(
      "all interfaces, before DNAT: none from pods c",
      [preDnat([{ action: "Deny", source: { selector: "pod == 'c'" } }])],
      everywhere,
    ),
    {
      name: "hosts: a policy is edited, then the endpoints are deleted",
      withHosts: true,
      steps: [
        { apply: [hostPolicy("p", { ingress: [] }), ...named] },
        { apply: [hostPolicy("p", { egress: allowOnly({ protocol: "TCP" }) })] },
        { remove: named },
      ],
    },
  ];
}
