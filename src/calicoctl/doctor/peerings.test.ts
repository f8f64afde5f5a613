// Tests the checks of BGPPeers and sessions, and the grouping of similar nodes.
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import type { BirdSession } from "../../bgp/index.ts";
import { ids, look, meshOff, only } from "../testing/findings.ts";
import { healthy, node, peer, PODS, pool, resource, session, THREE } from "../testing/healthy.ts";
import { clusterFacts } from "./facts.ts";
import type { Finding } from "./finding.ts";
import { planAll } from "./plans.ts";

describe("peerings", () => {
  test("a BGPPeer that expects another AS number than the node has", () => {
    const found = look([
      PODS,
      meshOff,
      ...THREE,
      peer("p", { node: "n1", peerIP: "10.0.0.2", asNumber: 65000 }),
      peer("q", { peerSelector: "all()" }),
    ]);
    const finding = only(found, "as-mismatch");
    expect(finding).toMatchObject({ node: "n2", setting: "BGPPeer(p) spec.asNumber: 64512" });
    expect(finding.fix).toContain(`if AS 64512 is correct: calicoctl patch bgppeer p -p '{"spec":{"asNumber":64512}}'`);
    expect(finding.fix).toContain(
      `If AS 65000 is correct: calicoctl patch node n2 -p '{"spec":{"bgp":{"asNumber":65000}}}'`,
    );
  });

  test("for a session that is down because of an AS number, the fix names both sides, both numbers and the command", () => {
    const rack = peer("rack", { peerIP: "10.0.0.254", asNumber: 65100 });
    const fixFor = (over: Partial<BirdSession>, loggedError?: string, neighbor = "10.0.0.254") =>
      only(
        look([PODS, ...THREE, rack], {
          ...healthy,
          birds: { 4: { routerId: "10.0.0.1", sessions: [session(neighbor, over)] }, 6: undefined },
          sessionEvidence: () => (loggedError === undefined ? {} : { loggedError }),
        }),
        "session-down",
      ).fix;
    expect(fixFor({ neighborAs: 65100, lastError: "Socket: Connection closed" }, "Bad peer AS: 65200")).toBe(
      `node n1 expects AS 65100 from peer 10.0.0.254, which is in AS 65200: calicoctl patch bgppeer rack -p '{"spec":{"asNumber":65200}}', or move 10.0.0.254 to AS 65100`,
    );
    const rejected = fixFor({ neighborAs: 65100 }, "Received: Bad peer AS: 64512");
    expect(rejected).toContain("node n1 is in AS 64512 and expects AS 65100 from peer 10.0.0.254");
    expect(rejected).toContain("calicoctl patch node n1 -p");
    expect(rejected).toContain("calicoctl patch bgppeer rack -p");
    expect(fixFor({ lastError: "Error: Bad peer AS: 64999" }, undefined, "10.0.0.2")).toContain(
      `node n2 (10.0.0.2), which is in AS 64999: calicoctl patch node n2 -p '{"spec":{"bgp":{"asNumber":64999}}}'`,
    );
  });

  test("selectors and names that match nothing, and filters that do not exist", () => {
    const found = look([
      PODS,
      ...THREE,
      peer("a", { nodeSelector: "rack == 'x'", peerIP: "10.1.0.1", asNumber: 65000 }),
      peer("b", { peerSelector: "has(reflector)" }),
      peer("c", { node: "gone", peerIP: "10.1.0.1", asNumber: 65000 }),
      peer("d", { peerIP: "10.1.0.2", asNumber: 65000, filters: ["nope"] }),
    ]);
    expect(found.filter(({ id }) => id === "selector-matches-nothing").map(({ setting }) => setting)).toEqual([
      "BGPPeer(a) spec.nodeSelector",
      "BGPPeer(b) spec.peerSelector",
      "BGPPeer(c) spec.node",
    ]);
    expect(only(found, "filter-missing").problem).toContain("nope");
  });

  test("the mesh is off and there is no reflector; no finding if all pools use VXLAN", () => {
    expect(only(look([PODS, meshOff, ...THREE]), "no-peering").setting).toContain("nodeToNodeMeshEnabled: true");
    expect(look([pool("pods", "10.65.0.0/16", { vxlanMode: "Always" }), meshOff, ...THREE])).toEqual([]);
  });

  test("one node without a session", () => {
    const rr = node("rr", "10.0.0.9/24", { routeReflectorClusterID: "1.0.0.1" }, { rr: "" });
    const found = look([
      PODS,
      meshOff,
      rr,
      ...THREE,
      peer("p", { nodeSelector: "!has(lost)", peerSelector: "has(rr)" }),
    ]);
    expect(found).toEqual([]);
    const lost = node("n4", "10.0.0.4/24", {}, { lost: "" });
    const more = look([
      PODS,
      meshOff,
      rr,
      ...THREE,
      lost,
      peer("p", { nodeSelector: "!has(lost)", peerSelector: "has(rr)" }),
    ]);
    expect(only(more, "node-without-session")).toMatchObject({ node: "n4" });
    expect(only(look([PODS, rr, ...THREE]), "node-without-session")).toMatchObject({ node: "rr" }); // mesh on
  });

  test("a reflector without a cluster ID", () => {
    const hub = node("hub", "10.0.0.9/24", {}, { rr: "" });
    const found = look([PODS, meshOff, hub, ...THREE, peer("p", { nodeSelector: "all()", peerSelector: "has(rr)" })]);
    expect(only(found, "reflector-without-cluster-id")).toMatchObject({ node: "hub" });
    const two = [hub, node("hub2", "10.0.0.8/24", {}, { rr: "" })];
    expect(
      look([PODS, meshOff, ...two, ...THREE, peer("p", { nodeSelector: "all()", peerSelector: "has(rr)" })]).map(
        (f) => f.node,
      ),
    ).toEqual(["hub", "hub2"]);
  });

  test("of two BGPPeers for one address, the finding names the one that is not used", () => {
    const peers = [
      peer("a-some", { nodeSelector: "all()", peerIP: "10.1.0.1", asNumber: 65001 }),
      peer("z-all", { peerIP: "10.1.0.1:179", asNumber: 65002 }),
      peer("b-some", { node: "n3", peerIP: "10.1.0.2", asNumber: 65001 }),
      peer("c-some", { node: "n2", peerIP: "10.1.0.2", asNumber: 65001 }), // another node: no conflict
    ];
    const found = look([PODS, ...THREE, ...peers]);
    expect(ids(found)).toEqual(["two-peers-one-address"]);
    expect(found[0]?.problem).toContain("BGPPeer a-some is not used on n1, n2 and n3: BGPPeer z-all");
  });

  test("problems in the plan of the BGP service on this host are included", () => {
    const host = {
      ...healthy,
      planProblems: [{ object: "BGPPeer tor", problem: "secret s with key k not found" }],
    };
    expect(only(look([PODS, ...THREE], host), "left-out").evidence).toEqual(["in the plan of n1"]);
  });

  test("an object that BGP ignores is reported once, with the affected nodes", () => {
    const found = look([
      PODS,
      ...THREE,
      peer("bare", { peerIP: "10.1.0.1" }),
      peer("bad", { peerIP: "nonsense", asNumber: 1 }),
    ]);
    expect(ids(found)).toEqual(["left-out", "left-out"]);
    expect(found.find(({ object }) => object === "BGPPeer(bare)")?.evidence).toEqual(["in the plan of n1, n2 and n3"]);
  });
});

