import { expect, test } from "bun:test";
import { faults, resource, stored, wrongFields } from "./testing.ts";

test("DM-005 an IPReservation accepts CIDRs with host bits and duplicates, but no address without prefix length", async () => {
  const reservedCIDRs = ["10.0.0.1/24", "10.0.0.7/32", "10.0.0.1/24", "fd00::/125"];
  expect(await stored("IPReservation", { reservedCIDRs })).toEqual({ reservedCIDRs });
  expect(await stored("IPReservation", {})).toEqual({});
  for (const text of ["abc", "10.0.0.7", "fd00::7", "10.0.0.7/33", "10.0.0.7/"])
    expect(await wrongFields("IPReservation", { reservedCIDRs: ["10.0.0.0/24", text] })).toEqual([
      "spec.reservedCIDRs[1]",
    ]);
});

test("DM-006 a Node keeps its BGP identity, tunnel addresses and orchestrator references", async () => {
  const spec = {
    bgp: {
      asNumber: "1.2",
      ipv4Address: "10.0.0.5/24",
      ipv6Address: "fd00::1/64",
      ipv4IPIPTunnelAddr: "10.1.0.1",
      routeReflectorClusterID: "1.0.0.1",
    },
    ipv4VXLANTunnelAddr: "10.1.0.2",
    vxlanTunnelMACAddr: "66:a1:b2:c3:d4:e5",
    orchRefs: [{ nodeName: "a" }],
    wireguard: { interfaceIPv4Address: "10.1.0.3" },
    addresses: [{ address: "10.0.0.5/24", type: "CalicoNodeIP" }, { address: "whatever" }],
  };
  const node = await resource("Node", { spec });
  expect(node.spec).toEqual({
    ...spec,
    bgp: { ...spec.bgp, asNumber: 65538 },
    orchRefs: [{ nodeName: "a", orchestrator: "" }],
  });
  expect<unknown>(node.status).toEqual({});
});

test("DM-006 the addresses of a Node must have the right IP version, and bgp must not be empty", async () => {
  const bad = [
    [{ bgp: {} }, "spec.bgp"],
    [{ bgp: { ipv4Address: "fd00::1/64" } }, "spec.bgp.ipv4Address"],
    [{ bgp: { ipv4IPIPTunnelAddr: "10.0.0.0/24" } }, "spec.bgp.ipv4IPIPTunnelAddr"],
    [{ bgp: { routeReflectorClusterID: "foo" } }, "spec.bgp.routeReflectorClusterID"],
    [{ bgp: { asNumber: 4294967296 } }, "spec.bgp.asNumber"],
    [{ vxlanTunnelMACAddr: "zz" }, "spec.vxlanTunnelMACAddr"],
  ] as const;
  for (const [spec, field] of bad) expect(await wrongFields("Node", spec)).toEqual([field]);
  expect(await wrongFields("Node", {}, { metadata: { name: "N1" } })).toEqual(["metadata.name"]);
});

test("DM-007 a Node's IPv6 VXLAN and WireGuard, interfaces and keys", async () => {
  const spec = {
    ipv6VXLANTunnelAddr: "fd00:1::2",
    vxlanTunnelMACAddrV6: "66:a1:b2:c3:d4:e6",
    wireguard: { interfaceIPv6Address: "fd00:1::3" },
    interfaces: [{ name: "eth0", addresses: ["10.0.0.5"] }],
  };
  const wireguardPublicKeyV6 = Buffer.alloc(32, 7).toString("base64");
  const node = await resource("Node", { spec, status: { wireguardPublicKeyV6, podCIDRs: ["10.2.0.0/24"] } });
  expect(node.spec).toEqual(spec);
  expect<unknown>(node.status).toEqual({ wireguardPublicKeyV6, podCIDRs: ["10.2.0.0/24"] });
  expect(await wrongFields("Node", {}, { status: { wireguardPublicKey: "abc" } })).toEqual([
    "status.wireguardPublicKey",
  ]);
});

const endpoint = { node: "n1", orchestrator: "k8s", pod: "p1", endpoint: "eth0", interfaceName: "cali1" };

