// Generates small random clusters and packets. They use few addresses, labels and ports, so that rules often overlap.
import fc from "fast-check";
import { type Cidr, hostCidr, type IpAddress } from "../../lib/ip/ip.ts";
import {
  type KeyValue,
  ParsedSelector,
  type Policy,
  type PolicyKind,
  type Rule,
  type RulePort,
  type RuleSide,
} from "../../model/index.ts";
import type { Packet } from "../packet.ts";

const PODS_V4 = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.1.4"] as IpAddress[];
const HOSTS_V4 = ["192.168.0.1", "192.168.0.2"] as IpAddress[];
const PODS_V6 = ["fd00::1", "fd00::2", "fd00::3", "fd00:1::4"] as IpAddress[];
const HOSTS_V6 = ["fd00:f::1", "fd00:f::2"] as IpAddress[];
const OUTSIDE = ["8.8.8.8", "2001:db8::8"] as IpAddress[];
/** Every address that generated clusters and packets use. */
export const ALL_ADDRESSES: readonly IpAddress[] = [...PODS_V4, ...HOSTS_V4, ...PODS_V6, ...HOSTS_V6, ...OUTSIDE];
const nth = (list: readonly IpAddress[], index: number): IpAddress => list[index] ?? ("0.0.0.0" as IpAddress);
/** The ports that generated rules use. */
export const PORTS = [22, 53, 80, 81, 4789];

const labels = fc.dictionary(fc.constantFrom("a", "b", "pcns.x"), fc.constantFrom("1", "2"), { maxKeys: 2 });
const selector = fc
  .oneof(
    fc.constantFrom("all()", "has(a)", "a == '1'", "a != '2'", "!has(b)", "b in {'1', '2'}", "pcns.x == '1'"),
    fc.constantFrom("has(a) && b == '1'", "a == '1' || b == '2'", "!(a == '1' && has(b))", "a not in {'1'}"),
  )
  .map((text) => ParsedSelector.parse(text));
const profiles = fc.constantFrom([], ["p1"], ["p1"], ["p2", "p1"], ["p1", "p2"], ["missing", "p1"]);
const cidr = fc.constantFrom(
  ...([
    "10.0.0.0/24",
    "10.0.0.2/32",
    "0.0.0.0/0",
    "192.168.0.0/31",
    "fd00::/64",
    "fd00::2/128",
    "::/0",
    "8.0.0.0/8",
  ] as Cidr[]),
);
const port: fc.Arbitrary<RulePort> = fc.oneof(
  fc.constantFrom(...PORTS).map((one) => ({ min: one, max: one })),
  fc.constant({ min: 53, max: 80 }),
  fc.constantFrom("web", "dns").map((name) => ({ name })),
);
const some = <T>(arbitrary: fc.Arbitrary<T>) => fc.array(arbitrary, { minLength: 1, maxLength: 2 });
/** Undefined, except in one of `oneIn` cases. */
const rarely = <T>(arbitrary: fc.Arbitrary<T>, oneIn = 4): fc.Arbitrary<T | undefined> =>
  fc.oneof({ weight: oneIn - 1, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary });
/** Removes undefined fields. */
const sparse = <T extends object>(value: T): T =>
  Object.fromEntries(Object.entries(value).filter(([, v]) => v !== undefined)) as T;

const side: fc.Arbitrary<RuleSide> = fc
  .record({
    nets: rarely(some(cidr)),
    notNets: rarely(some(cidr), 6),
    selector: rarely(selector),
    notSelector: rarely(selector, 5),
    ports: rarely(some(port)),
    notPorts: rarely(some(port), 6),
    service: rarely(fc.constantFrom({ name: "s", namespace: "n" }, { name: "t", namespace: "n" }), 8),
  })
  .map((value) => sparse(value) as RuleSide);
const icmp = fc
  .record({ type: fc.constantFrom(8, 128, 135), code: rarely(fc.constant(0)) })
  .map((value) => sparse(value) as { type: number });
