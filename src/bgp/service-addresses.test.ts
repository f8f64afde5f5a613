import { describe, expect, test } from "bun:test";
import { API_VERSION } from "../model/index.ts";
import { BgpCollector } from "./collect.ts";
import { plan } from "./plan.ts";
import { type ServiceInputs, serviceAddresses } from "./service-addresses.ts";

interface Given {
  readonly configuration: object;
  readonly spec?: object;
  readonly ingress?: readonly string[];
  readonly endpoints?: readonly { readonly node?: string; readonly ready?: boolean; readonly type?: string }[];
  readonly clusterIps?: readonly string[];
  readonly isExcluded?: boolean;
}

function stateOf(
  configuration: object,
  node: { readonly labels?: Record<string, string>; readonly bgp?: object } = {},
) {
  const collector = new BgpCollector();
  const metadata = { name: "n1", labels: node.labels };
  const bgp = { ipv4Address: "10.0.0.1/24", ipv6Address: "fd00::1/64", ...node.bgp };
  collector.setResource("n1", { apiVersion: API_VERSION, kind: "Node", metadata, spec: { bgp } }, "Node");
  collector.setResource(
    "default",
    { apiVersion: API_VERSION, kind: "BGPConfiguration", metadata: { name: "default" }, spec: configuration },
    "BGPConfiguration",
  );
  return collector.stateFor("n1");
}

/** The addresses of one service that n1 announces. */
function announced({
  configuration,
  spec = {},
  ingress = [],
  endpoints = [],
  clusterIps,
  isExcluded = false,
}: Given): readonly string[] {
  const inputs: ServiceInputs = {
    services: [
      {
        metadata: { name: "s", namespace: "default" },
        spec: { type: "NodePort", clusterIP: "10.101.0.10", ...spec },
        status: { loadBalancer: { ingress: ingress.map((ip) => ({ ip })) } },
      },
    ],
    slices: endpoints.map(({ node, ready, type = "IPv4" }) => ({
      metadata: { name: "s-1", namespace: "default", labels: { "kubernetes.io/service-name": "s" } },
      addressType: type,
      endpoints: [
        { addresses: ["192.168.1.1"], nodeName: node, conditions: ready === undefined ? undefined : { ready } },
      ],
    })),
    nodeName: "n1",
    configuration: stateOf(configuration).configurations.get("default"),
    clusterIps,
    isExcluded,
  };
  return serviceAddresses(inputs);
}
const RANGES = {
  serviceClusterIPs: [{ cidr: "10.101.0.0/16" }],
  serviceExternalIPs: [{ cidr: "203.0.113.0/24" }],
  serviceLoadBalancerIPs: [{ cidr: "198.51.100.0/24" }],
};
const LOCAL = { externalTrafficPolicy: "Local" };
const HERE = [{ node: "n1" }];