test("DM-008 a WorkloadEndpoint has single addresses, and NAT entries for them with the same IP version", async () => {
  const spec = {
    ...endpoint,
    ipNetworks: ["10.0.0.1/32", "fd00::5/128"],
    ipNATs: [{ internalIP: "10.0.0.1", externalIP: "1.2.3.4" }],
    mac: "01:02:03:04:05:06",
    profiles: ["kns.ns"],
  };
  expect(await stored("WorkloadEndpoint", spec)).toEqual(spec);
  const bad = [
    [{ ipNetworks: ["10.0.0.0/24"] }, "spec.ipNetworks[0]"],
    [
      { ipNetworks: ["10.0.0.1/32"], ipNATs: [{ internalIP: "10.0.0.2", externalIP: "1.1.1.1" }] },
      "spec.ipNATs[0].internalIP",
    ],
    [
      { ipNetworks: ["10.0.0.1/32"], ipNATs: [{ internalIP: "10.0.0.1", externalIP: "fd00::1" }] },
      "spec.ipNATs[0].externalIP",
    ],
    [{ ipv4Gateway: "fd00::1" }, "spec.ipv4Gateway"],
    [{ mac: "zz" }, "spec.mac"],
    [{ containerID: "a_b" }, "spec.containerID"],
    [{ interfaceName: "a-name-that-is-too-long" }, "spec.interfaceName"],
    [{ interfaceName: undefined }, "spec.interfaceName"],
  ] as const;
  for (const [more, field] of bad)
    expect(await wrongFields("WorkloadEndpoint", { ...endpoint, ...more })).toEqual([field]);
});

test("DM-009 a WorkloadEndpoint's host ports, spoofing prefixes, service account and QoS", async () => {
  const spec = {
    ...endpoint,
    serviceAccountName: "sa",
    ports: [
      { name: "http", protocol: "TCP", port: 80 },
      { protocol: "UDP", port: 53, hostPort: 5353, hostIP: "10.0.0.1" },
    ],
    allowSpoofedSourcePrefixes: ["1.2.3.4/24"],
    qosControls: { ingressBandwidth: 1000000, egressPacketRate: 100, dscp: "AF21" },
  };
  expect(await stored("WorkloadEndpoint", spec)).toEqual({
    ...spec,
    ports: [
      { name: "http", protocol: "TCP", port: 80, hostPort: 0, hostIP: "" },
      { name: "", protocol: "UDP", port: 53, hostPort: 5353, hostIP: "10.0.0.1" },
    ],
  });
  expect(await wrongFields("WorkloadEndpoint", { ...endpoint, ports: [{ protocol: "TCP", port: 80 }] })).toEqual([
    "spec.ports[0].name",
  ]);
  expect(
    await wrongFields("WorkloadEndpoint", { ...endpoint, ports: [{ name: "a", protocol: "TCP", port: 0 }] }),
  ).toEqual(["spec.ports[0].port"]);
  expect(await wrongFields("WorkloadEndpoint", { ...endpoint, qosControls: { dscp: 64 } })).toEqual([
    "spec.qosControls.dscp",
  ]);
});

test("DM-010 a HostEndpoint has an interface name, * for all interfaces, or expected addresses", async () => {
  const spec = {
    node: "n1",
    interfaceName: "*",
    expectedIPs: ["10.0.0.1", "fd00::1"],
    profiles: ["p"],
    ports: [{ name: "ssh", protocol: "TCP", port: 22 }],
  };
  expect(await stored("HostEndpoint", spec)).toEqual(spec);
  const bad = [
    [{ node: "n1" }, "spec.interfaceName"],
    [{ interfaceName: "eth0" }, "spec.node"],
    [{ node: "n 1", interfaceName: "e" }, "spec.node"],
    [{ node: "n1", interfaceName: "abcdefghijklmnop" }, "spec.interfaceName"],
    [{ node: "n1", expectedIPs: ["1.2.3.4/32"] }, "spec.expectedIPs[0]"],
    [{ node: "n1", interfaceName: "e", ports: [{ name: "a", protocol: "ICMP", port: 1 }] }, "spec.ports[0].protocol"],
    [{ node: "n1", interfaceName: "e", ports: [{ name: "A", protocol: "TCP", port: 1 }] }, "spec.ports[0].name"],
    [{ node: "n1", interfaceName: "e", ports: [{ name: "a", protocol: "TCP", port: 65536 }] }, "spec.ports[0].port"],
  ] as const;
  for (const [more, field] of bad) expect(await wrongFields("HostEndpoint", more)).toEqual([field]);
});

test("DM-017 network sets accept addresses and CIDRs with host bits, and reject the namespace label", async () => {
  const nets = ["10.0.0.1", "10.1.2.3/16", "fd00::1", "10.0.0.1"];
  for (const kind of ["NetworkSet", "GlobalNetworkSet"] as const) {
    expect(await stored(kind, { nets })).toEqual({ nets });
    expect(await wrongFields(kind, { nets: ["10.0.0.0/40"] })).toEqual(["spec.nets[0]"]);
    const labels = { "projectcalico.org/namespace": "b" };
    expect(await wrongFields(kind, { nets }, { metadata: { labels } })).toEqual([
      "metadata.labels.projectcalico.org/namespace",
    ]);
  }
});

