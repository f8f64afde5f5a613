import { expect, test } from "bun:test";
import type { ClusterStats } from "./cluster/stats.ts";
import type { ConfigLayers } from "./config-batcher.ts";
import type { GraphUpdate } from "./graph.ts";
import type { DataplaneMessage } from "./messages.ts";
import {
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
} from "./testing/build.ts";
import { copyOf, GraphHarness } from "./testing/run.ts";
import { summarize } from "./testing/summary.ts";

const noRoutes = { routes: "none" } as const;
const summary = (harness: GraphHarness) => summarize(harness.dataplane, []);
const deletion = (update: GraphUpdate) => ({ ...update, value: undefined }) as GraphUpdate;

/** Returns the messages that one step and the following flush emit. */
function emittedBy(harness: GraphHarness, step: () => void): DataplaneMessage[] {
  const messages: DataplaneMessage[] = [];
  const receive = harness.dataplane.receive.bind(harness.dataplane);
  harness.dataplane.receive = (message) => {
    messages.push(message);
    receive(message);
  };
  step();
  harness.flush();
  harness.dataplane.receive = receive;
  return messages;
}
const endpointOf = (harness: GraphHarness, workload: string) => {
  const message = harness.dataplane.objects.get(`wep default/${workload}`);
  if (message?.type !== "workloadEndpointUpdate") throw new Error(`no endpoint ${workload}`);
  return message.endpoint;
};

test("FC-042 emits only endpoints of this host; endpoints of all hosts are members of IP sets", () => {
  const harness = new GraphHarness(noRoutes);
  harness.update(
    wep("here"),
    wep("there", { host: REMOTE, labels: { a: "1" }, nets: ["10.9.0.1/32"] }),
    hep("eth0", { host: REMOTE }),
    policy("p", { inboundRules: [rule({ from: { selector: "a == '1'" } })] }),
  );
  harness.inSync();
  expect(Object.keys(summary(harness).endpoints)).toEqual(["here"]);
  expect([...harness.dataplane.sets.values()].flatMap((members) => [...members])).toEqual(["10.9.0.1/32"]);
});

test("FC-043 a policy is active while it selects a local endpoint; an unchanged update emits nothing", () => {
  const harness = new GraphHarness(noRoutes);
  const p = policy("p", { selector: "has(a)" });
  harness.update(p, wep("ep1"), wep("ep2")).inSync();
  expect(summary(harness).policies).toEqual([]);
  harness.update(wep("ep1", { labels: { a: "1" } }), wep("ep2", { labels: { a: "1" } })).flush();
  expect(summary(harness).policies).toEqual(["p"]);
  harness.update(wep("ep1")).flush();
  expect(summary(harness).policies).toEqual(["p"]);
  expect(emittedBy(harness, () => harness.update(copyOf(p)))).toEqual([]);
  harness.update(wep("ep2")).flush();
  expect(summary(harness).policies).toEqual([]);
});

test("FC-043 a changed rule emits only the policy", () => {
  const harness = new GraphHarness(noRoutes);
  harness.update(policy("p"), wep("ep1")).inSync();
  const messages = emittedBy(harness, () => harness.update(policy("p", { inboundRules: [rule({ protocol: "tcp" })] })));
  expect(messages.map(({ type }) => type)).toEqual(["activePolicyUpdate"]);
});

test("FC-044 a listed profile that does not exist denies everything, and is reported once the graph is in sync", () => {
  const missing: string[] = [];
  const harness = new GraphHarness(noRoutes, { onProfileMissing: (name) => missing.push(name) });
  harness.update(wep("ep1", { profiles: ["lost", "found"] }), ...profile("found", { in: [rule()], out: [rule()] }));
  expect(missing).toEqual([]);
  harness.inSync();
  expect(missing).toEqual(["lost"]);
  expect(summary(harness).profiles).toEqual(["found", "lost!"]);
  harness.update(...profile("lost", { in: [rule()] })).flush();
  expect(summary(harness).profiles).toEqual(["found", "lost"]);
  harness.update(...profile("lost").map(deletion)).flush();
  expect(summary(harness).profiles).toEqual(["found", "lost!"]);
  expect(missing).toEqual(["lost", "lost"]);
});

