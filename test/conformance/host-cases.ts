// Policy of hosts: node1 and node2 have host endpoints, node3 has none. Whatever a case closes, failsafe ports stay open,
// and with them BGP and the way to the datastore; ICMPv6 stays open by a rule of each policy, as without neighbour
// discovery no IPv6 packet leaves a host.
import { API_VERSION, type Resource } from "../../src/model/index.ts";
import { type AddressOf, type Case, globalPolicy, type Rule } from "./cases.ts";

const GUARDED = ["node1", "node2"] as const;
const SELECTOR = "role == 'gate'";
const ALLOW: Rule = { action: "Allow" };
const NEIGHBOURS: Rule = { action: "Allow", protocol: "ICMPv6" };
const ALLOW_PROFILE = "projectcalico-default-allow";

interface Rules {
  readonly ingress?: readonly Rule[];
  readonly egress?: readonly Rule[];
}
const letting = (match: Rule): readonly Rule[] => [{ action: "Allow", ...match }];
const allBut = (match: Rule): readonly Rule[] => [{ action: "Deny", ...match }, ALLOW];

/** Both directions; the one that is not given is open. */
function guard(name: string, { ingress = [ALLOW], egress = [ALLOW] }: Rules, more: object = {}): Resource {
  const types = ["Ingress", "Egress"];
  const rules = { ingress: [NEIGHBOURS, ...ingress], egress: [NEIGHBOURS, ...egress] };
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
  const named = GUARDED.map((node) => endpoint(node, { interfaceName: "eth0" }));
  const everywhere = GUARDED.map((node) => endpoint(node, { interfaceName: "*", profiles: [ALLOW_PROFILE] }));
  /** A rule names addresses of one family only. */
  const onlyHost = (side: "source" | "destination", node: string): readonly Rule[] =>
    [`${addressOf(node, 4)}/32`, `${addressOf(node, 6)}/128`].flatMap((net) => letting({ [side]: { nets: [net] } }));
  // Policies first: an endpoint without any is closed.
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
      GUARDED.map((node) => endpoint(node, { interfaceName: "eth0", profiles: [ALLOW_PROFILE] })),
    ),
    { ...one("nothing comes in", [guard("p", { ingress: [] })]), everyFamily: true },
    { ...one("nothing goes out", [guard("p", { egress: [] })]), everyFamily: true },
    one("nothing comes in or goes out", [guard("p", { ingress: [], egress: [] })]),
    one("in from pods b", [guard("p", { ingress: letting({ source: { selector: "pod == 'b'" } }) })]),
    one("in from namespace y", [guard("p", { ingress: letting({ source: { namespaceSelector: "ns == 'y'" } }) })]),
    one("in from other host endpoints", [guard("p", { ingress: letting({ source: { selector: SELECTOR } }) })]),
    one("in from a host by its addresses", [guard("p", { ingress: onlyHost("source", "node3") })]),
    one("in by TCP 80", [guard("p", { ingress: letting({ protocol: "TCP", destination: { ports: [80] } }) })]),
    one("in but for UDP 81", [guard("p", { ingress: allBut({ protocol: "UDP", destination: { ports: [81] } }) })]),
    one("out to pods a", [guard("p", { egress: letting({ destination: { selector: "pod == 'a'" } }) })]),
    one("out to all but host endpoints", [guard("p", { egress: allBut({ destination: { selector: SELECTOR } }) })]),
    one("out to a host by its addresses", [guard("p", { egress: onlyHost("destination", "node3") })]),
    one("out by SCTP and TCP 81", [
      guard("p", {
        egress: [...letting({ protocol: "SCTP" }), ...letting({ protocol: "TCP", destination: { ports: [81] } })],
      }),
    ]),
    one("one host's own policy before that of all", [
      globalPolicy("own", {
        selector: "node == 'node1'",
        order: 1,
        types: ["Ingress"],
        ingress: letting({ protocol: "TCP" }),
      }),
      guard("p", { ingress: [] }),
    ]),
    one("forwarded: none comes in from pods b", [
      guard("p", { ingress: allBut({ source: { selector: "pod == 'b'" } }) }, { applyOnForward: true }),
    ]),
    one("forwarded: only TCP goes out", [
      guard("p", { egress: letting({ protocol: "TCP" }) }, { applyOnForward: true }),
    ]),
    one("forwarded: nothing comes in", [guard("p", { ingress: [] }, { applyOnForward: true })]),
    one("before DNAT: none from pods c", [
      preDnat([{ action: "Deny", source: { selector: "pod == 'c'" } }]),
      guard("p", {}),
    ]),
    one("before DNAT: what it allows is not asked again", [
      preDnat(letting({ protocol: "TCP", destination: { ports: [80] } })),
      guard("p", { ingress: [] }),
    ]),
    one("all interfaces: a profile that allows everything", [], everywhere),
    one("all interfaces: nothing comes in", [guard("p", { ingress: [] })], everywhere),
    one("all interfaces: out by TCP", [guard("p", { egress: letting({ protocol: "TCP" }) })], everywhere),
    one(
      "all interfaces, forwarded: none from pods b",
      [guard("p", { ingress: allBut({ source: { selector: "pod == 'b'" } }) }, { applyOnForward: true })],
      everywhere,
    ),
    one(
      "all interfaces, before DNAT: none from pods c",
      [preDnat([{ action: "Deny", source: { selector: "pod == 'c'" } }])],
      everywhere,
    ),
    {
      name: "hosts: a policy is edited, then the endpoints go",
      withHosts: true,
      steps: [
        { apply: [guard("p", { ingress: [] }), ...named] },
        { apply: [guard("p", { egress: letting({ protocol: "TCP" }) })] },
        { remove: named },
      ],
    },
  ];
}
