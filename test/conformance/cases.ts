// Generates policy cases for three namespaces with three pods each. A case is a set of resources and label changes, applied to
// the cluster without policies; the evaluator computes the expected results.
import { API_VERSION, type Resource } from "../../src/model/index.ts";

export const NAMESPACES = ["x", "y", "z"] as const;
export const PODS = ["a", "b", "c"] as const;
export const PORTS = [80, 81] as const;
export const PROBE_PROTOCOLS = ["tcp", "udp", "sctp"] as const;
export const NAMED_PORTS = PROBE_PROTOCOLS.flatMap((protocol) =>
  PORTS.map((port) => ({ name: `serve-${port}-${protocol}`, protocol: protocol.toUpperCase(), port })),
);

/** Connections that are measured in addition to the default: between all pods, all of IPv4, and TCP on the first port of IPv6. */
export interface Scope {
  /** Also measures connections from and to hosts. */
  readonly withHosts?: boolean;
  /** Measures IPv6 with all protocols and ports, like IPv4. */
  readonly everyFamily?: boolean;
}
export interface Case extends Scope {
  readonly name: string;
  /** Applied in order; connections are measured after each step. */
  readonly steps: readonly Step[];
}
export interface Step {
  readonly apply?: readonly Resource[];
  readonly remove?: readonly Resource[];
  /** Additional labels by `namespace/pod`, or by `namespace`. */
  readonly podLabels?: Readonly<Record<string, Readonly<Record<string, string>>>>;
  readonly namespaceLabels?: Readonly<Record<string, Readonly<Record<string, string>>>>;
}

/** Address of a pod (`x/a`) or a host (`node1`); IPv4 by default. */
export type AddressOf = (name: string, version?: 4 | 6) => string;

export type Rule = Readonly<Record<string, unknown>>;
export type Direction = "ingress" | "egress";
export const DIRECTIONS: readonly Direction[] = ["ingress", "egress"];
export const TYPE = { ingress: "Ingress", egress: "Egress" } as const;
/** The field of a rule's peer: the sender on ingress, the receiver on egress. */
export const PEER = { ingress: "source", egress: "destination" } as const;
export const PROTOCOLS = ["TCP", "UDP", "SCTP"] as const;

const POD_SELECTORS = [
  "pod == 'a'",
  "pod != 'a'",
  "pod in {'a','b'}",
  "pod not in {'a','b'}",
  "has(pod)",
  "!has(tier)",
  "pod contains 'a'",
  "pod starts with 'a'",
  "pod ends with 'b'",
  "pod == 'a' || pod == 'c'",
  "has(pod) && !(pod == 'b')",
  "all()",
] as const;
const NAMESPACE_SELECTORS = [
  "ns == 'y'",
  "ns != 'y'",
  "ns in {'y','z'}",
  "ns not in {'y','z'}",
  "has(ns)",
  "!has(ns)",
  "all()",
  "projectcalico.org/name == 'z'",
] as const;

export function allCases(addressOf: AddressOf): Case[] {
  return [
    ...defaults(),
    ...selectors(),
    ...namespaceSelectors(),
    ...combinations(),
    ...ports(),
    ...blocks(addressOf),
    ...sets(addressOf),
    ...order(),
    ...tiers(),
    ...globals(),
    ...kubernetes(addressOf),
    ...changes(),
  ];
}

export const one = (name: string, ...apply: Resource[]): Case => ({ name, steps: [{ apply }] });

/** For both directions, a policy for namespace x with each of these lists of rules. */
export function eachWay(lists: (direction: Direction) => readonly (readonly [what: string, rules: Rule[]])[]): Case[] {
  return DIRECTIONS.flatMap((direction) =>
    lists(direction).map(([what, rules]) =>
      one(`${direction}: ${what}`, networkPolicy("p", "x", { types: [TYPE[direction]], [direction]: rules })),
    ),
  );
}

export function networkPolicy(name: string, namespace: string, spec: object): Resource {
  return { apiVersion: API_VERSION, kind: "NetworkPolicy", metadata: { name, namespace }, spec };
}
export function globalPolicy(name: string, spec: object): Resource {
  return { apiVersion: API_VERSION, kind: "GlobalNetworkPolicy", metadata: { name }, spec };
}
export const allow = (direction: Direction, peer: Rule, more: Rule = {}): Rule => ({
  action: "Allow",
  [PEER[direction]]: peer,
  ...more,
});

