import { expect, test } from "bun:test";
import { resource, stored, wrongFields } from "./testing.ts";

const defaults = { logSeverityScreen: "Info", serviceLoadBalancerAggregation: "Enabled" } as const;
const cluster = { metadata: { name: "default" } };

test("DM-018 BGPConfiguration: defaults, AS number in three spellings, service addresses, communities", async () => {
  expect(await stored("BGPConfiguration", {}, cluster)).toEqual(defaults);
  for (const [written, asNumber] of [
    [65010, 65010],
    ["65010", 65010],
    ["1.10", 65546],
    [0, 0],
    [4294967295, 4294967295],
  ] as const)
    expect(await stored("BGPConfiguration", { asNumber: written }, cluster)).toEqual({ ...defaults, asNumber });
  const spec = {
    nodeToNodeMeshEnabled: false,
    serviceExternalIPs: [{ cidr: "198.51.100.0/24" }, { cidr: "2001:db8::/64" }],
    serviceClusterIPs: [{ cidr: "10.96.0.0/12" }],
    communities: [
      { name: "blue", value: "65010:100" },
      { name: "large", value: "65010:1:2" },
    ],
    prefixAdvertisements: [{ cidr: "10.10.0.0/16", communities: ["blue", "65010:200"] }],
    listenPort: 1790,
  };
  expect(await stored("BGPConfiguration", spec, cluster)).toEqual({ ...defaults, ...spec });
  expect(await stored("BGPConfiguration", { listenPort: 0 }, cluster)).toEqual(defaults);
});

test("DM-018 cluster-wide settings are allowed only in default; the log level may be set per node", async () => {
  const spec = {
    nodeToNodeMeshEnabled: true,
    asNumber: 1,
    serviceClusterIPs: [{ cidr: "10.96.0.0/12" }],
    nodeMeshMaxRestartTime: "1s",
  };
  expect(await wrongFields("BGPConfiguration", spec, { metadata: { name: "node.n1" } })).toEqual([
    "spec.nodeToNodeMeshEnabled",
    "spec.asNumber",
    "spec.serviceClusterIPs",
    "spec.nodeMeshMaxRestartTime",
  ]);
  const node = await stored("BGPConfiguration", { logSeverityScreen: "Error" }, { metadata: { name: "node.n1" } });
  expect(node).toEqual({ ...defaults, logSeverityScreen: "Error" });
});

test("DM-019 BGPConfiguration: bind mode, ignored interfaces, mesh password, route priorities, cluster routes", async () => {
  const spec = {
    bindMode: "NodeIP",
    ignoredInterfaces: ["eth9", "vir*"],
    nodeMeshPassword: { secretKeyRef: { name: "bgp", key: "mesh" } },
    nodeMeshMaxRestartTime: "90s",
    serviceLoadBalancerIPs: [{ cidr: "203.0.113.0/24" }],
    localWorkloadPeeringIPV4: "169.254.1.1",
    programClusterRoutes: "EnabledIPIPOnly",
    ipv4NormalRoutePriority: 512,
  };
  expect(await stored("BGPConfiguration", spec, cluster)).toEqual({
    ...defaults,
    ...spec,
    nodeMeshMaxRestartTime: "1m30s",
  } as never);
  const bad = [
    [{ bindMode: "Foo" }, "spec.bindMode"],
    [{ ignoredInterfaces: ["*"] }, "spec.ignoredInterfaces[0]"],
    [{ ipv6NormalRoutePriority: 0 }, "spec.ipv6NormalRoutePriority"],
    [{ nodeToNodeMeshEnabled: false, nodeMeshMaxRestartTime: "1s" }, "spec.nodeMeshMaxRestartTime"],
  ] as const;
  for (const [more, field] of bad) expect(await wrongFields("BGPConfiguration", more, cluster)).toEqual([field]);
});