describe("Kubernetes Services", () => {
  test("NB-130 ranges of cluster IPs, from the configuration or the environment", () => {
    const state = stateOf({ serviceClusterIPs: [{ cidr: "10.96.0.0/12" }, { cidr: "fd00:96::/112" }] });
    expect(plan(state, "n1").staticBlackholes).toEqual(["10.96.0.0/12", "fd00:96::/112"]);
    expect(plan(state, "n1").kernelExport[4]).toContainEqual({ within: "10.96.0.0/12", action: "reject" });
    expect(plan(state, "n1", { clusterIps: ["10.100.0.0/16"] }).staticBlackholes).toEqual(["10.100.0.0/16"]);
    expect(announced({ configuration: RANGES, spec: LOCAL, endpoints: HERE })).toEqual(["10.101.0.10/32"]);
    expect(announced({ configuration: {}, spec: LOCAL, endpoints: HERE, clusterIps: ["10.101.0.0/16"] })).toEqual([
      "10.101.0.10/32",
    ]);
  });
  test("NB-131 external IPs inside the ranges", () => {
    const spec = { ...LOCAL, externalIPs: ["203.0.113.5", "192.0.2.1"] };
    expect(
      announced({ configuration: { serviceExternalIPs: [{ cidr: "203.0.113.0/24" }] }, spec, endpoints: HERE }),
    ).toEqual(["203.0.113.5/32"]);
  });
  test("NB-132 load balancer IPs inside the ranges", () =>
    expect(
      announced({
        configuration: { serviceLoadBalancerIPs: [{ cidr: "198.51.100.0/24" }] },
        spec: { ...LOCAL, type: "LoadBalancer" },
        ingress: ["198.51.100.9", "192.0.2.9"],
        endpoints: HERE,
      }),
    ).toEqual(["198.51.100.9/32"]));
  test("NB-133 with policy Local, only nodes with an endpoint announce", () => {
    expect(announced({ configuration: RANGES, spec: LOCAL, endpoints: [{ node: "n2" }] })).toEqual([]);
    expect(announced({ configuration: RANGES, spec: LOCAL, endpoints: [{ node: "n2" }, { node: "n1" }] })).toEqual([
      "10.101.0.10/32",
    ]);
    expect(announced({ configuration: RANGES, endpoints: HERE })).toEqual([]); // policy Cluster: the range is announced
  });
  test("NB-134 a range of one address is announced with its service", () => {
    const configuration = {
      serviceExternalIPs: [{ cidr: "203.0.113.5/32" }],
      serviceLoadBalancerIPs: [{ cidr: "198.51.100.9/32" }],
    };
    const one = (spec: object, more: Partial<Given> = {}) =>
      announced({
        configuration,
        endpoints: [{ node: "n2", ready: false }],
        spec: { externalTrafficPolicy: "Cluster", ...spec },
        ...more,
      });
    expect(one({ externalIPs: ["203.0.113.5"] })).toEqual(["203.0.113.5/32"]);
    expect(one({ type: "LoadBalancer" }, { ingress: ["198.51.100.9"] })).toEqual(["198.51.100.9/32"]);
    expect(one({ externalIPs: ["203.0.113.6"] })).toEqual([]);
    expect(one({ externalIPs: ["203.0.113.5"] }, { endpoints: [] })).toEqual([]); // no EndpointSlice yet
    expect(one({ externalIPs: ["203.0.113.5"], externalTrafficPolicy: "" })).toEqual([]);
    const made = plan(stateOf(configuration), "n1", { serviceAddresses: ["203.0.113.5/32"] });
    expect(made.kernelExport[4]).toContainEqual({ within: "203.0.113.5/32", action: "reject" }); // not a blackhole in this node's kernel
    expect(made.bgpExport[4]).toContainEqual({ within: "203.0.113.5/32", action: "accept" });
  });
  test("NB-135 without aggregation every ready service is announced, the range is not", () => {
    const configuration = { ...RANGES, serviceLoadBalancerAggregation: "Disabled" };
    expect(plan(stateOf(configuration), "n1").staticBlackholes).toEqual(["10.101.0.0/16", "203.0.113.0/24"]);
    expect(
      announced({
        configuration,
        spec: { type: "LoadBalancer" },
        ingress: ["198.51.100.9"],
        endpoints: [{ node: "n2" }],
      }),
    ).toEqual(["10.101.0.10/32", "198.51.100.9/32"]);
    expect(announced({ configuration, spec: { type: "LoadBalancer" }, ingress: ["198.51.100.9"] })).toEqual([]);
  });
  test("NB-136 an excluded node announces no service, and still does not program their routes", () => {
    const made = plan(
      stateOf(RANGES, { labels: { "node.kubernetes.io/exclude-from-external-load-balancers": "true" } }),
      "n1",
    );
    expect(made.staticBlackholes).toEqual([]);
    expect(made.kernelExport[4]).toContainEqual({ within: "10.101.0.0/16", action: "reject" });
    expect(announced({ configuration: RANGES, spec: LOCAL, endpoints: HERE, isExcluded: true })).toEqual([]);
  });
  test("NB-137 endpoints without a ready condition count as ready; all slices of the service's families are used", () => {
    const ready = (endpoints: Given["endpoints"], spec: object = LOCAL) =>
      announced({ configuration: RANGES, spec, endpoints }).length;
    expect([
      ready([{ node: "n1", ready: false }]),
      ready([{ node: "n1", ready: true }]),
      ready([{ node: "n1" }]),
    ]).toEqual([0, 1, 1]);
    expect(
      ready([
        { node: "n1", ready: false },
        { node: "n1", ready: true },
      ]),
    ).toBe(1);
    expect(ready([{ node: "n1", type: "IPv6" }], { ...LOCAL, ipFamilies: ["IPv4"] })).toBe(0);
  });
  test("NB-138 a reflector announces the ranges of load balancer and external IPs", () => {
    const made = plan(stateOf(RANGES, { bgp: { routeReflectorClusterID: "1.0.0.1" } }), "n1");
    const accepted = made.bgpExport[4]
      .filter((step) => "within" in step && step.action === "accept")
      .map((step) => ("within" in step ? step.within : ""));
    expect(accepted.slice(-2)).toEqual(["198.51.100.0/24", "203.0.113.0/24"]);
  });
  test("headless, external and unreadable services are not announced", () => {
    for (const spec of [{ clusterIP: "None" }, { type: "ExternalName" }, { externalIPs: "x" }])
      expect(announced({ configuration: RANGES, spec: { ...LOCAL, ...spec }, endpoints: HERE })).toEqual([]);
  });
});