function defaults(): Case[] {
  return [
    one("no policy at all"),
    ...[["Ingress"], ["Egress"], ["Ingress", "Egress"]].map((types) =>
      one(`default deny ${types.join(" and ")} in x`, networkPolicy("deny", "x", { selector: "all()", types })),
    ),
    ...DIRECTIONS.map((direction) =>
      one(
        `allow all ${direction} in x`,
        networkPolicy("allow", "x", { types: [TYPE[direction]], [direction]: [{ action: "Allow" }] }),
      ),
    ),
    ...DIRECTIONS.map((direction) =>
      one(
        `explicit deny ${direction} in x`,
        networkPolicy("deny", "x", { types: [TYPE[direction]], [direction]: [{ action: "Deny" }] }),
      ),
    ),
    one(
      "log, then deny",
      networkPolicy("log", "x", { types: ["Ingress"], ingress: [{ action: "Log" }, { action: "Deny" }] }),
    ),
    one("deny everything everywhere", globalPolicy("deny", { types: ["Ingress", "Egress"] })),
  ];
}

/** Each operator, in the policy's selector and in the peer's selector, in both directions. */
function selectors(): Case[] {
  return DIRECTIONS.flatMap((direction) =>
    POD_SELECTORS.flatMap((selector) => [
      one(
        `${direction}: only pods with ${selector} are denied`,
        networkPolicy("p", "x", { selector, types: [TYPE[direction]] }),
      ),
      one(
        `${direction}: x/a talks to ${selector} of its namespace`,
        networkPolicy("p", "x", {
          selector: "pod == 'a'",
          types: [TYPE[direction]],
          [direction]: [allow(direction, { selector })],
        }),
      ),
      one(
        `${direction}: x/a talks to all but ${selector}`,
        networkPolicy("p", "x", {
          selector: "pod == 'a'",
          types: [TYPE[direction]],
          [direction]: [allow(direction, { notSelector: selector })],
        }),
      ),
    ]),
  );
}

function namespaceSelectors(): Case[] {
  return DIRECTIONS.flatMap((direction) =>
    NAMESPACE_SELECTORS.flatMap((namespaceSelector) => [
      one(
        `${direction}: x/a talks to namespaces ${namespaceSelector}`,
        networkPolicy("p", "x", {
          selector: "pod == 'a'",
          types: [TYPE[direction]],
          [direction]: [allow(direction, { namespaceSelector })],
        }),
      ),
      one(
        `${direction}: x/a talks to pods a of namespaces ${namespaceSelector}`,
        networkPolicy("p", "x", {
          selector: "pod == 'a'",
          types: [TYPE[direction]],
          [direction]: [allow(direction, { namespaceSelector, selector: "pod == 'a'" })],
        }),
      ),
    ]),
  );
}

function combinations(): Case[] {
  const rules = (direction: Direction): [string, Rule[]][] => [
    ["two allowed peers", [allow(direction, { selector: "pod == 'a'" }), allow(direction, { selector: "pod == 'b'" })]],
    [
      "deny one, allow the rest",
      [{ action: "Deny", [PEER[direction]]: { selector: "pod == 'b'" } }, { action: "Allow" }],
    ],
    ["allow all, deny too late", [{ action: "Allow" }, { action: "Deny" }]],
    ["a selector and its negation", [allow(direction, { selector: "has(pod)", notSelector: "pod == 'c'" })]],
    [
      "namespace, selector and negation",
      [allow(direction, { namespaceSelector: "ns != 'y'", selector: "pod != 'a'", notSelector: "pod == 'c'" })],
    ],
  ];
  return eachWay(rules).concat([
    one(
      "two policies are combined",
      networkPolicy("first", "x", {
        selector: "pod == 'a'",
        types: ["Ingress"],
        ingress: [allow("ingress", { selector: "pod == 'b'" })],
      }),
      networkPolicy("second", "x", {
        selector: "has(pod)",
        types: ["Ingress"],
        ingress: [allow("ingress", { namespaceSelector: "ns == 'y'" })],
      }),
    ),
    one(
      "egress of the source and ingress of the destination must both allow",
      networkPolicy("out", "x", { types: ["Egress"], egress: [allow("egress", { namespaceSelector: "ns == 'y'" })] }),
      networkPolicy("in", "y", {
        types: ["Ingress"],
        ingress: [allow("ingress", { namespaceSelector: "ns == 'x'", selector: "pod == 'a'" })],
      }),
    ),
  ]);
}

