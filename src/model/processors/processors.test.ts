import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { parseCidr } from "../../lib/ip/ip.ts";
import { keyPath } from "../keys/key-path.ts";
import { type KindName, kindOf } from "../kinds.ts";
import { API_VERSION, type Labels, type Resource } from "../resource.ts";
import { clusterInformationProcessor, felixConfigProcessor } from "./configuration.ts";
import {
  globalNetworkSetProcessor,
  hostEndpointProcessor,
  networkSetProcessor,
  workloadEndpointProcessor,
} from "./endpoints.ts";
import { readNode, rejectUnreadable } from "../readers/index.ts";
import { felixNodeProcessor } from "./nodes.ts";
import { poolProcessor } from "./pools.ts";
import type { UpdateProcessor } from "./processor.ts";

interface Given {
  readonly kind: KindName;
  readonly name: string;
  readonly namespace?: string;
  readonly labels?: Labels;
  readonly annotations?: Labels;
  readonly spec?: unknown;
  readonly status?: unknown;
}
const keyOf = ({ kind, name, namespace }: Given) => ({ type: "resource", kind, name, namespace }) as const;

/** Returns the emitted values by key path; "deleted" for deletions. */
function derivedFrom(processor: UpdateProcessor, given: Given, problems: string[] = []): Record<string, unknown> {
  const { kind, name, namespace, labels, annotations, spec, status } = given;
  const value: Resource | undefined =
    spec === undefined
      ? undefined
      : {
          apiVersion: API_VERSION,
          kind,
          metadata: {
            name,
            namespace,
            labels,
            annotations,
          },
          spec,
          status,
        };
  const updates = processor.process({ key: keyOf(given), value }, (problem) => problems.push(problem));
  return Object.fromEntries(updates.map((update) => [keyPath(update.key), update.value ?? "deleted"]));
}
const withoutDeleted = (all: Record<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(Object.entries(all).filter(([, value]) => value !== "deleted"));

describe("workload endpoints", () => {
  const given: Given = {
    kind: "WorkloadEndpoint",
    namespace: "ns1",
    name: "node--1-k8s-web--0-eth0",
    labels: { app: "web", "pcns.team": "fake", "pcsa.role": "fake", "projectcalico.org/namespace": "ns1" },
    spec: {
      interfaceName: "cali1",
      ipNetworks: ["10.65.0.1/32", "fd00::1/128"],
      ipNATs: [
        { internalIP: "10.65.0.1", externalIP: "192.0.2.1" },
        { internalIP: "x", externalIP: "192.0.2.1" },
      ],
      profiles: ["kns.ns1"],
      mac: "EE-EE-EE-EE-EE-EE",
      serviceAccountName: "sa",
      ports: [
        { name: "http", protocol: "TCP", port: 80 },
        { name: "", protocol: "TCP", port: 81, hostPort: 81 },
      ],
      qosControls: { ingressBandwidth: 1000, egressBurst: 0, dscp: "AF11" },
    },
  };
  const path = "/calico/v1/host/node-1/workload/k8s/ns1%2fweb-0/endpoint/eth0";
  test("DM-057 labels that only the system sets and ports without a name are removed", () =>
    expect(derivedFrom(workloadEndpointProcessor, given)).toEqual({
      [path]: {
        state: "active",
        name: "cali1",
        mac: "ee:ee:ee:ee:ee:ee",
        profileIds: ["kns.ns1"],
        ipv4Nets: ["10.65.0.1/32"],
        ipv6Nets: ["fd00::1/128"],
        ipv4Nat: [{ internal: "10.65.0.1", external: "192.0.2.1" }],
        labels: { app: "web", "projectcalico.org/namespace": "ns1", "projectcalico.org/serviceaccount": "sa" },
        ports: [{ name: "http", protocol: "tcp", port: 80 }],
        qosControls: { ingressBandwidth: 1000, dscp: 10 },
      },
    }));
  test("an endpoint without addresses is deleted", () =>
    expect(derivedFrom(workloadEndpointProcessor, { ...given, spec: { interfaceName: "cali1" } })).toEqual({
      [path]: "deleted",
    }));
  test("an endpoint with an invalid interface name is deleted, because the name becomes part of rules", () => {
    for (const interfaceName of [
      "cali1 -j ACCEPT",
      "cali1\n-A FORWARD -j ACCEPT",
      "eth+",
      "cali*",
      "*",
      "..",
      "a/b",
      "",
    ]) {
      const problems: string[] = [];
      const spec = { interfaceName, ipNetworks: ["10.65.0.1/32"] };
      expect(derivedFrom(workloadEndpointProcessor, { ...given, spec }, problems)).toEqual({ [path]: "deleted" });
      expect(problems).toEqual([
        "spec.interfaceName: want an interface name of at most 15 letters, digits, _, . and -",
      ]);
    }
  });
  test("an endpoint with an invalid name is reported", () => {
    const problems: string[] = [];
    expect(derivedFrom(workloadEndpointProcessor, { ...given, name: "rubbish" }, problems)).toEqual({});
    expect(problems).toHaveLength(1);
  });
});

test("a host endpoint's interface is a name, * or absent", () => {
  const convert = (interfaceName: string, problems: string[] = []) =>
    withoutDeleted(
      derivedFrom(
        hostEndpointProcessor(),
        { kind: "HostEndpoint", name: "h", spec: { node: "n", interfaceName, expectedIPs: ["10.0.0.1"] } },
        problems,
      ),
    );
  for (const name of ["eth0", "*", "", "bond0.12"])
    expect(convert(name)).toMatchObject({ "/calico/v1/host/n/endpoint/h": { name } });
  for (const name of ["eth+", "eth0\n-j ACCEPT", "eth 0"]) {
    const problems: string[] = [];
    expect(convert(name, problems)).toEqual({});
    expect(problems).toHaveLength(1);
  }
});

test("namespaced network sets have the label and profile of their namespace; addresses count as /32", () =>
  expect(
    derivedFrom(networkSetProcessor, {
      kind: "NetworkSet",
      namespace: "ns1",
      name: "s",
      labels: { a: "b" },
      spec: { nets: ["10.0.0.1", "10.1.2.3/16", "fd00::1"] },
    }),
  ).toEqual({
    "/calico/v1/netset/ns1%2fs": {
      nets: ["10.0.0.1/32", "10.1.0.0/16", "fd00::1/128"],
      labels: { a: "b", "projectcalico.org/namespace": "ns1" },
      profileIds: ["kns.ns1"],
    },
  }));

const CLAIMED: Labels = {
  "pcns.kubernetes.io/metadata.name": "monitoring",
  "pcsa.role": "scraper",
  "projectcalico.org/namespace": "monitoring",
  "projectcalico.org/serviceaccount": "scraper",
  "projectcalico.org/orchestrator": "k8s",
};

test("labels of a network set that only the system may set are ignored and reported", () => {
  const problems: string[] = [];
  const labels = { app: "list", "projectcalico.org/other": "x", ...CLAIMED };
  const given: Given = { kind: "NetworkSet", namespace: "evil", name: "s", labels, spec: { nets: ["10.0.0.0/8"] } };
  expect(derivedFrom(networkSetProcessor, given, problems)).toMatchObject({
    "/calico/v1/netset/evil%2fs": {
      labels: { app: "list", "projectcalico.org/other": "x", "projectcalico.org/namespace": "evil" },
    },
  });
  expect(problems).toEqual(
    Object.keys(CLAIMED).map((name) => `metadata.labels.${name}: only the system sets this label: ignored`),
  );
});

test("the service account of a workload comes from its spec, not from its labels", () => {
  const labelsOf = (serviceAccountName: string | undefined): unknown => {
    const spec = { interfaceName: "cali1", ipNetworks: ["10.65.0.1/32"], serviceAccountName };
    const name = "node--1-k8s-web--0-eth0";
    const labels = { ...CLAIMED, app: "web", "projectcalico.org/namespace": "ns1" };
    const [value] = Object.values(
      derivedFrom(workloadEndpointProcessor, { kind: "WorkloadEndpoint", namespace: "ns1", name, labels, spec }),
    );
    return (value as { readonly labels: unknown }).labels;
  };
  const kept = { app: "web", "projectcalico.org/namespace": "ns1", "projectcalico.org/orchestrator": "k8s" };
  expect(labelsOf(undefined)).toEqual(kept);
  expect(labelsOf("robot")).toEqual({ ...kept, "projectcalico.org/serviceaccount": "robot" });
});

test("an invalid entry of a network set is ignored, the other entries are used", () => {
  const problems: string[] = [];
  const nets = ["10.0.0.1", "10.0.0.0/99", 5, "fd00::/64"];
  const given: Given = { kind: "GlobalNetworkSet", name: "threats", spec: { nets } };
  expect(derivedFrom(globalNetworkSetProcessor(), given, problems)).toMatchObject({
    "/calico/v1/netset/threats": { nets: ["10.0.0.1/32", "fd00::/64"] },
  });
  expect(problems).toEqual([
    'spec.nets: want CIDRs, not "10.0.0.0/99": ignored',
    "spec.nets: want CIDRs, not 5: ignored",
  ]);
});

test("an invalid port or address of a host endpoint is ignored, the endpoint is used", () => {
  const problems: string[] = [];
  const spec = {
    node: "n",
    interfaceName: "eth0",
    expectedIPs: ["10.0.0.1", "10.0.0"],
    ports: [
      { name: "ssh", protocol: "TCP", port: 22 },
      { name: "bad", protocol: "TCP", port: 70000 },
    ],
  };
  expect(
    withoutDeleted(derivedFrom(hostEndpointProcessor(), { kind: "HostEndpoint", name: "h", spec }, problems)),
  ).toMatchObject({
    "/calico/v1/host/n/endpoint/h": { expectedIpv4Addrs: ["10.0.0.1"], ports: [{ name: "ssh" }] },
  });
  expect(problems).toEqual([
    'spec.expectedIPs: want IP addresses, not "10.0.0": ignored',
    "spec.ports[1].port: want 1 to 65535: ignored",
  ]);
});

describe("DM-132 of several resources with the same key, the one with the lowest name is used", () => {
  const pool = (name: string, cidr: string | undefined, natOutgoing = false): Given => ({
    kind: "IPPool",
    name,
    spec: cidr === undefined ? undefined : { cidr, natOutgoing },
  });
  const path = "/calico/v1/ipam/v4/pool/10.0.0.0-16";
  const masquerade = (all: Record<string, unknown>) =>
    Object.fromEntries(
      Object.entries(all).map(([k, v]) => [k, v === "deleted" ? v : (v as { masquerade: boolean }).masquerade]),
    );
  test("if it is deleted or changes its key, the next one is used", () => {
    const processor = poolProcessor();
    expect(masquerade(derivedFrom(processor, pool("b", "10.0.0.0/16", true)))).toEqual({ [path]: true });
    const problems: string[] = [];
    expect(derivedFrom(processor, pool("c", "10.0.0.0/16"), problems)).toEqual({});
    expect(problems).toEqual([`${path} is already claimed by b: not used`]);
    expect(masquerade(derivedFrom(processor, pool("a", "10.0.0.0/16")))).toEqual({ [path]: false });
    expect(derivedFrom(processor, pool("b", undefined))).toEqual({}); // b was not used
    expect(masquerade(derivedFrom(processor, pool("a", "10.1.0.0/16")))).toEqual({
      [path]: false, // from c
      "/calico/v1/ipam/v4/pool/10.1.0.0-16": false,
    });
    expect(masquerade(derivedFrom(processor, pool("c", undefined)))).toEqual({ [path]: "deleted" });
    expect(derivedFrom(processor, pool("a", "rubbish"))).toEqual({ "/calico/v1/ipam/v4/pool/10.1.0.0-16": "deleted" });
  });

  test("property: the result does not depend on the order of updates", () => {
    const step = fc.record({
      name: fc.constantFrom("a", "b", "c"),
      cidr: fc.option(fc.constantFrom("10.0.0.0/16", "10.1.0.0/16"), { nil: undefined }),
      nat: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 12 }), (steps) => {
        const processor = poolProcessor();
        const state: Record<string, unknown> = {};
        const last = new Map<string, Given>();
        for (const { name, cidr, nat } of steps) {
          Object.assign(state, derivedFrom(processor, pool(name, cidr, nat)));
          last.set(name, pool(name, cidr, nat));
        }
        const fresh = poolProcessor();
        const want: Record<string, unknown> = {};
        for (const given of [...last.values()].reverse()) Object.assign(want, derivedFrom(fresh, given));
        expect(withoutDeleted(state)).toEqual(withoutDeleted(want));
      }),
    );
  });

  test("if a host endpoint changes its node, its old key is deleted", () => {
    const processor = hostEndpointProcessor();
    const given: Given = { kind: "HostEndpoint", name: "h", spec: { node: "n1", interfaceName: "eth0" } };
    expect(derivedFrom(processor, given)).toEqual({
      "/calico/v1/host/n1/endpoint/h": {
        name: "eth0",
        expectedIpv4Addrs: [],
        expectedIpv6Addrs: [],
        labels: {},
        profileIds: [],
        ports: [],
      },
    });
    const moved = derivedFrom(processor, { ...given, spec: { node: "n2", expectedIPs: ["10.0.0.1", "fd00::1"] } });
    expect(moved["/calico/v1/host/n1/endpoint/h"]).toBe("deleted");
    expect(moved["/calico/v1/host/n2/endpoint/h"]).toMatchObject({
      expectedIpv4Addrs: ["10.0.0.1"],
      expectedIpv6Addrs: ["fd00::1"],
    });
    expect(derivedFrom(processor, { ...given, spec: { node: "n2" } })).toEqual({
      "/calico/v1/host/n2/endpoint/h": "deleted",
    });
  });

  test("global network sets are converted", () =>
    expect(
      derivedFrom(globalNetworkSetProcessor(), { kind: "GlobalNetworkSet", name: "g", spec: { nets: ["10.0.0.0/8"] } }),
    ).toEqual({ "/calico/v1/netset/g": { nets: ["10.0.0.0/8"], labels: {}, profileIds: [] } }));
});

