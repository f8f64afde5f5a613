import { expect, test } from "bun:test";
import { withAnnotations } from "../request/annotations.ts";
import { alternativeInterfaceName, hostInterfaceName, identify } from "../request/identity.ts";
import type { KubernetesPod } from "../kubernetes/api.ts";
import { parseNetConf } from "../request/net-conf.ts";
import { baseLabels, podFacts } from "./pod.ts";
import { parseRequest } from "../request/request.ts";

const settings = parseNetConf({ name: "n", ipam: { type: "calico-ipam", ipv4_pools: ["conf-pool"] } }).ipam;
const request = (args: string) =>
  parseRequest(
    "calico",
    { CNI_COMMAND: "DEL", CNI_CONTAINERID: "0123456789abcdef", CNI_IFNAME: "eth0", CNI_PATH: "/", CNI_ARGS: args },
    JSON.stringify({ name: "net1", nodename: "n1" }),
  );
const identityOf = (args: string) => identify(request(args), parseNetConf(request(args).config));
const identity = identityOf("K8S_POD_NAMESPACE=ns1;K8S_POD_NAME=p1");

function pod(metadata: Partial<KubernetesPod["metadata"]>, spec: KubernetesPod["spec"] = {}): KubernetesPod {
  return { metadata: { name: "p1", namespace: "ns1", ...metadata }, spec };
}
const annotated = (annotations: Record<string, string>) =>
  pod({
    annotations: Object.fromEntries(Object.entries(annotations).map(([k, v]) => [`cni.projectcalico.org/${k}`, v])),
  });
const facts = (kubernetesPod: KubernetesPod, namespace: Record<string, string> = {}) =>
  podFacts(identity, kubernetesPod, { metadata: { name: "ns1", annotations: namespace } }, settings);

test("CI-016 the name of the host's interface depends on the pod, or on the container", () => {
  expect(hostInterfaceName(identity, "cali")).toBe("cali1579d706c00");
  expect(hostInterfaceName(identity, "tap")).toBe("tap1579d706c00");
  expect(hostInterfaceName(identityOf(""), "tap")).toBe("cali0123456789a");
});

test("an alternative name of the host's interface depends on the container, the workload and the attempt", () => {
  const variants = [
    identity,
    { ...identity, containerId: "another" },
    { ...identity, namespace: "ns2" },
    { ...identity, pod: "p2" },
    identityOf(""),
  ];
  const names = variants.flatMap((each) => [1, 2].map((attempt) => alternativeInterfaceName(each, "cali", attempt)));
  for (const name of names) expect(name).toMatch(/^cali[0-9a-f]{11}$/);
  expect(new Set(names).size).toBe(10);
  expect(alternativeInterfaceName(identity, "tap", 1)).toMatch(/^tap[0-9a-f]{11}$/);
  expect(alternativeInterfaceName(identityOf(""), "tap", 1)).toMatch(/^cali[0-9a-f]{11}$/);
});

test("CI-015 with both pod arguments the endpoint is identified by pod, otherwise by container", () => {
  expect(identity).toMatchObject({ orchestrator: "k8s", namespace: "ns1", pod: "p1", node: "n1" });
  expect(identityOf("K8S_POD_NAME=p1")).toMatchObject({ orchestrator: "cni", namespace: "default", pod: "" });
  expect(identityOf("CNI_TEST_NAMESPACE=t")).toMatchObject({ orchestrator: "cni", namespace: "t" });
});

test("CI-024 labels, profiles, service account, generateName and ports are read from the pod", () => {
  const kubernetesPod = pod(
    { labels: { app: "a" }, generateName: "p-" },
    {
      serviceAccountName: "sa1",
      containers: [
        { ports: [{ name: "http", containerPort: 80 }, { containerPort: 81 }] },
        { ports: [{ containerPort: 53, hostPort: 5353, protocol: "UDP", hostIP: "1.2.3.4" }] },
      ],
      initContainers: [{ ports: [{ name: "init", containerPort: 9 }] }],
    },
  );
  expect(facts(kubernetesPod)).toMatchObject({
    labels: {
      app: "a",
      "projectcalico.org/namespace": "ns1",
      "projectcalico.org/orchestrator": "k8s",
      "projectcalico.org/serviceaccount": "sa1",
    },
    profiles: ["kns.ns1", "ksa.ns1.sa1"],
    generateName: "p-",
    serviceAccountName: "sa1",
    ports: [
      { name: "http", protocol: "TCP", port: 80, hostPort: 0, hostIP: "" },
      { name: "", protocol: "UDP", port: 53, hostPort: 5353, hostIP: "1.2.3.4" },
      { name: "init", port: 9 },
    ],
  });
});

test("CI-024 a service account name that is too long for a label is left out of the labels only", () => {
  const { labels, profiles } = facts(pod({}, { serviceAccountName: "s".repeat(63) }));
  expect(labels).toEqual(baseLabels(identity));
  expect(profiles[1]).toBe(`ksa.ns1.${"s".repeat(63)}`);
});

