import { describe, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { API_VERSION, type Labels, type Resource } from "../resource.ts";
import { parseSelector } from "../selector/selector.ts";
import { isValueError } from "../validation/value-error.ts";
import { liveMigrationFromKubeVirt } from "./live-migration.ts";
import { kubernetesNodeFrom, nodeFromKubernetes } from "./node.ts";
import {
  isWorkloadPod,
  podAddressesInUse,
  podErasure,
  podInterfaceName,
  podPatch,
  workloadEndpointFromPod,
} from "./pod.ts";
import { profileFromNamespace, profileFromServiceAccount, profileOrigin } from "./profiles.ts";
import { parseQuantity } from "./quantity.ts";
import { convertUid } from "./uid.ts";

interface Pod {
  readonly annotations?: Labels;
  readonly labels?: Labels;
  readonly deleted?: boolean;
  readonly spec?: object;
  readonly status?: object;
}
const pod = ({ annotations = {}, labels = {}, deleted = false, spec = {}, status = {} }: Pod = {}) => ({
  metadata: {
    name: "web",
    namespace: "ns1",
    uid: "30316465-6365-4463-ad63-3564622d3638",
    resourceVersion: "7",
    annotations,
    labels,
    ...(deleted ? { deletionTimestamp: "2026-01-01T00:00:00Z" } : {}),
  },
  spec: { nodeName: "n1", containers: [], ...spec },
  status,
});
const convert = (given?: Pod, problems: string[] = []) =>
  workloadEndpointFromPod(pod(given), (problem) => problems.push(problem));
const networks = (given: Pod) => convert(given).spec.ipNetworks as readonly string[] | undefined;

test("DM-060 pods on the host's network or without a node are not workloads", () => {
  expect(isWorkloadPod(pod())).toBe(true);
  expect(isWorkloadPod(pod({ spec: { hostNetwork: true } }))).toBe(false);
  expect(isWorkloadPod(pod({ spec: { nodeName: "" } }))).toBe(false);
  expect(() => convert({ spec: { nodeName: "" } })).toThrow("nodeName");
});

describe("DM-061 a pod's addresses come from the first of these sources that has one", () => {
  const annotations = {
    "cni.projectcalico.org/podIPs": "10.0.0.3/32,fd00::3",
    "cni.projectcalico.org/podIP": "10.0.0.4/32",
  };
  const assigned = (message: string, status = "True", more = {}) => ({
    conditions: [
      { type: "PodScheduled", status: "True" },
      { type: "cni.projectcalico.org/AddressesAssigned", status, message, ...more },
    ],
  });
  test("status.podIPs", () =>
    expect(
      networks({ annotations, status: { podIP: "10.0.0.2", podIPs: [{ ip: "10.0.0.1" }, { ip: "fd00::1" }] } }),
    ).toEqual(["10.0.0.1/32", "fd00::1/128"]));
  test("status.podIP", () => expect(networks({ annotations, status: { podIP: "10.0.0.2" } })).toEqual(["10.0.0.2/32"]));
  test("the condition that the CNI plugin writes, before status.podIPs, which the kubelet reports later", () => {
    const podIPs = [{ ip: "10.0.0.1" }];
    expect(networks({ annotations, status: { podIPs, ...assigned("10.0.0.6/32") } })).toEqual(["10.0.0.6/32"]);
    expect(networks({ annotations, status: { podIPs, ...assigned("", "False") } })).toBeUndefined();
  });
  describe("status.podIPs, if a container started after the condition was written: another plugin attached the pod", () => {
    const written = { lastTransitionTime: "2026-01-01T00:00:10Z" };
    const startedAt = (second: string) => ({ startedAt: `2026-01-01T00:00:${second}Z` });
    for (const [name, containers, isReported] of [
      ["no container has started", {}, false],
      ["running since before", { containerStatuses: [{ state: { running: startedAt("09") } }] }, false],
      ["running since the same second", { containerStatuses: [{ state: { running: startedAt("10") } }] }, false],
      ["running since after", { containerStatuses: [{ state: { running: startedAt("11") } }] }, true],
      [
        "started after and waits for a restart",
        { containerStatuses: [{ state: { waiting: {} }, lastState: { terminated: startedAt("11") } }] },
        true,
      ],
      [
        "an init container started after",
        { initContainerStatuses: [{ state: { terminated: startedAt("11") } }] },
        true,
      ],
    ] as const)
      test(name, () => {
        const given = { podIPs: [{ ip: "10.0.0.1" }], ...containers };
        const of = (condition: object) => networks({ status: { ...given, ...condition } });
        expect([of(assigned("10.0.0.6/32", "True", written)), of(assigned("", "False", written))]).toEqual(
          isReported ? [["10.0.0.1/32"], ["10.0.0.1/32"]] : [["10.0.0.6/32"], undefined],
        );
      });
  });
  test("the container's ID comes from the condition, and without one from the annotation", () => {
    const named = { annotations: { "cni.projectcalico.org/containerID": "claimed" } };
    const idOf = (status: object) => convert({ ...named, status }).spec.containerID;
    expect(idOf({})).toBe("claimed");
    expect(idOf(assigned("10.0.0.6/32", "True", { reason: "c1" }))).toBe("c1");
    expect(idOf(assigned("10.0.0.6/32"))).toBe("claimed");
  });
  test("the condition that the CNI plugin writes", () => {
    const status = assigned("10.0.0.6/32,fd00::6/128");
    expect(networks({ annotations, status })).toEqual(["10.0.0.6/32", "fd00::6/128"]);
    expect(networks({ status })).toEqual(["10.0.0.6/32", "fd00::6/128"]);
    expect(networks({ annotations, status: assigned("10.0.0.6/32", "False") })).toBeUndefined();
  });
  test("never annotations, which the pod's author writes", () => {
    for (const [name, text] of Object.entries({ ...annotations, "vpc.amazonaws.com/pod-ips": "10.0.0.5" })) {
      const problems: string[] = [];
      const claimed = text.includes("fd00") ? "10.0.0.3/32, fd00::3/128" : text.replace(/(\/32)?$/, "/32");
      expect(convert({ annotations: { [name]: text } }, problems).spec.ipNetworks).toBeUndefined();
      expect(problems).toEqual([`${name}: ${claimed} ignored until the pod's status confirms the address`]);
    }
    const many = Array.from({ length: 1000 }, (_, i) => `10.0.${i >> 8}.${i & 255}`).join();
    const problems: string[] = [];
    convert({ annotations: { "cni.projectcalico.org/podIPs": many } }, problems);
    expect(problems).toEqual([expect.stringContaining("10.0.0.3/32, … (1000 in all) ignored")]);
  });
  test("a prefix makes the pod invalid", () => {
    for (const text of ["0.0.0.0/1,128.0.0.0/1", "10.0.0.0/31", "::/0"]) {
      expect(() => convert({ annotations: { "cni.projectcalico.org/podIPs": text } })).toThrow("is a prefix");
      expect(() => convert({ status: assigned(text) })).toThrow("is a prefix");
    }
  });
  test("a pod without any of them is valid, without addresses", () =>
    expect(convert().spec.ipNetworks).toBeUndefined());
  test("an invalid address makes the pod invalid", () =>
    expect(() => convert({ status: { podIP: "x" } })).toThrow("is not an IP address"));
});

test("DM-062 the AWS plugin's annotation gives no address before the kubelet reports it", () => {
  const annotations = { "vpc.amazonaws.com/pod-ips": "10.0.0.5" };
  expect(networks({ annotations })).toBeUndefined();
  expect(networks({ annotations, status: { podIP: "10.0.0.5" } })).toEqual(["10.0.0.5/32"]);
});

describe("DM-063 finished pods lose their addresses, but the endpoint remains", () => {
  const status = { podIP: "10.0.0.1" };
  for (const phase of ["Failed", "Succeeded", "Completed"])
    test(phase, () => expect(convert({ status: { ...status, phase } }).spec.ipNetworks).toBeUndefined());
  // A tenant can delete a pod that ignores SIGTERM, and write its annotations. If that freed the address, the pod would
  // have the address of its next owner as soon as the tenant removes the annotation.
  for (const annotation of ["cni.projectcalico.org/podIP", "vpc.amazonaws.com/pod-ips"])
    test(`a terminating pod with an empty ${annotation} keeps its address`, () => {
      const annotations = { [annotation]: "" };
      for (const deleted of [true, false])
        for (const each of [annotations, {}])
          expect(networks({ status, deleted, annotations: each })).toEqual(["10.0.0.1/32"]);
    });
});

describe("of an annotation of 256 kB, problems and errors contain at most 200 characters", () => {
  const long = "x".repeat(256 * 1024);
  for (const [name, text] of [
    ["qos.projectcalico.org/dscp", long],
    ["qos.projectcalico.org/ingressBandwidth", long],
    ["qos.projectcalico.org/egressBandwidth", long.replaceAll("x", "0")],
    ["kubernetes.io/egress-bandwidth", long],
    ["cni.projectcalico.org/podIPs", long],
    ["cni.projectcalico.org/podIP", `10.0.0.1/${long}`],
    ["cni.projectcalico.org/allowedSourcePrefixes", JSON.stringify([long])],
  ] as const)
    test(name, () => {
      const problems: string[] = [];
      try {
        convert({ annotations: { [name]: text } }, problems);
      } catch (error) {
        problems.push(String(error));
      }
      expect(problems).not.toEqual([]);
      for (const problem of problems) expect(problem.length).toBeLessThan(400);
    });
});

test("DM-064 the interface's name is a hash of namespace and pod", () => {
  expect(podInterfaceName("namespace", "podname", "eni")).toBe("eni82111e10a96");
  expect(podInterfaceName("ns1", "plain")).toBe("calia6b9853d44a");
});

describe("DM-065 labels, profiles and ports", () => {
  test("a pod cannot claim another namespace or account", () => {
    const endpoint = convert({
      labels: { app: "web", "projectcalico.org/namespace": "evil", "projectcalico.org/serviceaccount": "evil" },
      spec: { serviceAccountName: "sa" },
    });
    expect(endpoint.metadata.labels).toEqual({
      app: "web",
      "projectcalico.org/namespace": "ns1",
      "projectcalico.org/orchestrator": "k8s",
      "projectcalico.org/serviceaccount": "sa",
    });
    expect(endpoint.spec.profiles).toEqual(["kns.ns1", "ksa.ns1.sa"]);
  });
  test("the name of a service account that is too long for a label is omitted", () => {
    const labelled = (length: number) =>
      "projectcalico.org/serviceaccount" in
      (convert({ spec: { serviceAccountName: "s".repeat(length) } }).metadata.labels ?? {});
    expect([labelled(62), labelled(63)]).toEqual([true, false]);
  });
  test("named and forwarded ports of all containers", () => {
    const spec = {
      containers: [
        {
          ports: [
            { name: "http", containerPort: 80 },
            { containerPort: 81 },
            { containerPort: 82, hostPort: 82, hostIP: "10.0.0.1" },
          ],
        },
      ],
      initContainers: [
        {
          ports: [
            { name: "i", containerPort: 90, protocol: "SCTP" },
            { name: "x", containerPort: 1, protocol: "ICMP" },
          ],
        },
      ],
    };
    expect(convert({ spec }).spec.ports).toEqual([
      { name: "http", protocol: "TCP", port: 80, hostPort: 0, hostIP: "" },
      { name: "", protocol: "TCP", port: 82, hostPort: 82, hostIP: "10.0.0.1" },
      { name: "i", protocol: "SCTP", port: 90, hostPort: 0, hostIP: "" },
    ]);
  });
});

test("DM-066 a floating address maps to the pod's address of the same IP version", () => {
  const status = { podIPs: [{ ip: "10.0.0.1" }, { ip: "fd00::1" }] };
  const nats = (text: string, given: object = status) =>
    convert({ status: given, annotations: { "cni.projectcalico.org/floatingIPs": text } }).spec.ipNATs;
  expect(nats('["1.2.3.4","2001:db8::4"]')).toEqual([
    { internalIP: "10.0.0.1", externalIP: "1.2.3.4" },
    { internalIP: "fd00::1", externalIP: "2001:db8::4" },
  ]);
  expect(nats('["2001:db8::4"]', { podIP: "10.0.0.1" })).toBeUndefined();
  expect(() => nats("1.2.3.4")).toThrow("want a JSON list");
  expect(nats("null")).toBeUndefined();
  expect(nats("1.2.3.4", {})).toBeUndefined(); // nothing to go to: nothing to understand
});

test("DM-067 allowed source prefixes of a pod are masked, invalid ones are rejected", () => {
  const prefixes = (text: string) =>
    convert({ annotations: { "cni.projectcalico.org/allowedSourcePrefixes": text } }).spec.allowSpoofedSourcePrefixes;
  expect(prefixes('["8.8.8.8/24"]') as readonly string[]).toEqual(["8.8.8.0/24"]);
  expect(prefixes("null")).toBeUndefined();
  for (const text of ['["8.8.8.8"]', '["x/24"]', "x", '{"a":1}']) expect(() => prefixes(text)).toThrow();
});

describe("DM-068 CI-085 traffic limits in a pod's annotations become those of its endpoint", () => {
  const qos = (given: Record<string, string>, problems: string[] = []) =>
    convert(
      {
        annotations: Object.fromEntries(
          Object.entries(given).map(([k, v]) => [k.includes("/") ? k : `qos.projectcalico.org/${k}`, v]),
        ),
      },
      problems,
    ).spec.qosControls;
  const cases = [
    [{ ingressBandwidth: "1M" }, { ingressBandwidth: 1e6, ingressBurst: 4294967296 }],
    [{ "kubernetes.io/egress-bandwidth": "10M" }, { egressBandwidth: 1e7, egressBurst: 4294967296 }],
    [
      { "kubernetes.io/egress-bandwidth": "10M", egressBandwidth: "5M" },
      { egressBandwidth: 5e6, egressBurst: 4294967296 },
    ],
    [
      { egressBandwidth: "5M", egressBurst: "1", egressPeakrate: "2P", egressMinburst: "1G" },
      { egressBandwidth: 5e6, egressBurst: 1000, egressPeakrate: 1.01e15, egressMinburst: 1e8 },
    ],
    [{ egressBandwidth: "-5" }, { egressBandwidth: 1000, egressBurst: 4294967296 }],
    [
      { egressBandwidth: "5M", egressPeakrate: "1M", egressMinburst: "5k" },
      { egressBandwidth: 5e6, egressBurst: 4294967296 },
    ],
    [{ ingressBurst: "2M" }, undefined],
    [{ ingressPacketRate: "99999" }, { ingressPacketRate: 10000, ingressPacketBurst: 5 }],
    [{ ingressPacketBurst: "5" }, undefined],
    [{ egressMaxConnections: "0" }, { egressMaxConnections: 1 }],
    [{ ingressBandwidth: "fast" }, undefined],
    [{ ingressBandwidth: "fast", "kubernetes.io/ingress-bandwidth": "10M" }, undefined], // Calico's annotation takes precedence
    [{ dscp: "46" }, { dscp: 46 }],
    [{ dscp: "af11" }, { dscp: "AF11" }],
    [{ dscp: "64" }, undefined],
  ] as const;
  for (const [annotations, want] of cases)
    test(JSON.stringify(annotations), () => expect(qos(annotations)).toEqual(want));
  test("values that are changed or ignored are reported", () => {
    const problems: string[] = [];
    qos({ ingressBandwidth: "1", egressBurst: "2M", dscp: "x" }, problems);
    expect(problems).toHaveLength(3);
  });
});

test("parseQuantity parses Kubernetes quantities", () => {
  const cases = {
    "1": 1,
    "10M": 1e7,
    "1.5Gi": 1610612736,
    "100m": 1,
    "2e3": 2000,
    ".5k": 500,
    "-3": -3,
    "1E": 1e18,
    "0.1": 1,
  };
  for (const [text, want] of Object.entries(cases)) expect([text, parseQuantity(text)]).toEqual([text, want]);
  for (const text of ["", "x", "1 M", "1KB", "1..2", "M"])
    expect([text, parseQuantity(text)]).toEqual([text, undefined]);
});

test("a quantity as long as an annotation may be is rejected quickly", () => {
  const started = performance.now();
  expect(parseQuantity(`${"2".repeat(256 * 1024)}x`)).toBeUndefined();
  expect(performance.now() - started).toBeLessThan(1000); // minutes if a digit may belong to two parts of the pattern
});

test("DM-069 a namespace becomes a profile with its labels that allows all traffic", () =>
  expect(
    profileFromNamespace({
      metadata: { name: "ns1", resourceVersion: "7", labels: { team: "a", "projectcalico.org/name": "evil" } },
    }),
  ).toEqual({
    apiVersion: API_VERSION,
    kind: "Profile",
    metadata: { name: "kns.ns1", resourceVersion: "7/" },
    spec: {
      ingress: [{ action: "Allow" }],
      egress: [{ action: "Allow" }],
      labelsToApply: { "pcns.team": "a", "pcns.projectcalico.org/name": "ns1" },
    },
  }));

test("DM-070 a service account becomes a profile without rules", () => {
  const long = "s".repeat(100);
  expect(
    profileFromServiceAccount({
      metadata: { name: "a.b", namespace: "ns1", resourceVersion: "7", labels: { x: "y" } },
    }),
  ).toEqual({
    apiVersion: API_VERSION,
    kind: "Profile",
    metadata: { name: "ksa.ns1.a.b", resourceVersion: "/7" },
    spec: { labelsToApply: { "pcsa.x": "y", "pcsa.projectcalico.org/name": "a.b" } },
  });
  expect(profileFromServiceAccount({ metadata: { name: long } }).metadata.name).toBe(`ksa.default.${long}`);
  expect(profileOrigin("ksa.ns1.a.b")).toEqual({ type: "serviceAccount", namespace: "ns1", name: "a.b" });
  expect(profileOrigin("kns.ns1")).toEqual({ type: "namespace", name: "ns1" });
  for (const name of ["kns.", "ksa.ns1", "ksa.ns1.", "other"]) expect(profileOrigin(name)).toBeUndefined();
});

describe("DM-076 conversion between Kubernetes Nodes and Calico Nodes", () => {
  const node = {
    bgp: {
      asNumber: 64512,
      ipv4Address: "10.0.0.1/24",
      ipv6Address: "fd00::1/64",
      ipv4IPIPTunnelAddr: "10.65.0.1",
      routeReflectorClusterID: "1.0.0.1",
    },
    ipv4VXLANTunnelAddr: "10.65.0.2",
    vxlanTunnelMACAddr: "66:00:00:00:00:01",
    ipv6VXLANTunnelAddr: "fd00:65::2",
    vxlanTunnelMACAddrV6: "66:00:00:00:00:02",
    wireguard: { interfaceIPv4Address: "10.65.0.3", interfaceIPv6Address: "fd00:65::3" },
    interfaces: [{ name: "eth0", addresses: ["10.0.0.1"] }],
  };
  const status = { wireguardPublicKey: "k4", wireguardPublicKeyV6: "k6" };
  const ours = (spec: object, metadata: object = {}): Resource => ({
    apiVersion: API_VERSION,
    kind: "Node",
    metadata: { name: "n1", ...metadata },
    spec,
    status,
  });
  test("all fields that were written are read", () => {
    const { annotations } = kubernetesNodeFrom(ours(node), {
      metadata: { name: "n1", annotations: { foreign: "kept" } },
    });
    expect(annotations["foreign"]).toBe("kept");
    const read = nodeFromKubernetes({ metadata: { name: "n1", annotations } });
    expect(read.status).toEqual(status);
    expect(read.spec).toMatchObject(node);
    expect(read.spec.orchRefs).toEqual([{ nodeName: "n1", orchestrator: "k8s" }]);
  });
  test("annotations of fields that are no longer set are removed", () => {
    const { annotations } = kubernetesNodeFrom(ours(node), { metadata: { name: "n1" } });
    const emptied = kubernetesNodeFrom({ ...ours({}), status: {} }, { metadata: { name: "n1", annotations } });
    expect(emptied.annotations).toEqual({});
  });
  test("CIDRs among the addresses of an interface are ignored", () =>
    expect(
      nodeFromKubernetes({
        metadata: {
          name: "n",
          annotations: {
            "projectcalico.org/Interfaces": '[{"name":"e","addresses":["10.0.0.5/24","fd00::5/64","10.0.0.6"]}]',
          },
        },
      }).spec.interfaces,
    ).toEqual([{ name: "e", addresses: ["10.0.0.6"] }]));
});

describe("DM-077 labels of both Nodes are merged, and separated again", () => {
  const kubernetes = {
    metadata: {
      name: "n1",
      labels: { zone: "a", both: "k8s" },
      annotations: { "projectcalico.org/labels": '{"both":"calico","own":"1"}' },
    },
  };
  const labelsAfter = (change: (labels: Record<string, string>) => void) => {
    const node = nodeFromKubernetes(kubernetes);
    const labels = { ...node.metadata.labels };
    change(labels);
    const { annotations } = kubernetesNodeFrom({ ...node, metadata: { ...node.metadata, labels } }, kubernetes);
    return JSON.parse(annotations["projectcalico.org/labels"] ?? "{}") as unknown;
  };
  test("on reading, labels of Kubernetes take precedence", () =>
    expect(nodeFromKubernetes(kubernetes).metadata.labels).toEqual({ zone: "a", both: "k8s", own: "1" }));
  test("writing the Node back unchanged changes nothing, including hidden labels", () =>
    expect(labelsAfter(() => {})).toEqual({ both: "calico", own: "1" }));
  test("changed labels become labels of the Calico Node", () =>
    expect(labelsAfter((labels) => Object.assign(labels, { own: "2", more: "3" }))).toEqual({
      both: "calico",
      own: "2",
      more: "3",
    }));
  test("without the annotation, all labels are those of the Calico Node", () => {
    const { annotations } = kubernetesNodeFrom(
      { apiVersion: API_VERSION, kind: "Node", metadata: { name: "n1", labels: { zone: "a" } }, spec: {} },
      kubernetes,
    );
    expect(annotations["projectcalico.org/labels"]).toBe('{"zone":"a"}');
  });
  test("an annotation that does not parse is rejected", () =>
    expect(() =>
      kubernetesNodeFrom(
        {
          apiVersion: API_VERSION,
          kind: "Node",
          metadata: { name: "n1", annotations: { "projectcalico.org/kube-labels": "{" } },
          spec: {},
        },
        kubernetes,
      ),
    ).toThrow("kube-labels"));
});

test("DM-078 with pod CIDRs, the tunnel address is their first address", () => {
  const kubernetes = {
    metadata: { name: "n", annotations: { "projectcalico.org/WireguardPublicKey": "k" } },
    spec: { podCIDRs: ["fd00::/64", "10.244.1.0/24"] },
  };
  const node = nodeFromKubernetes(kubernetes, { usePodCidr: true });
  expect(node.spec.bgp).toEqual({ ipv4IPIPTunnelAddr: "10.244.1.1" });
  expect(node.spec.wireguard).toEqual({ interfaceIPv4Address: "10.244.1.1" });
  expect(nodeFromKubernetes(kubernetes).spec.bgp).toBeUndefined();
});

test("DM-078 with pod CIDRs, annotations with allocated tunnel addresses are ignored", () => {
  const annotations = {
    "projectcalico.org/IPv4IPIPTunnelAddr": "10.65.0.1",
    "projectcalico.org/IPv4WireguardInterfaceAddr": "10.65.0.3",
    "projectcalico.org/IPv6WireguardInterfaceAddr": "fd00:65::3",
  };
  const kubernetes = { metadata: { name: "n", annotations }, spec: { podCIDRs: ["10.244.1.0/24"] } };
  const fixed = nodeFromKubernetes(kubernetes, { usePodCidr: true }).spec;
  expect(fixed.bgp).toEqual({ ipv4IPIPTunnelAddr: "10.244.1.1" });
  expect(fixed.wireguard).toBeUndefined();
  const without = nodeFromKubernetes({ metadata: kubernetes.metadata }, { usePodCidr: true }).spec;
  expect(without.bgp).toEqual({ ipv4IPIPTunnelAddr: "10.65.0.1" });
  expect(without.wireguard).toEqual({ interfaceIPv4Address: "10.65.0.3", interfaceIPv6Address: "fd00:65::3" });
});

test("DM-076 an invalid MAC address of a tunnel counts as absent", () => {
  const read = (mac: string) =>
    nodeFromKubernetes({
      metadata: {
        name: "n",
        annotations: { "projectcalico.org/VXLANTunnelMACAddr": mac, "projectcalico.org/VXLANTunnelMACAddrV6": mac },
      },
    }).spec;
  expect(read("66-00-00-00-00-0A")).toMatchObject({
    vxlanTunnelMACAddr: "66-00-00-00-00-0A",
    vxlanTunnelMACAddrV6: "66-00-00-00-00-0A",
  });
  for (const mac of ["bad", "66:00:00:00:00", "66:00:00-00:00:01", ""]) {
    expect(read(mac).vxlanTunnelMACAddr).toBeUndefined();
    expect(read(mac).vxlanTunnelMACAddrV6).toBeUndefined();
  }
});

test("DM-079 UIDs are converted by reversing bits, and back", () => {
  expect(convertUid("30316465-6365-4463-ad63-3564622d3638")).toBe("0c8c26a6-c6a6-44c6-adc6-ac2646b46c1c");
  expect(convertUid("rubbish")).toBe("rubbish");
  fc.assert(fc.property(fc.uuid(), (uid) => void expect(convertUid(convertUid(uid))).toBe(uid)));
});

describe("DM-080 the migration of a virtual machine", () => {
  const migration = (phase: string, sourcePod?: string) =>
    liveMigrationFromKubeVirt({
      metadata: { name: "m", namespace: "ns1", uid: "u" },
      spec: { vmiName: "vm1" },
      status: { phase, migrationState: sourcePod === undefined ? undefined : { sourcePod } },
    });
  for (const phase of ["Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running", "Failed"])
    test(phase, () =>
      expect(migration(phase, "virt-launcher-1")?.spec).toEqual({
        source: { workload: { orchestratorID: "k8s", workloadID: "ns1/virt-launcher-1" } },
        target: {
          selector:
            "projectcalico.org/namespace == 'ns1' && vmi.kubevirt.io/id == 'vm1' && kubevirt.io/migrationJobUID == 'u'",
        },
      }),
    );
  test("the name of a machine cannot inject selector syntax", () => {
    const selectorFor = (vmiName: string) =>
      liveMigrationFromKubeVirt({
        metadata: { name: "m", namespace: "ns1", uid: "u" },
        spec: { vmiName },
        status: { phase: "Running" },
      })?.spec.target.selector;
    const foreign = "x' || all() || has(a) || app == 'y";
    expect(parseSelector(selectorFor(foreign) ?? "")).toEqual({
      kind: "and",
      operands: [
        { kind: "equals", label: "projectcalico.org/namespace", value: "ns1" },
        { kind: "equals", label: "vmi.kubevirt.io/id", value: foreign },
        { kind: "equals", label: "kubevirt.io/migrationJobUID", value: "u" },
      ],
    });
    expect(() => selectorFor(`x' || all() || "y`)).toThrow("is not a label value");
  });
  test("is converted only while it runs, and may have no source", () => {
    for (const phase of ["Pending", "Succeeded", ""]) expect(migration(phase)).toBeUndefined();
    expect(migration("Scheduling")?.spec.source).toBeUndefined();
  });
});

test("the addresses that the CNI plugin writes to a pod are read from it", () => {
  const now = new Date("2026-01-02T03:04:05.678Z");
  const written = podPatch({ ipNetworks: ["10.0.0.1", "fd00::1/128"], containerID: "c" }, now);
  expect(written?.metadata.annotations).toEqual({
    "cni.projectcalico.org/podIP": "10.0.0.1/32",
    "cni.projectcalico.org/podIPs": "10.0.0.1/32,fd00::1/128",
    "cni.projectcalico.org/containerID": "c",
  });
  expect(networks({ status: written?.status ?? {} })).toEqual(["10.0.0.1/32", "fd00::1/128"]);
  expect(podPatch({}, now)).toBeUndefined();
  const erased = podErasure(now);
  expect(erased.metadata.annotations).toEqual({
    "cni.projectcalico.org/podIP": "",
    "cni.projectcalico.org/podIPs": "",
  });
  expect(erased.status.conditions).toEqual([
    {
      type: "cni.projectcalico.org/AddressesAssigned",
      status: "False",
      reason: "",
      message: "",
      lastTransitionTime: "2026-01-02T03:04:05Z",
    },
  ]);
  expect(networks({ status: erased.status })).toBeUndefined();
});

describe("the interface of a pod whose computed name another workload has", () => {
  const now = new Date("2026-01-02T03:04:05.678Z");
  const computed = podInterfaceName("ns1", "web");
  const record = (interfaceName: string | undefined, interfacePrefix?: string) => {
    const endpoint = { namespace: "ns1", pod: "web", ipNetworks: ["10.0.0.1"], containerID: "c", interfaceName };
    return podPatch(endpoint, now, { interfacePrefix })?.status ?? {};
  };
  const read = (status: object, interfacePrefix?: string) => {
    const problems: string[] = [];
    const { spec } = workloadEndpointFromPod(pod({ status }), (problem) => problems.push(problem), { interfacePrefix });
    return { interfaceName: spec.interfaceName, ipNetworks: spec.ipNetworks?.map(String), problems };
  };
  const assigned = (message: string, status = "True", more: object = {}) => ({
    ...more,
    conditions: [{ type: "cni.projectcalico.org/AddressesAssigned", status, message }],
  });

  test("is recorded in the condition and read from it", () => {
    const recorded = record("cali0123456789a");
    expect(recorded).toMatchObject({ conditions: [{ message: "10.0.0.1/32 interface=cali0123456789a" }] });
    expect(read(recorded)).toEqual({ interfaceName: "cali0123456789a", ipNetworks: ["10.0.0.1/32"], problems: [] });
    expect(read(record("tap0123456789a", "tap"), "tap").interfaceName).toBe("tap0123456789a");
  });
  test("is not recorded if it has the computed name, or a name of another form", () => {
    for (const name of [computed, undefined, "", "eth0", "cali0123456789", "cali0123456789ab", "tap0123456789a"])
      expect(record(name)).toMatchObject({ conditions: [{ message: "10.0.0.1/32" }] });
  });
  test("a record of another form is reported and ignored", () => {
    for (const name of [
      "",
      "eth0",
      "cali",
      "cali0123456789A",
      "cali0123456789ab",
      " cali0123456789a",
      "tap0123456789a",
    ])
      expect(read(assigned(`10.0.0.1/32 interface=${name}`))).toEqual({
        interfaceName: computed,
        ipNetworks: ["10.0.0.1/32"],
        problems: [expect.stringContaining("want the prefix and 11 hex digits")],
      });
  });
  test("ends with DEL, and if another plugin has attached the pod since", () => {
    const message = "10.0.0.1/32 interface=cali0123456789a";
    expect(read(assigned(message, "False")).interfaceName).toBe(computed);
    const started = { containerStatuses: [{ state: { running: { startedAt: "2026-01-02T00:00:01Z" } } }] };
    const outdated = assigned(message, "True", { podIPs: [{ ip: "10.0.0.9" }], ...started });
    Object.assign(outdated.conditions[0] ?? {}, { lastTransitionTime: "2026-01-02T00:00:00Z" });
    expect(read(outdated)).toEqual({ interfaceName: computed, ipNetworks: ["10.0.0.9/32"], problems: [] });
  });
  test("is not taken from annotations, which the pod's author writes", () => {
    const annotations = { "cni.projectcalico.org/podIPs": "10.0.0.1/32 interface=cali0123456789a" };
    expect(convert({ annotations, status: { podIP: "10.0.0.2" } }).spec.interfaceName).toBe(computed);
  });
  test("does not change which addresses stay assigned", () =>
    expect<readonly string[]>(podAddressesInUse(pod({ status: assigned("10.0.0.1/32 interface=x") }))).toEqual([
      "10.0.0.1/32",
    ]));
});

// --- recordings --------------------------------------------------------------------------------------------------
const folder = join(import.meta.dir, "../../../../shared/golden/kubernetes/conversion");
if (!existsSync(folder)) console.log("Kubernetes conversions: no recordings next to the checkout, not compared");
else {
  const read = <T>(file: string): T => JSON.parse(readFileSync(join(folder, file), "utf8")) as T;
  /** Removes UIDs and times, which only recorded objects have. */
  const bare = (resource: Resource | undefined): unknown => {
    if (resource === undefined) return undefined;
    const { uid: _, resourceVersion: __, creationTimestamp: ___, ...metadata } = resource.metadata;
    return { ...resource, metadata };
  };
  /** Annotations change the addresses in Calico: claimed before the kubelet reports them, or freed. Not in calico-ts. */
  const networksIfDifferent: Readonly<Record<string, object>> = {
    "annotation-ip-only": {},
    "terminating-annotation-empty": { ipNetworks: ["10.65.0.5/32"] },
    "terminating-aws-empty": { ipNetworks: ["10.65.0.5/32"] },
  };
  const withNetworks = (resource: Resource | undefined, networks: object | undefined): Resource | undefined => {
    if (resource === undefined || networks === undefined) return resource;
    const { ipNetworks: _, ...spec } = resource.spec as { ipNetworks?: unknown };
    return { ...resource, spec: { ...spec, ...networks } };
  };
  describe("recorded pods", () => {
    for (const { name, kubernetes, then, workloadEndpoints } of read<{
      cases: { name: string; kubernetes: { metadata: object }; then?: string; workloadEndpoints: Resource[] }[];
    }>("pods.json").cases)
      test(name, () => {
        const given =
          then === undefined
            ? kubernetes
            : { ...kubernetes, metadata: { ...kubernetes.metadata, deletionTimestamp: "x" } };
        let made: Resource | undefined;
        try {
          made = isWorkloadPod(given) ? workloadEndpointFromPod(given, () => {}) : undefined;
        } catch (error) {
          if (!isValueError(error)) throw error;
        }
        const [recorded] = workloadEndpoints;
        expect(bare(made)).toEqual(bare(withNetworks(recorded, networksIfDifferent[name])));
      });
  });
  describe("recorded profiles", () => {
    for (const { name, kubernetes, listed } of read<{
      cases: {
        name: string;
        kubernetes: { kind: string; metadata: { name: string; labels?: object } } | null;
        listed: Resource;
      }[];
    }>("profiles.json").cases)
      if (kubernetes !== null)
        test(name, () => {
          const isNamespace = kubernetes.kind === "Namespace";
          // The API server adds this label to every namespace.
          const labels = {
            ...kubernetes.metadata.labels,
            ...(isNamespace ? { "kubernetes.io/metadata.name": kubernetes.metadata.name } : {}),
          };
          const given = { ...kubernetes, metadata: { ...kubernetes.metadata, labels } };
          expect(bare(isNamespace ? profileFromNamespace(given) : profileFromServiceAccount(given))).toEqual(
            bare(listed),
          );
        });
  });
  describe("recorded nodes", () => {
    for (const { name, kubernetes, node, withUSE_POD_CIDR } of read<{
      cases: { name: string; kubernetes: object; node?: Resource; withUSE_POD_CIDR?: Resource }[];
    }>("nodes.json").cases)
      if (node !== undefined)
        test(name, () => {
          expect(bare(nodeFromKubernetes(kubernetes))).toEqual(bare(node));
          if (withUSE_POD_CIDR !== undefined)
            expect(bare(nodeFromKubernetes(kubernetes, { usePodCidr: true }))).toEqual(bare(withUSE_POD_CIDR));
        });
  });
}
