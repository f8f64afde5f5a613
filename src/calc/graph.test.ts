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
import { GraphBench } from "./testing/run.ts";
import { summarize } from "./testing/summary.ts";

const noRoutes = { routes: "none" } as const;
const summary = (bench: GraphBench) => summarize(bench.dataplane, []);
const gone = (update: GraphUpdate) => ({ ...update, value: undefined }) as GraphUpdate;

/** Everything said by one step. */
function said(bench: GraphBench, step: () => void): DataplaneMessage[] {
  const messages: DataplaneMessage[] = [];
  const take = bench.dataplane.take.bind(bench.dataplane);
  bench.dataplane.take = (message) => {
    messages.push(message);
    take(message);
  };
  step();
  bench.flush();
  bench.dataplane.take = take;
  return messages;
}
const endpointOf = (bench: GraphBench, workload: string) => {
  const message = bench.dataplane.objects.get(`wep default/${workload}`);
  if (message?.type !== "workloadEndpointUpdate") throw new Error(`no endpoint ${workload}`);
  return message.endpoint;
};

test("FC-042 only endpoints of this host are told, all of them count for sets", () => {
  const bench = new GraphBench(noRoutes);
  bench.give(
    wep("here"),
    wep("there", { host: REMOTE, labels: { a: "1" }, nets: ["10.9.0.1/32"] }),
    hep("eth0", { host: REMOTE }),
    policy("p", { inboundRules: [rule({ from: { selector: "a == '1'" } })] }),
  );
  bench.inSync();
  expect(Object.keys(summary(bench).endpoints)).toEqual(["here"]);
  expect([...bench.dataplane.sets.values()].flatMap((members) => [...members])).toEqual(["10.9.0.1/32"]);
});

test("FC-043 a policy is active from its first match to its last, and saying it again says nothing", () => {
  const bench = new GraphBench(noRoutes);
  const p = policy("p", { selector: "has(a)" });
  bench.give(p, wep("ep1"), wep("ep2")).inSync();
  expect(summary(bench).policies).toEqual([]);
  bench.give(wep("ep1", { labels: { a: "1" } }), wep("ep2", { labels: { a: "1" } })).flush();
  expect(summary(bench).policies).toEqual(["p"]);
  bench.give(wep("ep1")).flush();
  expect(summary(bench).policies).toEqual(["p"]);
  expect(said(bench, () => bench.give(structuredClone(p)))).toEqual([]);
  bench.give(wep("ep2")).flush();
  expect(summary(bench).policies).toEqual([]);
});

test("FC-043 a changed rule says the policy and nothing else", () => {
  const bench = new GraphBench(noRoutes);
  bench.give(policy("p"), wep("ep1")).inSync();
  const messages = said(bench, () => bench.give(policy("p", { inboundRules: [rule({ protocol: "tcp" })] })));
  expect(messages.map(({ type }) => type)).toEqual(["activePolicyUpdate"]);
});

test("FC-044 a listed profile that is not there denies, and is reported once everything else is known", () => {
  const missing: string[] = [];
  const bench = new GraphBench(noRoutes, { onProfileMissing: (name) => missing.push(name) });
  bench.give(wep("ep1", { profiles: ["lost", "found"] }), ...profile("found", { in: [rule()], out: [rule()] }));
  expect(missing).toEqual([]);
  bench.inSync();
  expect(missing).toEqual(["lost"]);
  expect(summary(bench).profiles).toEqual(["found", "lost!"]);
  bench.give(...profile("lost", { in: [rule()] })).flush();
  expect(summary(bench).profiles).toEqual(["found", "lost"]);
  bench.give(...profile("lost").map(gone)).flush();
  expect(summary(bench).profiles).toEqual(["found", "lost!"]);
  expect(missing).toEqual(["lost", "lost"]);
});

test("FC-045 a policy that every node needs is active without a match, and never flaps", () => {
  const bench = new GraphBench(noRoutes);
  const hinted = (selector: string) => policy("p", { selector, performanceHints: ["AssumeNeededOnEveryNode"] });
  bench.give(hinted("has(a)")).inSync();
  expect(summary(bench).policies).toEqual(["p"]);
  const messages = said(bench, () => {
    bench.give(wep("ep1", { labels: { a: "1" } })).flush();
    bench.give(hinted("has(b)")).flush();
    bench.give(wep("ep1", { labels: { b: "1" } })).flush();
    bench.remove(wep("ep1"));
  });
  expect(messages.some(({ type }) => type === "activePolicyRemove")).toBe(false);
  bench.give(policy("p", { selector: "has(b)" })).flush();
  expect(summary(bench).policies).toEqual([]);
});

