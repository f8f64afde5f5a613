// The rules a plan follows, row by row. Recorded plans stand in plan-golden.test.ts.
import { describe, expect, test } from "bun:test";
import { parseAddress } from "../lib/ip.ts";
import { API_VERSION, type KindName, type Labels } from "../model/index.ts";
import { birdConfiguration } from "./bird/configuration.ts";
import { BgpCollector } from "./collect.ts";
import { type LocalInputs, NoSuchNode, plan } from "./plan.ts";
import type { BgpPlan, PlannedPeer } from "./plan-types.ts";
import { hashedRouterId } from "./router-id.ts";

interface Given {
  readonly nodes?: Readonly<
    Record<string, { readonly bgp?: object; readonly labels?: Labels; readonly wireguard?: object }>
  >;
  readonly configuration?: object;
  readonly nodeConfiguration?: object;
  readonly peers?: Readonly<Record<string, object>>;
  readonly filters?: Readonly<Record<string, object>>;
  readonly pools?: Readonly<Record<string, object>>;
  readonly blocks?: Readonly<Record<string, "" | "pending" | "confirmed" | "pendingDeletion">>;
  readonly inputs?: LocalInputs;
}
const NO_MESH = { nodeToNodeMeshEnabled: false };
const n = (number: number, more: object = {}) => ({ bgp: { ipv4Address: `10.0.0.${number}/24`, ...more } });

/** What n1 does. */
function planOf(given: Given, node = "n1"): BgpPlan {
  const collector = new BgpCollector();
  const put = (kind: KindName, name: string, spec: object, labels?: Labels) =>
    collector.setResource(
      name,
      { apiVersion: API_VERSION, kind, metadata: { name, ...(labels === undefined ? {} : { labels }) }, spec },
      kind,
    );
  for (const [name, { bgp, labels, wireguard }] of Object.entries(given.nodes ?? { n1: n(1), n2: n(2) }))
    put(
      "Node",
      name,
      { ...(bgp === undefined ? {} : { bgp }), ...(wireguard === undefined ? {} : { wireguard }) },
      labels,
    );
  if (given.configuration !== undefined) put("BGPConfiguration", "default", given.configuration);
  if (given.nodeConfiguration !== undefined) put("BGPConfiguration", "node.n1", given.nodeConfiguration);
  for (const [name, spec] of Object.entries(given.peers ?? {})) put("BGPPeer", name, spec);
  for (const [name, spec] of Object.entries(given.filters ?? {})) put("BGPFilter", name, spec);
  for (const [name, spec] of Object.entries(given.pools ?? {})) put("IPPool", name, spec);
  for (const [cidr, state] of Object.entries(given.blocks ?? {}))
    collector.setBlock(node, cidr, { state, deleted: false });
  return plan(collector.stateFor(node), node, given.inputs);
}
const one = (given: Given): PlannedPeer => {
  const { peers, problems } = planOf(given);
  expect({ peers: peers.length, problems }).toEqual({ peers: 1, problems: [] });
  return peers[0]!;
};
const tor = (spec: object = {}): Given => ({
  nodes: { n1: n(1) },
  configuration: NO_MESH,
  peers: { tor: { peerIP: "10.9.0.1", asNumber: 65100, ...spec } },
});
const conf = (given: Given, family: 4 | 6 = 4): string =>
  birdConfiguration(planOf(given), family, { password: () => "pw" });