function ports(): Case[] {
  const matches: [string, Rule][] = PROTOCOLS.flatMap((protocol): [string, Rule][] => [
    [`${protocol}`, { protocol }],
    [`not ${protocol}`, { notProtocol: protocol }],
    [`${protocol} 80`, { protocol, destination: { ports: [80] } }],
    [`${protocol} 80 and 81`, { protocol, destination: { ports: [80, 81] } }],
    [`${protocol} 79:80`, { protocol, destination: { ports: ["79:80"] } }],
    [`${protocol} 81:90`, { protocol, destination: { ports: ["81:90"] } }],
    [`${protocol} not 80`, { protocol, destination: { notPorts: [80] } }],
    [`${protocol} by name`, { protocol, destination: { ports: [`serve-80-${protocol.toLowerCase()}`] } }],
    [`${protocol} not by name`, { protocol, destination: { notPorts: [`serve-80-${protocol.toLowerCase()}`] } }],
    [
      `${protocol} by name and number`,
      { protocol, destination: { ports: [`serve-80-${protocol.toLowerCase()}`, 81] } },
    ],
    [`${protocol} by an unknown name`, { protocol, destination: { ports: ["nobody"] } }],
  ]);
  return eachWay(() => matches.map(([what, match]) => [what, [{ action: "Allow", ...match }]]));
}

function blocks(addressOf: AddressOf): Case[] {
  const [xa, yb, zc] = [addressOf("x/a"), addressOf("y/b"), addressOf("z/c")];
  const block = (address: string) => `${address.split(".").slice(0, 3).join(".")}.0/24`;
  const peers: [string, Rule][] = [
    ["one address", { nets: [`${yb}/32`] }],
    ["two addresses", { nets: [`${yb}/32`, `${zc}/32`] }],
    ["all of IPv4", { nets: ["0.0.0.0/0"] }],
    ["all but one address", { notNets: [`${yb}/32`] }],
    ["a block with a hole", { nets: ["10.65.0.0/16"], notNets: [`${yb}/32`, `${zc}/32`] }],
    ["a block without its own /24", { nets: ["10.65.0.0/16"], notNets: [block(xa)] }],
    ["a block that is elsewhere", { nets: ["192.0.2.0/24"] }],
    ["a block and a selector", { nets: ["10.65.0.0/16"], selector: "pod == 'b'" }],
  ];
  return eachWay((direction) => peers.map(([what, peer]) => [what, [allow(direction, peer)]]));
}

function sets(addressOf: AddressOf): Case[] {
  const global: Resource = {
    apiVersion: API_VERSION,
    kind: "GlobalNetworkSet",
    metadata: { name: "friends", labels: { role: "friend" } },
    spec: { nets: [`${addressOf("y/a")}/32`, `${addressOf("z/b")}/32`] },
  };
  const own: Resource = {
    apiVersion: API_VERSION,
    kind: "NetworkSet",
    metadata: { name: "friends", namespace: "x", labels: { role: "friend" } },
    spec: { nets: [`${addressOf("y/c")}/32`] },
  };
  return DIRECTIONS.flatMap((direction) => [
    one(
      `${direction}: members of a global network set`,
      global,
      networkPolicy("p", "x", {
        types: [TYPE[direction]],
        [direction]: [allow(direction, { selector: "role == 'friend'", namespaceSelector: "global()" })],
      }),
    ),
    one(
      `${direction}: members of the namespace's own set only`,
      global,
      own,
      networkPolicy("p", "x", {
        types: [TYPE[direction]],
        [direction]: [allow(direction, { selector: "role == 'friend'" })],
      }),
    ),
    one(
      `${direction}: deny the members of a set`,
      global,
      globalPolicy("p", {
        selector: "pod == 'a'",
        types: [TYPE[direction]],
        [direction]: [{ action: "Deny", [PEER[direction]]: { selector: "role == 'friend'" } }, { action: "Allow" }],
      }),
    ),
  ]);
}