test("CI-025 for pools, the pod's annotation overrides its namespace's, which overrides the configuration", () => {
  const pools = (p: Record<string, string>, n: Record<string, string>) => withAnnotations(settings, p, n).ipv4Pools;
  const key = "cni.projectcalico.org/ipv4pools";
  expect(pools({ [key]: '["a"]' }, { [key]: '["b"]' })).toEqual(["a"]);
  expect(pools({}, { [key]: '["b","10.0.0.0/16"]' })).toEqual(["b", "10.0.0.0/16"]);
  expect(pools({}, {})).toEqual(["conf-pool"]);
  expect(() => pools({ [key]: "other" }, {})).toThrow(/ipv4pools/);
  expect(withAnnotations(settings, { "cni.projectcalico.org/ipv6pools": '["c"]' }, {}).ipv6Pools).toEqual(["c"]);
});

test("CI-025 pool annotations are ignored for other IPAM plugins", () => {
  const wrong = { "cni.projectcalico.org/ipv4pools": "nonsense", "cni.projectcalico.org/ipFamilies": "[1]" };
  const kubernetesPod = pod({ annotations: wrong });
  const ofType = (type: string) =>
    podFacts(identity, kubernetesPod, { metadata: { name: "ns1", annotations: wrong } }, { ...settings, type });
  expect(ofType("host-local").ipam).toEqual({ ...settings, type: "host-local" });
  expect(() => ofType("calico-ipam")).toThrow("ipFamilies");
});

test("CI-026 the ipFamilies annotation sets both families", () => {
  const families = (text: string) => {
    const { assignIpv4, assignIpv6 } = withAnnotations(settings, { "cni.projectcalico.org/ipFamilies": text }, {});
    return [assignIpv4, assignIpv6];
  };
  expect([families('["IPv6"]'), families('["IPv4","IPv6"]')]).toEqual([
    [false, true],
    [true, true],
  ]);
  for (const text of ['["IPv5"]', "[]"]) expect(() => families(text)).toThrow(/error parsing ipFamilies/);
});

const optionCases: readonly { id: string; annotations: Record<string, string>; want: object }[] = [
  { id: "CI-027", annotations: { ipAddrs: '["10.0.0.1","fd00::1"]' }, want: { ipAddrs: ["10.0.0.1", "fd00::1"] } },
  { id: "CI-028", annotations: { ipAddrsNoIpam: '["10.0.0.1"]' }, want: { ipAddrsNoIpam: ["10.0.0.1"] } },
  {
    id: "CI-029",
    annotations: { floatingIPs: '["1.1.1.1","2001::1"]' },
    want: { floatingIps: ["1.1.1.1", "2001::1"] },
  },
  { id: "CI-030", annotations: { hwAddr: "0A00.0000.0001" }, want: { hwAddr: "0a:00:00:00:00:01" } },
  { id: "CI-030", annotations: { hwAddr: "0A-00-00-00-00-01" }, want: { hwAddr: "0a:00:00:00:00:01" } },
  {
    id: "CI-031",
    annotations: { allowedSourcePrefixes: '["10.1.2.3/16"]' },
    want: { allowedSourcePrefixes: ["10.1.0.0/16"] },
  },
  { id: "CI-031", annotations: { allowedSourcePrefixes: "[]" }, want: {} },
];
for (const { id, annotations, want } of optionCases)
  test(`${id} ${Object.keys(annotations)} is read`, () =>
    expect(facts(annotated(annotations)).options).toEqual(want as never));

const rejected: readonly { id: string; annotations: Record<string, string>; message: RegExp }[] = [
  { id: "CI-027", annotations: { ipAddrs: "[]" }, message: /specified but empty/ },
  { id: "CI-027", annotations: { ipAddrs: "10.0.0.1" }, message: /JSON list/ },
  { id: "CI-027", annotations: { ipAddrs: '["10.0.0.1","10.0.0.2"]' }, message: /more than one IPv4/ },
  { id: "CI-027", annotations: { ipAddrs: '["nope"]' }, message: /invalid IP "nope"/ },
  { id: "CI-028", annotations: { ipAddrs: '["10.0.0.1"]', ipAddrsNoIpam: '["10.0.0.1"]' }, message: /can't have both/ },
  { id: "CI-029", annotations: { floatingIPs: '["x"]' }, message: /invalid IP/ },
  { id: "CI-030", annotations: { hwAddr: "0a:00-00:00:00:01" }, message: /invalid MAC/ },
  { id: "CI-030", annotations: { hwAddr: "zz" }, message: /invalid MAC/ },
  { id: "CI-031", annotations: { allowedSourcePrefixes: '["10.1.2.3"]' }, message: /invalid CIDR/ },
];
for (const { id, annotations, message } of rejected)
  test(`${id} ${JSON.stringify(annotations)} is rejected`, () =>
    expect(() => facts(annotated(annotations))).toThrow(message));