describe("settings that make no sense", () => {
  const nodes = { n1: n(1), n2: n(2) };
  test("a field is left out alone: the mesh that was switched off stays off", () => {
    const configuration = { ...NO_MESH, listenPort: 99999, asNumber: 65001, ignoredInterfaces: "eth0" };
    const { peers, localAs, problems } = planOf({ nodes, configuration });
    expect([peers, localAs]).toEqual([[], 65001]);
    expect(problems.map(({ problem }) => problem)).toEqual([
      "spec.listenPort: want 0 to 65535: not used",
      "spec.ignoredInterfaces: want a list: not used",
    ]);
  });
  for (const configuration of [{ nodeToNodeMeshEnabled: "false" }, { nodeMeshPassword: "hunter2" }])
    test(`${Object.keys(configuration).join()} that cannot be read is no mesh`, () => {
      const { peers, problems } = planOf({ nodes, configuration });
      expect(peers).toEqual([]);
      expect(problems[0]?.problem).toMatch(/: no mesh$/);
      expect(JSON.stringify(problems)).not.toContain("hunter2");
    });
  test("a service range that is none is left out, on a reflector too", () => {
    const rr = { n1: { ...n(1), bgp: { ...n(1).bgp, routeReflectorClusterID: "1.0.0.1" } } };
    const configuration = { serviceExternalIPs: [{ cidr: '10.0.0/8"; }' }, { cidr: "10.5.0.0/16" }] };
    expect(conf({ nodes: rr, configuration })).toContain("10.5.0.0/16");
    expect(planOf({ nodes: rr, configuration }).problems).toHaveLength(1);
  });
  test("a filter's name cannot end the quotes it stands in", () => {
    const name = "x' ) { accept; } '";
    const filters = { [name]: { importV4: [{ action: "Accept" }] } };
    const text = conf({ ...tor({ filters: [name] }), filters });
    expect(text).toMatch(/function 'bgp_x_____[\w]+FilterV4'\(\)|function bgp_x_\w+FilterV4\(\)/);
    expect(text).not.toContain("x' )");
  });
});

describe("the mesh", () => {
  test("NB-080 everyone with everyone; who has the higher address, as text, waits", () => {
    const { peers } = planOf({ nodes: { n1: n(9), n2: n(10), n3: n(11) } });
    expect(peers.map(({ name, passive, sourceAddress }) => [name, passive, sourceAddress])).toEqual([
      ["Mesh_10_0_0_10", false, "10.0.0.9"],
      ["Mesh_10_0_0_11", false, "10.0.0.9"],
    ]);
    expect(planOf({ nodes: { n1: n(10), n2: n(9) } }).peers[0]?.passive).toBe(true);
  });
  test("NB-081 reflectors are not in it", () => {
    const rr = n(2, { routeReflectorClusterID: "1.0.0.1" });
    expect(planOf({ nodes: { n1: n(1), n2: rr, n3: n(3) } }).peers.map(({ neighbor }) => neighbor)).toEqual([
      "10.0.0.3",
    ]);
    expect(planOf({ nodes: { n1: rr, n2: n(3) } }).peers).toEqual([]);
  });
  test("NB-082 password and restart time", () => {
    const configuration = {
      nodeMeshPassword: { secretKeyRef: { name: "s", key: "k" } },
      nodeMeshMaxRestartTime: "90.5s",
    };
    const peer = one({ configuration, inputs: { hasSecret: () => true } });
    expect([peer.password, peer.gracefulRestart.timeSeconds]).toEqual(["s/k", 91]);
    expect(planOf({ configuration }).problems[0]?.problem).toContain("secret s with key k is not known here");
  });
  test("two nodes with one address are one session, and reported", () => {
    const { peers, problems } = planOf({ nodes: { n1: n(1), n2: n(2), n3: n(2), n4: n(1) } });
    expect(peers.map(({ because }) => because)).toEqual(["node-to-node mesh, node n2"]);
    expect(problems.map(({ object }) => object)).toEqual(["Node(n3)", "Node(n4)"]);
  });
});

