// Tests the detection of Nodes with the address of the wrong interface from resources alone: these Nodes have no recorded
// interfaces.
import { describe, expect, test } from "bun:test";
import type { Resource } from "../../model/index.ts";
import { ids, look, meshOff, only } from "../testing/findings.ts";
import { node, PODS, peer, pool, resource } from "../testing/healthy.ts";

const W1 = node("w1", "10.20.30.5/24");
const W2 = node("w2", "10.10.10.6/24");
const TOR = { peerIP: "10.10.10.1", asNumber: 65001 };
const own = (...names: string[]) => names.map((name) => peer(`tor-${name}`, { ...TOR, node: name }));
const status = (name: string, peerIP: string, state: string) =>
  resource(
    "CalicoNodeStatus",
    name,
    { node: name, classes: ["BGP"], updatePeriodSeconds: 10 },
    {},
    {
      status: { lastUpdated: "2026-01-01T00:00:00Z", bgp: { peersV4: [{ peerIP, state }] } },
    },
  );

describe("a node whose peer is in the network of the peer's other nodes", () => {
  test("is reported with its address, the peer, that network and the fix", () => {
    const found = only(look([PODS, W1, W2, ...own("w1", "w2")]), "dual-nic");
    expect(found).toMatchObject({
      severity: "warning",
      object: "Node(w1)",
      node: "w1",
      address: "10.20.30.5",
      peer: "10.10.10.1",
      setting: "IP_AUTODETECTION_METHOD=cidr=10.10.10.0/24",
    });
    for (const words of ["w1", "10.20.30.5", "10.10.10.1", "10.10.10.0/24"]) expect(found.problem).toContain(words);
    expect(found.evidence).toContain("Node(w2) spec.bgp.ipv4Address is 10.10.10.6/24, BGPPeer tor-w2");
    expect(found.fix).toContain("IP_AUTODETECTION_METHOD=cidr=10.10.10.0/24");
    expect(found.fix).toContain("IP=ADDRESS/24");
    expect(found.fix).toContain(`calicoctl patch node w1 -p '{"spec":{"bgp":{"ipv4Address":"ADDRESS/24"}}}'`);
  });

  test("for peers of all nodes, of selected nodes, and IPv6", () => {
    expect(only(look([PODS, W1, W2, peer("tor", TOR)]), "dual-nic").node).toBe("w1");
    expect(only(look([PODS, W1, W2, peer("tor", { ...TOR, nodeSelector: "all()" })]), "dual-nic").node).toBe("w1");
    const six = [
      resource("Node", "w1", { bgp: { ipv6Address: "fd20::5/64" } }),
      resource("Node", "w2", { bgp: { ipv6Address: "fd10::6/64" } }),
      peer("tor", { peerIP: "fd10::1", asNumber: 65001 }),
    ];
    const { setting, fix } = only(look([PODS, ...six]), "dual-nic");
    expect(setting).toBe("IP6_AUTODETECTION_METHOD=cidr=fd10::/64");
    expect(fix).toContain(`{"ipv6Address":"ADDRESS/64"}`);
  });

  test("several such nodes are one finding", () => {
    const found = only(look([PODS, W1, node("w3", "10.20.30.7/24"), W2, peer("tor", TOR)]), "dual-nic");
    expect(found.problem).toContain("w1 (10.20.30.5) and w3 (10.20.30.7)");
  });

  const W3 = node("w3", "10.20.31.5/24");
  for (const { name, peers } of [
    { name: "a BGPPeer for each node", peers: own("w1", "w2", "w3") },
    { name: "one BGPPeer for all nodes", peers: [peer("server", TOR)] },
  ])
    test(`several such nodes in different networks are one finding: ${name}`, () => {
      const found = only(look([PODS, W1, W2, W3, ...peers]), "dual-nic");
      expect(found.severity).toBe("warning");
      expect(found.problem).toContain("w1 (10.20.30.5) and w3 (10.20.31.5)");
      expect(found.problem).toContain("10.10.10.0/24");
      expect(found.fix).toContain("several hops away");
    });

  test("is an error if the node reported that the session is down, and no finding if it is up", () => {
    const all = [PODS, W1, W2, ...own("w1", "w2")];
    expect(only(look([...all, status("w1", "10.10.10.1", "Active")]), "dual-nic")).toMatchObject({
      severity: "error",
      evidence: expect.arrayContaining(["BIRD on w1: Active"]),
    });
    expect(look([...all, status("w1", "10.10.10.1", "Established")])).toEqual([]);
  });

  const fine: readonly { name: string; resources: readonly Resource[] }[] = [
    {
      name: "all nodes have their peers in other networks",
      resources: [W1, W2, peer("far", { peerIP: "192.0.2.1", asNumber: 65001 })],
    },
    {
      name: "the other nodes with this peer have it in another network too",
      resources: [W1, node("w2", "10.20.30.6/24"), ...own("w1", "w2")],
    },
    {
      name: "every node has the switch of its rack",
      resources: [W1, W2, peer("a", { peerIP: "10.20.30.1", asNumber: 1, node: "w1" }), ...own("w2")],
    },
    {
      name: "the node has a peer in its own network as well",
      resources: [W1, W2, ...own("w1", "w2"), peer("own", { peerIP: "10.20.30.1", asNumber: 1, node: "w1" })],
    },
    {
      name: "nodes of several networks have a peer that is near none of them",
      resources: [W1, node("w3", "10.20.31.5/24"), ...own("w1", "w3")],
    },
    {
      name: "the source address is left to the kernel",
      resources: [W1, W2, peer("tor", { ...TOR, sourceAddress: "None" })],
    },
    {
      name: "the peer is reached by a gateway",
      resources: [W1, W2, peer("tor", { ...TOR, reachableBy: "10.20.30.1" })],
    },
    { name: "the Node has no network", resources: [node("w1", "10.20.30.5/32"), W2, ...own("w1", "w2")] },
    {
      name: "the node recorded its interfaces, and none is in the peer's network",
      resources: [
        node("w1", "10.20.30.5/24", {}, {}, { interfaces: [{ name: "eth0", addresses: ["10.20.30.5"] }] }),
        W2,
        ...own("w1", "w2"),
      ],
    },
  ];
  for (const { name, resources } of fine)
    test(`no finding: ${name}`, () => expect(look([PODS, ...resources])).toEqual([]));
});