test("FC-045 a policy with the hint AssumeNeededOnEveryNode is active without a match and never removed in between", () => {
  const harness = new GraphHarness(noRoutes);
  const hinted = (selector: string) => policy("p", { selector, performanceHints: ["AssumeNeededOnEveryNode"] });
  harness.update(hinted("has(a)")).inSync();
  expect(summary(harness).policies).toEqual(["p"]);
  const messages = emittedBy(harness, () => {
    harness.update(wep("ep1", { labels: { a: "1" } })).flush();
    harness.update(hinted("has(b)")).flush();
    harness.update(wep("ep1", { labels: { b: "1" } })).flush();
    harness.remove(wep("ep1"));
  });
  expect(messages.some(({ type }) => type === "activePolicyRemove")).toBe(false);
  harness.update(policy("p", { selector: "has(b)" })).flush();
  expect(summary(harness).policies).toEqual([]);
});

test("FC-047 an IP set exists while a rule uses it; a new set is sent before the old set is removed", () => {
  const harness = new GraphHarness(noRoutes);
  const using = (name: string, selector: string) => policy(name, { inboundRules: [rule({ from: { selector } })] });
  harness.update(wep("ep1"), using("p", "has(a)"), using("q", "has(a)")).inSync();
  expect(harness.dataplane.sets.size).toBe(2); // one is the set of the ambient mesh
  harness.remove(using("q", "has(a)")).flush();
  expect(harness.dataplane.sets.size).toBe(2);
  const messages = emittedBy(harness, () => harness.update(using("p", "has(b)"))).map(({ type }) => type);
  expect(messages).toEqual(["ipSetUpdate", "activePolicyUpdate", "ipSetRemove"]);
  harness.remove(using("p", "has(b)")).flush();
  expect(harness.dataplane.sets.size).toBe(1);
});

test("FC-054 FC-055 sorts tiers by order and name, missing tiers last, and policies by order, name, namespace, kind", () => {
  const harness = new GraphHarness(noRoutes);
  harness.update(
    wep("ep1"),
    tier("b", { order: 1 }),
    tier("a", { order: 1 }),
    tier("none"),
    ...["b", "a", "none", "unknown-b", "unknown-a"].map((name) => policy(`in-${name}`, { tier: name })),
    policy("x", { tier: "a", order: 2, namespace: "n2", kind: "NetworkPolicy" }),
    policy("x", { tier: "a", order: 2, namespace: "n1", kind: "NetworkPolicy" }),
    policy("w", { tier: "a", order: 2 }),
    policy("first", { tier: "a", order: -1 }),
  );
  harness.inSync();
  const { tiers } = endpointOf(harness, "ep1");
  expect(tiers.map(({ name }) => name)).toEqual(["a", "b", "none", "unknown-a", "unknown-b"]);
  expect(tiers[0]?.ingressPolicies.map(({ name, namespace }) => `${namespace}/${name}`)).toEqual([
    "/first",
    "/w",
    "n1/x",
    "n2/x",
    "/in-a",
  ]);
  expect(tiers.at(-1)?.defaultAction).toBe("Deny");
  harness.update(tier("unknown-b", { order: 0, defaultAction: "Pass" })).flush();
  expect(endpointOf(harness, "ep1").tiers[0]).toMatchObject({ name: "unknown-b", defaultAction: "Pass" });
});

test("FC-056 emits no endpoint before the graph is in sync", () => {
  const harness = new GraphHarness(noRoutes);
  harness.update(wep("ep1"), policy("p")).flush();
  expect(summary(harness).endpoints).toEqual({});
  expect(harness.dataplane.isInSync).toBe(false);
  harness.inSync();
  expect(summary(harness).endpoints).toEqual({ ep1: "default(p / p)" });
  expect(harness.dataplane.isInSync).toBe(true);
});

test("FC-057 a policy moves between the normal, forward, untracked and pre-DNAT lists when its fields change", () => {
  const harness = new GraphHarness(noRoutes);
  harness.update(hep("eth0"), tier("default"), policy("p", { applyOnForward: true })).inSync();
  const lists = () => summary(harness).endpoints["eth0"];
  expect(lists()).toBe("default(p / p); forward default(p / p)");
  harness.update(policy("p", { applyOnForward: true, untracked: true })).flush();
  expect(lists()).toBe("untracked default~(p / p)");
  harness.update(policy("p", { applyOnForward: true, preDnat: true })).flush();
  expect(lists()).toBe("preDNAT default~(p / )");
  harness.update(policy("p")).flush();
  expect(lists()).toBe("default(p / p)");
});