describe("NB-083 peers", () => {
  test("for all, for one, for those that match, by selector", () => {
    const nodes = { n1: { ...n(1), labels: { rack: "a" } }, n2: { ...n(2), labels: { tor: "yes" } } };
    const peers = {
      all: { peerIP: "10.9.0.1", asNumber: 65100 },
      here: { node: "n1", peerIP: "10.9.0.2", asNumber: 65100 },
      there: { node: "n2", peerIP: "10.9.0.3", asNumber: 65100 },
      rack: { nodeSelector: "rack == 'a'", peerIP: "10.9.0.4", asNumber: 65100 },
      other: { nodeSelector: "rack == 'b'", peerIP: "10.9.0.5", asNumber: 65100 },
      tors: { nodeSelector: "rack == 'a'", peerSelector: "has(tor)" },
    };
    expect(planOf({ nodes, configuration: NO_MESH, peers }).peers.map(({ name, because }) => [name, because])).toEqual([
      ["Global_10_9_0_1", "BGPPeer all"],
      ["Node_10_0_0_2", "BGPPeer tors, node n2"],
      ["Node_10_9_0_2", "BGPPeer here"],
      ["Node_10_9_0_4", "BGPPeer rack"],
    ]);
  });
  test("of two for one address the first by name has it, and the other is reported", () => {
    const peers = { b: { peerIP: "10.9.0.1:179", asNumber: 2 }, a: { peerIP: "10.9.0.1", asNumber: 1 } };
    const made = planOf({ ...tor(), peers });
    expect(made.peers.map(({ remoteAs }) => remoteAs)).toEqual([1]);
    expect(made.problems).toEqual([
      { object: "BGPPeer(b)", problem: "10.9.0.1 is already a peer by BGPPeer a: not used" },
    ]);
  });
  test("one to a node takes the mesh's place, unless it could never come up", () => {
    expect(one({ peers: { p: { peerIP: "10.0.0.2", asNumber: 64512 } } }).because).toBe("BGPPeer p");
    const wrong = planOf({ peers: { p: { peerIP: "10.0.0.2", asNumber: 1 } } });
    expect(wrong.peers.map(({ kind }) => kind)).toEqual(["mesh"]);
    expect(wrong.problems[0]?.problem).toContain("asNumber 1 is not node n2's (64512)");
  });
  test("without AS number: the node's, where it is one; else left out and reported", () => {
    expect(one({ configuration: NO_MESH, peers: { p: { node: "n1", peerIP: "10.0.0.2" } } }).remoteAs).toBe(64512);
    const { peers, problems } = planOf(tor({ asNumber: undefined }));
    expect(peers).toEqual([]);
    expect(problems).toEqual([{ object: "BGPPeer(tor)", problem: "asNumber is missing: 10.9.0.1 left out" }]);
  });
  const bad = [
    { peerIP: "nowhere" },
    { nodeSelector: "a b" },
    { ttlSecurity: 300 },
    { nextHopMode: "Maybe" },
    { reachableBy: "fd00::1" },
    { maxRestartTime: "soon" },
  ];
  for (const spec of bad)
    test(`${JSON.stringify(spec)} is left out and reported, the rest stands`, () => {
      const given = tor();
      const { peers, problems } = planOf({
        ...given,
        peers: { ...given.peers, bad: { peerIP: "10.9.0.2", asNumber: 1, ...spec } },
      });
      expect(peers.map(({ neighbor }) => neighbor)).toEqual(["10.9.0.1"]);
      expect(problems.map(({ object }) => object)).toEqual(["BGPPeer(bad)"]);
    });
});

describe("the other side of a peering", () => {
  const nodes = { n1: { ...n(1), labels: { rr: "yes" } }, n2: n(2), n3: n(3) };
  test("NB-084 follows from the first, by selector or address; what is said itself wins", () => {
    const peers = {
      p: { nodeSelector: "!has(rr)", peerSelector: "has(rr)", ttlSecurity: 2, nextHopMode: "Self", filters: ["f"] },
    };
    const made = planOf({ nodes, configuration: NO_MESH, peers });
    expect(made.peers.map(({ name, ttlSecurity, nextHop }) => [name, ttlSecurity, nextHop])).toEqual([
      ["Node_10_0_0_2", 2, "self"],
      ["Node_10_0_0_3", 2, "self"],
    ]);
    const own = { ...peers, q: { node: "n1", peerIP: "10.0.0.2", asNumber: 64512, nextHopMode: "Keep" } };
    expect(planOf({ nodes, configuration: NO_MESH, peers: own }).peers[0]).toMatchObject({
      nextHop: "keep",
      because: "BGPPeer q",
    });
    const byAddress = { p: { node: "n2", peerIP: "10.0.0.1", asNumber: 64512, reachableBy: "10.0.0.254" } };
    const reversed = planOf({ nodes, configuration: NO_MESH, peers: byAddress });
    expect(reversed.peers.map(({ name }) => name)).toEqual(["Node_10_0_0_2"]);
    expect(reversed.staticRoutes).toEqual([{ prefix: "10.0.0.2/32", via: "10.0.0.254" }]);
  });
  test("NB-084 by address and port, unless the node is known to listen on another", () => {
    const reversed = (configuration: object) =>
      planOf({
        nodes,
        configuration: { ...NO_MESH, ...configuration },
        peers: { p: { node: "n2", peerIP: "10.0.0.1:1179", asNumber: 64512 } },
      }).peers.map(({ name }) => name);
    expect(reversed({})).toEqual(["Node_10_0_0_2"]);
    expect(reversed({ listenPort: 1179 })).toEqual(["Node_10_0_0_2_port_1179"]);
    expect(reversed({ listenPort: 179 })).toEqual([]);
  });
  test("NB-085 not where it is said by hand", () =>
    expect(
      planOf({
        nodes,
        configuration: NO_MESH,
        peers: { p: { node: "n2", peerSelector: "has(rr)", reversePeering: "Manual" } },
      }).peers,
    ).toEqual([]));
});