describe("a BGPPeer for an address that no Node has, beside a node without a session", () => {
  const toW1 = (spec: object = {}) => peer("to-w1", { node: "w2", peerIP: "10.10.10.5", asNumber: 64512, ...spec });
  test("is reported with the BGPPeer, the node, and both fixes", () => {
    const found = look([PODS, meshOff, W1, W2, toW1()]);
    expect(ids(found)).toEqual(["node-without-session", "dual-nic"]);
    const { problem, fix, ...rest } = only(found, "dual-nic");
    expect(rest).toMatchObject({ severity: "warning", object: "BGPPeer(to-w1)", node: "w1", peer: "10.10.10.5" });
    for (const words of ["to-w1", "10.10.10.5", "w1", "10.20.30.5"]) expect(problem).toContain(words);
    expect(fix).toContain("IP=10.10.10.5/24");
    expect(fix).toContain(`calicoctl patch node w1 -p '{"spec":{"bgp":{"ipv4Address":"10.10.10.5/24"}}}'`);
    expect(fix).toContain(`calicoctl patch bgppeer to-w1 -p '{"spec":{"peerIP":"10.20.30.5"}}'`);
  });
  test("no finding for a peer of another AS, or in a network without nodes", () => {
    expect(ids(look([PODS, meshOff, W1, W2, toW1({ asNumber: 65001 })]))).toEqual(["node-without-session"]);
    expect(ids(look([PODS, meshOff, W1, W2, toW1({ peerIP: "192.0.2.1" })]))).toEqual(["node-without-session"]);
  });
  test("is reported before the first pool exists, and with all pools disabled", () => {
    expect(ids(look([meshOff, W1, W2, toW1()]))).toEqual(["dual-nic"]);
    const disabled = pool("pods", "10.65.0.0/16", { disabled: true });
    expect(ids(look([disabled, meshOff, W1, W2, toW1()]))).toContain("dual-nic");
  });
  test("no finding if all pools use VXLAN, because nodes then need no session", () => {
    expect(look([pool("pods", "10.65.0.0/16", { vxlanMode: "Always" }), meshOff, W1, W2, toW1()])).toEqual([]);
  });
  test("no finding if all nodes have sessions", () => {
    expect(look([PODS, W1, W2, toW1()])).toEqual([]);
  });
});
