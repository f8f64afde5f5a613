// Tests the sessions of a plan and their settings. Recorded plans are in plan-golden.test.ts.
import { describe, expect, test } from "bun:test";
import { birdConfiguration } from "./bird/configuration.ts";
import { parseAddress } from "../lib/ip/ip.ts";
import { conf, n, NO_MESH, one, planOf, tor } from "./testing/plan-of.ts";

describe("invalid settings", () => {
  const nodes = { n1: n(1), n2: n(2) };
  test("only the invalid field is left out: a disabled mesh stays disabled", () => {
    const configuration = { ...NO_MESH, listenPort: 99999, asNumber: 65001, ignoredInterfaces: "eth0" };
    const { peers, localAs, problems } = planOf({ nodes, configuration });
    expect([peers, localAs]).toEqual([[], 65001]);
    expect(problems.map(({ problem }) => problem)).toEqual([
      "spec.listenPort: want 0 to 65535: not used",
      "spec.ignoredInterfaces: want a list: not used",
    ]);
  });
  for (const configuration of [{ nodeToNodeMeshEnabled: "false" }, { nodeMeshPassword: "hunter2" }])
    test(`${Object.keys(configuration).join()} that cannot be read disables the mesh`, () => {
      const { peers, problems } = planOf({ nodes, configuration });
      expect(peers).toEqual([]);
      expect(problems[0]?.problem).toMatch(/: no mesh$/);
      expect(JSON.stringify(problems)).not.toContain("hunter2");
    });
  test("an invalid service range is left out, also on a reflector", () => {
    const rr = { n1: { ...n(1), bgp: { ...n(1).bgp, routeReflectorClusterID: "1.0.0.1" } } };
    const configuration = { serviceExternalIPs: [{ cidr: '10.0.0/8"; }' }, { cidr: "10.5.0.0/16" }] };
    expect(conf({ nodes: rr, configuration })).toContain("10.5.0.0/16");
    expect(planOf({ nodes: rr, configuration }).problems).toHaveLength(1);
  });
  test("a filter's name cannot contain a quote", () => {
    const name = "x' ) { accept; } '";
    const filters = { [name]: { importV4: [{ action: "Accept" }] } };
    const text = conf({ ...tor({ filters: [name] }), filters });
    expect(text).toMatch(/function 'bgp_x_____[\w]+FilterV4'\(\)|function bgp_x_\w+FilterV4\(\)/);
    expect(text).not.toContain("x' )");
  });
});