test("DM-020 BGPPeer: addresses with ports, selectors, passwords; no field is required", async () => {
  const specs = [
    {},
    { peerIP: "192.0.2.1", asNumber: 64513 },
    { peerIP: "192.0.2.9:1790", asNumber: 65001, nodeSelector: "all()" },
    { peerIP: "[fd00::1]:179", node: "n1", asNumber: 1 },
    { nodeSelector: "rack == 'r1'", peerSelector: "has(route-reflector)" },
    {
      peerIP: "192.0.2.1",
      asNumber: 1,
      password: { secretKeyRef: { name: "a", key: "b" } },
      keepOriginalNextHop: true,
    },
  ];
  for (const spec of specs) expect(await stored("BGPPeer", spec)).toEqual(spec);
  const bad = [
    [{ node: "a", nodeSelector: "all()" }, ["spec.node"]],
    [{ peerSelector: "all()", asNumber: 1 }, ["spec.asNumber"]],
    [{ peerSelector: "all()", peerIP: "1.1.1.1" }, ["spec.peerIP"]],
    [{ peerIP: "1.2.3.4:0" }, ["spec.peerIP"]],
    [{ nodeSelector: "==" }, ["spec.nodeSelector"]],
  ] as const;
  for (const [spec, fields] of bad) expect(await wrongFields("BGPPeer", spec)).toEqual([...fields]);
});

test("DM-021 BGPPeer: next hop mode, timers, TTL security, gateway, local workloads, reverse peering", async () => {
  const spec = {
    peerIP: "1.2.3.4",
    asNumber: 1,
    localASNumber: 65001,
    nextHopMode: "Self",
    keepaliveTime: "10s",
    maxRestartTime: "2m",
    ttlSecurity: 1,
    numAllowedLocalASNumbers: -1,
    reachableBy: "1.1.1.1",
    sourceAddress: "None",
    reversePeering: "Manual",
  };
  expect(await stored("BGPPeer", spec)).toEqual({ ...spec, maxRestartTime: "2m0s" } as never);
  const bad = [
    [{ peerIP: "1.2.3.4", reachableBy: "fd00::1" }, "spec.reachableBy"],
    [{ peerSelector: "all()", reachableBy: "1.1.1.1" }, "spec.reachableBy"],
    [{ localWorkloadSelector: "all()" }, "spec.asNumber"],
    [{ localWorkloadSelector: "all()", asNumber: 1, peerIP: "1.2.3.4" }, "spec.peerIP"],
    [{ keepOriginalNextHop: true, nextHopMode: "Auto" }, "spec.keepOriginalNextHop"],
    [{ ttlSecurity: 256 }, "spec.ttlSecurity"],
    [{ keepaliveTime: 10 }, "spec.keepaliveTime"],
  ] as const;
  for (const [more, field] of bad) expect(await wrongFields("BGPPeer", more)).toEqual([field]);
});

test("DM-022 BGPFilter: matches, prefix lengths and operations", async () => {
  const spec = {
    exportV4: [
      {
        cidr: "10.0.0.0/8",
        matchOperator: "In",
        prefixLength: { min: 0, max: 24 },
        source: "RemotePeers",
        interface: "eth*",
        action: "Accept",
      },
      { action: "Reject", peerType: "eBGP", asPathPrefix: [1, "1.10"], priority: 5 },
    ],
    importV6: [
      {
        communities: { values: ["65000:1"] },
        action: "Accept",
        operations: [
          { addCommunity: { value: "1:2:3" } },
          { prependASPath: { prefix: [1] } },
          { setPriority: { value: 7 } },
        ],
      },
    ],
  };
  const kept = await stored("BGPFilter", spec);
  expect(kept.exportV4?.[1]).toEqual({ action: "Reject", peerType: "eBGP", asPathPrefix: [1, 65546], priority: 5 });
  expect(kept.exportV4?.[0]?.prefixLength).toEqual({ min: 0, max: 24 });
  expect(kept.importV6 as unknown).toEqual(spec.importV6);
  const bad = [
    [{ matchOperator: "In", action: "Accept" }, "cidr"],
    [{ cidr: "10.0.0.0/8", action: "Accept" }, "matchOperator"],
    [{ prefixLength: { min: 8 }, action: "Accept" }, "cidr"],
    [{ cidr: "10.0.0.0/8", matchOperator: "In", prefixLength: { max: 33 }, action: "Accept" }, "prefixLength.max"],
    [{ action: "accept" }, "action"],
    [{}, "action"],
    [{ action: "Reject", operations: [{ setPriority: { value: 1 } }] }, "operations"],
    [{ action: "Accept", operations: [{}] }, "operations[0]"],
    [{ action: "Accept", communities: { values: ["1:1", "1:2"] } }, "communities.values"],
    [{ action: "Accept", interface: "abcdefghijklmnop" }, "interface"],
  ] as const;
  for (const [rule, field] of bad)
    expect(await wrongFields("BGPFilter", { exportV4: [rule] })).toEqual([`spec.exportV4[0].${field}`]);
});

