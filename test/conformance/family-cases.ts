// Defines cases in which the address family matters. They measure IPv6 with all protocols and ports, like IPv4.
import { API_VERSION, type Resource } from "../../src/model/index.ts";
import {
  type AddressOf,
  allow,
  type Case,
  DIRECTIONS,
  eachWay,
  kubernetesPolicy,
  networkPolicy,
  one,
  PEER,
  PROTOCOLS,
  type Rule,
  TYPE,
} from "./cases.ts";

const POOL = { 4: "10.65.0.0/16", 6: "fd65::/64" } as const;

export function familyCases(addressOf: AddressOf): readonly Case[] {
  return [...defaults(), ...ports(), ...blocks(addressOf), ...sets(addressOf), ...kubernetes(addressOf)].map(
    (each) => ({ ...each, name: `both families: ${each.name}`, everyFamily: true }),
  );
}

function defaults(): Case[] {
  return [
    one("no policy at all"),
    ...[["Ingress"], ["Egress"], ["Ingress", "Egress"]].map((types) =>
      one(`default deny ${types.join(" and ")} in x`, networkPolicy("deny", "x", { selector: "all()", types })),
    ),
    ...eachWay(() => [4, 6].map((ipVersion) => [`only IPv${ipVersion}`, [{ action: "Allow", ipVersion }]])),
  ];
}

function ports(): Case[] {
  const matches: [string, Rule][] = PROTOCOLS.flatMap((protocol): [string, Rule][] => [
    [`${protocol} 81`, { protocol, destination: { ports: [81] } }],
    [`${protocol} by name`, { protocol, destination: { ports: [`serve-80-${protocol.toLowerCase()}`] } }],
    [`${protocol} not by name`, { protocol, destination: { notPorts: [`serve-80-${protocol.toLowerCase()}`] } }],
  ]);
  return eachWay(() => matches.map(([what, match]) => [what, [{ action: "Allow", ...match }]]));
}

function blocks(addressOf: AddressOf): Case[] {
  const yb = { 4: `${addressOf("y/b")}/32`, 6: `${addressOf("y/b", 6)}/128` };
  const zc = { 4: `${addressOf("z/c")}/32`, 6: `${addressOf("z/c", 6)}/128` };
  // A rule can contain addresses of one family only.
  const peers: [string, Rule[]][] = [
    ["one IPv6 address", [{ nets: [yb[6]] }]],
    ["all of IPv6", [{ nets: ["::/0"] }]],
    ["all but one IPv6 address", [{ notNets: [yb[6]] }]],
    ["an IPv6 block with holes", [{ nets: [POOL[6]], notNets: [yb[6], zc[6]] }]],
    ["an IPv6 block that is elsewhere", [{ nets: ["2001:db8::/32"] }]],
    ["an IPv6 block and a selector", [{ nets: [POOL[6]], selector: "pod == 'b'" }]],
    ["another address of each family", [{ nets: [yb[4]] }, { nets: [zc[6]] }]],
    [
      "a block of each family with a different exception",
      [
        { nets: [POOL[4]], notNets: [yb[4]] },
        { nets: [POOL[6]], notNets: [zc[6]] },
      ],
    ],
  ];
  return eachWay((direction) => peers.map(([what, list]) => [what, list.map((peer) => allow(direction, peer))]));
}

function sets(addressOf: AddressOf): Case[] {
  const friends: Resource = {
    apiVersion: API_VERSION,
    kind: "GlobalNetworkSet",
    metadata: { name: "friends", labels: { role: "friend" } },
    spec: { nets: [`${addressOf("y/a")}/32`, `${addressOf("z/b", 6)}/128`] },
  };
  const peer = { selector: "role == 'friend'", namespaceSelector: "global()" };
  return DIRECTIONS.flatMap((direction) => [
    one(
      `${direction}: a set with a different member of each family`,
      friends,
      networkPolicy("p", "x", { types: [TYPE[direction]], [direction]: [allow(direction, peer)] }),
    ),
    one(
      `${direction}: all except such a set`,
      friends,
      networkPolicy("p", "x", {
        types: [TYPE[direction]],
        [direction]: [{ action: "Deny", [PEER[direction]]: peer }, { action: "Allow" }],
      }),
    ),
  ]);
}

function kubernetes(addressOf: AddressOf): Case[] {
  const yb = { 4: `${addressOf("y/b")}/32`, 6: `${addressOf("y/b", 6)}/128` };
  const policy = (name: string, spec: object): Case =>
    one(`Kubernetes: ${name}`, kubernetesPolicy("p", "x", { podSelector: {}, ...spec }));
  const six = { ipBlock: { cidr: POOL[6], except: [yb[6]] } };
  const four = { ipBlock: { cidr: POOL[4], except: [yb[4]] } };
  return [
    policy("IPv6 ipBlock", { ingress: [{ from: [{ ipBlock: { cidr: yb[6] } }] }] }),
    policy("IPv6 ipBlock with except", { ingress: [{ from: [six] }] }),
    policy("egress IPv6 ipBlock with except", { policyTypes: ["Egress"], egress: [{ to: [six] }] }),
    policy("an ipBlock of each family, on one port", {
      ingress: [{ from: [four, six], ports: [{ port: 81, protocol: "UDP" }] }],
    }),
  ];
}