test("the encapsulation of pools is emitted in the words of the v1 API", () =>
  expect(
    derivedFrom(poolProcessor(), {
      kind: "IPPool",
      name: "p",
      spec: {
        cidr: "fd00::/64",
        vxlanMode: "CrossSubnet",
        ipipMode: "Never",
        natOutgoing: true,
        disabled: true,
        disableBGPExport: true,
      },
    }),
  ).toEqual({
    "/calico/v1/ipam/v6/pool/fd00::-64": {
      cidr: "fd00::/64",
      ipipMode: "",
      vxlanMode: "cross-subnet",
      masquerade: true,
      ipam: false,
      disabled: true,
      disableBgpExport: true,
      assignmentMode: "Automatic",
      allowedUses: ["Workload", "Tunnel"],
    },
  }));

describe("DM-130 the node processor of Felix emits", () => {
  const given: Given = {
    kind: "Node",
    name: "n1",
    spec: {
      bgp: { ipv4Address: "192.0.2.1/24", ipv4IPIPTunnelAddr: "10.65.0.1" },
      ipv4VXLANTunnelAddr: "10.65.0.2",
      vxlanTunnelMACAddr: "66:00:00:00:00:0a",
      wireguard: { interfaceIPv4Address: "10.65.0.3" },
    },
    status: { wireguardPublicKey: "key", podCIDRs: ["10.244.0.0/24"] },
  };
  test("host settings, WireGuard keys, the address, and the Node itself", () => {
    const all = derivedFrom(felixNodeProcessor({ usePodCidr: false }), given);
    expect(withoutDeleted(all)).toEqual({
      "/calico/v1/host/n1/config/IpInIpTunnelAddr": "10.65.0.1",
      "/calico/v1/host/n1/config/IPv4VXLANTunnelAddr": "10.65.0.2",
      "/calico/v1/host/n1/config/VXLANTunnelMACAddr": "66:00:00:00:00:0a",
      "/calico/v1/host/n1/wireguard": { interfaceIpv4Addr: "10.65.0.3", publicKey: "key" },
      "/calico/v1/host/n1/bird_ip": "192.0.2.1",
      "/calico/resources/v3/projectcalico.org/nodes/n1": expect.anything(),
    });
    expect(all["/calico/v1/host/n1/config/IPv6VXLANTunnelAddr"]).toBe("deleted");
    expect(
      withoutDeleted(derivedFrom(felixNodeProcessor({ usePodCidr: false }), { kind: "Node", name: "n1" })),
    ).toEqual({});
  });
  test("the deletion of the key of an invalid address, which is reported; other keys are set", () => {
    const problems: string[] = [];
    const all = derivedFrom(
      felixNodeProcessor({ usePodCidr: false }),
      { ...given, spec: { bgp: { ipv4Address: "192.0.2.1/24", ipv4IPIPTunnelAddr: "x" } } },
      problems,
    );
    expect(all["/calico/v1/host/n1/config/IpInIpTunnelAddr"]).toBe("deleted");
    expect(all["/calico/v1/host/n1/bird_ip"]).toBe("192.0.2.1");
    expect(problems).toEqual(["spec.bgp.ipv4IPIPTunnelAddr: want an IPv4 address"]);
  });
  test("no values for fields that are null", () => {
    const problems: string[] = [];
    const bgp = { ipv4Address: "192.0.2.1/24", ipv6Address: null, asNumber: null };
    const spec = { bgp, ipv4VXLANTunnelAddr: null, wireguard: null, addresses: null };
    const all = derivedFrom(felixNodeProcessor({ usePodCidr: false }), { ...given, spec, status: {} }, problems);
    const path = "/calico/resources/v3/projectcalico.org/nodes/n1";
    expect(withoutDeleted(all)).toEqual({
      "/calico/v1/host/n1/bird_ip": "192.0.2.1",
      [path]: expect.objectContaining({ spec }),
    });
    const minimal = {
      apiVersion: API_VERSION,
      kind: "Node",
      metadata: { name: "n1" },
      spec: { bgp: { ipv4Address: "192.0.2.1/24" } },
    } as const;
    expect(readNode(all[path] as Resource, rejectUnreadable)).toEqual(readNode(minimal, rejectUnreadable));
    expect(problems).toEqual([]);
  });
  test("blocks for pod CIDRs, and deletions of removed ones", () => {
    const processor = felixNodeProcessor({ usePodCidr: true });
    expect(derivedFrom(processor, given)["/calico/ipam/v2/assignment/ipv4/block/10.244.0.0-24"]).toMatchObject({
      cidr: parseCidr("10.244.0.0/24"),
      affinity: "host:n1",
    });
    const changed = derivedFrom(processor, { ...given, status: { podCIDRs: ["10.244.1.0/24"] } });
    expect(changed["/calico/ipam/v2/assignment/ipv4/block/10.244.0.0-24"]).toBe("deleted");
    expect(changed["/calico/ipam/v2/assignment/ipv4/block/10.244.1.0-24"]).toMatchObject({ affinity: "host:n1" });
    expect(
      derivedFrom(processor, { kind: "Node", name: "n1" })["/calico/ipam/v2/assignment/ipv4/block/10.244.1.0-24"],
    ).toBe("deleted");
  });
});

