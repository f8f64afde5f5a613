// Checks that a resource with fields of wrong types does not stop the calculation for other resources.
import { expect, test } from "bun:test";
import {
  API_VERSION,
  bgpConfigurationProcessor,
  bgpPeerProcessor,
  felixNodeProcessor,
  hostEndpointProcessor,
  type KindName,
  kindOf,
  liveMigrationProcessor,
  endpointSliceProcessor,
  kubernetesServiceProcessor,
  policyProcessor,
  poolProcessor,
  profileProcessor,
  type Resource,
  tierProcessor,
  type UpdateProcessor,
  workloadEndpointProcessor,
} from "../model/index.ts";
import type { GraphUpdate } from "./graph.ts";
import { GraphHarness } from "./testing/run.ts";

const HOST = "n1";
const workload = { interfaceName: "cali1", ipNetworks: ["10.0.0.1/32"], profiles: ["p"], node: HOST };
const policyToService = {
  selector: "all()",
  types: ["Egress"],
  egress: [{ action: "Allow", destination: { services: { name: "s", namespace: "ns" } } }],
};

/** Kind, processor, valid content besides the metadata, and the paths whose values the test replaces. */
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
    bgpConfigurationProcessor,
    { spec: {} },
    ["spec.serviceClusterIPs", "spec.serviceExternalIPs.0", "spec.localWorkloadPeeringIPV4"],
  ],
  ["BGPPeer", bgpPeerProcessor, { spec: {} }, ["spec.node", "spec.nodeSelector", "spec.localWorkloadSelector"]],
  [
    "KubernetesService",
    kubernetesServiceProcessor,
    { spec: { clusterIP: "10.1.0.1" } },
    ["spec.clusterIPs", "spec.externalIPs", "spec.ports", "spec.ports.0", "status", "status.loadBalancer.ingress"],
  ],
  [
    "KubernetesEndpointSlice",
    endpointSliceProcessor,
    { endpoints: [{ addresses: ["10.0.0.2"] }], ports: [{ port: 80 }] },
    ["endpoints", "endpoints.0", "endpoints.0.addresses", "ports", "ports.0", "ports.0.protocol", "ports.0.port"],
  ],
  ["LiveMigration", liveMigrationProcessor, { spec: {} }, ["spec.source", "spec.source.workload", "spec.target"]],
  [
    "HostEndpoint",
    hostEndpointProcessor(),
    { spec: { node: HOST, interfaceName: "eth0" } },
    ["spec.node", "spec.ports"],
  ],
  ["IPPool", poolProcessor(), { spec: { cidr: "10.0.0.0/16" } }, ["spec.cidr", "spec.allowedUses", "spec.ipipMode"]],
  ["Tier", tierProcessor, { spec: {} }, ["spec.order", "spec.defaultAction"]],
  ["GlobalNetworkPolicy", policyProcessor, { spec: policyToService }, ["spec.types", "spec.order", "spec.egress.0"]],
];
const HOSTILE: readonly unknown[] = [
  ...[null, "x", "", "a/b", "\0\n", 5, -1, Number.POSITIVE_INFINITY, true],
  ...[[], ["x"], [null], [5], {}, { a: null }, { constructor: 1 }, [{}], [{ cidr: 5 }]],
];

for (const [kind, processor, good, paths] of KINDS)
  test(`ignores a ${kind} with fields of wrong types and processes other resources`, () => {
    for (const path of paths)
      for (const value of HOSTILE) {
        const harness = new GraphHarness({ host: HOST, routes: "workloads", vteps: true, ambientMesh: true });
        harness.update(
          ...updatesFor("WorkloadEndpoint", workloadEndpointProcessor, "n1-k8s-w-eth0", { spec: workload }),
        );
        harness.update(...updatesFor("GlobalNetworkPolicy", policyProcessor, "svc", { spec: policyToService }));
        const bad = structuredClone(good) as Record<string, unknown>;
        setPath(bad, path.split("."), value);
        const name = kind === "Node" ? HOST : kind === "BGPConfiguration" ? "default" : "s";
        harness.update(...updatesFor(kind, processor, name, bad));
        harness.inSync();
        harness.update(...updatesFor(kind, processor, name, good)).flush();
        const messages = [...harness.dataplane.objects.values()];
        expect(messages.filter(({ type }) => type === "workloadEndpointUpdate")).toHaveLength(1);
      }
  });

function updatesFor(kind: KindName, processor: UpdateProcessor, name: string, stored: object): readonly GraphUpdate[] {
  const scope = kindOf(kind).namespaced ? { namespace: "ns" } : {};
  const labels = { "kubernetes.io/service-name": "s" };
  const value: Resource = { apiVersion: API_VERSION, kind, metadata: { name, ...scope, labels }, spec: {}, ...stored };
  return processor.process({ key: { type: "resource", kind, name, ...scope }, value }, () => {}) as GraphUpdate[];
}

function setPath(object: Record<string, unknown>, [first = "", ...rest]: readonly string[], value: unknown): void {
  if (rest.length === 0) object[first] = value;
  else {
    const inner = object[first] ?? (/^\d+$/.test(rest[0] ?? "") ? [] : {});
    object[first] = inner;
    setPath(inner as Record<string, unknown>, rest, value);
  }
}
