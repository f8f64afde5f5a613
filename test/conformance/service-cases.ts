// Defines cases with rules that refer to a Service. They need Kubernetes, because only its datastore has EndpointSlices.
import { API_VERSION, type Resource } from "../../src/model/index.ts";
import { type AddressOf, type Case, globalPolicy, networkPolicy, type Rule, type Step } from "./cases.ts";

interface Port {
  readonly protocol: "TCP" | "UDP" | "SCTP";
  readonly port: number;
}
const TCP80: Port = { protocol: "TCP", port: 80 };
const UDP81: Port = { protocol: "UDP", port: 81 };
const nameOf = ({ protocol, port }: Port): string => `${protocol.toLowerCase()}-${port}`;

export function serviceCases(addressOf: AddressOf): readonly Case[] {
  /** A Service without a selector; its endpoints are in two slices, one per family. */
  const service = (namespace: string, ports: readonly Port[]): Resource => ({
    apiVersion: API_VERSION,
    kind: "KubernetesService",
    metadata: { name: "shop", namespace },
    spec: { ports: ports.map((port) => ({ ...port, name: nameOf(port), targetPort: port.port })) },
  });
  const slices = (namespace: string, pods: readonly string[], ports: readonly Port[]): readonly Resource[] =>
    ([4, 6] as const).map((version) => ({
      apiVersion: API_VERSION,
      kind: "KubernetesEndpointSlice",
      metadata: { name: `shop-v${version}`, namespace, labels: { "kubernetes.io/service-name": "shop" } },
      spec: {
        addressType: `IPv${version}`,
        endpoints: pods.map((pod) => ({ addresses: [addressOf(`${namespace}/${pod}`, version)] })),
        ports: ports.map((port) => ({ ...port, name: nameOf(port) })),
      },
    }));
  const shop = (namespace: string, pods: readonly string[], ports: readonly Port[]): readonly Resource[] => [
    service(namespace, ports),
    ...slices(namespace, pods, ports),
  ];
  const inX = (types: readonly string[], rules: object): Resource => networkPolicy("p", "x", { types, ...rules });
  const to = (services: object): object => ({ egress: [{ action: "Allow", destination: { services } }] });
  const from = (services: object, more: Rule = {}): object => ({
    ingress: [{ action: "Allow", source: { services }, ...more }],
  });
  const y = { name: "shop", namespace: "y" };
  const changing = (name: string, ...steps: Step[]): Case => ({ name: `services: ${name}`, everyFamily: true, steps });
  const one = (name: string, ...apply: Resource[]): Case => changing(name, { apply });
  return [
    one("egress to a service", ...shop("y", ["b"], [TCP80]), inX(["Egress"], to(y))),
    one(
      "egress to a service with two pods and ports",
      ...shop("y", ["a", "c"], [TCP80, UDP81]),
      inX(["Egress"], to(y)),
    ),
    one(
      "egress to a service in the policy's namespace",
      ...shop("x", ["b"], [UDP81]),
      inX(["Egress"], to({ name: "shop" })),
    ),
    one("egress to a service that does not exist", inX(["Egress"], to(y))),
    one("ingress from a service", ...shop("y", ["b"], [TCP80]), inX(["Ingress"], from(y))),
    one(
      "ingress from a service, UDP",
      ...shop("y", ["a", "b"], [TCP80]),
      inX(["Ingress"], from(y, { protocol: "UDP" })),
    ),
    one(
      "a global policy denies a service",
      ...shop("y", ["b"], [TCP80]),
      globalPolicy("p", {
        selector: "has(pod)",
        types: ["Egress"],
        egress: [{ action: "Deny", destination: { services: y } }, { action: "Allow" }],
      }),
    ),
    changing(
      "endpoints change, then are deleted",
      { apply: [...shop("y", ["a"], [TCP80]), inX(["Egress"], to(y))] },
      { apply: slices("y", ["b", "c"], [TCP80]) },
      { remove: slices("y", ["b", "c"], [TCP80]) },
    ),
  ];
}
