import { expect, test } from "bun:test";
import { resource, stored, wrongFields } from "./testing.ts";

test("DM-024 ClusterInformation: only one object, with identity and readiness", async () => {
  const spec = {
    clusterGUID: "abc",
    clusterType: "k8s,bgp",
    calicoVersion: "v1",
    datastoreReady: false,
    variant: "Calico",
  };
  expect(await stored("ClusterInformation", spec)).toEqual(spec);
  expect(await wrongFields("ClusterInformation", spec, { metadata: { name: "other" } })).toEqual(["metadata.name"]);
});

test("DM-025 KubeControllersConfiguration: defaults, durations, log levels", async () => {
  const plain = { healthChecks: "Enabled", prometheusMetricsPort: 9094, controllers: {} } as const;
  const fresh = await resource("KubeControllersConfiguration", { spec: {} });
  expect(fresh.spec).toEqual(plain as never);
  expect<unknown>(fresh.status).toEqual({});
  const spec = {
    logSeverityScreen: "Debug",
    etcdV3CompactionPeriod: "5m",
    prometheusMetricsPort: 0,
    controllers: { node: { reconcilerPeriod: "90s" }, policy: {} },
  };
  expect(await stored("KubeControllersConfiguration", spec)).toEqual({
    ...spec,
    healthChecks: "Enabled",
    etcdV3CompactionPeriod: "5m0s",
    controllers: { node: { reconcilerPeriod: "1m30s", leakGracePeriod: "15m0s" }, policy: {} },
  } as never);
  const bad = [
    [{ logSeverityScreen: "Foo" }, "spec.logSeverityScreen"],
    [{ controllers: { node: { reconcilerPeriod: "abc" } } }, "spec.controllers.node.reconcilerPeriod"],
    [{ controllers: { node: { syncLabels: "Foo" } } }, "spec.controllers.node.syncLabels"],
    [{ prometheusMetricsPort: 70000 }, "spec.prometheusMetricsPort"],
    [{ prometheusMetricsPort: -1 }, "spec.prometheusMetricsPort"],
  ] as const;
  for (const [more, field] of bad) expect(await wrongFields("KubeControllersConfiguration", more)).toEqual([field]);
  expect(await wrongFields("KubeControllersConfiguration", {}, { metadata: { name: "x" } })).toEqual(["metadata.name"]);
});

test("DM-026 host endpoint templates, load balancer and migration controllers", async () => {
  const templates = [
    { generateName: "a", interfaceCIDRs: ["10.0.0.0/8"] },
    { generateName: "b", interfacePattern: "eth.*", labels: { x: "y" } },
  ];
  const withTemplates = (list: readonly object[]) => ({
    controllers: { node: { hostEndpoint: { autoCreate: "Enabled", templates: list } } },
  });
  const kept = await stored("KubeControllersConfiguration", withTemplates(templates));
  expect(kept.controllers.node?.hostEndpoint?.templates).toEqual(templates);
  const at = "spec.controllers.node.hostEndpoint.templates";
  expect(await wrongFields("KubeControllersConfiguration", withTemplates([{ generateName: "a" }]))).toEqual([
    `${at}[0].interfaceCIDRs`,
  ]);
  expect(await wrongFields("KubeControllersConfiguration", withTemplates([{ interfacePattern: "e" }]))).toEqual([
    `${at}[0].generateName`,
  ]);
  const twice = [
    { generateName: "a", interfacePattern: "e" },
    { generateName: "a", interfacePattern: "f" },
  ];
  expect(await wrongFields("KubeControllersConfiguration", withTemplates(twice))).toEqual([`${at}[1].generateName`]);
  const others = await stored("KubeControllersConfiguration", { controllers: { loadBalancer: {}, migration: {} } });
  expect(others.controllers as unknown).toEqual({
    loadBalancer: { assignIPs: "AllServices" },
    migration: { policyNameMigrator: "Enabled" },
  });
});

test("DM-027 IPAMConfiguration: defaults and limits", async () => {
  expect(await stored("IPAMConfiguration", {})).toEqual({ strictAffinity: false, autoAllocateBlocks: true });
  const spec = { strictAffinity: false, autoAllocateBlocks: false, maxBlocksPerHost: 5 };
  expect(await stored("IPAMConfiguration", spec)).toEqual(spec);
  for (const maxBlocksPerHost of [-1, 1_000_001])
    expect(await wrongFields("IPAMConfiguration", { maxBlocksPerHost })).toEqual(["spec.maxBlocksPerHost"]);
  expect(await wrongFields("IPAMConfiguration", {}, { metadata: { name: "x" } })).toEqual(["metadata.name"]);
});

