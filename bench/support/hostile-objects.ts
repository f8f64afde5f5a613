// Builds objects of the largest size that the API server stores, one for each kind of input that the owner of a namespace
// controls.
import { feedPrefixes } from "../../test/support/timed-agent.ts";

export const NAMESPACE = "ns1";

export interface HostileObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string } & Readonly<Record<string, unknown>>;
  readonly status?: unknown;
}

export interface HostileCase {
  readonly name: string;
  /** The unit of `count`. */
  readonly unit: string;
  /** A count that the API server rejects. The largest accepted count is searched below it. */
  readonly most: number;
  readonly build: (count: number, isEdited: boolean) => HostileObject;
  /** Created before the measurement. */
  readonly needs?: readonly HostileObject[];
}

/** The API path of the collection to which the object belongs. */
export function placeOf({ apiVersion, kind }: HostileObject): string {
  const group = apiVersion === "v1" ? "/api/v1" : `/apis/${apiVersion}`;
  const plural = kind.endsWith("y") ? `${kind.slice(0, -1)}ies` : `${kind}s`;
  return `${group}/namespaces/${NAMESPACE}/${plural.toLowerCase()}`;
}

/** Returns five characters that are a valid label, port name and resource name. */
const id = (n: number): string => `a${n.toString(36).padStart(4, "0")}`;
const list = <T>(count: number, item: (i: number) => T): T[] => Array.from({ length: count }, (_, i) => item(i));
/** An edit replaces the first item. */
const prefixes = (count: number, isEdited: boolean, lengths: "mixed" | "hosts" = "mixed"): string[] => {
  const [first = "", ...others] = feedPrefixes(count + 1, lengths);
  return [isEdited ? (others.pop() ?? "") : first, ...others.slice(0, count - 1)];
};
const map = (count: number, value: (i: number) => string): Readonly<Record<string, string>> =>
  Object.fromEntries(list(count, (i) => [id(i), value(i)]));

/** An empty entry disables the tracking of field owners, which would take most of the space. */
const metadata = (name: string, more: object = {}) => ({
  name,
  namespace: NAMESPACE,
  managedFields: [{}],
  ...more,
});

const kubernetesPolicy = (spec: object): HostileObject => ({
  apiVersion: "networking.k8s.io/v1",
  kind: "NetworkPolicy",
  metadata: metadata("hostile"),
  ...{ spec: { podSelector: {}, policyTypes: ["Ingress"], ...spec } },
});
const ingress = (rule: object): HostileObject => kubernetesPolicy({ ingress: [rule] });

const calicoPolicy = (spec: object, name = "default.hostile"): HostileObject => ({
  apiVersion: "crd.projectcalico.org/v1",
  kind: "NetworkPolicy",
  metadata: metadata(name),
  ...{ spec: { order: 1, selector: "all()", types: ["Ingress"], ...spec } },
});

const pod = (meta: object, ports: readonly object[] = []): HostileObject => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: metadata("hostile", meta),
  ...{ spec: { nodeName: "node-a", containers: [{ name: "main", image: "web:v1", ports }] } },
  status: { phase: "Running", podIP: "10.65.0.3", podIPs: [{ ip: "10.65.0.3" }] },
});

const networkSet = (nets: readonly string[], labels: Readonly<Record<string, string>>): HostileObject => ({
  apiVersion: "crd.projectcalico.org/v1",
  kind: "NetworkSet",
  metadata: metadata("hostile", { labels }),
  ...{ spec: { nets } },
});

const namedPorts = (count: number) => ingress({ ports: list(count, (i) => ({ port: id(i) })) });
const manyTerms = (count: number, first = 0) =>
  kubernetesPolicy({
    podSelector: {
      matchExpressions: list(count, (i) => ({ key: id(first + i), operator: i % 2 === 0 ? "DoesNotExist" : "Exists" })),
    },
  });
const selectsFeed = calicoPolicy(
  { ingress: [{ action: "Deny", source: { selector: "feed == 'yes'" } }] },
  "default.feed",
);
const usesService = calicoPolicy(
  {
    types: ["Egress"],
    egress: [{ action: "Allow", destination: { services: { name: "web", namespace: NAMESPACE } } }],
  },
  "default.uses-service",
);
/** Selectors may be 1,024 characters long. */
const LONG_SELECTORS = [
  (i: number) => `${"!(".repeat(330)}has(${id(i)})${")".repeat(330)}`,
  (i: number) => `app in {${list(120, (j) => `'${id(j + i)}'`).join()}}`,
  (i: number) => list(80, (j) => `has(${id(j + i)})`).join("||"),
];

