// Tests cases that Calico handles wrongly, with the plan and with a real BIRD: calico-ts uses a valid value, or leaves out and
// reports the object; the rest of the configuration is valid.
import { afterAll, expect, test } from "bun:test";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BgpCollector, type BgpPlan, birdConfiguration, plan } from "../../../src/bgp/index.ts";
import { examine } from "../../../src/calicoctl/doctor/examine.ts";
import { clusterFacts } from "../../../src/calicoctl/doctor/facts.ts";
import { pollUntil } from "../../../src/lib/testing/eventually.ts";
import { API_VERSION, type KindName, type Resource } from "../../../src/model/index.ts";
import { RouterNetwork } from "./routers.ts";

const folder = mkdtempSync(join(tmpdir(), "calico-defects-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const resource = (kind: KindName, name: string, spec: object, labels = {}): Resource => ({
  apiVersion: API_VERSION,
  kind,
  metadata: { name, labels },
  spec,
});
const node = (name: string, ipv4Address?: string, bgp: object = {}, labels: object = {}) =>
  resource("Node", name, { bgp: { ipv4Address, ...bgp } }, labels);
const pool = resource("IPPool", "p4", { cidr: "192.168.0.0/16" });
const tor = (name: string, spec: object) =>
  resource("BGPPeer", name, { peerIP: "10.0.0.254", asNumber: 65100, ...spec });

function planOf(resources: readonly Resource[], name = "n1"): BgpPlan {
  const collector = new BgpCollector();
  for (const each of resources) collector.setResource(each.metadata.name, each, each.kind);
  return plan(collector.stateFor(name), name);
}

/** Checks the files of both families with BIRD. */
function checkWithBird(made: BgpPlan): void {
  for (const family of [4, 6] as const) {
    const file = join(folder, "bird.cfg");
    writeFileSync(file, birdConfiguration(made, family, { password: () => undefined }));
    execFileSync("bird", ["-p", "-c", file], { stdio: "pipe" });
  }
}
const names = (made: BgpPlan) => made.peers.map(({ name }) => name);
const reported = (made: BgpPlan, object: string) => made.problems.filter((each) => each.object === object).length;

test("two BGPPeers for the same address: the same one is used in any order of arrival, and doctor reports the other", () => {
  const peers = [
    tor("b", { asNumber: 65002 }),
    tor("a", { asNumber: 65001 }),
    tor("c", { nodeSelector: "all()", asNumber: 65003 }),
  ];
  const orders = [
    [0, 1, 2],
    [0, 2, 1],
    [1, 0, 2],
    [1, 2, 0],
    [2, 0, 1],
    [2, 1, 0],
  ];
  for (const order of orders) {
    const made = planOf([node("n1", "10.0.0.1/24"), pool, ...order.map((i) => peers[i]!)]);
    expect(made.peers.map(({ remoteAs }) => remoteAs)).toEqual([65001]);
    expect([reported(made, "BGPPeer(b)"), reported(made, "BGPPeer(c)")]).toEqual([1, 1]);
    checkWithBird(made);
  }
  const { findings: found } = examine(clusterFacts([node("n1", "10.0.0.1/24"), pool, ...peers]));
  expect(found.map(({ id, object }) => `${id} ${object}`)).toEqual([
    "two-peers-one-address BGPPeer(b)",
    "two-peers-one-address BGPPeer(c)",
  ]);
});

test("a BGPPeer without an AS number is left out and reported; a BGPPeer for a node has the node's AS number", () => {
  const bare = resource("BGPPeer", "bare", { peerIP: "10.0.0.254" });
  const toNode = resource("BGPPeer", "to-node", { peerIP: "10.0.0.2" });
  const made = planOf([node("n1", "10.0.0.1/24"), node("n2", "10.0.0.2/24", { asNumber: 64999 }), pool, bare, toNode]);
  expect<unknown>(made.peers.map(({ neighbor, remoteAs }) => [neighbor, remoteAs])).toEqual([["10.0.0.2", 64999]]);
  expect(reported(made, "BGPPeer(bare)")).toBe(1);
  checkWithBird(made);
});

test("a node without an IPv4 address has a router ID, which is always the same", () => {
  const made = planOf([
    node("n1", undefined, { ipv6Address: "fd00::1/64" }),
    node("n2", undefined, { ipv6Address: "fd00::2/64" }),
    pool,
  ]);
  expect(made.routerId).toMatch(/^\d+\.\d+\.\d+\.\d+$/);
  expect(names(made)).toEqual(["Mesh_fd00__2"]);
  checkWithBird(made);
});