function order(): Case[] {
  const pair = (first: number | undefined, second: number | undefined) => [
    networkPolicy("a-deny", "x", {
      order: first,
      types: ["Ingress"],
      ingress: [{ action: "Deny" }],
    }),
    networkPolicy("b-allow", "x", {
      order: second,
      types: ["Ingress"],
      ingress: [{ action: "Allow" }],
    }),
  ];
  const orders: [number | undefined, number | undefined][] = [
    [1, 2],
    [2, 1],
    [1, 1],
    [undefined, 5],
    [5, undefined],
    [undefined, undefined],
    [-1, 0],
    [0.5, 0.25],
  ];
  return orders.map(([first, second]) =>
    one(`order ${first ?? "none"} denies, ${second ?? "none"} allows`, ...pair(first, second)),
  );
}

function tiers(): Case[] {
  const tier = (name: string, order: number, defaultAction?: string): Resource => ({
    apiVersion: API_VERSION,
    kind: "Tier",
    metadata: { name },
    spec: { order, defaultAction },
  });
  const inTier = (name: string, spec: object) =>
    globalPolicy(name, { tier: "security", selector: "ns == 'x' || has(pod)", types: ["Ingress"], ...spec });
  const late = networkPolicy("late", "x", {
    types: ["Ingress"],
    ingress: [allow("ingress", { selector: "pod == 'b'" })],
  });
  return [
    one(
      "a tier with Pass continues in the next tier",
      tier("security", 10),
      inTier("security.pass", { ingress: [{ action: "Pass" }] }),
      late,
    ),
    one(
      "a tier that passes some and denies the rest",
      tier("security", 10),
      inTier("security.some", { ingress: [{ action: "Pass", source: { selector: "pod != 'c'" } }] }),
      late,
    ),
    one(
      "a tier whose default is pass",
      tier("security", 10, "Pass"),
      inTier("security.some", { ingress: [{ action: "Deny", source: { selector: "pod == 'c'" } }] }),
      late,
    ),
    one(
      "a tier that allows is final",
      tier("security", 10),
      inTier("security.allow", { ingress: [{ action: "Allow" }] }),
      late,
    ),
    one(
      "a tier after default is not evaluated if default decides",
      tier("security", 2_000_000),
      inTier("security.deny", { ingress: [{ action: "Deny" }] }),
      late,
    ),
    one(
      "a tier that matches no endpoint is skipped",
      tier("security", 10),
      globalPolicy("security.none", { tier: "security", selector: "has(nothing)", types: ["Ingress"] }),
      late,
    ),
    one(
      "after Pass in all tiers, the profile decides",
      tier("security", 10),
      inTier("security.pass", { ingress: [{ action: "Pass" }] }),
    ),
  ];
}

function globals(): Case[] {
  return DIRECTIONS.flatMap((direction) => [
    one(
      `${direction}: global policy for namespaces y and z`,
      globalPolicy("p", { namespaceSelector: "ns in {'y','z'}", types: [TYPE[direction]] }),
    ),
    one(
      `${direction}: global policy for pods a, from namespace x only`,
      globalPolicy("p", {
        selector: "pod == 'a'",
        types: [TYPE[direction]],
        [direction]: [allow(direction, { namespaceSelector: "ns == 'x'" })],
      }),
    ),
    one(
      `${direction}: global before namespaced`,
      globalPolicy("p", {
        order: 1,
        selector: "pod == 'a'",
        types: [TYPE[direction]],
        [direction]: [{ action: "Deny", [PEER[direction]]: { selector: "pod == 'b'" } }],
      }),
      networkPolicy("q", "x", { order: 2, types: [TYPE[direction]], [direction]: [{ action: "Allow" }] }),
    ),
    one(`${direction}: staged policy changes nothing`, {
      apiVersion: API_VERSION,
      kind: "StagedGlobalNetworkPolicy",
      metadata: { name: "p" },
      spec: { selector: "all()", types: [TYPE[direction]] },
    }),
  ]);
}