test("DM-028 blocks, affinities and handles in the form of custom resources", async () => {
  const block = {
    cidr: "10.0.0.0/30",
    affinity: "host:n1",
    allocations: [0, null, null, 1],
    unallocated: [1, 2],
    attributes: [{ handle_id: "h", secondary: { node: "n1" } }, {}],
  };
  expect(await stored("IPAMBlock", block)).toEqual({
    ...block,
    sequenceNumber: 0,
    sequenceNumberForAllocation: {},
    deleted: false,
    strictAffinity: false,
  });
  expect(await stored("IPAMHandle", { handleID: "h", block: { "10.0.0.0/30": 2 } })).toEqual({
    handleID: "h",
    block: { "10.0.0.0/30": 2 },
    deleted: false,
  });
  const affinity = { state: "confirmed", node: "n1", cidr: "10.0.0.0/26" } as const;
  expect(await stored("BlockAffinity", { ...affinity, deleted: "false" })).toEqual({ ...affinity, deleted: false });
  expect(await wrongFields("BlockAffinity", { ...affinity, deleted: true })).toEqual(["spec.deleted"]);
  expect(await wrongFields("BlockAffinity", { ...affinity, state: "perhaps" })).toEqual(["spec.state"]);
});

test("DM-029 virtual affinities, cooldown, and sequence numbers that a double cannot represent", async () => {
  const affinity = { state: "pending", node: "lb", type: "virtual", cidr: "10.0.0.0/26", deleted: false } as const;
  expect(await stored("BlockAffinity", affinity)).toEqual(affinity);
  const block = {
    cidr: "10.0.0.0/32",
    allocations: [null],
    unallocated: [0],
    attributes: [{ releasedAt: "2026-01-01T00:00:00Z", alternateOwnerAttrs: { a: "b" } }],
    sequenceNumber: 18446744073709551615n,
    sequenceNumberForAllocation: { "0": 2n ** 60n },
    deleted: false,
    strictAffinity: false,
  };
  expect(await stored("IPAMBlock", block)).toEqual(block);
  expect(await stored("IPAMConfiguration", { ipCooldownSeconds: 1200 })).toMatchObject({ ipCooldownSeconds: 1200 });
  expect(await wrongFields("IPAMConfiguration", { ipCooldownSeconds: 1201 })).toEqual(["spec.ipCooldownSeconds"]);
});

test("FelixConfiguration: defaults, durations, enums of any case, ports and ranges", async () => {
  const defaults = {
    nftablesMode: "Auto",
    nftablesFlowTableOffload: "Disabled",
    bpfLogLevel: "",
    bpfConnectTimeLoadBalancing: "TCP",
    bpfHostNetworkedNATWithoutCTLB: "Enabled",
    floatingIPs: "Disabled",
  } as const;
  expect(await stored("FelixConfiguration", {})).toEqual(defaults);
  const spec = {
    logSeverityScreen: "debug",
    defaultEndpointToHostAction: "ACCEPT",
    reportingInterval: "0s",
    iptablesRefreshInterval: "90s",
    iptablesMarkMask: 4278190080,
    failsafeOutboundHostPorts: [],
    failsafeInboundHostPorts: [{ protocol: "tcp", port: 22 }],
    kubeNodePortRanges: [30000, "31000:32000"],
    natPortRange: "1:5",
    ipipEnabled: false,
  };
  expect(await stored("FelixConfiguration", spec)).toEqual({
    ...defaults,
    ...spec,
    iptablesRefreshInterval: "1m30s",
  } as never);
  const bad = [
    [{ floatingIPs: "enabled" }, "spec.floatingIPs"],
    [{ logSeverityFile: "None" }, "spec.logSeverityFile"],
    [{ routeTableRanges: [{ min: 0, max: 5 }] }, "spec.routeTableRanges[0].min"],
    [{ routeTableRanges: [{ min: 10, max: 5 }] }, "spec.routeTableRanges[0].max"],
    [{ natOutgoingAddress: "fd00::1" }, "spec.natOutgoingAddress"],
    [{ bpfDataIfacePattern: "[" }, "spec.bpfDataIfacePattern"],
    [{ openstackRegion: "a/b" }, "spec.openstackRegion"],
    [{ kubeNodePortRanges: ["http"] }, "spec.kubeNodePortRanges[0]"],
    [{ kubeNodePortRanges: ["0:5"] }, "spec.kubeNodePortRanges[0]"],
    [{ natPortRange: "http" }, "spec.natPortRange"],
    [{ bpfPSNATPorts: 0 }, "spec.bpfPSNATPorts"],
    [{ bpfLogFilters: { "a b": "x" } }, "spec.bpfLogFilters"],
    [{ featureDetectOverride: "A=true,B=perhaps" }, "spec.featureDetectOverride"],
    [{ featureGates: 'a == "b"' }, "spec.featureGates"],
    [{ featureGates: " a = b" }, "spec.featureGates"],
    [{ featureGates: "a" }, "spec.featureGates"],
    [{ iptablesRefreshInterval: "-1s" }, "spec.iptablesRefreshInterval"],
    [{ bpfConntrackTimeouts: { udpTimeout: "-1s" } }, "spec.bpfConntrackTimeouts.udpTimeout"],
    [{ healthTimeoutOverrides: [{ name: "a", timeout: 1 }] }, "spec.healthTimeoutOverrides[0].timeout"],
    [{ vxlanPort: "4789" }, "spec.vxlanPort"],
    [{ nodeSelector: "all()" }, "spec.nodeSelector"],
    [{ routeRefreshIntervall: "1s" }, "spec.routeRefreshIntervall"],
  ] as const;
  for (const [more, field] of bad)
    expect(await wrongFields("FelixConfiguration", more, { metadata: { name: "default" } })).toEqual([field]);
  // These values contain a minus sign, but are not negative durations.
  const odd = { bpfDisableGROForIfaces: "-1s", logFilePath: "-5m", featureGates: "A=b,C_d=e," };
  expect((await resource("FelixConfiguration", { spec: odd })).spec).toMatchObject(odd);
});

