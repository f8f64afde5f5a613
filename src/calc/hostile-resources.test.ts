// One resource whose fields are not what its kind has must not end the calculation for all others.
import { expect, test } from "bun:test";
import {
  API_VERSION,
  felixNodeProcessor,
  hostEndpointProcessor,
  type KindName,
  kindOf,
  passThroughOf,
  policyProcessor,
  poolProcessor,
  profileProcessor,
  type Resource,
  tierProcessor,
  type UpdateProcessor,
  workloadEndpointProcessor,
} from "../model/index.ts";
import type { GraphUpdate } from "./graph.ts";
import { GraphBench } from "./testing/run.ts";

const HOST = "n1";
const workload = { interfaceName: "cali1", ipNetworks: ["10.0.0.1/32"], profiles: ["p"], node: HOST };
const asksForService = {
  selector: "all()",
  types: ["Egress"],
  egress: [{ action: "Allow", destination: { services: { name: "s", namespace: "ns" } } }],
};

/** What is stored beside the metadata, and the paths in it where anything may stand. */
const KINDS: readonly (readonly [KindName, UpdateProcessor, object, readonly string[]])[] = [
  [
    "Node",
    felixNodeProcessor({ usePodCidr: true }),
    { spec: { bgp: { ipv4Address: "10.0.0.1/24" } } },
    ["spec.bgp", "spec.bgp.ipv4Address", "spec.addresses", "spec.addresses.0", "spec.wireguard", "status"],
  ],
  ["Profile", profileProcessor, { spec: {} }, ["spec.labelsToApply", "spec.labelsToApply.a", "spec.ingress"]],
  [
    "BGPConfiguration",
    passThroughOf("BGPConfiguration"),
    { spec: {} },
    ["spec.serviceClusterIPs", "spec.serviceExternalIPs.0", "spec.localWorkloadPeeringIPV4"],
  ],
  ["BGPPeer", passThroughOf("BGPPeer"), { spec: {} }, ["spec.node", "spec.nodeSelector", "spec.localWorkloadSelector"]],
  [
    "KubernetesService",
    passThroughOf("KubernetesService"),
    { spec: { clusterIP: "10.1.0.1" } },
    ["spec.clusterIPs", "spec.externalIPs", "spec.ports", "spec.ports.0", "status", "status.loadBalancer.ingress"],
  ],
  [
    "KubernetesEndpointSlice",
    passThroughOf("KubernetesEndpointSlice"),
    { endpoints: [{ addresses: ["10.0.0.2"] }], ports: [{ port: 80 }] },
    ["endpoints", "endpoints.0", "endpoints.0.addresses", "ports", "ports.0", "ports.0.protocol", "ports.0.port"],
  ],
  [
    "LiveMigration",
    passThroughOf("LiveMigration"),
    { spec: {} },
    ["spec.source", "spec.source.workload", "spec.target"],
  ],
  [
    "HostEndpoint",
    hostEndpointProcessor(),
    { spec: { node: HOST, interfaceName: "eth0" } },
    ["spec.node", "spec.ports"],
  ],
  ["IPPool", poolProcessor(), { spec: { cidr: "10.0.0.0/16" } }, ["spec.cidr", "spec.allowedUses", "spec.ipipMode"]],
  ["Tier", tierProcessor, { spec: {} }, ["spec.order", "spec.defaultAction"]],
  ["GlobalNetworkPolicy", policyProcessor, { spec: asksForService }, ["spec.types", "spec.order", "spec.egress.0"]],
];
const HOSTILE: readonly unknown[] = [
  ...[null, "x", "", "a/b", "\0\n", 5, -1, Number.POSITIVE_INFINITY, true],
  ...[[], ["x"], [null], [5], {}, { a: null }, { constructor: 1 }, [{}], [{ cidr: 5 }]],
];

for (const [kind, processor, good, paths] of KINDS)
  test(`a ${kind} with fields of other types is left out, and the rest goes on`, () => {
    for (const path of paths)
      for (const value of HOSTILE) {
        const bench = new GraphBench({ host: HOST, routes: "workloads", vteps: true, ambientMesh: true });
        bench.give(...told("WorkloadEndpoint", workloadEndpointProcessor, "n1-k8s-w-eth0", { spec: workload }));
        bench.give(...told("GlobalNetworkPolicy", policyProcessor, "svc", { spec: asksForService }));
        const bad = structuredClone(good) as Record<string, unknown>;
        put(bad, path.split("."), value);
        const name = kind === "Node" ? HOST : kind === "BGPConfiguration" ? "default" : "s";
        bench.give(...told(kind, processor, name, bad));
        bench.inSync();
        bench.give(...told(kind, processor, name, good)).flush();
        const messages = [...bench.dataplane.objects.values()];
        expect(messages.filter(({ type }) => type === "workloadEndpointUpdate")).toHaveLength(1);
      }
  });

function told(kind: KindName, processor: UpdateProcessor, name: string, stored: object): readonly GraphUpdate[] {
  const where = kindOf(kind).namespaced ? { namespace: "ns" } : {};
  const labels = { "kubernetes.io/service-name": "s" };
  const value: Resource = { apiVersion: API_VERSION, kind, metadata: { name, ...where, labels }, spec: {}, ...stored };
  return processor.process({ key: { type: "resource", kind, name, ...where }, value }, () => {}) as GraphUpdate[];
}

function put(into: Record<string, unknown>, [first = "", ...rest]: readonly string[], value: unknown): void {
  if (rest.length === 0) into[first] = value;
  else {
    const inner = into[first] ?? (/^\d+$/.test(rest[0] ?? "") ? [] : {});
    into[first] = inner;
    put(inner as Record<string, unknown>, rest, value);
  }
}