test("FC-058 staged policies are sent with their kind, in the order of all policies", () => {
  const harness = new GraphHarness(noRoutes);
  harness
    .update(wep("ep1"), policy("a", { kind: "StagedGlobalNetworkPolicy", order: 1 }), policy("b", { order: 2 }))
    .inSync();
  expect(endpointOf(harness, "ep1").tiers[0]?.ingressPolicies).toEqual([
    { name: "a", namespace: "", kind: "StagedGlobalNetworkPolicy" },
    { name: "b", namespace: "", kind: "GlobalNetworkPolicy" },
  ]);
});

test("FC-059 if several BGP peers select a workload, the first by name is used", () => {
  const harness = new GraphHarness(noRoutes);
  const peer = (name: string, spec: object) => resource("BGPPeer", name, spec);
  const name = () => endpointOf(harness, "ep1").localBgpPeer?.bgpPeerName;
  harness.update(
    wep("ep1", { labels: { bgp: "1" } }),
    peer("b", { nodeSelector: "rack == '1'", localWorkloadSelector: "has(bgp)" }),
    peer("c", { node: LOCAL, localWorkloadSelector: "bgp == '1'" }),
    peer("a", { node: REMOTE, localWorkloadSelector: "has(bgp)" }),
    peer("0", { node: LOCAL }),
  );
  harness.inSync();
  expect(name()).toBe("c");
  harness.update(...node(LOCAL, { ip: "10.0.0.1/24", labels: { rack: "1" } })).flush();
  expect(name()).toBe("b");
  harness.remove(peer("b", {}), peer("c", {})).flush();
  expect(name()).toBeUndefined();
});

test("FC-060 the role in a migration: selected target before named target before named source", () => {
  const harness = new GraphHarness(noRoutes);
  const migration = (name: string, uid: string, spec: object) =>
    resource("LiveMigration", name, spec, { namespace: "default", uid });
  const workload = { orchestratorID: "k8s", workloadID: "default/vm" };
  harness.update(
    wep("vm", { labels: { "vm.kubevirt.io/name": "vm1", target: "yes" } }),
    migration("s", "uid-1", { source: { workload } }),
  );
  harness.inSync();
  const role = () => {
    const { liveMigrationRole, liveMigrationUid } = endpointOf(harness, "vm");
    return [liveMigrationRole, liveMigrationUid];
  };
  expect(role()).toEqual(["source", "uid-1"]);
  expect(endpointOf(harness, "vm").liveMigrationVmiName).toBe("vm1");
  harness
    .update(migration("t", "uid-2", { target: { workloadEndpoint: { ...workload, endpointID: "eth0" } } }))
    .flush();
  expect(role()).toEqual(["target", "uid-2"]);
  harness.update(migration("u", "uid-0", { target: { selector: "target == 'yes'" } })).flush();
  expect(role()).toEqual(["target", "uid-0"]);
  for (const name of ["s", "t", "u"]) harness.remove(migration(name, "", {}));
  harness.flush();
  expect(role()).toEqual(["none", undefined]);
});

test("FC-061 workloads of the ambient mesh are marked, and one IP set contains all their addresses", () => {
  const harness = new GraphHarness(noRoutes);
  const mode = "istio.io/dataplane-mode";
  harness.update(
    wep("in", { labels: { [mode]: "ambient" } }),
    wep("by-namespace", { profiles: ["kns.mesh"], nets: ["10.0.0.2/32"] }),
    wep("out", { labels: { [mode]: "none" }, profiles: ["kns.mesh"], nets: ["10.0.0.3/32"] }),
    wep("remote", { host: REMOTE, labels: { [mode]: "ambient" }, nets: ["10.0.0.4/32"] }),
    ...profile("kns.mesh", { labels: { [`pcns.${mode}`]: "ambient" } }),
  );
  harness.inSync();
  expect(["in", "by-namespace", "out"].map((name) => endpointOf(harness, name).isIstioAmbient)).toEqual([
    true,
    true,
    false,
  ]);
  expect([...(harness.dataplane.sets.get("all-istio-weps") ?? [])].sort()).toEqual([
    "10.0.0.1/32",
    "10.0.0.2/32",
    "10.0.0.4/32",
  ]);
  harness.update(...profile("kns.mesh")).flush();
  expect(endpointOf(harness, "by-namespace").isIstioAmbient).toBe(false);
});

