import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { parseAddress, parseCidr } from "../../lib/ip/ip.ts";
import { InvalidKey, isStoredKey, keyPath, parseKeyPath } from "./key-path.ts";
import { keyMatches, queryRange } from "./key-query.ts";
import type { Key, StoredKey, StoredQuery } from "./keys.ts";

const v4 = parseCidr("10.65.0.64/26");
const v6 = parseCidr("fd00:65::2880/122");

function roundTrip(cases: readonly (readonly [string, Key])[]): void {
  for (const [path, key] of cases)
    test(path, () => {
      expect(keyPath(key)).toBe(path);
      expect(parseKeyPath(path)).toEqual(key);
    });
}

describe("DM-081 v3 resource keys", () => {
  roundTrip([
    [
      "/calico/resources/v3/projectcalico.org/ippools/default-v4",
      { type: "resource", kind: "IPPool", name: "default-v4" },
    ],
    [
      "/calico/resources/v3/projectcalico.org/networkpolicies/ns1/knp.default.web",
      { type: "resource", kind: "NetworkPolicy", namespace: "ns1", name: "knp.default.web" },
    ],
    [
      "/calico/resources/v3/projectcalico.org/workloadendpoints/ns1/node--1-k8s-web--0-eth0",
      { type: "resource", kind: "WorkloadEndpoint", namespace: "ns1", name: "node--1-k8s-web--0-eth0" },
    ],
    [
      "/calico/resources/v3/projectcalico.org/kubernetesservice/ns1/web",
      { type: "resource", kind: "KubernetesService", namespace: "ns1", name: "web" },
    ],
  ]);
  for (const path of [
    "calico/resources/v3/projectcalico.org/ippools/a", // without the first slash
    "/calico/resources/v3/projectcalico.org/ippools/ns1/a", // wrong scope
    "/calico/resources/v3/projectcalico.org/networkpolicies/a", // wrong scope
    "/calico/resources/v3/projectcalico.org/networkpolicies//a",
    "/calico/resources/v3/projectcalico.org/networkpolicies/ns1/a/b",
    "/calico/resources/v3/projectcalico.org/unheardof/a",
    "/calico/resources/v3/projectcalico.org/ippools/",
    "/calico/resources/v3/projectcalico.org/ippools",
    "/registry/pods/a",
    "",
  ])
    test(`${path} is not a key`, () => expect(parseKeyPath(path)).toBeUndefined());

  test("a key whose name contains a slash has no path", () => {
    expect(() => keyPath({ type: "resource", kind: "IPPool", name: "a/../b" })).toThrow(InvalidKey);
    expect(() => keyPath({ type: "resource", kind: "NetworkPolicy", namespace: "", name: "b" })).toThrow(InvalidKey);
    expect(() => keyPath({ type: "ipamHandle", handleId: "a/b" })).toThrow(InvalidKey);
  });
});

describe("DM-082 IPAM v2 keys", () => {
  roundTrip([
    ["/calico/ipam/v2/assignment/ipv4/block/10.65.0.64-26", { type: "block", cidr: v4 }],
    ["/calico/ipam/v2/assignment/ipv6/block/fd00:65::2880-122", { type: "block", cidr: v6 }],
    [
      "/calico/ipam/v2/host/n1/ipv4/block/10.65.0.64-26",
      { type: "blockAffinity", affinityType: "host", host: "n1", cidr: v4 },
    ],
    [
      "/calico/ipam/v2/virtual/load-balancer/ipv6/block/fd00:65::2880-122",
      { type: "blockAffinity", affinityType: "virtual", host: "load-balancer", cidr: v6 },
    ],
    ["/calico/ipam/v2/handle/net1.c0", { type: "ipamHandle", handleId: "net1.c0" }],
    ["/calico/ipam/v2/config", { type: "ipamConfig" }],
    ["/calico/ipam/v2/host/n1", { type: "ipamHost", host: "n1" }],
  ]);
  for (const path of [
    "/calico/ipam/v2/assignment/ipv4/block/10.65.0.999-26",
    "/calico/ipam/v2/assignment/ipv4/block/10.65.0.65-26", // host bits
    "/calico/ipam/v2/assignment/ipv4/block/fd00::-122", // the other family
    "/calico/ipam/v2/assignment/ipv4/block/10.65.0.64",
    "/calico/ipam/v2/host/n1/ipv4/block/rubbish",
    "/calico/ipam/v2/host/n1/ipv4",
    "/calico/ipam/v2/handle/",
    "/calico/ipam/v2/handle/a/b",
    "/calico/ipam/v2/config/x",
  ])
    test(`${path} is not a key`, () => expect(parseKeyPath(path)).toBeUndefined());
});