export const kubernetesPolicy = (name: string, namespace: string, spec: object): Resource => ({
  apiVersion: "networking.k8s.io/v1",
  kind: "KubernetesNetworkPolicy",
  metadata: { name, namespace },
  spec,
});

/** Kubernetes NetworkPolicy. */
function kubernetes(addressOf: AddressOf): Case[] {
  const policy = (name: string, spec: object): Case => one(`Kubernetes: ${name}`, kubernetesPolicy("p", "x", spec));
  const pods = (matchLabels: object) => ({ podSelector: { matchLabels } });
  const namespaces = (matchLabels: object) => ({ namespaceSelector: { matchLabels } });
  const yb = `${addressOf("y/b")}/32`;
  return [
    policy("deny all ingress", { podSelector: {} }),
    policy("deny all egress", { podSelector: {}, policyTypes: ["Egress"] }),
    policy("allow all ingress", { podSelector: {}, ingress: [{}] }),
    policy("allow from pods b", { podSelector: {}, ingress: [{ from: [pods({ pod: "b" })] }] }),
    policy("allow from namespace y", { podSelector: {}, ingress: [{ from: [namespaces({ ns: "y" })] }] }),
    policy("allow from pods b of namespace y", {
      podSelector: {},
      ingress: [{ from: [{ ...pods({ pod: "b" }), ...namespaces({ ns: "y" }) }] }],
    }),
    policy("allow from pods b or namespace y", {
      podSelector: {},
      ingress: [{ from: [pods({ pod: "b" }), namespaces({ ns: "y" })] }],
    }),
    policy("expressions", {
      podSelector: { matchExpressions: [{ key: "pod", operator: "In", values: ["a", "b"] }] },
      ingress: [
        { from: [{ namespaceSelector: { matchExpressions: [{ key: "ns", operator: "NotIn", values: ["z"] }] } }] },
      ],
    }),
    policy("exists and does not exist", {
      podSelector: { matchExpressions: [{ key: "pod", operator: "Exists" }] },
      ingress: [{ from: [{ podSelector: { matchExpressions: [{ key: "missing", operator: "DoesNotExist" }] } }] }],
    }),
    policy("port 80", { podSelector: {}, ingress: [{ ports: [{ port: 80, protocol: "TCP" }] }] }),
    policy("port by name", { podSelector: {}, ingress: [{ ports: [{ port: "serve-81-tcp", protocol: "TCP" }] }] }),
    policy("range of ports", { podSelector: {}, ingress: [{ ports: [{ port: 80, endPort: 81, protocol: "UDP" }] }] }),
    policy("egress to pods b on 80", {
      podSelector: {},
      policyTypes: ["Egress"],
      egress: [{ to: [pods({ pod: "b" })], ports: [{ port: 80, protocol: "TCP" }] }],
    }),
    policy("ipBlock", { podSelector: {}, ingress: [{ from: [{ ipBlock: { cidr: yb } }] }] }),
    policy("ipBlock with except", {
      podSelector: {},
      ingress: [{ from: [{ ipBlock: { cidr: "10.65.0.0/16", except: [yb] } }] }],
    }),
    policy("egress ipBlock with except", {
      podSelector: {},
      policyTypes: ["Egress"],
      egress: [{ to: [{ ipBlock: { cidr: "10.65.0.0/16", except: [yb] } }] }],
    }),
    policy("both directions, each with its own peers", {
      ...pods({ pod: "a" }),
      policyTypes: ["Ingress", "Egress"],
      ingress: [{ from: [namespaces({ ns: "y" })] }],
      egress: [{ to: [pods({ pod: "b" })], ports: [{ port: "serve-80-udp", protocol: "UDP" }] }],
    }),
    policy("ports of two protocols, one without a number", {
      podSelector: {},
      ingress: [{ ports: [{ port: 81, protocol: "TCP" }, { protocol: "SCTP" }] }],
    }),
    policy("egress declared and not allowed", { podSelector: {}, policyTypes: ["Ingress", "Egress"], ingress: [{}] }),
    one(
      "Kubernetes: allowed by either of two policies",
      kubernetesPolicy("deny", "x", { podSelector: {} }),
      kubernetesPolicy("from-b", "x", { podSelector: {}, ingress: [{ from: [pods({ pod: "b" })] }] }),
      kubernetesPolicy("from-z", "x", { ...pods({ pod: "a" }), ingress: [{ from: [namespaces({ ns: "z" })] }] }),
    ),
    one(
      "Kubernetes: policies of source and destination namespace",
      kubernetesPolicy("out", "x", {
        podSelector: {},
        policyTypes: ["Egress"],
        egress: [{ to: [namespaces({ ns: "y" })] }],
      }),
      kubernetesPolicy("in", "y", { ...pods({ pod: "a" }), ingress: [{ from: [namespaces({ ns: "z" })] }] }),
    ),
    ...kubernetesChanges(),
  ];
}