test("FC-062 settings are emitted once the graph is in sync, then once per change, after a not-ready event", () => {
  const events: unknown[] = [];
  const harness = new GraphHarness(noRoutes, {
    onConfig: (layers) => events.push(layers),
    onNotReady: () => events.push("not ready"),
  });
  const global = (name: string, value: string | undefined): GraphUpdate => ({
    key: { type: "globalConfig", name },
    value,
  });
  const host = (name: string, value: string | undefined, of = LOCAL): GraphUpdate => ({
    key: { type: "hostConfig", host: of, name },
    value,
  });
  harness.update(global("A", "1"), host("B", "2"), host("B", "x", REMOTE)).flush();
  expect(events).toEqual([]);
  harness.inSync();
  expect(events).toEqual(["not ready", { global: { A: "1" }, selector: {}, host: { B: "2" } }]);
  events.length = 0;
  harness.update({ key: { type: "ready" }, value: true }, global("A", "1")).flush();
  expect(events).toEqual([]);
  harness.update(global("A", undefined), host("C", "3")).flush();
  expect(events).toEqual([{ global: {}, selector: {}, host: { B: "2", C: "3" } }]);
  events.length = 0;
  harness.update({ key: { type: "ready" }, value: false }).flush();
  expect(events).toEqual(["not ready"]);
});

test("FC-024 if several configurations select this node, only the oldest is used", () => {
  let layers: ConfigLayers | undefined;
  const harness = new GraphHarness(
    { ...noRoutes, toRawConfig: ({ metadata }) => ({ From: metadata.name }) },
    { onConfig: (emitted) => (layers = emitted) },
  );
  const configuration = (name: string, nodeSelector: string, created: string) =>
    resource("FelixConfiguration", name, { nodeSelector }, { created });
  harness.update(
    configuration("young", "has(rack)", "2026-01-02T00:00:00Z"),
    configuration("old-b", "has(rack)", "2026-01-01T00:00:00Z"),
    configuration("old-a", "has(rack)", "2026-01-01T00:00:00Z"),
    configuration("oldest", "has(other)", "2025-01-01T00:00:00Z"),
    configuration("broken", "has(", "2024-01-01T00:00:00Z"),
    configuration("default", "", "2020-01-01T00:00:00Z"),
  );
  harness.inSync();
  expect(layers?.selector).toEqual({});
  harness.update(...node(LOCAL, { labels: { rack: "1" } })).flush();
  expect(layers?.selector).toEqual({ From: "old-a" });
  harness.remove(configuration("old-a", "", "")).flush();
  expect(layers?.selector).toEqual({ From: "old-b" });
});

test("FC-063 a host's address is its BGP, internal or external address, in this order; an equal update emits nothing", () => {
  const harness = new GraphHarness(noRoutes);
  const address = (type: string, text: string) => ({ address: text, type });
  const host = (name: string) => harness.dataplane.objects.get(`host ${name}`);
  harness.update(...node("a", { ip: "10.0.0.1/24", ip6: "fd00::1/64", asNumber: 64513, labels: { rack: "1" } }));
  harness.update(...node("b", { addresses: [address("ExternalIP", "1.2.3.4"), address("InternalIP", "10.0.0.2/24")] }));
  harness.update(
    ...node("c", { addresses: [address("ExternalIP", "1.2.3.4")] }),
    ...node("d"),
    resource("Node", "e", { bgp: {} }),
  );
  harness.inSync();
  expect(host("a")).toMatchObject({
    ipv4Addr: "10.0.0.1/24",
    ipv6Addr: "fd00::1/64",
    asNumber: "64513",
    labels: { rack: "1" },
  });
  expect(host("b")).toMatchObject({ ipv4Addr: "10.0.0.2/24" });
  expect(host("c")).toMatchObject({ ipv4Addr: "1.2.3.4/32" });
  expect(host("d")).toMatchObject({ ipv4Addr: "", ipv6Addr: "" });
  expect(host("e")).toBeUndefined();
  expect(emittedBy(harness, () => harness.update(...node("d")))).toEqual([]);
  harness.remove(...node("a")).flush();
  expect(host("a")).toBeUndefined();
});