describe("DM-083 Felix status keys", () => {
  const workload = { host: "n1", orchestrator: "k8s", workload: "ns1/web-0", endpoint: "eth0" };
  roundTrip([
    [
      "/calico/felix/v2/no-region/host/n1/status",
      { type: "felixStatus", region: "no-region", host: "n1", last: false },
    ],
    [
      "/calico/felix/v2/region-eu/host/n1/last_reported_status",
      { type: "felixStatus", region: "region-eu", host: "n1", last: true },
    ],
    [
      "/calico/felix/v2/no-region/host/n1/workload/k8s/ns1%2fweb-0/endpoint/eth0",
      { type: "workloadStatus", region: "no-region", ...workload },
    ],
    ["/calico/felix/v1/host/n1/endpoint/h0", { type: "hostEndpointStatus", host: "n1", endpoint: "h0" }],
  ]);
  test("a region has the prefix region- and contains no slash", () => {
    for (const region of ["region-a/b", "eu", "", "region-"])
      expect(() => keyPath({ type: "felixStatus", region, host: "n1", last: false })).toThrow(InvalidKey);
    expect(parseKeyPath("/calico/felix/v2/eu/host/n1/status")).toBeUndefined();
  });
});

describe("DM-084 v1 keys", () => {
  roundTrip([
    ["/calico/v1/Ready", { type: "ready" }],
    ["/calico/v1/config/LogSeverityScreen", { type: "globalConfig", name: "LogSeverityScreen" }],
    ["/calico/v1/host/n1/config/IpInIpTunnelAddr", { type: "hostConfig", host: "n1", name: "IpInIpTunnelAddr" }],
    [
      "/calico/v1/host/n1/workload/k8s/ns1%2fweb-0/endpoint/eth0",
      { type: "workloadEndpoint", host: "n1", orchestrator: "k8s", workload: "ns1/web-0", endpoint: "eth0" },
    ],
    ["/calico/v1/host/n1/endpoint/eth0-hep", { type: "hostEndpoint", host: "n1", endpoint: "eth0-hep" }],
    ["/calico/v1/host/n1/wireguard", { type: "wireguard", host: "n1" }],
    ["/calico/v1/host/n1/bird_ip", { type: "hostIp", host: "n1" }],
    ["/calico/v1/ipam/v4/pool/10.65.0.64-26", { type: "pool", cidr: v4 }],
    ["/calico/v1/ipam/v6/pool/fd00:65::2880-122", { type: "pool", cidr: v6 }],
    ["/calico/v1/netset/ns1%2fblocked", { type: "networkSet", name: "ns1/blocked" }],
    ["/calico/v1/policy/tier/kube-admin/metadata", { type: "tier", name: "kube-admin" }],
    ["/calico/v1/policy/profile/kns.ns1/rules", { type: "profileRules", name: "kns.ns1" }],
    ["/calico/v1/policy/profile/kns.ns1/labels", { type: "profileLabels", name: "kns.ns1" }],
    ["/calico/bgp/v1/global/as_num", { type: "bgpGlobalConfig", name: "as_num" }],
    ["/calico/bgp/v1/host/n1/ip_addr_v4", { type: "bgpHostConfig", host: "n1", name: "ip_addr_v4" }],
    ["/calico/bgp/v1/global/peer_v4/10.0.0.1", { type: "bgpPeer", ip: parseAddress("10.0.0.1") }],
    [
      "/calico/bgp/v1/host/n1/peer_v6/fd00::1-1179",
      { type: "bgpPeer", host: "n1", ip: parseAddress("fd00::1"), port: 1179 },
    ],
  ]);
  test("port 179 of a BGP peer is omitted", () =>
    expect(keyPath({ type: "bgpPeer", ip: parseAddress("10.0.0.1"), port: 179 })).toBe(
      "/calico/bgp/v1/global/peer_v4/10.0.0.1",
    ));
  test("v1 paths parse without the first slash, except Ready", () => {
    expect(parseKeyPath("calico/v1/netset/a")).toEqual({ type: "networkSet", name: "a" });
    expect(parseKeyPath("calico/v1/Ready")).toBeUndefined();
  });
});