test("a NetworkSet may not have labels that only the system sets, but a stored set with them can be read", async () => {
  for (const label of [
    "pcns.kubernetes.io/metadata.name",
    "pcsa.role",
    "projectcalico.org/namespace",
    "projectcalico.org/serviceaccount",
    "projectcalico.org/orchestrator",
  ]) {
    const metadata = { labels: { [label]: "x", app: "list" } };
    expect(await wrongFields("NetworkSet", { nets: [] }, { metadata })).toEqual([`metadata.labels.${label}`]);
    expect((await resource("NetworkSet", { metadata, mode: "stored" })).metadata).toMatchObject(metadata);
  }
});

test("DM-139 timestamps in metadata must be valid", async () => {
  const at = (metadata: object) => wrongFields("GlobalNetworkSet", {}, { metadata: { name: "x", ...metadata } });
  expect(await at({ creationTimestamp: "x" })).toEqual(["metadata.creationTimestamp"]);
  expect(await at({ deletionTimestamp: "2026-01-31" })).toEqual(["metadata.deletionTimestamp"]);
  const creationTimestamp = "2026-01-31T12:00:00+01:00";
  expect(
    (await resource("GlobalNetworkSet", { metadata: { name: "x", creationTimestamp }, spec: {} })).metadata,
  ).toEqual({
    name: "x",
    creationTimestamp,
  });
});

test("DM-139 faults in names, labels and annotations are reported with their field", async () => {
  const metadata = {
    labels: { "a b": "c", ok: "v".repeat(64), "ex.org/a": "" },
    annotations: { "x y": "1", "Ex.org/A": "any text" },
  };
  const found = await faults("GlobalNetworkSet", {}, { metadata });
  expect(found.map((fault) => fault.field)).toEqual([
    "metadata.labels.a b",
    "metadata.labels.ok",
    "metadata.annotations.x y",
  ]);
  for (const name of ["a_b", "-a", "a.", "", "A", "a".repeat(254)])
    expect(await wrongFields("GlobalNetworkSet", {}, { metadata: { name } })).toEqual(["metadata.name"]);
  for (const name of ["a.b-c.d", "1a", "a".repeat(253)])
    expect(await stored("GlobalNetworkSet", {}, { metadata: { name } })).toEqual({});
  const annotations = { note: "x".repeat(256 * 1024) };
  expect(await wrongFields("GlobalNetworkSet", {}, { metadata: { annotations } })).toEqual(["metadata.annotations"]);
});

test("DM-140 each field has its own rules for CIDRs", async () => {
  const accepts = [
    ["NetworkSet", { nets: ["10.0.0.1/8"] }],
    ["Node", { bgp: { ipv4Address: "10.0.0.1" } }],
    ["WorkloadEndpoint", { ...endpoint, ipNetworks: ["10.0.0.1"] }],
    ["BGPFilter", { exportV4: [{ cidr: "10.0.0.0/8", matchOperator: "In", action: "Accept" }] }],
  ] as const;
  for (const [kind, spec] of accepts) expect(await stored(kind, spec)).toEqual(spec as never);
  const refuses = [
    [
      "BGPFilter",
      { exportV4: [{ cidr: "10.0.0.1/8", matchOperator: "In", action: "Accept" }] },
      "spec.exportV4[0].cidr",
    ],
    [
      "BGPFilter",
      { exportV6: [{ cidr: "10.0.0.0/8", matchOperator: "In", action: "Accept" }] },
      "spec.exportV6[0].cidr",
    ],
    [
      "GlobalNetworkPolicy",
      { ingress: [{ action: "Allow", source: { nets: ["10.0.0.1/8"] } }] },
      "spec.ingress[0].source.nets[0]",
    ],
    [
      "GlobalNetworkPolicy",
      { ingress: [{ action: "Allow", source: { nets: ["10.0.0.1"] } }] },
      "spec.ingress[0].source.nets[0]",
    ],
    ["HostEndpoint", { node: "n", expectedIPs: ["10.0.0.1/32"] }, "spec.expectedIPs[0]"],
  ] as const;
  for (const [kind, spec, field] of refuses) expect(await wrongFields(kind, spec)).toEqual([field]);
});