test("two nodes with the same address get one session, and are reported", () => {
  const made = planOf([node("n1", "10.0.0.1/24"), node("n2", "10.0.0.2/24"), node("n3", "10.0.0.2/24"), pool]);
  expect(names(made)).toEqual(["Mesh_10_0_0_2"]);
  expect(reported(made, "Node(n3)")).toBe(1);
  checkWithBird(made);
});

test("an empty range of prefix lengths never matches, and is reported", () => {
  const filter = resource("BGPFilter", "f", {
    exportV4: [
      { cidr: "10.0.0.0/16", matchOperator: "In", prefixLength: { min: 8, max: 12 }, action: "Accept" },
      { cidr: "10.1.0.0/16", matchOperator: "In", prefixLength: { min: 30, max: 20 }, action: "Accept" },
      { cidr: "10.2.0.0/16", matchOperator: "NotIn", prefixLength: { max: 8 }, interface: "eth0", action: "Accept" },
      { action: "Reject" },
    ],
    importV4: [{ cidr: "10.0.0.0/16", matchOperator: "Equal", prefixLength: { max: 12 }, action: "Accept" }],
  });
  const made = planOf([node("n1", "10.0.0.1/24"), pool, filter, tor("t", { filters: ["f"] })]);
  expect(reported(made, "BGPFilter(f)")).toBe(4);
  // They are not in the plan either, which lists only what BIRD gets.
  expect(made.bgpFilters.map(({ direction, rules }) => [direction, rules])).toEqual([
    ["export", [{ interface: "eth0", action: "accept" }, { action: "reject" }]],
  ]);
  expect(made.peers[0]?.importFilters).toEqual([]);
  expect(names(made)).toEqual(["Global_10_0_0_254"]);
  checkWithBird(made);
});

test("two reflectors of the same cluster that peer by address are not clients of each other", () => {
  const reflector = (name: string, n: number) => node(name, `10.0.0.${n}/24`, { routeReflectorClusterID: "244.0.0.1" });
  const made = planOf([
    reflector("n1", 1),
    reflector("n2", 2),
    node("n3", "10.0.0.3/24"),
    resource("BGPPeer", "to-1", { peerIP: "10.0.0.1", asNumber: 64512 }),
    resource("BGPPeer", "to-2", { peerIP: "10.0.0.2", asNumber: 64512 }),
    pool,
  ]);
  expect<unknown>(made.peers.map(({ neighbor, routeReflectorClient }) => [neighbor, routeReflectorClient])).toEqual([
    ["10.0.0.2", false],
    ["10.0.0.3", true],
  ]);
  checkWithBird(made);
});

test("with the mesh enabled, a BGPPeer for a node replaces the mesh session on both ends", async () => {
  if (process.getuid?.() !== 0) throw new Error("run as root: this builds network namespaces");
  await using net = await RouterNetwork.create();
  await net.put("IPPool", "p4", { cidr: "192.168.0.0/16" });
  await net.put("BGPPeer", "to-n2", { node: "n1", peerIP: "10.77.0.2", asNumber: 64512, keepaliveTime: "10s" });
  for (const number of [1, 2]) await net.addNode(`n${number}`, number, { families: [4] });
  for (const [own, other] of [
    ["n1", "10.77.0.2"],
    ["n2", "10.77.0.1"],
  ] as const) {
    await pollUntil(
      () => net.established(own, 4),
      (seen) => String(seen) === other,
    );
    expect((await net.sessions(own, 4)).map(({ name }) => name)).toEqual([`Node_${other.replaceAll(".", "_")}`]);
  }
}, 60_000);

test("BIRD accepts a configuration with all these cases", () => {
  const made = planOf([
    node("n1", undefined, { ipv6Address: "fd00::1/64" }),
    node("n2", "10.0.0.2/24", { ipv6Address: "fd00::2/64" }),
    node("n3", "10.0.0.2/24", { ipv6Address: "fd00::2/64", asNumber: "none" }),
    tor("a", {}),
    tor("b", {}),
    resource("BGPPeer", "bare", { peerIP: "fd00::254" }),
    resource("BGPPeer", "bad", { peerIP: "10.0.0.300", asNumber: 1 }),
    resource("BGPPeer", "worse", { peerIP: "fd00::253", asNumber: 1, reachableBy: "10.0.0.1" }),
    pool,
  ]);
  expect(names(made)).toEqual(["Mesh_fd00__2"]);
  checkWithBird(made);
});