describe("DM-085 kind-based policy keys", () => {
  roundTrip([
    [
      "/calico/v1/policy/GlobalNetworkPolicy//deny",
      { type: "policy", kind: "GlobalNetworkPolicy", namespace: "", name: "deny" },
    ],
    [
      "/calico/v1/policy/NetworkPolicy/ns1/web",
      { type: "policy", kind: "NetworkPolicy", namespace: "ns1", name: "web" },
    ],
    [
      "/calico/v1/policy/KubernetesClusterNetworkPolicy//admin",
      { type: "policy", kind: "KubernetesClusterNetworkPolicy", namespace: "", name: "admin" },
    ],
  ]);
  test("only namespaced kinds have a namespace", () => {
    expect(parseKeyPath("/calico/v1/policy/GlobalNetworkPolicy/ns1/deny")).toBeUndefined();
    expect(parseKeyPath("/calico/v1/policy/NetworkPolicy//deny")).toBeUndefined();
    expect(parseKeyPath("/calico/v1/policy/Unheardof//deny")).toBeUndefined();
    expect(parseKeyPath("/calico/v1/policy/GlobalNetworkPolicy//deny/")).toBeUndefined();
  });
  const legacy = [
    ["default.deny", "GlobalNetworkPolicy", "", "default.deny"],
    ["ns1%2fdefault.web", "NetworkPolicy", "ns1", "default.web"],
    ["ns1%2fknp.default.web", "KubernetesNetworkPolicy", "ns1", "web"],
    ["ns1%2fstaged:knp.default.web", "StagedKubernetesNetworkPolicy", "ns1", "web"],
    ["ns1%2fstaged:t.web", "StagedNetworkPolicy", "ns1", "t.web"],
    ["staged:t.web", "StagedGlobalNetworkPolicy", "", "t.web"],
    ["kcnp.admin", "KubernetesClusterNetworkPolicy", "", "admin"],
  ] as const;
  for (const [last, kind, namespace, name] of legacy)
    test(`the old path …/policy/${last} is parsed`, () =>
      expect(parseKeyPath(`/calico/v1/policy/tier/default/policy/${last}`)).toEqual({
        type: "policy",
        kind,
        namespace,
        name,
      }));
});

test("DM-086 names in v1 keys are escaped once", () => {
  const key: Key = { type: "networkSet", name: "50%/a%2fb" };
  expect(keyPath(key)).toBe("/calico/v1/netset/50%25%2fa%252fb");
  expect(parseKeyPath(keyPath(key))).toEqual(key);
});

// --- properties ----------------------------------------------------------------------------------------------------
const segment = fc.stringMatching(/^[a-z0-9.%_-]{1,8}$/);
const anyName = fc.stringMatching(/^[a-z0-9./%-]{1,8}$/);
const cidr = fc.constantFrom(v4, v6, parseCidr("0.0.0.0/0"), parseCidr("::1/128"));
const anyKey: fc.Arbitrary<Key> = fc.oneof(
  fc.record({ type: fc.constant("resource" as const), kind: fc.constantFrom("Node" as const, "Tier"), name: segment }),
  fc.record({
    type: fc.constant("resource" as const),
    kind: fc.constant("NetworkSet" as const),
    namespace: segment,
    name: segment,
  }),
  fc.record({ type: fc.constant("block" as const), cidr }),
  fc.record({
    type: fc.constant("blockAffinity" as const),
    affinityType: fc.constantFrom("host" as const, "virtual"),
    host: segment,
    cidr,
  }),
  fc.record({ type: fc.constant("ipamHandle" as const), handleId: segment }),
  fc.record({
    type: fc.constantFrom("workloadEndpoint" as const),
    host: segment,
    orchestrator: anyName,
    workload: anyName,
    endpoint: anyName,
  }),
  fc.record({ type: fc.constant("networkSet" as const), name: anyName }),
  fc.record({
    type: fc.constant("policy" as const),
    kind: fc.constant("NetworkPolicy" as const),
    namespace: anyName,
    name: anyName,
  }),
  fc.record({ type: fc.constant("pool" as const), cidr }),
);

