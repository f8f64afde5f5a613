// States with policies, profiles, tiers and network sets.
import { hep, networkSet, policy, profile, REMOTE, rule, tier, wep } from "../build.ts";
import type { NamedState } from "../states.ts";

const WEB = { id: "web" };
const ep1 = wep("ep1", {
  nets: ["10.0.0.1/32", "fc00:fe11::1/128"],
  labels: { ...WEB, a: "a" },
  profiles: ["prof-1", "prof-2"],
});
const ep2 = wep("ep2", {
  nets: ["10.0.0.2/32", "fc00:fe11::2/128"],
  labels: { id: "db", b: "b" },
  profiles: ["prof-2"],
});
const remote = wep("remote", { host: REMOTE, nets: ["10.0.0.1/32", "10.0.0.3/32"], labels: { ...WEB, a: "a" } });
const prof1 = profile("prof-1", { labels: { "tag-1": "true" }, in: [rule()] });
const prof2 = profile("prof-2", {
  labels: { "tag-2": "true" },
  out: [rule({ action: "deny", to: { notSelector: "a == 'x'" } })],
});
const tierDefault = tier("default", { order: 1000 });
const twoEndpoints = [ep1, ep2, ...prof1, ...prof2, tierDefault];
const fromWeb = policy("p-web", {
  order: 10,
  inboundRules: [rule({ from: { selector: "id == 'web'" } })],
  types: ["ingress"],
});
/** The set that the rule of the second profile uses. */
const NOT_X = { "a == 'x'": [] };

