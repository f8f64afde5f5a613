// Named datastore states with what the dataplane must know of each.
import type { GraphSettings } from "../graph.ts";
import {
  block,
  endpointSlice,
  hep,
  LOCAL,
  networkSet,
  node,
  policy,
  pool,
  profile,
  REMOTE,
  REMOTE2,
  resource,
  rule,
  tier,
  wep,
} from "./build.ts";
import type { DatastoreState } from "./run.ts";
import type { Summary } from "./summary.ts";

export interface NamedState {
  readonly name: string;
  readonly state: DatastoreState;
  readonly want: Summary;
  readonly settings?: Partial<GraphSettings>;
}

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
/** What the rule of the second profile uses. */
const NOT_X = { "a == 'x'": [] };

const policyStates: readonly NamedState[] = [
  { name: "nothing", state: [], want: {} },
  {
    name: "two endpoints with profiles and no policy",
    state: twoEndpoints,
    want: { profiles: ["prof-1", "prof-2"], endpoints: { ep1: "", ep2: "" }, sets: NOT_X },
  },
  {
    name: "profiles listed and not defined deny",
    state: [ep1, ep2],
    want: { profiles: ["prof-1!", "prof-2!"], endpoints: { ep1: "", ep2: "" } },
  },
  {
    name: "a policy for all with a selector in its rule",
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
    name: "an own label hides an inherited one",
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
    name: "one direction each",
    state: [
      wep("ep1"),
      tierDefault,
      policy("in", { types: ["ingress"], order: 1 }),
      policy("out", { types: ["egress"], order: 2 }),
    ],
    want: { policies: ["in", "out"], endpoints: { ep1: "default(in / out)" } },
  },
  {
    name: "a host endpoint with policies for every purpose",
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
    name: "a workload takes no part in untracked and pre-DNAT policies",
    state: [
      wep("ep1"),
      tierDefault,
      policy("untracked", { untracked: true, applyOnForward: true }),
      policy("pre", { preDnat: true, applyOnForward: true, types: ["ingress"] }),
    ],
    want: { policies: ["pre", "untracked"], endpoints: { ep1: "" } },
  },
  {
    name: "staged policies travel like others",
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
    name: "network sets, one inside the other, and the whole space",
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
    name: "the wide network set is gone",
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
    name: "a network set inherits from its namespace",
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

const http = (port: number, protocol = "tcp") => ({ name: "http", protocol, port });
const portStates: readonly NamedState[] = [
  {
    name: "named ports by protocol, with and without selector, negated",
    state: [
      wep("ep1", {
        nets: ["10.0.0.1/32", "fc00::1/128"],
        labels: { ...WEB },
        ports: [http(8080), http(8081, "udp"), http(9090)],
      }),
      wep("r1", { host: REMOTE, nets: ["10.0.1.1/32"], labels: { id: "db" }, ports: [http(80)] }),
      hep("h1", { host: REMOTE, addresses: ["10.2.0.1"], labels: { id: "db" }, ports: [http(81)] }),
      networkSet("set", ["10.3.0.0/24"], { id: "db" }),
      policy("p", {
        inboundRules: [
          rule({ protocol: "tcp", to: { ports: [{ name: "http" }] } }),
          rule({ protocol: "udp", to: { selector: "id == 'web'", ports: [{ name: "http" }] } }),
          rule({ protocol: "tcp", from: { selector: "id == 'db'", ports: [{ name: "http" }, { min: 1, max: 2 }] } }),
          rule({ to: { selector: "id == 'web'", notPorts: [{ name: "http" }] } }),
        ],
      }),
    ],
    want: {
      policies: ["p"],
      sets: {
        "all() | tcp:http": [
          "10.0.0.1,tcp:8080",
          "10.0.0.1,tcp:9090",
          "10.0.1.1,tcp:80",
          "10.2.0.1,tcp:81",
          "fc00::1,tcp:8080",
          "fc00::1,tcp:9090",
        ],
        "id == 'web' | udp:http": ["10.0.0.1,udp:8081", "fc00::1,udp:8081"],
        "id == 'db' | tcp:http": ["10.0.1.1,tcp:80", "10.2.0.1,tcp:81"],
        "id == 'db'": ["10.0.1.1/32", "10.2.0.1/32", "10.3.0.0/24"],
        "id == 'web' | any:http": [
          "10.0.0.1,tcp:8080",
          "10.0.0.1,tcp:9090",
          "10.0.0.1,udp:8081",
          "fc00::1,tcp:8080",
          "fc00::1,tcp:9090",
          "fc00::1,udp:8081",
        ],
        "id == 'web'": ["10.0.0.1/32", "fc00::1/128"],
      },
      endpoints: { ep1: "default(p / p)" },
    },
  },
  {
    name: "the ports of an endpoint changed",
    state: [
      wep("ep1", {
        nets: ["10.0.0.1/32"],
        labels: { ...WEB },
        ports: [http(8080), { name: "other", protocol: "tcp", port: 1 }],
      }),
      wep("r1", { host: REMOTE, nets: ["10.0.0.1/32"], labels: { id: "db" }, ports: [http(8080)] }),
      policy("p", { inboundRules: [rule({ protocol: "tcp", to: { ports: [{ name: "http" }] } })] }),
    ],
    want: {
      policies: ["p"],
      sets: { "all() | tcp:http": ["10.0.0.1,tcp:8080"] },
      endpoints: { ep1: "default(p / p)" },
    },
  },
  {
    name: "services with and without ports, from overlapping slices",
    state: [
      wep("ep1"),
      endpointSlice(
        "s1",
        "nginx",
        ["10.0.0.1", "10.0.0.2", "fc00::1", "no-address"],
        [{ port: 80 }, { protocol: "UDP", port: 53 }],
      ),
      endpointSlice("s2", "nginx", ["10.0.0.2", "10.0.0.3"], [{ port: 80 }, {}]),
      endpointSlice("s3", "other", ["10.0.0.9"], [{ port: 1 }]),
      policy("p", {
        inboundRules: [rule({ from: { service: { name: "nginx", namespace: "default" } } })],
        outboundRules: [rule({ to: { service: { name: "nginx", namespace: "default" } } })],
      }),
    ],
    want: {
      policies: ["p"],
      sets: {
        "svc default/nginx": [
          "10.0.0.1,tcp:80",
          "10.0.0.1,udp:53",
          "10.0.0.2,tcp:80",
          "10.0.0.2,udp:53",
          "10.0.0.3,tcp:80",
          "fc00::1,tcp:80",
          "fc00::1,udp:53",
        ],
        "svcnoport default/nginx": ["10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32", "fc00::1/128"],
      },
      endpoints: { ep1: "default(p / p)" },
    },
  },
  {
    name: "a slice changed its service",
    state: [
      wep("ep1"),
      endpointSlice("s1", "other", ["10.0.0.1", "10.0.0.2"], [{ port: 80 }]),
      endpointSlice("s2", "nginx", ["10.0.0.2"], [{ port: 80 }]),
      policy("p", { outboundRules: [rule({ to: { service: { name: "nginx", namespace: "default" } } })] }),
    ],
    want: {
      policies: ["p"],
      sets: { "svc default/nginx": ["10.0.0.2,tcp:80"] },
      endpoints: { ep1: "default(p / p)" },
    },
  },
];

const vxlanPool = pool("10.0.0.0/16", { vxlanMode: "always" });
const nodes = [
  ...node(LOCAL, { ip: "192.168.0.1/24", vxlan: "10.0.0.0", mac: "66:00:00:00:00:01" }),
  ...node(REMOTE, { ip: "192.168.0.2/24", vxlan: "10.0.1.0" }),
];
const HOSTS = {
  "192.168.0.1/32": `none localHost ${LOCAL}=192.168.0.1`,
  "192.168.0.2/32": `none remoteHost ${REMOTE}=192.168.0.2`,
};
const OTHERS = [`host ${LOCAL}`, `host ${REMOTE}`, "pool 10.0.0.0-16"];
const VTEPS = {
  [LOCAL]: "66:00:00:00:00:01 10.0.0.0 192.168.0.1",
  [REMOTE]: "66:3e:ca:a4:db:65 10.0.1.0 192.168.0.2",
};
const routeStates: readonly NamedState[] = [
  {
    name: "VXLAN with a block on each node",
    state: [
      vxlanPool,
      ...nodes,
      block("10.0.0.0/29", LOCAL, { 1: LOCAL }),
      block("10.0.1.0/29", REMOTE),
      wep("ep1", { nets: ["10.0.0.1/32"] }),
    ],
    want: {
      endpoints: { ep1: "" },
      routes: {
        ...HOSTS,
        "10.0.0.0/16": "vxlan cidrInfo",
        "10.0.0.0/29": `vxlan localWorkload ${LOCAL}=192.168.0.1`,
        "10.0.0.0/32": `vxlan localTunnel ${LOCAL}=192.168.0.1 tunnel:vxlan`,
        "10.0.0.1/32": `vxlan localWorkload ${LOCAL}=192.168.0.1 localWorkload`,
        "10.0.1.0/29": `vxlan remoteWorkload ${REMOTE}=192.168.0.2`,
        "10.0.1.0/32": `vxlan remoteTunnel ${REMOTE}=192.168.0.2 tunnel:vxlan`,
      },
      vteps: VTEPS,
      others: OTHERS,
    },
  },
  {
    name: "an address borrowed from another node's block, and a borrowed tunnel address",
    state: [
      vxlanPool,
      ...node(LOCAL, { ip: "192.168.0.1/24", vxlan: "10.0.1.6" }),
      ...node(REMOTE, { ip: "192.168.0.2/24" }),
      block("10.0.1.0/29", REMOTE, { 2: LOCAL, 3: REMOTE, 6: LOCAL, 7: REMOTE2 }),
      wep("ep1", { nets: ["10.0.1.2/32"] }),
    ],
    want: {
      endpoints: { ep1: "" },
      routes: {
        ...HOSTS,
        "10.0.0.0/16": "vxlan cidrInfo",
        "10.0.1.0/29": `vxlan remoteWorkload ${REMOTE}=192.168.0.2`,
        "10.0.1.2/32": `vxlan remoteWorkload+localWorkload ${LOCAL}=192.168.0.1 localWorkload borrowed`,
        "10.0.1.6/32": `vxlan remoteWorkload+localWorkload+localTunnel ${LOCAL}=192.168.0.1 borrowed tunnel:vxlan`,
        "10.0.1.7/32": `vxlan remoteWorkload ${REMOTE2}= borrowed`,
      },
      vteps: { [LOCAL]: "66:33:43:89:04:8b 10.0.1.6 192.168.0.1" },
      others: OTHERS,
    },
  },
  {
    name: "across subnets",
    state: [
      pool("10.0.0.0/16", { vxlanMode: "cross-subnet", masquerade: true }),
      ...nodes,
      ...node(REMOTE2, { ip: "192.168.1.3/24", ipip: "10.0.2.1", vxlan: "10.0.2.1" }),
      block("10.0.1.0/29", REMOTE),
      block("10.0.2.0/29", REMOTE2),
    ],
    want: {
      routes: {
        ...HOSTS,
        "192.168.1.3/32": `none remoteHost ${REMOTE2}=192.168.1.3`,
        "10.0.0.0/16": "vxlan cidrInfo natOutgoing",
        "10.0.0.0/32": `vxlan localTunnel ${LOCAL}=192.168.0.1 sameSubnet natOutgoing tunnel:vxlan`,
        "10.0.1.0/29": `vxlan remoteWorkload ${REMOTE}=192.168.0.2 sameSubnet natOutgoing`,
        "10.0.1.0/32": `vxlan remoteTunnel ${REMOTE}=192.168.0.2 sameSubnet natOutgoing tunnel:vxlan`,
        "10.0.2.0/29": `vxlan remoteWorkload ${REMOTE2}=192.168.1.3 natOutgoing`,
        "10.0.2.1/32": `vxlan remoteTunnel ${REMOTE2}=192.168.1.3 natOutgoing tunnel:ipip tunnel:vxlan`,
      },
      vteps: { ...VTEPS, [REMOTE2]: "66:31:58:fc:ee:65 10.0.2.1 192.168.1.3" },
      others: [`host ${LOCAL}`, `host ${REMOTE}`, `host ${REMOTE2}`, "pool 10.0.0.0-16"],
    },
  },
  {
    name: "IPIP instead, the pool as wide as its block",
    state: [
      pool("10.0.1.0/29", { ipipMode: "always" }),
      ...node(LOCAL, { ip: "192.168.0.1/24" }),
      ...node(REMOTE, { ip: "192.168.0.2/24", ipip: "10.0.1.1" }),
      block("10.0.1.0/29", REMOTE),
    ],
    want: {
      routes: {
        ...HOSTS,
        "10.0.1.0/29": `ipip remoteWorkload ${REMOTE}=192.168.0.2`,
        "10.0.1.1/32": `ipip remoteTunnel ${REMOTE}=192.168.0.2 tunnel:ipip`,
      },
      others: [`host ${LOCAL}`, `host ${REMOTE}`, "pool 10.0.1.0-29"],
    },
  },
  {
    name: "two nodes share an address, which lies in a pool",
    state: [
      pool("192.168.0.0/16", { masquerade: true }),
      ...node(LOCAL, { ip: "192.168.0.1/24" }),
      ...node(REMOTE, { ip: "192.168.0.1/24" }),
      ...node(REMOTE2, {
        addresses: [
          { address: "192.168.0.3/24", type: "InternalIP" },
          { address: "1.2.3.4", type: "ExternalIP" },
        ],
      }),
    ],
    want: {
      routes: {
        "192.168.0.0/16": "no-encap cidrInfo natOutgoing",
        "192.168.0.1/32": `no-encap localHost ${LOCAL}=192.168.0.1 natOutgoing`,
        "192.168.0.3/32": `no-encap remoteHost ${REMOTE2}=192.168.0.3 natOutgoing`,
        "1.2.3.4/32": `none remoteHost ${REMOTE2}=192.168.0.3`,
      },
      others: [`host ${LOCAL}`, `host ${REMOTE}`, `host ${REMOTE2}`, "pool 192.168.0.0-16"],
    },
  },
  {
    name: "a pool for load balancers only",
    state: [
      pool("10.0.0.0/16", { allowedUses: ["LoadBalancer"] }),
      pool("11.0.0.0/16", { allowedUses: ["LoadBalancer"], masquerade: true }),
    ],
    want: { routes: { "11.0.0.0/16": "none cidrInfo natOutgoing" }, others: ["pool 10.0.0.0-16", "pool 11.0.0.0-16"] },
  },
  {
    name: "both families",
    state: [
      pool("10.0.0.0/16", { vxlanMode: "always" }),
      pool("fd00:10::/48", { vxlanMode: "always" }),
      ...node(LOCAL, { ip: "192.168.0.1/24", ip6: "fd00::1/64", vxlan: "10.0.0.0", vxlan6: "fd00:10::" }),
      ...node(REMOTE, { ip: "192.168.0.2/24", ip6: "fd00::2/64", vxlan: "10.0.1.0", vxlan6: "fd00:10::1:0" }),
      block("fd00:10::1:0/125", REMOTE),
    ],
    want: {
      routes: {
        ...HOSTS,
        "fd00::1/128": `none localHost ${LOCAL}=fd00::1`,
        "fd00::2/128": `none remoteHost ${REMOTE}=fd00::2`,
        "10.0.0.0/16": "vxlan cidrInfo",
        "10.0.0.0/32": `vxlan localTunnel ${LOCAL}=192.168.0.1 tunnel:vxlan`,
        "10.0.1.0/32": `vxlan remoteTunnel ${REMOTE}=192.168.0.2 tunnel:vxlan`,
        "fd00:10::/48": "vxlan cidrInfo",
        "fd00:10::/128": `vxlan localTunnel ${LOCAL}=fd00::1 tunnel:vxlan`,
        "fd00:10::1:0/125": `vxlan remoteWorkload ${REMOTE}=fd00::2`,
        "fd00:10::1:0/128": `vxlan remoteTunnel ${REMOTE}=fd00::2 tunnel:vxlan`,
      },
      vteps: {
        [LOCAL]: "66:33:43:89:04:8b 10.0.0.0 192.168.0.1 66:97:08:c6:c6:21 fd00:10:: fd00::1",
        [REMOTE]: "66:3e:ca:a4:db:65 10.0.1.0 192.168.0.2 66:a0:68:c9:4c:79 fd00:10::1:0 fd00::2",
      },
      others: [`host ${LOCAL}`, `host ${REMOTE}`, "pool 10.0.0.0-16", "pool fd00:10::-48"],
    },
  },
];

const clusterStates: readonly NamedState[] = [
  {
    name: "what the dataplane hears as it stands",
    state: [
      ...profile("kns.ns1", { labels: { "pcns.env": "prod" } }),
      ...profile("ksa.ns1.robot", { labels: { "pcsa.role": "cleaner" } }),
      ...profile("other"),
      { key: { type: "wireguard", host: REMOTE }, value: { publicKey: "key", publicKeyV6: "key6" } },
      { key: { type: "wireguard", host: REMOTE2 }, value: { publicKey: "key" } },
      resource("BGPConfiguration", "default", { serviceClusterIPs: [{ cidr: "10.96.0.0/12" }] }),
      resource("BGPConfiguration", "node.x", { serviceClusterIPs: [{ cidr: "1.0.0.0/12" }] }),
      resource("KubernetesService", "svc", { type: "ClusterIP", clusterIP: "10.96.0.1" }, { namespace: "ns1" }),
    ],
    want: {
      others: [
        "namespace ns1",
        "service ns1/svc",
        "serviceaccount ns1/robot",
        `wireguard 4 ${REMOTE}`,
        `wireguard 4 ${REMOTE2}`,
        `wireguard 6 ${REMOTE}`,
      ],
    },
  },
  {
    name: "a workload that migrates, one that speaks BGP, one in the mesh",
    state: [
      wep("vm", { labels: { "vmi.kubevirt.io/id": "vm1" } }),
      wep("router", { labels: { bgp: "yes" } }),
      wep("meshed", { labels: {}, profiles: ["kns.mesh"] }),
      wep("left", { labels: { "istio.io/dataplane-mode": "none" }, profiles: ["kns.mesh"] }),
      ...profile("kns.mesh", { labels: { "pcns.istio.io/dataplane-mode": "ambient" } }),
      ...node(LOCAL, { ip: "192.168.0.1/24", labels: { rack: "1" } }),
      resource("BGPPeer", "b", { nodeSelector: "rack == '1'", localWorkloadSelector: "bgp == 'yes'" }),
      resource("BGPPeer", "a", { node: LOCAL, localWorkloadSelector: "has(bgp)" }),
      resource("BGPPeer", "0", { node: REMOTE, localWorkloadSelector: "has(bgp)" }),
      resource(
        "LiveMigration",
        "m",
        { source: { workload: { orchestratorID: "k8s", workloadID: "default/vm", hostname: "x" } } },
        { namespace: "default", uid: "uid-1" },
      ),
    ],
    want: {
      profiles: ["kns.mesh"],
      endpoints: { vm: "", router: "", meshed: "", left: "" },
      routes: {
        "192.168.0.1/32": `none localHost ${LOCAL}=192.168.0.1`,
        "10.0.0.1/32": `none localWorkload ${LOCAL}=192.168.0.1 localWorkload`,
      },
      others: [`host ${LOCAL}`, "namespace mesh"],
    },
  },
];

/** States about policies leave routes alone: every address of a local endpoint would be one. */
const withoutRoutes = (states: readonly NamedState[]): NamedState[] =>
  states.map((named) => ({ ...named, settings: { routes: "none" } }));

export const NAMED_STATES: readonly NamedState[] = [
  ...withoutRoutes([...policyStates, ...portStates]),
  ...routeStates,
  ...clusterStates,
];