test("DM-023 CalicoNodeStatus: the requested classes, and the report", async () => {
  const spec = { node: "n1", classes: ["Agent", "BGP"], updatePeriodSeconds: 0 };
  const fresh = await resource("CalicoNodeStatus", { spec });
  expect(fresh.spec).toEqual(spec as never);
  expect(fresh.status as unknown).toEqual({
    lastUpdated: null,
    agent: { birdV4: {}, birdV6: {} },
    bgp: { numberEstablishedV4: 0, numberNotEstablishedV4: 0, numberEstablishedV6: 0, numberNotEstablishedV6: 0 },
    routes: {},
  });
  const status = {
    bgp: { numberEstablishedV4: 1, peersV4: [{ peerIP: "1.1.1.1", type: "NodeMesh", state: "Established" }] },
  };
  const reported = await resource("CalicoNodeStatus", { spec, status });
  expect(reported.status as unknown).toMatchObject({ ...status, agent: { birdV4: {} } });
  const bad = [
    [{ classes: ["BGP"], updatePeriodSeconds: 1 }, "spec.node"],
    [{ node: "n", classes: ["Foo"], updatePeriodSeconds: 1 }, "spec.classes[0]"],
    [{ node: "n", classes: ["BGP", "BGP"], updatePeriodSeconds: 1 }, "spec.classes"],
    [{ node: "n", classes: ["BGP"], updatePeriodSeconds: 86401 }, "spec.updatePeriodSeconds"],
    [{ node: "n", classes: ["BGP"] }, "spec.updatePeriodSeconds"],
  ] as const;
  for (const [more, field] of bad) expect(await wrongFields("CalicoNodeStatus", more)).toEqual([field]);
});

test("DM-142 communities have 16 or 32 bits and must be used; names must be defined", async () => {
  const advertise = (community: string) => ({
    prefixAdvertisements: [{ cidr: "10.0.0.0/16", communities: [community] }],
  });
  for (const good of ["65535:65535", "1:2:4294967295"])
    expect(await stored("BGPConfiguration", advertise(good), cluster)).toEqual({ ...defaults, ...advertise(good) });
  for (const bad of ["1:70000", "1:2:4294967296", "blue", "1", "1:2:3:4"])
    expect(await wrongFields("BGPConfiguration", advertise(bad), cluster)).toEqual([
      "spec.prefixAdvertisements[0].communities[0]",
    ]);
  expect(await wrongFields("BGPConfiguration", { communities: [{ name: "a", value: "1:2" }] }, cluster)).toEqual([
    "spec.communities",
  ]);
});

test("DM-020 BGPPeer: the key of a password is stored even if it is absent", async () => {
  expect(await stored("BGPPeer", { password: { secretKeyRef: { name: "a" } } })).toMatchObject({
    password: { secretKeyRef: { name: "a", key: "" } },
  });
});