export const HOSTILE_CASES: readonly HostileCase[] = [
  {
    ...{ name: "policy-except", unit: "exceptions of one ipBlock", most: 95_000 },
    build: (count, isEdited) =>
      ingress({
        from: [{ ipBlock: { cidr: "0.0.0.0/0", except: prefixes(count, isEdited) } }],
      }),
  },
  {
    ...{ name: "policy-except-edit", unit: "exceptions of one ipBlock", most: 20_000 },
    build: (count, isEdited) =>
      ingress({ from: [{ ipBlock: { cidr: "0.0.0.0/0", except: prefixes(count, isEdited) } }] }),
  },
  {
    ...{ name: "policy-blocks", unit: "peers with an ipBlock", most: 80_000 },
    build: (count, isEdited) =>
      ingress({
        from: prefixes(count, isEdited).map((cidr) => ({ ipBlock: { cidr } })),
      }),
  },
  {
    ...{ name: "policy-selectors", unit: "peers with a selector", most: 80_000 },
    build: (count, isEdited) =>
      ingress({ from: list(count, (i) => ({ podSelector: { matchLabels: { app: id(isEdited ? i + 1 : i) } } })) }),
  },
  {
    ...{ name: "policy-negated", unit: "peers with a negated selector", most: 60_000 },
    build: (count, isEdited) =>
      ingress({
        from: list(count, (i) => ({
          podSelector: { matchExpressions: [{ key: id(isEdited ? i + 1 : i), operator: "DoesNotExist" }] },
        })),
      }),
  },
  {
    ...{ name: "policy-values", unit: "values in one expression", most: 230_000 },
    build: (count, isEdited) => {
      const values = list(count, (i) => id(isEdited ? i + 1 : i));
      const podSelector = { matchExpressions: [{ key: "app", operator: "NotIn", values }] };
      return ingress({ from: [{ podSelector }] });
    },
  },
  {
    ...{ name: "policy-terms", unit: "terms in one selector", most: 70_000 },
    build: (count, isEdited) => manyTerms(count, isEdited ? 1 : 0),
  },
  {
    ...{ name: "policy-ports", unit: "port ranges of one rule", most: 98_000 },
    build: (count, isEdited) =>
      ingress({
        ports: list(count, (i) => ({
          protocol: ["TCP", "UDP", "SCTP"][i % 3],
          port: 1 + ((2 * i) % 65_534) + (isEdited && i === 0 ? 1 : 0),
        })),
      }),
  },
  {
    ...{ name: "policy-named-ports", unit: "named ports of one rule", most: 110_000 },
    build: (count, isEdited) => namedPorts(isEdited ? count - 1 : count),
  },
  {
    ...{ name: "policy-peers-and-ports", unit: "peers, and as many ports", most: 45_000 },
    build: (count, isEdited) =>
      ingress({
        from: prefixes(count, isEdited).map((cidr) => ({ ipBlock: { cidr } })),
        ports: list(Math.min(count, 32_000), (i) => ({ port: 1 + 2 * i })),
      }),
  },
  {
    ...{ name: "policy-selectors-limit", unit: "peers with a selector", most: 1000 },
    build: (count, isEdited) =>
      ingress({ from: list(count, (i) => ({ podSelector: { matchLabels: { app: id(isEdited ? i + 1 : i) } } })) }),
  },
  {
    ...{ name: "policy-named-ports-limit", unit: "named ports", most: 1000 },
    build: (count, isEdited) => namedPorts(isEdited ? count - 1 : count),
  },
  {
    ...{ name: "policy-peers-and-ports-limit", unit: "peers with 100 ports", most: 1000 },
    build: (count, isEdited) =>
      ingress({
        from: prefixes(count, isEdited).map((cidr) => ({ ipBlock: { cidr } })),
        ports: list(100, (i) => ({ port: 1 + 2 * i })),
      }),
  },
  {
    ...{ name: "policy-rules", unit: "rules with one port each", most: 100_000 },
    build: (count, isEdited) =>
      kubernetesPolicy({ ingress: list(count, (i) => ({ ports: [{ port: 1 + ((isEdited ? i + 1 : i) % 65_535) }] })) }),
  },
  {
    ...{ name: "calico-nets", unit: "prefixes in rules with 256 each", most: 90_000 },
    build: (count, isEdited) => {
      const nets = prefixes(count, isEdited);
      const rules = list(Math.ceil(count / 256), (i) => ({
        action: "Deny",
        source: { [i % 2 === 0 ? "nets" : "notNets"]: nets.slice(i * 256, (i + 1) * 256) },
      }));
      return calicoPolicy({ ingress: rules });
    },
  },
  {
    ...{ name: "calico-ports", unit: "rules with 50 named source and 50 named destination ports", most: 1024 },
    build: (count, isEdited) =>
      calicoPolicy({
        ingress: list(count, (i) => ({
          action: "Allow",
          protocol: "TCP",
          source: { ports: list(50, (j) => id(i * 100 + j + (isEdited ? 1 : 0))) },
          destination: { ports: list(50, (j) => id(i * 100 + 50 + j)) },
        })),
      }),
  },
  {
    ...{ name: "calico-selectors", unit: "rules with selectors of 1,000 characters", most: 1024 },
    build: (count, isEdited) =>
      calicoPolicy({
        ingress: list(count, (i) => ({
          action: "Allow",
          source: { selector: LONG_SELECTORS[i % 3]?.(i + (isEdited ? 1 : 0)) },
        })),
      }),
  },
  {
    ...{ name: "calico-service-accounts", unit: "service accounts in one rule", most: 200_000 },
    build: (count, isEdited) =>
      calicoPolicy({
        ingress: [
          { action: "Allow", source: { serviceAccounts: { names: list(count, (i) => id(isEdited ? i + 1 : i)) } } },
        ],
      }),
  },
  {
    ...{ name: "calico-nesting", unit: "nested parentheses in a serviceAccounts selector", most: 780_000 },
    build: (count, isEdited) => {
      const selector = `${"(".repeat(count)}has(${id(isEdited ? 1 : 0)})${")".repeat(count)}`;
      return calicoPolicy({ ingress: [{ action: "Allow", source: { serviceAccounts: { selector } } }] });
    },
  },
  {
    ...{ name: "calico-annotations", unit: "annotations of one rule", most: 110_000 },
    build: (count, isEdited) =>
      calicoPolicy({
        ingress: [{ action: "Allow", metadata: { annotations: map(count, () => (isEdited ? "x" : "y")) } }],
      }),
  },
  {
    ...{ name: "set-nets", unit: "prefixes of a NetworkSet", most: 90_000 },
    needs: [selectsFeed],
    build: (count, isEdited) => networkSet(prefixes(count, isEdited), { feed: "yes" }),
  },
  {
    ...{ name: "set-labels", unit: "labels of a NetworkSet", most: 120_000 },
    needs: [selectsFeed],
    build: (count, isEdited) =>
      networkSet(["192.0.2.0/24"], { ...map(count, () => ""), feed: isEdited ? "yes" : "no" }),
  },
  {
    ...{ name: "pod-labels", unit: "labels of a pod, beside 50,000 terms in a policy's selector", most: 130_000 },
    needs: [manyTerms(50_000, 500_000)],
    build: (count, isEdited) => pod({ labels: { ...map(count, () => ""), app: isEdited ? "x" : "y" } }),
  },
  {
    ...{ name: "pod-annotations", unit: "annotations of a pod", most: 50_000 },
    build: (count, isEdited) => pod({ annotations: { ...map(count, () => ""), changed: isEdited ? "x" : "y" } }),
  },
  {
    ...{ name: "pod-ports", unit: "named ports of a pod, beside 1,000 in a policy", most: 70_000 },
    needs: [namedPorts(1000)],
    build: (count, isEdited) =>
      pod(
        { labels: { app: isEdited ? "x" : "y" } },
        list(count, (i) => ({ name: id(i), containerPort: 1 + (i % 65_535) })),
      ),
  },
  {
    ...{ name: "account-labels", unit: "labels of a ServiceAccount", most: 130_000 },
    build: (count, isEdited) => ({
      apiVersion: "v1",
      kind: "ServiceAccount",
      metadata: metadata("default", { labels: { ...map(count, () => ""), app: isEdited ? "x" : "y" } }),
    }),
  },
  {
    ...{ name: "slice-addresses", unit: "addresses of an EndpointSlice", most: 100_000 },
    needs: [usesService],
    build: (count, isEdited) => slice(count, 1, isEdited),
  },
  {
    ...{ name: "slice-product", unit: "addresses of an EndpointSlice, with 20,000 ports", most: 80_000 },
    needs: [usesService],
    build: (count, isEdited) => slice(count, 20_000, isEdited),
  },
  {
    ...{ name: "slice-product-limit", unit: "addresses of an EndpointSlice, with 100 ports", most: 1000 },
    needs: [usesService],
    build: (count, isEdited) => slice(count, 100, isEdited),
  },
  {
    ...{ name: "service", unit: "ports of a Service", most: 60_000 },
    needs: [],
    build: (count, isEdited) => ({
      apiVersion: "v1",
      kind: "Service",
      metadata: metadata("hostile"),
      ...{
        spec: {
          selector: { app: isEdited ? "x" : "y" },
          ports: list(count, (i) => ({ name: id(i), port: 1 + (i % 65_535) })),
        },
      },
    }),
  },
];

/** At most 1,000 endpoints with 100 addresses each, and 20,000 ports. */
function slice(addresses: number, ports: number, isEdited: boolean): HostileObject {
  const all = prefixes(addresses, isEdited, "hosts")
    .map((prefix) => prefix.slice(0, prefix.indexOf("/")))
    .filter((address) => !/^(0|127|169\.254|22[4-9]|23\d|255)\./.test(address));
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: metadata("hostile", { labels: { "kubernetes.io/service-name": "web" } }),
    ...{
      addressType: "IPv4",
      endpoints: list(Math.ceil(all.length / 100), (i) => ({ addresses: all.slice(i * 100, (i + 1) * 100) })),
      ports: list(ports, (i) => ({ name: id(i), port: 1 + i })),
    },
  };
}