export const policyStates: readonly NamedState[] = [
  { name: "empty", state: [], want: {} },
  {
    name: "two endpoints with profiles and no policy",
    state: twoEndpoints,
    want: { profiles: ["prof-1", "prof-2"], endpoints: { ep1: "", ep2: "" }, sets: NOT_X },
  },
  {
    name: "listed profiles that do not exist deny everything",
    state: [ep1, ep2],
    want: { profiles: ["prof-1!", "prof-2!"], endpoints: { ep1: "", ep2: "" } },
  },
  {
    name: "a policy for all endpoints with a selector in its rule",
    state: [...twoEndpoints, fromWeb],
    want: {
      profiles: ["prof-1", "prof-2"],
      policies: ["p-web"],
      sets: { ...NOT_X, "id == 'web'": ["10.0.0.1/32", "fc00:fe11::1/128"] },
      endpoints: { ep1: "default(p-web / )", ep2: "default(p-web / )" },
    },
  },
  {
    name: "a remote endpoint shares an address",
    state: [...twoEndpoints, fromWeb, remote],
    want: {
      profiles: ["prof-1", "prof-2"],
      policies: ["p-web"],
      sets: { ...NOT_X, "id == 'web'": ["10.0.0.1/32", "10.0.0.3/32", "fc00:fe11::1/128"] },
      endpoints: { ep1: "default(p-web / )", ep2: "default(p-web / )" },
    },
  },
  {
    name: "only the remote endpoint is left",
    state: [fromWeb, remote, tierDefault],
    want: {},
  },
  {
    name: "policies by inherited and own labels",
    state: [
      ...twoEndpoints,
      policy("p-tag1", { selector: "has(tag-1)", outboundRules: [rule({ to: { selector: "tag-2 == 'true'" } })] }),
      policy("p-none", { selector: "has(nowhere)", inboundRules: [rule({ from: { selector: "all()" } })] }),
    ],
    want: {
      profiles: ["prof-1", "prof-2"],
      policies: ["p-tag1"],
      sets: {
        ...NOT_X,
        "tag-2 == 'true'": ["10.0.0.1/32", "10.0.0.2/32", "fc00:fe11::1/128", "fc00:fe11::2/128"],
      },
      endpoints: { ep1: "default(p-tag1 / p-tag1)", ep2: "" },
    },
  },
  {
    name: "an endpoint's own label overrides an inherited one",
    state: [
      wep("ep1", { labels: { "tag-1": "own" }, profiles: ["prof-1"] }),
      ...prof1,
      policy("p-own", { selector: "tag-1 == 'own'" }),
      policy("p-inherited", { selector: "tag-1 == 'true'" }),
    ],
    want: { profiles: ["prof-1"], policies: ["p-own"], endpoints: { ep1: "default(p-own / p-own)" } },
  },
  {
    name: "the order of profiles decides between two that have the label",
    state: [
      wep("ep1", { profiles: ["prof-b", "prof-a"] }),
      ...profile("prof-a", { labels: { shared: "a" } }),
      ...profile("prof-b", { labels: { shared: "b" } }),
      policy("p-a", { selector: "shared == 'a'" }),
      policy("p-b", { selector: "shared == 'b'" }),
    ],
    want: { profiles: ["prof-a", "prof-b"], policies: ["p-b"], endpoints: { ep1: "default(p-b / p-b)" } },
  },
  {
    name: "tiers and policies in order, ties by name, namespace, kind",
    state: [
      wep("ep1"),
      tier("first", { order: 1 }),
      tier("second", { order: 2, defaultAction: "Pass" }),
      tier("unordered"),
      tierDefault,
      policy("c", { tier: "second", order: 20 }),
      policy("b", { tier: "second", order: 10 }),
      policy("a", { tier: "second" }),
      policy("z", { tier: "first", order: 5 }),
      policy("y", { tier: "first", order: 5, namespace: "ns", kind: "NetworkPolicy" }),
      policy("y", { tier: "first", order: 5 }),
      policy("u", { tier: "unordered" }),
      policy("lost", { tier: "missing", order: 0 }),
      policy("d", { order: 1 }),
    ],
    want: {
      policies: ["a", "b", "c", "d", "lost", "ns/y", "u", "y", "z"],
      endpoints: {
        ep1: "first(y,y,z / y,y,z) second~(b,c,a / b,c,a) default(d / d) unordered(u / u) missing(lost / lost)",
      },
    },
  },
  {
    name: "a policy that moved to another tier and another order",
    state: [
      wep("ep1"),
      tier("first", { order: 1 }),
      tier("second", { order: 0 }),
      policy("c", { tier: "first", order: 1 }),
      policy("b", { tier: "second", order: 10 }),
      policy("a", { tier: "second", order: 20 }),
    ],
    want: { policies: ["a", "b", "c"], endpoints: { ep1: "second(b,a / b,a) first(c / c)" } },
  },
  {
    name: "one policy for ingress, one for egress",
    state: [
      wep("ep1"),
      tierDefault,
      policy("in", { types: ["ingress"], order: 1 }),
      policy("out", { types: ["egress"], order: 2 }),
    ],
    want: { policies: ["in", "out"], endpoints: { ep1: "default(in / out)" } },
  },
  {
    name: "a host endpoint with normal, forward, untracked and pre-DNAT policies",
    state: [
      hep("eth0", { labels: { role: "host" }, addresses: ["10.0.0.9"], profiles: ["prof-1"] }),
      ...prof1,
      tierDefault,
      policy("normal", { order: 1 }),
      policy("forward", { order: 2, applyOnForward: true }),
      policy("untracked", { order: 3, untracked: true, applyOnForward: true }),
      policy("pre", { order: 4, preDnat: true, applyOnForward: true, types: ["ingress"] }),
    ],
    want: {
      profiles: ["prof-1"],
      policies: ["forward", "normal", "pre", "untracked"],
      endpoints: {
        eth0: "default(normal,forward / normal,forward); untracked default~(untracked / untracked); preDNAT default~(pre / ); forward default(forward / forward)",
      },
    },
  },
  {
    name: "untracked and pre-DNAT policies do not apply to a workload",
    state: [
      wep("ep1"),
      tierDefault,
      policy("untracked", { untracked: true, applyOnForward: true }),
      policy("pre", { preDnat: true, applyOnForward: true, types: ["ingress"] }),
    ],
    want: { policies: ["pre", "untracked"], endpoints: { ep1: "" } },
  },
  {
    name: "staged policies are sent like others",
    state: [wep("ep1"), tierDefault, policy("s", { kind: "StagedGlobalNetworkPolicy" }), policy("a", { order: 1 })],
    want: { policies: ["StagedGlobalNetworkPolicy s", "a"], endpoints: { ep1: "default(a,s / a,s)" } },
  },
  {
    name: "a policy needed on every node",
    state: [
      policy("everywhere", {
        selector: "has(nobody)",
        performanceHints: ["AssumeNeededOnEveryNode"],
        inboundRules: [rule({ from: { selector: "id == 'web'" } })],
      }),
      remote,
    ],
    want: { policies: ["everywhere"], sets: { "id == 'web'": ["10.0.0.1/32", "10.0.0.3/32"] } },
  },
  {
    name: "positive and negative selectors, alone and together",
    state: [
      ...twoEndpoints,
      policy("p", {
        inboundRules: [
          rule({ from: { selector: "id == 'web'", notSelector: "has(b)" } }),
          rule({ from: { notSelector: "id == 'db'" }, to: { selector: "has(b)" } }),
        ],
      }),
    ],
    want: {
      profiles: ["prof-1", "prof-2"],
      policies: ["p"],
      sets: {
        ...NOT_X,
        "(id == 'web') && (!(has(b)))": ["10.0.0.1/32", "fc00:fe11::1/128"],
        "id == 'db'": ["10.0.0.2/32", "fc00:fe11::2/128"],
        "has(b)": ["10.0.0.2/32", "fc00:fe11::2/128"],
      },
      endpoints: { ep1: "default(p / p)", ep2: "default(p / p)" },
    },
  },
  {
    name: "network sets, one inside the other, and /0",
    state: [
      wep("ep1", { nets: ["10.0.0.1/32"], labels: { net: "yes" } }),
      networkSet("wide", ["10.0.0.0/8", "192.168.0.0/16", "fc00::/16"], { net: "yes" }),
      networkSet("narrow", ["10.1.0.0/16", "192.168.1.1/32", "172.16.0.0/12"], { net: "yes" }),
      networkSet("all", ["0.0.0.0/0"], { net: "all" }),
      policy("p", {
        inboundRules: [rule({ from: { selector: "net == 'yes'" } }), rule({ from: { selector: "net == 'all'" } })],
      }),
      tierDefault,
    ],
    want: {
      policies: ["p"],
      sets: {
        "net == 'yes'": ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/16"],
        "net == 'all'": ["0.0.0.0/1", "128.0.0.0/1"],
      },
      endpoints: { ep1: "default(p / p)" },
    },
  },
  {
    name: "the wide network set is deleted",
    state: [
      wep("ep1", { nets: ["10.0.0.1/32"], labels: { net: "yes" } }),
      networkSet("narrow", ["10.1.0.0/16", "192.168.1.1/32", "172.16.0.0/12"], { net: "yes" }),
      policy("p", { inboundRules: [rule({ from: { selector: "net == 'yes'" } })] }),
      tierDefault,
    ],
    want: {
      policies: ["p"],
      sets: { "net == 'yes'": ["10.0.0.1/32", "10.1.0.0/16", "172.16.0.0/12", "192.168.1.1/32"] },
      endpoints: { ep1: "default(p / p)" },
    },
  },
  {
    name: "a network set inherits the labels of its namespace",
    state: [
      wep("ep1", { labels: {} }),
      networkSet("ns/set", ["10.9.0.0/24"], {}, ["kns.ns"]),
      ...profile("kns.ns", { labels: { "pcns.env": "prod" } }),
      policy("p", { inboundRules: [rule({ from: { selector: "pcns.env == 'prod'" } })] }),
    ],
    want: {
      policies: ["p"],
      sets: { "pcns.env == 'prod'": ["10.9.0.0/24"] },
      endpoints: { ep1: "default(p / p)" },
      others: ["namespace ns"],
    },
  },
];