test("FelixConfiguration: values stored by older versions are read, even beyond the limits", async () => {
  const old = { iptablesRefreshInterval: "-1s", featureDetectOverride: "A=perhaps" };
  expect(await stored("FelixConfiguration", old, { mode: "stored" })).toMatchObject(old);
  expect(
    await stored("FelixConfiguration", { metadataPort: 4294967295, featureDetectOverride: "A=,B=true," }),
  ).toMatchObject({
    metadataPort: 4294967295,
    featureDetectOverride: "A=,B=true,",
  });
  expect(await stored("FelixConfiguration", { healthTimeoutOverrides: [{ name: "a" }] })).toMatchObject({
    healthTimeoutOverrides: [{ name: "a", timeout: "0s" }],
  });
});

test("FelixConfiguration: the old setting for connect-time load balancing sets both settings that replaced it", async () => {
  for (const [old, mode] of [
    [true, "Enabled"],
    [false, "Disabled"],
  ] as const)
    expect(
      await stored("FelixConfiguration", {
        bpfConnectTimeLoadBalancingEnabled: old,
        bpfConnectTimeLoadBalancing: "TCP",
        bpfHostNetworkedNATWithoutCTLB: "Enabled",
      }),
    ).toMatchObject({
      bpfConnectTimeLoadBalancingEnabled: old,
      bpfConnectTimeLoadBalancing: mode,
      bpfHostNetworkedNATWithoutCTLB: "Disabled",
    });
});

test("DM-143 calico-ts validates without an API server: bounds, choices, required fields, rules across fields, defaults", async () => {
  // All faults of a resource are reported together.
  expect(
    await wrongFields("FelixConfiguration", { natOutgoingExclusions: "Sometimes", ipv4NormalRoutePriority: 0 }),
  ).toEqual(["spec.natOutgoingExclusions", "spec.ipv4NormalRoutePriority"]);
  const range = { min: 1, max: 2 };
  const across = [
    ["FelixConfiguration", { routeTableRange: range, routeTableRanges: [range] }, "spec.routeTableRange"],
    ["BGPPeer", { peerSelector: "all()", asNumber: 64512 }, "spec.asNumber"],
    ["IPPool", { cidr: "10.0.0.0/16", ipipMode: "Always", vxlanMode: "Always" }, "spec.vxlanMode"],
    ["BGPFilter", { importV4: [{ action: "Accept", matchOperator: "In" }] }, "spec.importV4[0].cidr"],
    ["HostEndpoint", { interfaceName: "eth0" }, "spec.node"],
  ] as const;
  for (const [kind, spec, field] of across) expect([kind, await wrongFields(kind, spec)]).toEqual([kind, [field]]);
  expect(await stored("IPPool", { cidr: "10.0.0.0/16" })).toMatchObject({ blockSize: 26, nodeSelector: "all()" });
  expect(await stored("Tier", {}, { metadata: { name: "x" } })).toMatchObject({ defaultAction: "Deny" });
});