const rule: fc.Arbitrary<Rule> = fc
  .record({
    action: fc.constantFrom<Rule["action"][]>("allow", "deny", "log", "next-tier"),
    ipVersion: rarely(fc.constantFrom<(4 | 6)[]>(4, 6), 6),
    protocol: rarely(fc.constantFrom<(string | number)[]>("tcp", "udp", 6, 17, "icmp", "icmpv6", 4)),
    notProtocol: rarely(fc.constantFrom<(string | number)[]>("tcp", 17), 6),
    icmp: rarely(icmp, 8),
    notIcmp: rarely(icmp, 8),
    source: fc.oneof({ weight: 1, arbitrary: fc.constant({}) }, { weight: 1, arbitrary: side }),
    destination: fc.oneof({ weight: 1, arbitrary: fc.constant({}) }, { weight: 1, arbitrary: side }),
  })
  .map((value) => sparse(value) as Rule);

const policy = (index: number, maxRules: number) =>
  fc
    .record({
      kind: fc.constantFrom<PolicyKind[]>("GlobalNetworkPolicy", "GlobalNetworkPolicy", "StagedGlobalNetworkPolicy"),
      tier: fc.constantFrom("t1", "t2", "default", "nowhere"),
      order: fc.option(fc.constantFrom(1, 2, 0.5), { nil: undefined }),
      selector,
      types: fc.constantFrom<Policy["types"][]>(["ingress"], ["egress"], ["ingress", "egress"]),
      inboundRules: fc.array(rule, { maxLength: maxRules }),
      outboundRules: fc.array(rule, { maxLength: maxRules }),
      flags: fc.constantFrom(
        {},
        {},
        {},
        { applyOnForward: true },
        { applyOnForward: true, untracked: true },
        { applyOnForward: true, preDnat: true },
      ),
    })
    .map(
      ({ kind, flags, ...value }) =>
        ({
          key: { type: "policy", kind, namespace: "", name: `p${index}` },
          value: sparse({ ...value, ...flags }),
        }) as KeyValue,
    );

const ports = fc.subarray([
  { name: "web", protocol: "tcp", port: 80 },
  { name: "web", protocol: "tcp", port: 81 },
  { name: "dns", protocol: "udp", port: 53 },
]);
const workload = (index: number) =>
  fc
    .record({
      host: fc.constantFrom("h1", "h2"),
      labels,
      profiles,
      ports,
      active: fc.boolean().map((rare) => rare || index > 0),
    })
    .map(
      ({ host, labels: own, profiles: profileIds, ports: named, active }) =>
        ({
          key: { type: "workloadEndpoint", host, orchestrator: "k8s", workload: `ns/pod-${index}`, endpoint: "eth0" },
          value: {
            state: active ? "active" : "inactive",
            name: `cali${index}`,
            profileIds,
            labels: own,
            ports: named,
            ipv4Nets: [hostCidr(nth(PODS_V4, index))],
            ipv6Nets: [hostCidr(nth(PODS_V6, index))],
          },
        }) as KeyValue,
    );
const hostEndpoint = (host: string, index: number, name: string) =>
  fc.record({ labels, profiles, ports }).map(
    ({ labels: own, profiles: profileIds, ports: named }) =>
      ({
        key: { type: "hostEndpoint", host, endpoint: `hep-${host}-${name}` },
        value: {
          name,
          labels: own,
          profileIds,
          ports: named,
          expectedIpv4Addrs: name === "*" ? [] : [nth(HOSTS_V4, index)],
          expectedIpv6Addrs: name === "*" ? [] : [nth(HOSTS_V6, index)],
        },
      }) as KeyValue,
  );
/** A host may have an endpoint for one interface, a wildcard endpoint, both or neither. */
const hostEndpoints = (host: string, index: number) =>
  fc
    .constantFrom<(readonly string[])[]>([], ["eth0"], ["eth0"], ["*"], ["eth0", "*"])
    .chain((names) => fc.tuple(...names.map((name) => hostEndpoint(host, index, name))));

const networkSet = (name: string) =>
  fc
    .record({ nets: fc.array(cidr, { maxLength: 2 }), labels, profileIds: profiles })
    .map((value) => ({ key: { type: "networkSet", name }, value }) as KeyValue);
