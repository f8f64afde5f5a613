// Every finding on the smallest cluster or host that has the fault, and none on one that has not.
import { describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import type { BirdSession } from "../../bgp/index.ts";
import type { KindName, Resource } from "../../model/index.ts";
import { healthy, link, node, peer, PODS, pool, resource, session, THREE } from "../testing/healthy.ts";
import { examine } from "./examine.ts";
import { clusterFacts, type HostFacts, type StoredBlock } from "./facts.ts";
import type { Finding } from "./finding.ts";
import { planAll } from "./plans.ts";
import { printFindings } from "./print.ts";
import { readRefused, refusedNote } from "./host-refused.ts";

const meshOff = resource("BGPConfiguration", "default", { nodeToNodeMeshEnabled: false });
const look = (resources: readonly Resource[], host?: HostFacts, blocks: readonly StoredBlock[] = []) =>
  examine(clusterFacts(resources, blocks), host);
const ids = (findings: readonly Finding[]) => findings.map(({ id }) => id);
/** The one finding of that id; every finding must be complete. */
function only(findings: readonly Finding[], id: string): Finding {
  for (const each of findings) {
    expect([each.problem, each.cause, each.fix].every((text) => text.length > 10)).toBe(true);
    expect(each.evidence.length).toBeGreaterThan(0);
  }
  const found = findings.filter((each) => each.id === id);
  expect(ids(found)).toEqual([id]);
  return found[0]!;
}

test("a cluster that is fine has no findings", () => {
  expect(look([PODS, ...THREE], healthy)).toEqual([]);
  expect(look([])).toEqual([]);
});

describe("nodes' addresses", () => {
  const nics = {
    interfaces: [
      { name: "eth0", addresses: ["10.0.0.1"] },
      { name: "eth1", addresses: ["10.9.0.1"] },
    ],
  };

  test("an address that no interface has, on this host and from afar", () => {
    const found = look([PODS, node("n1", "10.0.0.9/24"), THREE[1]!], healthy);
    expect(only(found, "address-not-on-host")).toMatchObject({
      node: "n1",
      address: "10.0.0.9",
      setting: "IP=autodetect",
    });
    const far = look([PODS, node("n4", "10.0.0.9/24", {}, {}, nics), THREE[1]!]);
    expect(only(far, "address-not-on-host").evidence.join()).toContain("eth1 10.9.0.1");
  });

  test("dual NIC: the Node carries eth1's address, the router is a neighbour of eth0", () => {
    const faulty = [
      PODS,
      node("n1", "10.9.0.1/24", {}, {}, nics),
      peer("rack", { peerIP: "10.0.0.254", asNumber: 65001 }),
    ];
    expect(only(look(faulty), "dual-nic")).toMatchObject({
      severity: "error",
      node: "n1",
      interface: "eth0",
      address: "10.0.0.1",
      peer: "10.0.0.254",
      setting: "IP_AUTODETECTION_METHOD=interface=eth0",
    });
    // On the host itself the prefixes are known, and BIRD's state is evidence.
    const host: HostFacts = {
      ...healthy,
      links: [link("eth0", "10.0.0.1/16"), link("eth1", "10.9.0.1/24")],
      birds: { 4: { routerId: "10.9.0.1", sessions: [session("10.0.0.254", {})] }, 6: undefined },
    };
    const found = look(faulty, host);
    expect(only(found, "dual-nic").evidence).toContain("BIRD on n1: Active");
    expect(ids(found)).not.toContain("session-down"); // told once
  });

  test("dual NIC: no finding when the session is up, the peer is a neighbour, or the source is left to the kernel", () => {
    const at = (peerIP: string, more: object = {}) => [
      PODS,
      node("n1", "10.9.0.1/24", {}, {}, nics),
      peer("rack", { peerIP, asNumber: 65001, ...more }),
    ];
    expect(look(at("10.9.0.254"))).toEqual([]);
    expect(look(at("10.0.0.254", { sourceAddress: "None" }))).toEqual([]);
    const status = resource(
      "CalicoNodeStatus",
      "s",
      { node: "n1", classes: ["BGP"] },
      {},
      {
        status: {
          lastUpdated: "2026-01-01T00:00:00Z",
          bgp: { peersV4: [{ peerIP: "10.0.0.254", state: "Established" }] },
        },
      },
    );
    expect(look([...at("10.0.0.254"), status])).toEqual([]);
  });

  test("dual NIC: a BGPPeer for an address that the node has on its other interface", () => {
    const found = look([
      PODS,
      THREE[1]!,
      node("n1", "10.9.0.1/24", {}, {}, nics),
      peer("to-n1", { peerIP: "10.0.0.1", asNumber: 64512 }),
    ]);
    expect(found.find(({ object }) => object === "BGPPeer(to-n1)")).toMatchObject({
      id: "dual-nic",
      node: "n1",
      interface: "eth0",
      address: "10.0.0.1",
      setting: "IP_AUTODETECTION_METHOD=interface=eth0",
    });
  });

  test("one address on two nodes", () => {
    const found = look([PODS, node("n1", "10.0.0.1/24"), node("n2", "10.0.0.1/24")]);
    expect(only(found, "duplicate-address")).toMatchObject({
      address: "10.0.0.1",
      problem: "nodes n1 and n2 both carry 10.0.0.1",
    });
    expect(ids(found)).not.toContain("duplicate-router-id");
  });

  test("one router id on two nodes with different addresses", () => {
    const host = { ...healthy, birds: { 4: { routerId: "10.0.0.2", sessions: [] }, 6: undefined } };
    expect(only(look([PODS, ...THREE], host), "duplicate-router-id").problem).toContain("n1 and n2");
  });
});

describe("peerings", () => {
  test("an AS number that is not the node's", () => {
    const found = look([
      PODS,
      meshOff,
      ...THREE,
      peer("p", { node: "n1", peerIP: "10.0.0.2", asNumber: 65000 }),
      peer("q", { peerSelector: "all()" }),
    ]);
    const finding = only(found, "as-mismatch");
    expect(finding).toMatchObject({ node: "n2", setting: "BGPPeer(p) spec.asNumber: 64512" });
    expect(finding.fix).toContain(
      `node n2 is to be in AS 64512: calicoctl patch bgppeer p -p '{"spec":{"asNumber":64512}}'`,
    );
    expect(finding.fix).toContain(
      `AS 65000 is meant: calicoctl patch node n2 -p '{"spec":{"bgp":{"asNumber":65000}}}'`,
    );
  });

  test("a session that two AS numbers keep down: who, with whom, which numbers, and the command that cures it", () => {
    const rack = peer("rack", { peerIP: "10.0.0.254", asNumber: 65100 });
    const told = (over: Partial<BirdSession>, heard?: string, neighbor = "10.0.0.254") =>
      only(
        look([PODS, ...THREE, rack], {
          ...healthy,
          birds: { 4: { routerId: "10.0.0.1", sessions: [session(neighbor, over)] }, 6: undefined },
          surroundings: () => (heard === undefined ? {} : { heard }),
        }),
        "session-down",
      ).fix;
    expect(told({ neighborAs: 65100, lastError: "Socket: Connection closed" }, "Bad peer AS: 65200")).toBe(
      `node n1 expects AS 65100 of peer 10.0.0.254, which is in AS 65200: calicoctl patch bgppeer rack -p '{"spec":{"asNumber":65200}}', or let 10.0.0.254 be in AS 65100`,
    );
    const refused = told({ neighborAs: 65100 }, "Received: Bad peer AS: 64512");
    expect(refused).toContain("node n1 is in AS 64512 and expects AS 65100 of peer 10.0.0.254");
    expect(refused).toContain("calicoctl patch node n1 -p");
    expect(refused).toContain("calicoctl patch bgppeer rack -p");
    expect(told({ lastError: "Error: Bad peer AS: 64999" }, undefined, "10.0.0.2")).toContain(
      `node n2 (10.0.0.2), which is in AS 64999: calicoctl patch node n2 -p '{"spec":{"bgp":{"asNumber":64999}}}'`,
    );
  });

  test("selectors and names that match nothing, filters that are not there", () => {
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

  test("the mesh off and no reflector; not where an overlay does without BGP", () => {
    expect(only(look([PODS, meshOff, ...THREE]), "no-peering").setting).toContain("nodeToNodeMeshEnabled: true");
    expect(look([pool("pods", "10.65.0.0/16", { vxlanMode: "Always" }), meshOff, ...THREE])).toEqual([]);
  });

  test("one node that nobody peers with", () => {
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

  test("a reflector without cluster id", () => {
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

  test("two BGPPeers for one address: the order is stated, the loser is named", () => {
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

  test("what only the node itself knows to be missing", () => {
    const host = {
      ...healthy,
      planProblems: [{ object: "BGPPeer tor", problem: "secret s with key k is not known here" }],
    };
    expect(only(look([PODS, ...THREE], host), "left-out").evidence).toEqual(["in the plan of n1"]);
  });

  test("what BGP leaves out is told once, with the nodes it concerns", () => {
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

describe("sorts of nodes", () => {
  test("a thousand nodes that all peer with all are one sort, and three of them are looked at", () => {
    const nodes = Array.from({ length: 1000 }, (_, i) => node(`n${i}`, `10.${i >> 8}.${i & 255}.1/16`));
    const all = [PODS, meshOff, ...nodes, peer("all", { nodeSelector: "all()", peerSelector: "all()" })];
    const plans = planAll(clusterFacts(all));
    expect(plans.sorts.map((sort) => [sort.nodes.length, sort.samples.length, sort.hasSessions])).toEqual([
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

  test("what is found by sorts is what is found node by node", () =>
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
                  ...(as === undefined ? {} : { asNumber: as }),
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
          // A configuration of its own makes every node a sort of its own, and changes nothing else.
          const apart = nodes.map((_, i) => resource("BGPConfiguration", `node.n${i}`, {}));
          const summary = (found: readonly Finding[]) =>
            [
              ...new Set(
                found.map(({ id, object, node: name, interface: nic }) =>
                  [id, id === "left-out" ? object : `${object} ${name} ${nic}`].join(" "),
                ),
              ),
            ].sort();
          expect(summary(look(resources))).toEqual(summary(look([...resources, ...apart])));
        },
      ),
      {
        numRuns: 60,
        examples: [
          // A session that never comes up, for an AS number that is not the other's, makes nobody a reflector.
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

describe("pools", () => {
  test("overlaps: each other, node addresses, node networks, services", () => {
    expect(
      only(look([pool("a", "10.65.0.0/16"), pool("b", "10.65.1.0/24"), ...THREE]), "pools-overlap").problem,
    ).toContain("a (10.65.0.0/16)");
    expect(only(look([pool("a", "10.0.0.0/16"), ...THREE]), "pool-holds-node-addresses").evidence).toHaveLength(3);
    const docker = { ...healthy, links: [...healthy.links, link("docker0", "10.65.3.1/24")] };
    expect(only(look([PODS, ...THREE], docker), "pool-overlaps-node-network").evidence.join()).toContain("docker0");
    const pods = {
      ...healthy,
      links: [...healthy.links, link("vxlan.calico", "10.65.3.1/32"), link("cali1", "10.65.3.2/32")],
    };
    expect(look([PODS, ...THREE], pods)).toEqual([]);
    const services = resource("BGPConfiguration", "default", { serviceClusterIPs: [{ cidr: "10.65.128.0/20" }] });
    expect(only(look([PODS, services, ...THREE]), "pool-overlaps-services").problem).toContain("10.65.128.0/20");
  });

  test("fewer blocks than nodes, or all blocks taken", () => {
    const small = pool("small", "10.65.0.0/25", { blockSize: 26 });
    expect(only(look([small, ...THREE]), "too-few-blocks")).toMatchObject({
      severity: "warning",
      setting: "IPPool spec.blockSize: 28",
    });
    const strict = resource("IPAMConfiguration", "default", { strictAffinity: true });
    expect(only(look([small, strict, ...THREE]), "too-few-blocks").severity).toBe("error");
    const four = pool("four", "10.65.0.0/24", { blockSize: 26 });
    const block = (host: string, i: number) => ({
      host,
      cidr: `10.65.0.${i * 64}/26`,
      affinity: { state: "confirmed", deleted: false } as const,
    });
    expect(look([four, ...THREE], undefined, [block("n1", 0), block("n1", 1)])).toEqual([]);
    const full = [0, 1, 2, 3].map((i) => block("n1", i));
    expect(only(look([four, ...THREE], undefined, full), "too-few-blocks").evidence.join()).toContain("n2 and n3");
    expect(
      only(look([PODS, pool("q", "10.66.0.0/16", { nodeSelector: "has(q)" }), ...THREE]), "pool-without-nodes").problem,
    ).toContain("has(q)");
  });
});

describe("the host", () => {
  const cluster = [PODS, ...THREE];

  test("sysctls", () => {
    const off = {
      ...healthy,
      sysctl: (path: string) => (path === "net/ipv4/ip_forward" ? "0" : path.endsWith("rp_filter") ? "2" : undefined),
    };
    expect(look(cluster, off).map(({ setting }) => setting)).toEqual([
      "net.ipv4.ip_forward=1",
      "net.ipv4.conf.all.rp_filter=1",
    ]);
    const v6 = [PODS, node("n1", "10.0.0.1/24", { ipv6Address: "fd00::1/64" })];
    const noForward = {
      ...healthy,
      links: [link("eth0", "10.0.0.1/24", "fd00::1/64")],
      sysctl: (path: string) => (path.includes("all/forwarding") ? "0" : undefined),
    };
    expect(ids(look(v6, noForward))).toEqual(["sysctl"]);
    expect(look(cluster, { ...noForward })).toEqual([]); // no IPv6 node
  });

  test("a kernel without what the pools ask for", () => {
    const bare = { ...healthy, hasModule: (name: string) => name === "nf_tables" };
    expect(look(cluster, bare)).toEqual([]);
    const tunnels = [
      pool("v", "10.65.0.0/17", { vxlanMode: "Always" }),
      pool("i", "10.65.128.0/17", { ipipMode: "CrossSubnet" }),
      ...THREE,
    ];
    expect(look(tunnels, bare).map(({ problem }) => problem)).toEqual([
      "the kernel of n1 has no vxlan",
      "the kernel of n1 has no ipip",
    ]);
    const felix = resource("FelixConfiguration", "default", { wireguardEnabled: true });
    expect(only(look([...cluster, felix], bare), "kernel-feature").problem).toContain("wireguard");
    expect(only(look(cluster, { ...healthy, hasModule: () => false }), "kernel-feature").problem).toContain(
      "nf_tables",
    );
  });

  test("mixed iptables backends, and two dataplanes", () => {
    const rules = (calico: number, kubernetes: number, all: number) => ({ calico, kubernetes, all });
    const mixed = { ...healthy, iptables: { legacy: rules(20, 0, 20), nft: rules(0, 30, 30) } };
    expect(only(look(cluster, mixed), "mixed-iptables")).toMatchObject({
      severity: "error",
      setting: "FelixConfiguration(default) spec.iptablesBackend: NFT",
    });
    const foreign = { ...healthy, iptables: { legacy: rules(0, 0, 2), nft: rules(20, 30, 50) } };
    expect(only(look(cluster, foreign), "mixed-iptables").severity).toBe("warning");
    expect(look(cluster, { ...healthy, iptables: { legacy: rules(0, 0, 0), nft: rules(20, 30, 50) } })).toEqual([]);
    const both = { ...healthy, hasCalicoNftTable: true, iptables: { legacy: undefined, nft: rules(20, 0, 20) } };
    expect(only(look(cluster, both), "two-dataplanes").problem).toContain("20");
  });

  test("MTUs larger than the way minus encapsulation", () => {
    const vxlan = [pool("v", "10.65.0.0/16", { vxlanMode: "Always" }), ...THREE];
    const with_ = (name: string, mtu: number) => ({ ...healthy, links: [...healthy.links, { ...link(name), mtu }] });
    expect(look(vxlan, with_("vxlan.calico", 1450))).toEqual([]);
    expect(only(look(vxlan, with_("vxlan.calico", 1451)), "mtu")).toMatchObject({
      setting: "FelixConfiguration(default) spec.vxlanMTU: 1450",
    });
    expect(look(cluster, with_("cali1", 1500))).toEqual([]);
    const narrow = { ...with_("cali1", 1500), pathMtu: new Map([["n2", 1400]]) };
    expect(only(look(cluster, narrow), "mtu")).toMatchObject({ interface: "cali1", setting: "mtu: 1400" });
    const both = {
      ...healthy,
      links: [...healthy.links, { ...link("vxlan.calico"), mtu: 1450 }, { ...link("cali1"), mtu: 1500 }],
    };
    expect(only(look(vxlan, both), "mtu").evidence.join()).toContain("less 50 of vxlan.calico");
  });

  test("the ARP table near its limit, and conntrack", () => {
    const table = (entries: number) => ({
      ...healthy,
      neighbourTable: { 4: { entries, limit: 1024, overflows: 3 }, 6: undefined },
    });
    expect(look(cluster, table(800))).toEqual([]);
    expect(only(look(cluster, table(900)), "arp-table")).toMatchObject({
      severity: "warning",
      setting: "net.ipv4.neigh.default.gc_thresh3=8192",
    });
    expect(only(look(cluster, table(1024)), "arp-table").severity).toBe("error");
    const full = {
      ...healthy,
      sysctl: (path: string) =>
        ({ "net/netfilter/nf_conntrack_count": "95", "net/netfilter/nf_conntrack_max": "100" })[path],
    };
    expect(only(look(cluster, full), "conntrack-full").setting).toBe("net.netfilter.nf_conntrack_max=200");
  });

  test("no default route where pods rely on proxy ARP", () => {
    const host = { ...healthy, routesToPodGateway: false, links: [...healthy.links, link("cali1")] };
    expect(only(look(cluster, host), "no-default-route")).toMatchObject({ severity: "error", interface: "cali1" });
  });

  test("sessions that are not up with their cause, and parts that do not run", () => {
    const sessions = [
      session("10.0.0.2", { lastError: "Received: Bad peer AS", localAs: 1, neighborAs: 2 }),
      session("10.0.0.3", { bgpState: "Established", state: "up" }),
    ];
    const host = { ...healthy, birds: { 4: { routerId: "10.0.0.1", sessions }, 6: undefined } };
    expect(only(look(cluster, host), "session-down").cause).toContain("AS numbers do not match");
    const parts = [
      { name: "felix", isRunning: false, detail: "it is failing" },
      { name: "bird", isRunning: true, detail: "" },
    ];
    expect(only(look(cluster, { ...healthy, parts }), "part-not-running").problem).toContain("felix");
  });
});

test("errors come before warnings, and the text says what, why, how we know and what cures it", () => {
  const found = look([PODS, meshOff, ...THREE, peer("b", { peerSelector: "has(reflector)" })]);
  expect(found.map(({ severity }) => severity)).toEqual(["error", "warning"]);
  const text = printFindings(found, "the cluster");
  expect(text).toMatch(/^ERROR: .*\n {2}why {7}.*\n {2}evidence {2}.*\n {12}.*\n {2}fix {7}/);
  expect(text).toEndWith("1 error, 1 warning in the cluster.\n");
});

describe("what the kernel refuses", () => {
  const rule = { kind: "rule", where: "ip calico filter-cali-pi-x, number 1" } as const;
  const limit = "ingressMaxConnections (nft_connlimit)";

  test("is told by setting, as an error where it closes something", () => {
    const host: HostFacts = {
      ...healthy,
      refused: [
        { ...rule, setting: limit, instead: "it is left out", error: "add rule: ENOENT" },
        { ...rule, where: "elsewhere", setting: limit, instead: "it is left out" },
        { ...rule, instead: "packets that come to its place are dropped" },
      ],
    };
    const found = look([PODS, ...THREE], host);
    expect(found.map(({ id, severity, setting }) => ({ id, severity, setting }))).toEqual([
      { id: "refused-by-kernel", severity: "error", setting: undefined },
      { id: "refused-by-kernel", severity: "warning", setting: limit },
    ]);
    expect(found[0]?.problem).toContain("refuses 1 rule: traffic that policy may allow is dropped");
    expect(found[1]?.problem).toBe("the kernel of n1 refuses 2 rules");
    expect(found[1]?.evidence[0]).toBe("ip calico filter-cali-pi-x, number 1: add rule: ENOENT: it is left out");
    expect(refusedNote(host.refused)).toContain("refuses 1 rule or set");
    expect(refusedNote(host.refused.slice(0, 2))).toBeUndefined();
  });

  test("is read from the agent's file; no file and one that is none are nothing", () => {
    const folder = mkdtempSync(join(tmpdir(), "calico-refused-"));
    try {
      const file = join(folder, "refused.json");
      expect(readRefused(file)).toEqual([]);
      writeFileSync(file, "[{");
      expect(readRefused(file)).toEqual([]);
      writeFileSync(file, JSON.stringify([{ ...rule, says: "x", instead: "it is left out" }, 7]));
      expect(readRefused(file)).toEqual([{ ...rule, instead: "it is left out" }]);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

describe("policies that agents do not use as they are written", () => {
  const found = (kind: KindName, spec: object) =>
    examine(clusterFacts([...THREE, PODS, resource(kind, "x", spec)])).filter(({ id }) => id === "not-used");
  test("a good one is no finding", () =>
    expect(found("GlobalNetworkPolicy", { selector: "all()", ingress: [{ action: "Deny" }] })).toEqual([]));
  test("a part that makes no sense is a warning, with every part and the cure", () =>
    expect(
      found("GlobalNetworkPolicy", { ingress: [{ action: "deny" }, { action: "Allow", protocol: "GRE" }] }),
    ).toEqual([
      {
        id: "not-used",
        severity: "warning",
        object: "GlobalNetworkPolicy(x)",
        problem: "agents do not use it as it is written",
        cause: "2 parts of it make no sense",
        evidence: [
          "spec.ingress[0].action: want Allow, Deny, Log or Pass: counts as Deny",
          "spec.ingress[1].protocol: want a protocol's name or a number from 1 to 255: rule left out",
        ],
        fix: "calicoctl get globalnetworkpolicy x -o yaml, correct it, and calicoctl apply: that refuses what makes no sense",
      },
    ]));
  test("one that is not enforced at all is an error", () =>
    expect(found("GlobalNetworkPolicy", { selector: "a = b" })).toMatchObject([
      { severity: "error", problem: "no agent uses it: nothing of it is enforced" },
    ]));
  test("sets and host endpoints too", () => {
    expect(found("GlobalNetworkSet", { nets: ["10.0.0.0/8", "10.0.0/8"] })).toMatchObject([{ severity: "warning" }]);
    expect(found("HostEndpoint", { node: "n1", interfaceName: "eth+" })).toMatchObject([{ severity: "error" }]);
  });
});