test("FC-047 a set is active while any rule uses it, and a new one comes before the old one goes", () => {
  const bench = new GraphBench(noRoutes);
  const using = (name: string, selector: string) => policy(name, { inboundRules: [rule({ from: { selector } })] });
  bench.give(wep("ep1"), using("p", "has(a)"), using("q", "has(a)")).inSync();
  expect(bench.dataplane.sets.size).toBe(2); // and the one of the mesh
  bench.remove(using("q", "has(a)")).flush();
  expect(bench.dataplane.sets.size).toBe(2);
  const messages = said(bench, () => bench.give(using("p", "has(b)"))).map(({ type }) => type);
  expect(messages).toEqual(["ipSetUpdate", "activePolicyUpdate", "ipSetRemove"]);
  bench.remove(using("p", "has(b)")).flush();
  expect(bench.dataplane.sets.size).toBe(1);
});

test("FC-054 FC-055 tiers by order and name, unknown ones last; policies by order, then name, namespace, kind", () => {
  const bench = new GraphBench(noRoutes);
  bench.give(
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
  bench.inSync();
  const { tiers } = endpointOf(bench, "ep1");
  expect(tiers.map(({ name }) => name)).toEqual(["a", "b", "none", "unknown-a", "unknown-b"]);
  expect(tiers[0]?.ingressPolicies.map(({ name, namespace }) => `${namespace}/${name}`)).toEqual([
    "/first",
    "/w",
    "n1/x",
    "n2/x",
    "/in-a",
  ]);
  expect(tiers.at(-1)?.defaultAction).toBe("Deny");
  bench.give(tier("unknown-b", { order: 0, defaultAction: "Pass" })).flush();
  expect(endpointOf(bench, "ep1").tiers[0]).toMatchObject({ name: "unknown-b", defaultAction: "Pass" });
});

test("FC-056 no endpoint is told before the first complete picture", () => {
  const bench = new GraphBench(noRoutes);
  bench.give(wep("ep1"), policy("p")).flush();
  expect(summary(bench).endpoints).toEqual({});
  expect(bench.dataplane.isInSync).toBe(false);
  bench.inSync();
  expect(summary(bench).endpoints).toEqual({ ep1: "default(p / p)" });
  expect(bench.dataplane.isInSync).toBe(true);
});

test("FC-057 a policy moves between lists as its purpose changes", () => {
  const bench = new GraphBench(noRoutes);
  bench.give(hep("eth0"), tier("default"), policy("p", { applyOnForward: true })).inSync();
  const lists = () => summary(bench).endpoints["eth0"];
  expect(lists()).toBe("default(p / p); forward default(p / p)");
  bench.give(policy("p", { applyOnForward: true, untracked: true })).flush();
  expect(lists()).toBe("untracked default~(p / p)");
  bench.give(policy("p", { applyOnForward: true, preDnat: true })).flush();
  expect(lists()).toBe("preDNAT default~(p / )");
  bench.give(policy("p")).flush();
  expect(lists()).toBe("default(p / p)");
});

test("FC-058 staged policies are carried by their kind, in their place", () => {
  const bench = new GraphBench(noRoutes);
  bench
    .give(wep("ep1"), policy("a", { kind: "StagedGlobalNetworkPolicy", order: 1 }), policy("b", { order: 2 }))
    .inSync();
  expect(endpointOf(bench, "ep1").tiers[0]?.ingressPolicies).toEqual([
    { name: "a", namespace: "", kind: "StagedGlobalNetworkPolicy" },
    { name: "b", namespace: "", kind: "GlobalNetworkPolicy" },
  ]);
});

test("FC-059 of the BGP peers that select a workload the least name counts", () => {
  const bench = new GraphBench(noRoutes);
  const peer = (name: string, spec: object) => resource("BGPPeer", name, spec);
  const name = () => endpointOf(bench, "ep1").localBgpPeer?.bgpPeerName;
  bench.give(
    wep("ep1", { labels: { bgp: "1" } }),
    peer("b", { nodeSelector: "rack == '1'", localWorkloadSelector: "has(bgp)" }),
    peer("c", { node: LOCAL, localWorkloadSelector: "bgp == '1'" }),
    peer("a", { node: REMOTE, localWorkloadSelector: "has(bgp)" }),
    peer("0", { node: LOCAL }),
  );
  bench.inSync();
  expect(name()).toBe("c");
  bench.give(...node(LOCAL, { ip: "10.0.0.1/24", labels: { rack: "1" } })).flush();
  expect(name()).toBe("b");
  bench.remove(peer("b", {}), peer("c", {})).flush();
  expect(name()).toBeUndefined();
});

test("FC-060 a migration's role: selected target, named target, named source; the greatest UID", () => {
  const bench = new GraphBench(noRoutes);
  const migration = (name: string, uid: string, spec: object) =>
    resource("LiveMigration", name, spec, { namespace: "default", uid });
  const workload = { orchestratorID: "k8s", workloadID: "default/vm" };
  bench.give(
    wep("vm", { labels: { "vm.kubevirt.io/name": "vm1", target: "yes" } }),
    migration("s", "uid-1", { source: { workload } }),
  );
  bench.inSync();
  const role = () => {
    const { liveMigrationRole, liveMigrationUid } = endpointOf(bench, "vm");
    return [liveMigrationRole, liveMigrationUid];
  };
  expect(role()).toEqual(["source", "uid-1"]);
  expect(endpointOf(bench, "vm").liveMigrationVmiName).toBe("vm1");
  bench.give(migration("t", "uid-2", { target: { workloadEndpoint: { ...workload, endpointID: "eth0" } } })).flush();
  expect(role()).toEqual(["target", "uid-2"]);
  bench.give(migration("u", "uid-0", { target: { selector: "target == 'yes'" } })).flush();
  expect(role()).toEqual(["target", "uid-0"]);
  for (const name of ["s", "t", "u"]) bench.remove(migration(name, "", {}));
  bench.flush();
  expect(role()).toEqual(["none", undefined]);
});

test("FC-061 workloads of the mesh are marked and all their addresses are one set", () => {
  const bench = new GraphBench(noRoutes);
  const mode = "istio.io/dataplane-mode";
  bench.give(
    wep("in", { labels: { [mode]: "ambient" } }),
    wep("by-namespace", { profiles: ["kns.mesh"], nets: ["10.0.0.2/32"] }),
    wep("out", { labels: { [mode]: "none" }, profiles: ["kns.mesh"], nets: ["10.0.0.3/32"] }),
    wep("remote", { host: REMOTE, labels: { [mode]: "ambient" }, nets: ["10.0.0.4/32"] }),
    ...profile("kns.mesh", { labels: { [`pcns.${mode}`]: "ambient" } }),
  );
  bench.inSync();
  expect(["in", "by-namespace", "out"].map((name) => endpointOf(bench, name).isIstioAmbient)).toEqual([
    true,
    true,
    false,
  ]);
  expect([...(bench.dataplane.sets.get("all-istio-weps") ?? [])].sort()).toEqual([
    "10.0.0.1/32",
    "10.0.0.2/32",
    "10.0.0.4/32",
  ]);
  bench.give(...profile("kns.mesh")).flush();
  expect(endpointOf(bench, "by-namespace").isIstioAmbient).toBe(false);
});

test("FC-062 settings wait for the first complete picture, then come once per change; not ready comes first", () => {
  const events: unknown[] = [];
  const bench = new GraphBench(noRoutes, {
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
  bench.give(global("A", "1"), host("B", "2"), host("B", "x", REMOTE)).flush();
  expect(events).toEqual([]);
  bench.inSync();
  expect(events).toEqual(["not ready", { global: { A: "1" }, selector: {}, host: { B: "2" } }]);
  events.length = 0;
  bench.give({ key: { type: "ready" }, value: true }, global("A", "1")).flush();
  expect(events).toEqual([]);
  bench.give(global("A", undefined), host("C", "3")).flush();
  expect(events).toEqual([{ global: {}, selector: {}, host: { B: "2", C: "3" } }]);
  events.length = 0;
  bench.give({ key: { type: "ready" }, value: false }).flush();
  expect(events).toEqual(["not ready"]);
});

test("FC-024 of the configurations that select this node the oldest is used whole", () => {
  let layers: ConfigLayers | undefined;
  const bench = new GraphBench(
    { ...noRoutes, toRawConfig: ({ metadata }) => ({ From: metadata.name }) },
    { onConfig: (given) => (layers = given) },
  );
  const configuration = (name: string, nodeSelector: string, created: string) =>
    resource("FelixConfiguration", name, { nodeSelector }, { created });
  bench.give(
    configuration("young", "has(rack)", "2026-01-02T00:00:00Z"),
    configuration("old-b", "has(rack)", "2026-01-01T00:00:00Z"),
    configuration("old-a", "has(rack)", "2026-01-01T00:00:00Z"),
    configuration("oldest", "has(other)", "2025-01-01T00:00:00Z"),
    configuration("broken", "has(", "2024-01-01T00:00:00Z"),
    configuration("default", "", "2020-01-01T00:00:00Z"),
  );
  bench.inSync();
  expect(layers?.selector).toEqual({});
  bench.give(...node(LOCAL, { labels: { rack: "1" } })).flush();
  expect(layers?.selector).toEqual({ From: "old-a" });
  bench.remove(configuration("old-a", "", "")).flush();
  expect(layers?.selector).toEqual({ From: "old-b" });
});

test("FC-063 a host's addresses come from BGP, else its internal, else its external address; equal news is no news", () => {
  const bench = new GraphBench(noRoutes);
  const address = (type: string, text: string) => ({ address: text, type });
  const host = (name: string) => bench.dataplane.objects.get(`host ${name}`);
  bench.give(...node("a", { ip: "10.0.0.1/24", ip6: "fd00::1/64", asNumber: 64513, labels: { rack: "1" } }));
  bench.give(...node("b", { addresses: [address("ExternalIP", "1.2.3.4"), address("InternalIP", "10.0.0.2/24")] }));
  bench.give(
    ...node("c", { addresses: [address("ExternalIP", "1.2.3.4")] }),
    ...node("d"),
    resource("Node", "e", { bgp: {} }),
  );
  bench.inSync();
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
  expect(said(bench, () => bench.give(...node("d")))).toEqual([]);
  bench.remove(...node("a")).flush();
  expect(host("a")).toBeUndefined();
});

test("FC-064 pools are handed through by their CIDR", () => {
  const bench = new GraphBench(noRoutes);
  const p = pool("10.0.0.0/16", {
    masquerade: true,
    ipipMode: "always",
    vxlanMode: "cross-subnet",
    allowedUses: ["Tunnel"],
  });
  bench.give(p).inSync();
  expect(bench.dataplane.objects.get("pool 10.0.0.0-16")).toEqual({
    type: "poolUpdate",
    id: "10.0.0.0-16",
    cidr: "10.0.0.0/16",
    masquerade: true,
    ipipMode: "always",
    vxlanMode: "cross-subnet",
    allowedUses: ["Tunnel"],
  } as never);
  expect(said(bench, () => bench.remove(p))).toContainEqual({ type: "poolRemove", id: "10.0.0.0-16" });
});

test("FC-065 FC-066 WireGuard peers per family; a key that is gone takes the peer along", () => {
  const bench = new GraphBench(noRoutes);
  const peer = (value: object | undefined) => ({ key: { type: "wireguard", host: REMOTE }, value }) as GraphUpdate;
  bench.give(peer({ publicKey: "k4", interfaceIpv4Addr: "10.0.0.1", publicKeyV6: "k6" })).inSync();
  expect(summary(bench).others).toEqual([`wireguard 4 ${REMOTE}`, `wireguard 6 ${REMOTE}`]);
  expect(bench.dataplane.objects.get(`wireguard 4 ${REMOTE}`)).toMatchObject({
    publicKey: "k4",
    interfaceAddr: "10.0.0.1",
  });
  bench.give(peer({ publicKeyV6: "k6" })).flush();
  expect(summary(bench).others).toEqual([`wireguard 6 ${REMOTE}`]);
  bench.give(peer(undefined)).flush();
  expect(summary(bench).others).toEqual([]);
});

test("FC-067 FC-068 the global BGP configuration and services are handed through", () => {
  const bench = new GraphBench(noRoutes);
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
  bench.give(bgp, service as GraphUpdate).inSync();
  expect(bench.dataplane.bgp).toMatchObject({
    serviceClusterCidrs: ["10.96.0.0/12"],
    serviceExternalCidrs: ["1.0.0.0/8"],
    serviceLoadBalancerCidrs: ["2.0.0.0/8"],
    localWorkloadPeeringIpV4: "169.254.1.1",
  });
  expect(bench.dataplane.objects.get("service ns/svc")).toMatchObject({
    serviceType: "LoadBalancer",
    clusterIps: ["10.96.0.1", "fd00::1"],
    externalIps: ["1.1.1.1"],
    ports: [{ protocol: "TCP", port: 80, nodePort: 30080 }],
    loadBalancerIngressIps: ["2.2.2.2"],
  });
  bench.remove(bgp, service as GraphUpdate).flush();
  expect(bench.dataplane.bgp).toBeUndefined();
  expect(summary(bench).others).toEqual([]);
});

test("FC-069 namespaces and service accounts are read from the names and labels of profiles", () => {
  const bench = new GraphBench(noRoutes);
  bench
    .give(
      ...profile("kns.prod", { labels: { "pcns.env": "prod" } }),
      ...profile("ksa.prod.robot", { labels: { "pcsa.role": "x" } }),
    )
    .inSync();
  expect(bench.dataplane.objects.get("namespace prod")).toMatchObject({ labels: { env: "prod" } });
  expect(bench.dataplane.objects.get("serviceaccount prod/robot")).toMatchObject({ labels: { role: "x" } });
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
    name: "routes of others",
    pools: [pool("10.0.0.0/16")],
    forced: { ownsNoEncapRoutes: false },
    want: [false, false, false, false],
  },
];
for (const { name, pools, forced = {}, want } of encapsulations)
  test(`FC-070 FC-071 what tunnels the pools ask for: ${name}`, () => {
    const bench = new GraphBench({ ...noRoutes, ...forced });
    bench.give(...pools).flush();
    expect(bench.dataplane.encapsulation).toBeUndefined();
    bench.inSync();
    const [ipipEnabled, vxlanEnabled, vxlanEnabledV6, noEncapNeeded] = want as [boolean, boolean, boolean, boolean];
    expect(bench.dataplane.encapsulation).toEqual({
      type: "encapsulation",
      ipipEnabled,
      vxlanEnabled,
      vxlanEnabledV6,
      noEncapNeeded,
    });
  });

test("FC-079 the cluster is counted once it is known, and only changes are told", () => {
  const told: ClusterStats[] = [];
  const bench = new GraphBench(noRoutes, { onStats: (stats) => told.push(stats) });
  bench.give(
    wep("a"),
    wep("b", { host: REMOTE }),
    hep("eth0", { host: REMOTE }),
    ...node(REMOTE2),
    policy("p"),
    ...profile("x"),
    tier("default"),
  );
  bench.flush();
  expect(told).toEqual([]);
  bench.inSync();
  expect(told).toEqual([{ hosts: 3, workloadEndpoints: 2, hostEndpoints: 1, policies: 1, profiles: 1, tiers: 1 }]);
  bench.give(wep("b", { host: REMOTE, labels: { a: "1" } })).flush();
  expect(told).toHaveLength(1);
  bench.remove(wep("b", { host: REMOTE }), hep("eth0", { host: REMOTE })).flush();
  expect(told.at(-1)).toMatchObject({ hosts: 2, workloadEndpoints: 1, hostEndpoints: 0 });
});

test("FC-109 while nobody flushes, what is kept grows with the objects and not with their changes", () => {
  const bench = new GraphBench(noRoutes);
  bench.give(wep("ep1"), policy("p", { inboundRules: [rule({ from: { selector: "has(n)" } })] })).inSync();
  const messages = said(bench, () => {
    for (let round = 0; round < 500; round++) {
      bench.give(
        networkSet("n", [`10.${round % 250}.0.0/16`], { n: "1" }),
        wep("ep1", { labels: { round: String(round) } }),
      );
      bench.give(policy("p", { order: round, inboundRules: [rule({ from: { selector: "has(n)" } })] }));
    }
  });
  expect(messages.length).toBeLessThanOrEqual(3);
});