const slice = (name: string) =>
  fc.subarray([...PODS_V4, ...PODS_V6, ...OUTSIDE], { maxLength: 3 }).map((addresses) => {
    const metadata = { name, namespace: "n", labels: { "kubernetes.io/service-name": name } };
    const content = {
      endpoints: [{ addresses }],
      ports: [
        { protocol: "TCP", port: 80 },
        { protocol: "UDP", port: 53 },
      ],
    };
    return {
      key: { type: "resource", kind: "KubernetesEndpointSlice", name, namespace: "n" },
      value: { apiVersion: "", kind: "KubernetesEndpointSlice", metadata, spec: content, ...content },
    } as unknown as KeyValue;
  });
const open: Rule[] = [{ action: "allow", source: {}, destination: {} }];
const profileRules = fc.oneof(fc.constant(open), fc.constant(open), fc.array(rule, { maxLength: 2 }));
const profile = (name: string) =>
  fc.record({ inboundRules: profileRules, outboundRules: profileRules, own: labels }).map(
    ({ own, ...rules }) =>
      [
        { key: { type: "profileRules", name }, value: rules },
        { key: { type: "profileLabels", name }, value: own },
      ] as KeyValue[],
  );
const tier = (name: string) =>
  fc
    .record({
      order: fc.option(fc.constantFrom(1, 2), { nil: undefined }),
      defaultAction: fc.constantFrom("Deny", "Pass"),
    })
    .map((value) => ({ key: { type: "tier", name }, value: sparse(value) }) as KeyValue);
const node = (name: string, index: number): KeyValue =>
  ({
    key: { type: "resource", kind: "Node", name },
    value: {
      apiVersion: "",
      kind: "Node",
      metadata: { name },
      spec: { addresses: [{ address: nth(HOSTS_V4, index) }, { address: nth(HOSTS_V6, index) }] },
    },
  }) as KeyValue;

const optional = (arbitrary: fc.Arbitrary<KeyValue>) =>
  fc.option(arbitrary, { nil: undefined }).map((entry) => (entry === undefined ? [] : [entry]));

/** Generates clusters with up to `policies` policies, each with up to `maxRules` rules per direction. */
export const clusterWith = (policies: number, maxRules: number): fc.Arbitrary<readonly KeyValue[]> =>
  fc
    .tuple(
      fc.tuple(...PODS_V4.map((_, i) => optional(workload(i)))),
      fc.tuple(hostEndpoints("h1", 0), hostEndpoints("h2", 1)),
      fc.tuple(...Array.from({ length: policies }, (_, i) => optional(policy(i, maxRules)))),
      fc.tuple(optional(tier("t1")), optional(tier("t2")), optional(tier("default"))),
      fc.tuple(profile("p1"), profile("p2")),
      fc.tuple(optional(networkSet("one")), optional(networkSet("ns/two")), optional(slice("s")), optional(slice("t"))),
    )
    .map((parts) => [node("h1", 0), node("h2", 1), ...(parts as KeyValue[][][]).flat(2)]);

export const arbitraryCluster = clusterWith(5, 3);

export const arbitraryPacket: fc.Arbitrary<Packet> = fc.constantFrom<(4 | 6)[]>(4, 4, 6).chain((version) => {
  const own = ALL_ADDRESSES.filter((address) => address.includes(":") === (version === 6));
  return fc
    .record({
      source: fc.constantFrom(...own),
      destination: fc.constantFrom(...own),
      protocol: fc.constantFrom(6, 6, 17, 17, version === 4 ? 1 : 58, 4),
      sourcePort: fc.constantFrom(...PORTS, 40000),
      destinationPort: fc.constantFrom(...PORTS),
      icmp: fc.constantFrom({ type: 8, code: 0 }, { type: 128, code: 0 }, { type: 135, code: 1 }),
    })
    .map(({ source, destination, protocol, sourcePort, destinationPort, icmp: message }) => {
      if (protocol === 6 || protocol === 17) return { source, destination, protocol, sourcePort, destinationPort };
      return protocol === 4 ? { source, destination, protocol } : { source, destination, protocol, icmp: message };
    });
});