test("FC-064 a pool is sent with its CIDR as ID", () => {
  const harness = new GraphHarness(noRoutes);
  const p = pool("10.0.0.0/16", {
    masquerade: true,
    ipipMode: "always",
    vxlanMode: "cross-subnet",
    allowedUses: ["Tunnel"],
  });
  harness.update(p).inSync();
  expect(harness.dataplane.objects.get("pool 10.0.0.0-16")).toEqual({
    type: "poolUpdate",
    id: "10.0.0.0-16",
    cidr: "10.0.0.0/16",
    masquerade: true,
    ipipMode: "always",
    vxlanMode: "cross-subnet",
    allowedUses: ["Tunnel"],
  } as never);
  expect(emittedBy(harness, () => harness.remove(p))).toContainEqual({ type: "poolRemove", id: "10.0.0.0-16" });
});

test("FC-065 FC-066 a WireGuard peer is sent per IP family, and removed when its key is deleted", () => {
  const harness = new GraphHarness(noRoutes);
  const peer = (value: object | undefined) => ({ key: { type: "wireguard", host: REMOTE }, value }) as GraphUpdate;
  harness.update(peer({ publicKey: "k4", interfaceIpv4Addr: "10.0.0.1", publicKeyV6: "k6" })).inSync();
  expect(summary(harness).others).toEqual([`wireguard 4 ${REMOTE}`, `wireguard 6 ${REMOTE}`]);
  expect(harness.dataplane.objects.get(`wireguard 4 ${REMOTE}`)).toMatchObject({
    publicKey: "k4",
    interfaceAddr: "10.0.0.1",
  });
  harness.update(peer({ publicKeyV6: "k6" })).flush();
  expect(summary(harness).others).toEqual([`wireguard 6 ${REMOTE}`]);
  harness.update(peer(undefined)).flush();
  expect(summary(harness).others).toEqual([]);
});

test("FC-067 FC-068 sends the global BGP configuration and services", () => {
  const harness = new GraphHarness(noRoutes);
  const bgp = resource("BGPConfiguration", "default", {
    serviceClusterIPs: [{ cidr: "10.96.0.0/12" }],
    serviceExternalIPs: [{ cidr: "1.0.0.0/8" }],
    serviceLoadBalancerIPs: [{ cidr: "2.0.0.0/8" }],
    localWorkloadPeeringIPV4: "169.254.1.1",
  });
  const update = resource(
    "KubernetesService",
    "svc",
    {
      type: "LoadBalancer",
      clusterIPs: ["10.96.0.1", "fd00::1"],
      externalIPs: ["1.1.1.1"],
      ports: [{ protocol: "TCP", port: 80, nodePort: 30080 }],
    },
    { namespace: "ns" },
  );
  const service = {
    ...update,
    value: { ...(update.value as object), status: { loadBalancer: { ingress: [{ ip: "2.2.2.2" }] } } },
  };
  harness.update(bgp, service as GraphUpdate).inSync();
  expect(harness.dataplane.bgp).toMatchObject({
    serviceClusterCidrs: ["10.96.0.0/12"],
    serviceExternalCidrs: ["1.0.0.0/8"],
    serviceLoadBalancerCidrs: ["2.0.0.0/8"],
    localWorkloadPeeringIpV4: "169.254.1.1",
  });
  expect(harness.dataplane.objects.get("service ns/svc")).toMatchObject({
    serviceType: "LoadBalancer",
    clusterIps: ["10.96.0.1", "fd00::1"],
    externalIps: ["1.1.1.1"],
    ports: [{ protocol: "TCP", port: 80, nodePort: 30080 }],
    loadBalancerIngressIps: ["2.2.2.2"],
  });
  harness.remove(bgp, service as GraphUpdate).flush();
  expect(harness.dataplane.bgp).toBeUndefined();
  expect(summary(harness).others).toEqual([]);
});