describe("the mesh", () => {
  test("NB-080 all nodes peer with each other; the session to the higher address, compared as text, is passive", () => {
    const { peers } = planOf({ nodes: { n1: n(9), n2: n(10), n3: n(11) } });
    expect(peers.map(({ name, passive, sourceAddress }) => [name, passive, sourceAddress])).toEqual([
      ["Mesh_10_0_0_10", false, "10.0.0.9"],
      ["Mesh_10_0_0_11", false, "10.0.0.9"],
    ]);
    expect(planOf({ nodes: { n1: n(10), n2: n(9) } }).peers[0]?.passive).toBe(true);
  });
  test("NB-081 reflectors are not part of the mesh", () => {
    const rr = n(2, { routeReflectorClusterID: "1.0.0.1" });
    expect<unknown>(planOf({ nodes: { n1: n(1), n2: rr, n3: n(3) } }).peers.map(({ neighbor }) => neighbor)).toEqual([
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
    expect(planOf({ configuration }).problems[0]?.problem).toContain("secret s with key k not found");
  });
  test("two nodes with the same address get one session, and are reported", () => {
    const { peers, problems } = planOf({ nodes: { n1: n(1), n2: n(2), n3: n(2), n4: n(1) } });
    expect(peers.map(({ because }) => because)).toEqual(["node-to-node mesh, node n2"]);
    expect(problems.map(({ object }) => object)).toEqual(["Node(n3)", "Node(n4)"]);
  });
});

describe("NB-083 peers", () => {
  test("for all nodes, one node, matching nodes, and by peer selector", () => {
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
  test("of two BGPPeers for the same address, the first by name is used and the other is reported", () => {
    const peers = { b: { peerIP: "10.9.0.1:179", asNumber: 2 }, a: { peerIP: "10.9.0.1", asNumber: 1 } };
    const made = planOf({ ...tor(), peers });
    expect(made.peers.map(({ remoteAs }) => remoteAs)).toEqual([1]);
    expect(made.problems).toEqual([
      { object: "BGPPeer(b)", problem: "10.9.0.1 is already a peer because of BGPPeer a: not used" },
    ]);
  });
  test("a BGPPeer for a node replaces the mesh session, unless its AS number is wrong", () => {
    expect(one({ peers: { p: { peerIP: "10.0.0.2", asNumber: 64512 } } }).because).toBe("BGPPeer p");
    const wrong = planOf({ peers: { p: { peerIP: "10.0.0.2", asNumber: 1 } } });
    expect(wrong.peers.map(({ kind }) => kind)).toEqual(["mesh"]);
    expect(wrong.problems[0]?.problem).toContain("asNumber 1 is not node n2's (64512)");
  });
  test("without an AS number, that of the node is used; a peer that is not a node is left out and reported", () => {
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
    test(`${JSON.stringify(spec)} is left out and reported, the rest is used`, () => {
      const given = tor();
      const { peers, problems } = planOf({
        ...given,
        peers: { ...given.peers, bad: { peerIP: "10.9.0.2", asNumber: 1, ...spec } },
      });
      expect<unknown>(peers.map(({ neighbor }) => neighbor)).toEqual(["10.9.0.1"]);
      expect(problems.map(({ object }) => object)).toEqual(["BGPPeer(bad)"]);
    });
});

describe("the reverse direction of a BGPPeer", () => {
  const nodes = { n1: { ...n(1), labels: { rr: "yes" } }, n2: n(2), n3: n(3) };
  test("NB-084 is derived by selector or address; an explicit BGPPeer has precedence", () => {
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
    expect<unknown>(reversed.staticRoutes).toEqual([{ prefix: "10.0.0.2/32", via: "10.0.0.254" }]);
  });
  test("NB-084 by address and port, unless the node listens on another port", () => {
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
  test("NB-085 not with reversePeering: Manual", () =>
    expect(
      planOf({
        nodes,
        configuration: NO_MESH,
        peers: { p: { node: "n2", peerSelector: "has(rr)", reversePeering: "Manual" } },
      }).peers,
    ).toEqual([]));
});

describe("settings of a session", () => {
  test("NB-086 NB-104 the port is that of the BGPPeer, else of the node, else the default", () => {
    const given = { configuration: { listenPort: 1790 }, nodeConfiguration: { listenPort: 1791 } };
    expect(planOf(given).listenPort).toBe(1791);
    expect(one(given).port).toBe(1790);
    expect(one(tor({ peerIP: "10.9.0.1:1179" }))).toMatchObject({ port: 1179, name: "Global_10_9_0_1_port_1179" });
    expect(conf(given)).toContain("local port 1791 as 64512;");
  });
  test("DM-131 NB-087 a reflector's clients have its AS and another cluster ID", () => {
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
  test("an invalid cluster ID is ignored and reported", () => {
    const made = planOf({ nodes: { n1: n(1, { routeReflectorClusterID: "x; accept" }), n2: n(2) } });
    expect(made.peers.map(({ kind }) => kind)).toEqual(["mesh"]);
    expect(made.problems[0]?.object).toBe("Node(n1)");
  });
  test("NB-088 the original next hop is kept only for peers in other ASs", () => {
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
  test("NB-090 the plan contains the name of the secret, never the password", () => {
    const spec = { password: { secretKeyRef: { name: "s", key: "k" } } };
    expect(one({ ...tor(spec), inputs: { hasSecret: () => true } }).password).toBe("s/k");
    expect(conf({ ...tor(spec), inputs: { hasSecret: () => true } })).toContain('password "pw";');
    expect(planOf(tor(spec)).peers[0]?.password).toBeNull();
  });
  test("NB-090 a session with an unusable password is left out", () => {
    const spec = { password: { secretKeyRef: { name: "s", key: "k" } } };
    const inputs = { hasSecret: () => false, isUnusableSecret: () => true };
    const { peers, problems } = planOf({ ...tor(spec), inputs });
    expect(peers).toEqual([]);
    expect(problems[0]?.problem).toContain("session with 10.9.0.1 left out");
    const made = planOf({ ...tor(spec), inputs: { hasSecret: () => true } });
    // The secret was changed or deleted after the plan was computed.
    for (const password of [undefined, "", 'a";\nprotocol bgp x {', "x".repeat(81)]) {
      const text = birdConfiguration(made, 4, { password: () => password });
      expect(text).toContain("session with 10.9.0.1 left out");
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
    expect(conf(tor({ maxRestartTime: "3h", keepaliveTime: "0s" }))).toContain("graceful restart time 4095;"); // the maximum of the protocol
  });
  test("NB-093 another local AS for one peer", () => {
    expect(one(tor({ localASNumber: 65100 }))).toMatchObject({ localAs: 65100, export: { sameAs: true } });
    expect(conf(tor({ localASNumber: 65200 }))).toContain("local as 65200;");
  });
  test("NB-094 number of times the own AS may be in a path", () => {
    expect(conf(tor({ numAllowedLocalASNumbers: 2 }))).toContain("allow local as 2;");
    expect(conf(tor({ numAllowedLocalASNumbers: 0 }))).not.toContain("allow local as");
  });
  test("NB-095 TTL security", () => {
    expect(one(tor({ ttlSecurity: 3 }))).toMatchObject({ ttlSecurity: 3, multihop: 3 });
    expect(conf(tor({ ttlSecurity: 3 }))).toMatch(/ttl security on;\n\s+multihop 3;/);
    expect(conf(tor())).toMatch(/ttl security off;\n\s+multihop;/);
  });
  test("NB-096 a static route to a peer that is not directly connected", () => {
    expect<unknown>(planOf(tor({ reachableBy: "10.0.0.254" })).staticRoutes).toEqual([
      { prefix: "10.9.0.1/32", via: "10.0.0.254" },
    ]);
    expect(conf(tor({ reachableBy: "10.0.0.254" }))).toContain("route 10.9.0.1/32 via 10.0.0.254;");
  });
  test("NB-097 sessions with workloads are passive and have only filters and AS numbers", () => {
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