describe("what a session is like", () => {
  test("NB-086 NB-104 ports: the node's own, then the common one; one given wins", () => {
    const given = { configuration: { listenPort: 1790 }, nodeConfiguration: { listenPort: 1791 } };
    expect(planOf(given).listenPort).toBe(1791);
    expect(one(given).port).toBe(1790);
    expect(one(tor({ peerIP: "10.9.0.1:1179" }))).toMatchObject({ port: 1179, name: "Global_10_9_0_1_port_1179" });
    expect(conf(given)).toContain("local port 1791 as 64512;");
  });
  test("DM-131 NB-087 a reflector's clients are of its AS and not of its cluster", () => {
    const nodes = {
      n1: { bgp: { ipv4Address: "10.0.0.1/24", routeReflectorClusterID: "1.0.0.1" } },
      n2: n(2),
      n3: n(3, { routeReflectorClusterID: "1.0.0.1" }),
      n4: n(4, { asNumber: 65000 }),
    };
    const { peers } = planOf({
      nodes,
      configuration: NO_MESH,
      peers: { p: { node: "n1", peerSelector: "all()" }, q: { node: "n1", peerIP: "10.0.0.3", asNumber: 64512 } },
    });
    expect(
      peers.map(({ neighbor, routeReflectorClient, rrClusterId }) => [neighbor, routeReflectorClient, rrClusterId]),
    ).toEqual([
      ["10.0.0.2", true, "1.0.0.1"],
      ["10.0.0.3", false, null],
      ["10.0.0.4", false, null],
    ]);
  });
  test("a cluster ID that is none is not used and reported", () => {
    const made = planOf({ nodes: { n1: n(1, { routeReflectorClusterID: "x; accept" }), n2: n(2) } });
    expect(made.peers.map(({ kind }) => kind)).toEqual(["mesh"]);
    expect(made.problems[0]?.object).toBe("Node(n1)");
  });
  test("NB-088 the original next hop is kept towards other ASs only", () => {
    expect(one(tor({ keepOriginalNextHop: true })).nextHop).toBe("keep");
    expect(one(tor({ keepOriginalNextHop: true, asNumber: 64512 })).nextHop).toBe("default");
  });
  test("NB-089 next hop by mode", () => {
    expect(["Auto", "Self", "Keep"].map((nextHopMode) => one(tor({ nextHopMode })).nextHop)).toEqual([
      "default",
      "self",
      "keep",
    ]);
    expect(conf(tor({ nextHopMode: "Self" }))).toContain("next hop self;");
  });
  test("NB-090 the password's secret is named, never shown in the plan", () => {
    const spec = { password: { secretKeyRef: { name: "s", key: "k" } } };
    expect(one({ ...tor(spec), inputs: { hasSecret: () => true } }).password).toBe("s/k");
    expect(conf({ ...tor(spec), inputs: { hasSecret: () => true } })).toContain('password "pw";');
    expect(planOf(tor(spec)).peers[0]?.password).toBeNull();
  });
  test("NB-090 a session never comes up without a password that cannot be written", () => {
    const spec = { password: { secretKeyRef: { name: "s", key: "k" } } };
    const inputs = { hasSecret: () => false, isUnusableSecret: () => true };
    const { peers, problems } = planOf({ ...tor(spec), inputs });
    expect(peers).toEqual([]);
    expect(problems[0]?.problem).toContain("no session with 10.9.0.1 without it");
    const made = planOf({ ...tor(spec), inputs: { hasSecret: () => true } });
    // The secret was changed, or is gone, since the plan was made.
    for (const password of [undefined, "", 'a";\nprotocol bgp x {', "x".repeat(81)]) {
      const text = birdConfiguration(made, 4, { password: () => password });
      expect(text).toContain("no session with 10.9.0.1 without its password");
      expect(text).not.toMatch(/neighbor|password "|protocol bgp/);
    }
  });
  test("NB-091 source address", () => {
    expect(one(tor()).sourceAddress).toBe("10.0.0.1");
    expect(one(tor({ sourceAddress: "None" })).sourceAddress).toBeNull();
  });
  test("NB-092 times in whole seconds", () => {
    expect(one(tor({ maxRestartTime: "10500ms", keepaliveTime: "15s" }))).toMatchObject({
      gracefulRestart: { timeSeconds: 11 },
      keepaliveSeconds: 15,
    });
    expect(conf(tor({ maxRestartTime: "3h", keepaliveTime: "0s" }))).toContain("graceful restart time 4095;"); // what the protocol can say
  });
  test("NB-093 another AS of our own towards one peer", () => {
    expect(one(tor({ localASNumber: 65100 }))).toMatchObject({ localAs: 65100, export: { sameAs: true } });
    expect(conf(tor({ localASNumber: 65200 }))).toContain("local as 65200;");
  });
  test("NB-094 our own AS in a path, so many times", () => {
    expect(conf(tor({ numAllowedLocalASNumbers: 2 }))).toContain("allow local as 2;");
    expect(conf(tor({ numAllowedLocalASNumbers: 0 }))).not.toContain("allow local as");
  });
  test("NB-095 TTL security", () => {
    expect(one(tor({ ttlSecurity: 3 }))).toMatchObject({ ttlSecurity: 3, multihop: 3 });
    expect(conf(tor({ ttlSecurity: 3 }))).toMatch(/ttl security on;\n\s+multihop 3;/);
    expect(conf(tor())).toMatch(/ttl security off;\n\s+multihop;/);
  });
  test("NB-096 a static route to a peer that is not next door", () => {
    expect(planOf(tor({ reachableBy: "10.0.0.254" })).staticRoutes).toEqual([
      { prefix: "10.9.0.1/32", via: "10.0.0.254" },
    ]);
    expect(conf(tor({ reachableBy: "10.0.0.254" }))).toContain("route 10.9.0.1/32 via 10.0.0.254;");
  });
  test("NB-097 workloads that speak BGP are waited for, and take filters and AS only", () => {
    const peers = {
      lw: {
        localWorkloadSelector: "app == 'r'",
        asNumber: 65401,
        localASNumber: 65500,
        keepaliveTime: "3s",
        nextHopMode: "Self",
      },
    };
    const workloads = [
      { peerName: "lw", addresses: [parseAddress("192.168.1.5")] },
      { peerName: "other", addresses: [parseAddress("192.168.1.6")] },
    ];
    expect(one({ nodes: { n1: n(1) }, configuration: NO_MESH, peers, inputs: { workloads } })).toMatchObject({
      name: "Local_Workload_192_168_1_5",
      passive: true,
      localAs: 65500,
      sourceAddress: null,
      keepaliveSeconds: null,
      nextHop: "default",
    });
  });
});

describe("the router", () => {
  test("NB-100 its id: the IPv4 address, a setting, or a hash of the name", () => {
    expect(planOf({}).routerId).toBe("10.0.0.1");
    expect(planOf({ inputs: { routerId: "1.2.3.4" } }).routerId).toBe("1.2.3.4");
    expect(hashedRouterId("nodeTest")).toBe("109.174.215.226");
    expect(hashedRouterId("Testrobin123")).toBe("207.94.5.27");
    const v6 = planOf({ nodes: { n1: { bgp: { ipv6Address: "fd00::1/64" } } } });
    expect(v6.routerId).toBe(hashedRouterId("n1"));
    const bad = planOf({ inputs: { routerId: "banana" } });
    expect([bad.routerId, bad.problems[0]?.object]).toEqual(["10.0.0.1", "CALICO_ROUTER_ID"]);
  });
  test("NB-101 NB-102 interfaces that are none of its business", () => {
    const given = { configuration: { ignoredInterfaces: ["eth1.*", 'x"; evil'] } };
    expect(planOf(given).interfaces.ignored).toEqual(["eth1.*", "cali*", "kube-ipvs*"]);
    expect(conf(given)).toContain('interface -"eth1.*", -"cali*", -"kube-ipvs*", "*";');
  });
  test("NB-103 how much it says", () => {
    const debug = (global?: string, own?: string) =>
      planOf({
        ...(global === undefined ? {} : { configuration: { logSeverityScreen: global } }),
        ...(own === undefined ? {} : { nodeConfiguration: { logSeverityScreen: own } }),
      }).debug.interfaces;
    expect([debug(), debug("Debug"), debug("Warning"), debug("Debug", "Info")]).toEqual([
      ["states"],
      "all",
      "off",
      ["states"],
    ]);
  });
  test("DM-131 NB-105 bound to the node's address", () => {
    expect(planOf({ configuration: { bindMode: "NodeIP" } }).listenAddress).toEqual({ 4: "10.0.0.1", 6: null });
    expect(conf({ configuration: { bindMode: "NodeIP" } })).toMatch(/local 10\.0\.0\.1 as 64512;\n\s+strict bind yes;/);
  });
  test("DM-131 NB-106 a family without address speaks no BGP", () => {
    expect(conf({}, 6)).toContain("has no IPv6 address");
    expect(conf({}, 6)).not.toContain("protocol bgp");
  });
  test("NB-106 nor does it have filters", () => {
    const rule = { action: "Accept" };
    const filters = { f: { importV4: [rule], exportV4: [rule], importV6: [rule], exportV6: [rule] } };
    const familiesOf = (bgp: object) =>
      planOf({ nodes: { n1: { bgp } }, filters }).bgpFilters.map((each) => each.family);
    expect(familiesOf({ ipv4Address: "10.0.0.1/24" })).toEqual([4, 4]);
    expect(familiesOf({ ipv6Address: "fd00::1/64" })).toEqual([6, 6]);
    expect(familiesOf({})).toEqual([]);
  });
  test("its own node missing is said so", () => expect(() => planOf({}, "nowhere")).toThrow(NoSuchNode));
});

describe("what is announced and what the kernel takes", () => {
  const within = (steps: BgpPlan["bgpExport"][4]) =>
    steps.flatMap((step) => ("within" in step ? [`${step.action} ${step.within}`] : []));
  test("NB-107 NB-108 blocks: blackholes, announced whole; single addresses are no blackholes", () => {
    const made = planOf({
      blocks: {
        "192.168.1.0/26": "confirmed",
        "192.168.2.0/26": "pendingDeletion",
        "192.168.3.0/26": "pending",
        "192.168.4.4/32": "",
      },
    });
    expect(made.staticBlackholes).toEqual(["192.168.1.0/26", "192.168.2.0/26"]);
    expect(made.aggregation.map(({ block }) => block)).toEqual(["192.168.1.0/26", "192.168.4.4/32"]);
    const text = conf({ blocks: { "192.168.1.0/26": "confirmed" } });
    expect(text).toContain("route 192.168.1.0/26 blackhole;");
    expect(text).toContain("if (net = 192.168.1.0/26) then accept;");
  });
  test("NB-109 NB-110 pools are announced unless they shall not be; nothing else", () => {
    const pools = { a: { cidr: "10.1.0.0/16" }, b: { cidr: "10.2.0.0/16", disableBGPExport: true } };
    expect(within(planOf({ pools }).bgpExport[4])).toEqual(["reject 10.2.0.0/16", "accept 10.1.0.0/16"]);
    expect(conf({ pools })).toMatch(/calico_export_to_bgp_peers\(true\);\n\s+reject;/);
  });
  test("NB-111 NB-112 NB-113 tunnels are Felix', plain routes BIRD's unless Felix is told to", () => {
    const pools = {
      a: { cidr: "10.1.0.0/16" },
      b: { cidr: "10.2.0.0/16", vxlanMode: "CrossSubnet" },
      c: { cidr: "10.3.0.0/16", ipipMode: "Always" },
    };
    const kernel = (programClusterRoutes?: string) =>
      within(
        planOf({ pools, ...(programClusterRoutes === undefined ? {} : { configuration: { programClusterRoutes } }) })
          .kernelExport[4],
      );
    const plain = ["accept 10.1.0.0/16", "reject 10.2.0.0/16", "reject 10.3.0.0/16"];
    const none = ["reject 10.1.0.0/16", "reject 10.2.0.0/16", "reject 10.3.0.0/16"];
    expect([kernel(), kernel("Enabled"), kernel("EnabledNoEncapOnly")]).toEqual([plain, plain, plain]);
    expect([kernel("Disabled"), kernel("EnabledIPIPOnly")]).toEqual([none, none]);
  });
  test("NB-114 routes through tunnels are not told to peers of our AS, nor eBPF's to anyone", () => {
    const text = conf({});
    expect(text).toContain(
      'if (internal_peer && (ifname ~ "*.cali" || ifname ~ "*.calico" || ifname ~ "tunl0")) then reject;',
    );
    expect(text).toContain('if (ifname ~ "bpf*.cali") then reject;');
  });
  test("NB-115 routes to nodes with WireGuard are Felix'", () => {
    const wireguard = { interfaceIPv4Address: "10.65.0.1" };
    const nodes = { n1: { ...n(1), wireguard }, a: { ...n(9), wireguard }, n2: { ...n(2), wireguard }, n3: n(3) };
    const hops = planOf({ nodes }).kernelExport[4].flatMap((step) => ("nextHop" in step ? [step.nextHop] : []));
    expect(hops).toEqual(["10.0.0.2", "10.0.0.9"]);
    expect(planOf({ nodes: { ...nodes, n1: n(1) } }).kernelExport[4]).not.toContainEqual({
      nextHop: "10.0.0.2",
      action: "reject",
    });
  });
  test("NB-116 metric and preference are one the other's mirror", () => {
    const given = { configuration: { ipv4NormalRoutePriority: 500 } };
    expect(one(given)).toMatchObject({
      import: { preferWhenLocalPrefAbove: 2147483147 },
      export: { defaultMetric: 500 },
    });
    expect(conf(given)).toContain("bgp_local_pref = 2147483647 - krt_metric;");
  });
  test("NB-117 communities by prefix, by value or name; a node's own list replaces the common one", () => {
    const configuration = {
      communities: [{ name: "blue", value: "64512:1" }],
      prefixAdvertisements: [
        { cidr: "10.1.0.0/16", communities: ["blue", "64512:2:3", "nobody"] },
        { cidr: "rubbish", communities: ["1:1"] },
      ],
    };
    const made = planOf({ configuration });
    expect(made.communities).toEqual([{ within: "10.1.0.0/16", add: ["64512:1", "64512:2:3"] }]);
    expect(made.problems).toHaveLength(2);
    expect(conf({ configuration })).toContain("bgp_large_community.add((64512, 2, 3));");
    const nodeConfiguration = { prefixAdvertisements: [{ cidr: "10.2.0.0/16", communities: ["1:1"] }] };
    expect(planOf({ configuration, nodeConfiguration }).communities.map((each) => each.within)).toEqual([
      "10.2.0.0/16",
    ]);
  });
  test("NB-122 the kernel keeps routes across restarts, paths are merged", () => {
    for (const word of ["persist;", "learn;", "merge paths on;", "graceful restart;", "metric 0;"])
      expect(conf({})).toContain(word);
    expect(conf({})).toContain("if (source = RTS_DEVICE) then reject;");
  });
});

describe("filters", () => {
  const filtered = (rules: Readonly<Record<string, readonly object[]>>, asNumber = 65100): string =>
    conf({ ...tor({ filters: ["f"], asNumber }), filters: { f: rules } });
  test("NB-118 prefixes and actions", () => {
    const text = filtered({
      importV4: [
        { action: "Reject", matchOperator: "Equal", cidr: "10.1.0.0/16" },
        { action: "Accept", matchOperator: "NotEqual", cidr: "10.2.0.0/16" },
        { action: "Reject", matchOperator: "In", cidr: "10.3.0.0/16" },
        { action: "Accept", matchOperator: "NotIn", cidr: "10.4.0.0/16" },
        { action: "Reject" },
      ],
    });
    for (const line of [
      "if ((net = 10.1.0.0/16)) then {",
      "if ((net != 10.2.0.0/16)) then {",
      "if ((net ~ 10.3.0.0/16)) then {",
      "if ((net !~ 10.4.0.0/16)) then {",
      "bgp_f_importFilterV4();",
    ])
      expect(text).toContain(line);
  });
  test("NB-119 source, interface and prefix length; a range that is none never matches, and is reported", () => {
    const text = filtered({
      exportV4: [
        { action: "Reject", source: "RemotePeers", interface: "*.calico" },
        { action: "Reject", matchOperator: "In", cidr: "10.0.0.0/8", prefixLength: { min: 16, max: 24 } },
        { action: "Accept", matchOperator: "NotIn", cidr: "10.0.0.0/8", prefixLength: { min: 4 } },
        { action: "Reject", matchOperator: "In", cidr: "10.66.0.0/16", prefixLength: { max: 8 } },
      ],
    });
    expect(text).toContain('if ((source = RTS_BGP) && (ifname ~ "*.calico")) then {');
    expect(text).toContain("net ~ [ 10.0.0.0/8{16,24} ]");
    expect(text).toContain("net !~ [ 10.0.0.0/8{8,32} ]");
    expect(text).not.toContain("10.66.0.0/16");
  });
  test("NB-120 peer type, communities, paths, priority and operations", () => {
    const rules = {
      importV4: [
        {
          action: "Accept",
          peerType: "iBGP",
          communities: { values: ["65000:100"] },
          asPathPrefix: [65001, 65002],
          priority: 512,
          operations: [
            { addCommunity: { value: "65000:1:2" } },
            { prependASPath: { prefix: [1, 2] } },
            { setPriority: { value: 100 } },
          ],
        },
      ],
    };
    const text = filtered(rules);
    expect(text).toContain(
      "if ((same_as) && ((65000, 100) ~ bgp_community) && (bgp_path ~ [= 65001 65002 * =]) && (bgp_local_pref = 2147483135)) then {",
    );
    expect(text).toMatch(
      /bgp_large_community\.add\(\(65000, 1, 2\)\);\n\s+bgp_path\.prepend\(2\);\n\s+bgp_path\.prepend\(1\);\n\s+bgp_local_pref = 2147483547;\n\s+accept;/,
    );
    expect(text).toContain("bgp_f_importFilterV4(false);");
    expect(filtered(rules, 64512)).toContain("bgp_f_importFilterV4(true);");
  });
  test("NB-121 long names are shortened, missing filters passed over", () => {
    const name = "b".repeat(46);
    const given = { ...tor({ filters: [name, "gone"] }), filters: { [name]: { importV4: [{ action: "Reject" }] } } };
    expect(one(given).importFilters).toEqual([
      { function: "bgp_bbbbbbbbbbbbbbbbbbbbbbbbbbbb_6AFED5022F96DF06_importFilterV4" },
    ]);
    expect(conf(given)).toContain("function bgp_bbbb");
  });
  test("one that makes no sense is left out with its sessions and reported: nothing passes unfiltered", () => {
    const given = {
      ...tor(),
      filters: {
        f: { importV4: [{ action: "Reject", interface: 'x"; accept' }] },
        g: { importV4: [{ action: "Reject" }] },
      },
    };
    const made = planOf(given);
    expect(made.bgpFilters.map((each) => each.name)).toEqual(["g"]);
    expect(made.problems.map(({ object }) => object)).toEqual(["BGPFilter(f)"]);
    expect(made.peers).toHaveLength(1);
    const used = planOf({
      ...given,
      peers: { ...given.peers, p: { peerIP: "10.9.0.2", asNumber: 1, filters: ["f"] } },
    });
    expect(used.peers.map(({ neighbor }) => neighbor)).toEqual(["10.9.0.1"]);
    expect(used.problems.map(({ object }) => object)).toEqual(["BGPFilter(f)", "BGPPeer p"]);
  });
});