describe("groups of nodes", () => {
  test("a thousand nodes that all peer with each other are one group, of which three are examined", () => {
    const nodes = Array.from({ length: 1000 }, (_, i) => node(`n${i}`, `10.${i >> 8}.${i & 255}.1/16`));
    const all = [PODS, meshOff, ...nodes, peer("all", { nodeSelector: "all()", peerSelector: "all()" })];
    const plans = planAll(clusterFacts(all));
    expect(plans.groups.map((group) => [group.nodes.length, group.samples.length, group.hasSessions])).toEqual([
      [1000, 3, true],
    ]);
    expect(look(all)).toEqual([]);
    const alone = look([
      ...all,
      node("alone", "10.99.0.1/16"),
      peer("some", { nodeSelector: "x == 'y'", peerSelector: "all()" }),
    ]);
    expect(ids(alone)).toContain("selector-matches-nothing");
  });

  const arbNode = fc.record({
    role: fc.constantFrom("", "rr", "leaf"),
    rack: fc.constantFrom("a", "b"),
    as: fc.constantFrom(undefined, 64999),
    reflects: fc.boolean(),
    nic: fc.constantFrom(undefined, "10.9.0"),
    isV6: fc.boolean(),
  });
  const selector = fc.constantFrom(
    "all()",
    "role == 'rr'",
    "role == 'leaf'",
    "rack == 'a'",
    "rack == 'b'",
    "has(none)",
  );
  const arbPeer = fc.oneof(
    fc.record({ nodeSelector: selector, peerSelector: selector }),
    fc.record({
      nodeSelector: selector,
      peerIP: fc.constantFrom("10.0.0.2", "10.9.0.254"),
      asNumber: fc.constantFrom(64512, 64999),
    }),
    fc.record({
      node: fc.constantFrom("n1", "n3"),
      peerIP: fc.constantFrom("10.9.0.3", "10.8.0.1"),
      asNumber: fc.constant(65001),
    }),
  );

  test("grouping nodes does not change the findings", () =>
    fc.assert(
      fc.property(
        fc.array(arbNode, { minLength: 1, maxLength: 14 }),
        fc.array(arbPeer, { maxLength: 4 }),
        (nodes, peers) => {
          const resources = [
            PODS,
            meshOff,
            ...nodes.map(({ role, rack, as, reflects, nic, isV6 }, i) =>
              node(
                `n${i}`,
                `10.0.0.${i}/24`,
                {
                  asNumber: as,
                  ...(reflects && role === "rr" ? { routeReflectorClusterID: "1.0.0.1" } : {}),
                  ...(isV6 ? { ipv6Address: `fd00::${i}/64` } : {}),
                },
                { role, rack },
                nic === undefined
                  ? {}
                  : {
                      interfaces: [
                        { name: "eth0", addresses: [`10.0.0.${i}`] },
                        { name: "eth1", addresses: [`${nic}.${i}`] },
                      ],
                    },
              ),
            ),
            ...peers.map((spec, i) => peer(`p${i}`, spec)),
          ];
          // A BGPConfiguration for each node makes each a group of its own, and has no other effect.
          const ungrouped = nodes.map((_, i) => resource("BGPConfiguration", `node.n${i}`, {}));
          const summary = (found: readonly Finding[]) =>
            [
              ...new Set(
                found.map(({ id, object, node: name, interface: nic }) =>
                  [id, id === "left-out" ? object : `${object} ${name} ${nic}`].join(" "),
                ),
              ),
            ].sort();
          expect(summary(look(resources))).toEqual(summary(look([...resources, ...ungrouped])));
        },
      ),
      {
        numRuns: 60,
        examples: [
          // A session that is never established, because of a wrong AS number, does not make the node a reflector.
          [
            ([undefined, undefined, 64999, undefined] as const).map((as) => ({
              ...({ role: "", rack: "a", reflects: false, nic: undefined, isV6: false } as const),
              as,
            })),
            [
              { nodeSelector: "all()", peerIP: "10.0.0.2", asNumber: 64512 },
              { nodeSelector: "all()", peerSelector: "all()" },
            ],
          ],
        ],
      },
    ));
});