test("property: parsing inverts printing, so distinct keys have distinct paths", () =>
  fc.assert(fc.property(anyKey, (key) => void expect(parseKeyPath(keyPath(key))).toEqual(key))));

test("property: a text does not parse, or it parses to a key with this path", () =>
  fc.assert(
    fc.property(
      fc.array(
        fc.constantFrom(
          "calico",
          "v1",
          "ipam",
          "v2",
          "host",
          "policy",
          "tier",
          "config",
          "n1",
          "",
          "10.0.0.0-8",
          "endpoint",
          "global",
          "bgp",
        ),
        { maxLength: 9 },
      ),
      (parts) => {
        const path = `/${parts.join("/")}`;
        const key = parseKeyPath(path);
        if (key !== undefined && !path.includes("/tier/")) expect(keyPath(key)).toBe(path);
      },
    ),
    { numRuns: 2000 },
  ));

describe("queries", () => {
  const stored: readonly StoredKey[] = [
    { type: "resource", kind: "Node", name: "n1" },
    { type: "resource", kind: "NetworkSet", namespace: "ns1", name: "a" },
    { type: "resource", kind: "NetworkSet", namespace: "ns2", name: "ab" },
    { type: "block", cidr: v4 },
    { type: "block", cidr: v6 },
    { type: "blockAffinity", affinityType: "host", host: "n1", cidr: v4 },
    { type: "blockAffinity", affinityType: "virtual", host: "n1", cidr: v6 },
    { type: "ipamHandle", handleId: "h" },
    { type: "ipamConfig" },
    { type: "ipamHost", host: "n1" },
    { type: "felixStatus", region: "no-region", host: "n1", last: false },
    { type: "workloadStatus", region: "no-region", host: "n1", orchestrator: "k8s", workload: "a/b", endpoint: "eth0" },
    { type: "hostEndpointStatus", host: "n1", endpoint: "h0" },
  ];
  const cases: readonly (readonly [StoredQuery, string, readonly number[]])[] = [
    [{ type: "resource", kind: "Node" }, "/calico/resources/v3/projectcalico.org/nodes/", [0]],
    [{ type: "resource", kind: "Node", name: "n1" }, "=/calico/resources/v3/projectcalico.org/nodes/n1", [0]],
    [{ type: "resource", kind: "NetworkSet" }, "/calico/resources/v3/projectcalico.org/networksets/", [1, 2]],
    [{ type: "resource", kind: "NetworkSet", name: "ab" }, "/calico/resources/v3/projectcalico.org/networksets/", [2]],
    [
      { type: "resource", kind: "NetworkSet", namespace: "ns2", namePrefix: "a" },
      "/calico/resources/v3/projectcalico.org/networksets/ns2/a",
      [2],
    ],
    [{ type: "block" }, "/calico/ipam/v2/assignment/", [3, 4]],
    [{ type: "block", version: 6 }, "/calico/ipam/v2/assignment/ipv6/", [4]],
    [{ type: "blockAffinity" }, "/calico/ipam/v2/", [5, 6]],
    [{ type: "blockAffinity", affinityType: "host", host: "n1", version: 4 }, "/calico/ipam/v2/host/n1/ipv4/", [5]],
    [{ type: "ipamHandle" }, "/calico/ipam/v2/handle/", [7]],
    [{ type: "ipamConfig" }, "=/calico/ipam/v2/config", [8]],
    [{ type: "ipamHost" }, "/calico/ipam/v2/host/", [9]],
    [{ type: "felixStatus" }, "/calico/felix/v2/", [10]],
    [{ type: "workloadStatus", region: "no-region", host: "n1" }, "/calico/felix/v2/no-region/host/n1/workload/", [11]],
    [{ type: "hostEndpointStatus" }, "/calico/felix/v1/host/", [12]],
  ];
  for (const [query, start, want] of cases)
    test(JSON.stringify(query), () => {
      const range = queryRange(query);
      expect((range.exact ? "=" : "") + range.start).toBe(start);
      const found = stored.filter((key) => range.accepts(key));
      expect(found).toEqual(want.map((i) => stored[i]!));
      for (const key of found) {
        expect(keyPath(key)).toStartWith(range.start);
        expect(keyMatches(query, key)).toBe(true);
        expect(isStoredKey(key)).toBe(true);
      }
    });
});