function kubernetesChanges(): Case[] {
  const from = (peer: object): Resource => kubernetesPolicy("p", "x", { podSelector: {}, ingress: [{ from: [peer] }] });
  const pods = (matchLabels: object) => ({ podSelector: { matchLabels }, namespaceSelector: {} });
  const fromB = from(pods({ pod: "b" }));
  const fromC = from(pods({ pod: "c" }));
  const fromTeam = from({ namespaceSelector: { matchLabels: { team: "red" } } });
  return [
    {
      name: "Kubernetes: a policy is edited, then deleted",
      steps: [{ apply: [fromB] }, { apply: [fromC] }, { remove: [fromC] }],
    },
    {
      name: "Kubernetes: a pod's label is added and removed",
      steps: [{ apply: [fromB] }, { podLabels: { "y/a": { pod: "b" } } }, { podLabels: {} }],
    },
    {
      name: "Kubernetes: a namespace's label is added and removed",
      steps: [{ apply: [fromTeam] }, { namespaceLabels: { y: { team: "red" } } }, { namespaceLabels: {} }],
    },
    {
      name: "Kubernetes: the pods that the policy selects change",
      steps: [
        { apply: [kubernetesPolicy("p", "x", { podSelector: { matchLabels: { closed: "yes" } } })] },
        { podLabels: { "x/a": { closed: "yes" } } },
        { podLabels: {} },
      ],
    },
  ];
}

function changes(): Case[] {
  const fromB = networkPolicy("p", "x", {
    types: ["Ingress"],
    ingress: [allow("ingress", { selector: "pod == 'b'", namespaceSelector: "all()" })],
  });
  const fromC = networkPolicy("p", "x", {
    types: ["Ingress"],
    ingress: [allow("ingress", { selector: "pod == 'c'", namespaceSelector: "all()" })],
  });
  const fromTeam = networkPolicy("p", "x", {
    types: ["Ingress"],
    ingress: [allow("ingress", { namespaceSelector: "team == 'red'" })],
  });
  return [
    { name: "a policy is edited, then deleted", steps: [{ apply: [fromB] }, { apply: [fromC] }, { remove: [fromC] }] },
    {
      name: "a pod's label is added and removed",
      steps: [{ apply: [fromB] }, { podLabels: { "y/a": { pod: "b" } } }, { podLabels: {} }],
    },
    {
      name: "the pods that the policy selects change",
      steps: [
        { apply: [networkPolicy("p", "x", { selector: "closed == 'yes'", types: ["Ingress"] })] },
        { podLabels: { "x/a": { closed: "yes" } } },
        { podLabels: {} },
      ],
    },
    {
      name: "a namespace's label is added and removed",
      steps: [{ apply: [fromTeam] }, { namespaceLabels: { y: { team: "red" } } }, { namespaceLabels: {} }],
    },
    {
      name: "deny, then allow, then deny again",
      steps: [
        { apply: [networkPolicy("p", "x", { types: ["Ingress"] })] },
        { apply: [networkPolicy("p", "x", { types: ["Ingress"], ingress: [{ action: "Allow" }] })] },
        { apply: [networkPolicy("p", "x", { types: ["Ingress"] })] },
      ],
    },
  ];
}