test("FC-069 namespaces and service accounts are read from the names and labels of profiles", () => {
  const harness = new GraphHarness(noRoutes);
  harness
    .update(
      ...profile("kns.prod", { labels: { "pcns.env": "prod" } }),
      ...profile("ksa.prod.robot", { labels: { "pcsa.role": "x" } }),
    )
    .inSync();
  expect(harness.dataplane.objects.get("namespace prod")).toMatchObject({ labels: { env: "prod" } });
  expect(harness.dataplane.objects.get("serviceaccount prod/robot")).toMatchObject({ labels: { role: "x" } });
});

const encapsulations = [
  { name: "no pools", pools: [], want: [false, false, false, false] },
  { name: "IPIP", pools: [pool("10.0.0.0/16", { ipipMode: "always" })], want: [true, false, false, false] },
  { name: "VXLAN v4", pools: [pool("10.0.0.0/16", { vxlanMode: "cross-subnet" })], want: [false, true, false, false] },
  { name: "VXLAN v6", pools: [pool("fd00::/48", { vxlanMode: "always" })], want: [false, false, true, false] },
  { name: "no encapsulation", pools: [pool("10.0.0.0/16")], want: [false, false, false, true] },
  {
    name: "forced",
    pools: [pool("10.0.0.0/16", { vxlanMode: "always" })],
    forced: { ipipEnabled: true, vxlanEnabled: false },
    want: [true, false, false, false],
  },
  {
    name: "no encapsulation, but BIRD programs the routes",
    pools: [pool("10.0.0.0/16")],
    forced: { programsNoEncapRoutes: false },
    want: [false, false, false, false],
  },
];
for (const { name, pools, forced = {}, want } of encapsulations)
  test(`FC-070 FC-071 the tunnels that the pools require: ${name}`, () => {
    const harness = new GraphHarness({ ...noRoutes, ...forced });
    harness.update(...pools).flush();
    expect(harness.dataplane.encapsulation).toBeUndefined();
    harness.inSync();
    const [ipipEnabled, vxlanEnabled, vxlanEnabledV6, noEncapNeeded] = want as [boolean, boolean, boolean, boolean];
    expect(harness.dataplane.encapsulation).toEqual({
      type: "encapsulation",
      ipipEnabled,
      vxlanEnabled,
      vxlanEnabledV6,
      noEncapNeeded,
    });
  });

test("FC-079 emits the size of the cluster once the graph is in sync, and then only changes", () => {
  const emitted: ClusterStats[] = [];
  const harness = new GraphHarness(noRoutes, { onStats: (stats) => emitted.push(stats) });
  harness.update(
    wep("a"),
    wep("b", { host: REMOTE }),
    hep("eth0", { host: REMOTE }),
    ...node(REMOTE2),
    policy("p"),
    ...profile("x"),
    tier("default"),
  );
  harness.flush();
  expect(emitted).toEqual([]);
  harness.inSync();
  expect(emitted).toEqual([{ hosts: 3, workloadEndpoints: 2, hostEndpoints: 1, policies: 1, profiles: 1, tiers: 1 }]);
  harness.update(wep("b", { host: REMOTE, labels: { a: "1" } })).flush();
  expect(emitted).toHaveLength(1);
  harness.remove(wep("b", { host: REMOTE }), hep("eth0", { host: REMOTE })).flush();
  expect(emitted.at(-1)).toMatchObject({ hosts: 2, workloadEndpoints: 1, hostEndpoints: 0 });
});

test("FC-109 between flushes, the number of pending messages depends on the objects, not on their changes", () => {
  const harness = new GraphHarness(noRoutes);
  harness.update(wep("ep1"), policy("p", { inboundRules: [rule({ from: { selector: "has(n)" } })] })).inSync();
  const messages = emittedBy(harness, () => {
    for (let round = 0; round < 500; round++) {
      harness.update(
        networkSet("n", [`10.${round % 250}.0.0/16`], { n: "1" }),
        wep("ep1", { labels: { round: String(round) } }),
      );
      harness.update(policy("p", { order: round, inboundRules: [rule({ from: { selector: "has(n)" } })] }));
    }
  });
  expect(messages.length).toBeLessThanOrEqual(3);
});