describe("DM-128 Felix's settings", () => {
  const given = (spec: object, annotations?: Labels, name = "default"): Given => ({
    kind: "FelixConfiguration",
    name,
    spec,
    annotations,
  });
  const values = {
    routeRefreshInterval: "1m30s",
    iptablesLockProbeInterval: "1.5s",
    reportingInterval: "0s",
    ipipEnabled: true,
    ipipMTU: 1440,
    ipv6Support: false,
    vxlanVNI: 4097,
    logSeverityScreen: "Warning",
    bpfLogLevel: "",
    externalNodesList: ["10.5.0.0/16", "10.6.0.0/16"],
    healthTimeoutOverrides: [{ name: "CalculationGraph", timeout: "1m17s" }],
    failsafeInboundHostPorts: [
      { protocol: "tcp", port: 22, net: "" },
      { protocol: "UDP", port: 68, net: "10.0.0.0/8" },
      { protocol: "TCP", net: "fd00::/8", port: 1 },
    ],
    failsafeOutboundHostPorts: [],
    kubeNodePortRanges: [30000, "31000:32000"],
    routeTableRanges: [{ min: 10, max: 50 }],
    routeTableRange: { min: 1, max: 9 },
    bpfLogFilters: { all: "host 1.2.3.4", eth0: "tcp" },
    nftablesMode: "Auto",
    awsSrcDstCheck: "Disable",
    wireguardKeepAlive: "25s",
    bpfMapSizePerCpuConntrack: 7,
    somethingNew: "x",
  };
  test("each field becomes a key with the name of the parameter", () =>
    expect(withoutDeleted(derivedFrom(felixConfigProcessor(), given(values)))).toEqual(
      Object.fromEntries(
        Object.entries({
          RouteRefreshInterval: "90",
          IptablesLockProbeIntervalMillis: "1500",
          ReportingIntervalSecs: "0",
          IpInIpEnabled: "true",
          IpInIpMtu: "1440",
          Ipv6Support: "false",
          VXLANVNI: "4097",
          LogSeverityScreen: "Warning",
          ExternalNodesCIDRList: "10.5.0.0/16,10.6.0.0/16",
          HealthTimeoutOverrides: "CalculationGraph=1m17s",
          FailsafeInboundHostPorts: "tcp:22,udp:10.0.0.0/8:68,tcp:[fd00::/8]:1",
          FailsafeOutboundHostPorts: "none",
          KubeNodePortRanges: "30000,31000:32000",
          RouteTableRanges: "10-50",
          RouteTableRange: "1-9",
          BPFLogFilters: "all=host 1.2.3.4,eth0=tcp,",
          NFTablesMode: "Auto",
          AWSSrcDstCheck: "Disable",
          WireguardPersistentKeepAlive: "25",
          BPFMapSizePerCPUConntrack: "7",
          SomethingNew: "x",
        }).map(([name, value]) => [`/calico/v1/config/${name}`, value]),
      ),
    ));
  test("annotations take precedence over fields, and can be changed and removed", () => {
    const processor = felixConfigProcessor();
    const prefix = "config.projectcalico.org/";
    const first = derivedFrom(
      processor,
      given({ vxlanPort: 1 }, { [`${prefix}VXLANPort`]: "2", [`${prefix}Odd`]: "3", other: "4" }),
    );
    expect(withoutDeleted(first)).toEqual({ "/calico/v1/config/VXLANPort": "2", "/calico/v1/config/Odd": "3" });
    const second = derivedFrom(processor, given({ vxlanPort: 1 }, { [`${prefix}Odd`]: "5" }));
    expect(withoutDeleted(second)).toEqual({ "/calico/v1/config/VXLANPort": "1", "/calico/v1/config/Odd": "5" });
    const third = derivedFrom(processor, given({}));
    expect(third["/calico/v1/config/Odd"]).toBe("deleted");
    expect(third["/calico/v1/config/VXLANPort"]).toBe("deleted");
  });
  test("node.<name> sets values for one host", () =>
    expect(withoutDeleted(derivedFrom(felixConfigProcessor(), given({ vxlanPort: 1 }, undefined, "node.n1")))).toEqual({
      "/calico/v1/host/n1/config/VXLANPort": "1",
    }));
  test("DM-129 a resource with any other name is emitted unchanged", () => {
    const path = `/calico/resources/v3/projectcalico.org/${kindOf("FelixConfiguration").plural}/rack1`;
    expect(derivedFrom(felixConfigProcessor(), given({ vxlanPort: 1 }, undefined, "rack1"))).toEqual({
      [path]: expect.anything(),
    });
  });
});

test("DM-123 ClusterInformation sets the ready flag and the identity of the cluster", () => {
  const given: Given = {
    kind: "ClusterInformation",
    name: "default",
    spec: { clusterGUID: "g", clusterType: "k8s,bgp", calicoVersion: "v3", datastoreReady: true, variant: "Calico" },
  };
  expect(withoutDeleted(derivedFrom(clusterInformationProcessor, given))).toEqual({
    "/calico/v1/config/ClusterGUID": "g",
    "/calico/v1/config/ClusterType": "k8s,bgp",
    "/calico/v1/config/CalicoVersion": "v3",
    "/calico/v1/config/Variant": "Calico",
    "/calico/v1/Ready": true,
  });
  expect(
    derivedFrom(clusterInformationProcessor, { ...given, spec: { datastoreReady: false } })["/calico/v1/Ready"],
  ).toBe(false);
});

test("a processor rejects keys of another kind", () =>
  expect(() => derivedFrom(felixConfigProcessor(), { kind: "Node", name: "n1", spec: {} })).toThrow(TypeError));
