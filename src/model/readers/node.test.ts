import { describe, expect, test } from "bun:test";
import { readStored, type Stored, stored } from "../testing/read.ts";
import { type Node, readNode, tunnelAddresses } from "./node.ts";
import { rejectUnreadable } from "./unreadable.ts";

const network = (address: string, length: number) => ({ address, length });

const MINIMAL = {
  name: "x",
  labels: {},
  hasEmptyBgp: false,
  asNumber: undefined,
  networks: { 4: undefined, 6: undefined },
  clusterId: undefined,
  tunnels: {
    ipip: { 4: undefined, 6: undefined },
    vxlan: { 4: undefined, 6: undefined },
    wireguard: { 4: undefined, 6: undefined },
  },
  vxlanMacs: { 4: undefined, 6: undefined },
  wireguardKeys: { 4: undefined, 6: undefined },
  addresses: [],
  interfaces: [],
  orchRefs: [],
  podCidrs: [],
};

const COMPLETE: Stored = {
  metadata: { name: "n1", labels: { rack: "a" } },
  spec: {
    bgp: {
      asNumber: "1.10",
      ipv4Address: "10.0.0.1/24",
      ipv6Address: "fd00:0::1/64",
      ipv4IPIPTunnelAddr: "10.65.0.1",
      routeReflectorClusterID: "224.0.0.1",
    },
    ipv4VXLANTunnelAddr: "10.65.0.2",
    vxlanTunnelMACAddr: "66:00:00:00:00:0a",
    ipv6VXLANTunnelAddr: "fd00:65::2",
    vxlanTunnelMACAddrV6: "66:00:00:00:00:0b",
    wireguard: { interfaceIPv4Address: "10.65.0.3", interfaceIPv6Address: "fd00:65::3" },
    orchRefs: [{ nodeName: "kube-n1", orchestrator: "k8s" }],
    addresses: [
      { address: "10.0.0.1", type: "InternalIP" },
      { address: "n1.example.org", type: "Hostname" },
    ],
    interfaces: [{ name: "eth0", addresses: ["10.0.0.1", "fd00::1", "rubbish"] }],
  },
  status: { wireguardPublicKey: "key4", wireguardPublicKeyV6: "key6", podCIDRs: ["10.244.0.0/24"] },
};

const cases: readonly {
  readonly name: string;
  readonly given: Stored;
  readonly want: object;
  readonly problems?: readonly string[];
}[] = [
  { name: "minimal", given: {}, want: MINIMAL },
  { name: "no spec", given: { spec: undefined }, want: MINIMAL },
  {
    name: "complete",
    given: COMPLETE,
    want: {
      name: "n1",
      labels: { rack: "a" },
      hasEmptyBgp: false,
      asNumber: 65546,
      networks: { 4: network("10.0.0.1", 24), 6: network("fd00::1", 64) },
      clusterId: "224.0.0.1",
      tunnels: {
        ipip: { 4: "10.65.0.1", 6: undefined },
        vxlan: { 4: "10.65.0.2", 6: "fd00:65::2" },
        wireguard: { 4: "10.65.0.3", 6: "fd00:65::3" },
      },
      vxlanMacs: { 4: "66:00:00:00:00:0a", 6: "66:00:00:00:00:0b" },
      wireguardKeys: { 4: "key4", 6: "key6" },
      addresses: [{ network: network("10.0.0.1", 32), type: "InternalIP" }],
      interfaces: [{ name: "eth0", addresses: ["10.0.0.1", "fd00::1"] }],
      orchRefs: [{ nodeName: "kube-n1", orchestrator: "k8s" }],
      podCidrs: ["10.244.0.0/24"],
    },
  },
  {
    name: "null and empty text count as unset",
    given: { spec: { bgp: null, ipv4VXLANTunnelAddr: "", wireguard: null, addresses: null }, status: null },
    want: MINIMAL,
  },
  { name: "empty bgp", given: { spec: { bgp: { ipv4Address: "" } } }, want: { ...MINIMAL, hasEmptyBgp: true } },
  {
    name: "unreadable fields",
    given: {
      spec: {
        bgp: { asNumber: "x", ipv4Address: "fd00::1", ipv4IPIPTunnelAddr: "x", routeReflectorClusterID: "fd00::1" },
        ipv6VXLANTunnelAddr: "10.0.0.1",
      },
      status: { podCIDRs: ["10.244.0.0/99"] },
    },
    want: MINIMAL,
    problems: [
      "spec.bgp.asNumber: want an AS number such as 64512 or 1.10",
      "spec.bgp.ipv4Address: want an IPv4 address",
      'spec.bgp.routeReflectorClusterID: want an IPv4 address, not "fd00::1"',
      "spec.bgp.ipv4IPIPTunnelAddr: want an IPv4 address",
      "spec.ipv6VXLANTunnelAddr: want an IPv6 address",
      "status.podCIDRs: want CIDRs, not 10.244.0.0/99",
    ],
  },
  {
    name: "wrong types",
    given: {
      spec: {
        bgp: { asNumber: [], ipv4Address: 5 },
        wireguard: "x",
        vxlanTunnelMACAddr: 5,
        addresses: [5],
        interfaces: {},
        orchRefs: [{ nodeName: 5 }],
      },
      status: { wireguardPublicKey: 5, podCIDRs: "x" },
    },
    want: MINIMAL,
    problems: [
      "spec.wireguard: want an object",
      "spec.bgp.asNumber: want text or a number",
      "spec.bgp.ipv4Address: want text",
      "spec.vxlanTunnelMACAddr: want text",
      "status.wireguardPublicKey: want text",
      "spec.addresses[0]: want an object",
      "spec.interfaces: want a list",
      "spec.orchRefs[0].nodeName: want text",
      "status.podCIDRs: want a list",
    ],
  },
  {
    name: "spec and status of wrong types",
    given: { spec: 5, status: "x" },
    want: MINIMAL,
    problems: ["spec: want an object", "status: want an object"],
  },
];

describe("readNode", () => {
  for (const { name, given, want, problems = [] } of cases)
    test(name, () => {
      const { value, problems: found } = readStored<Node>(readNode, stored("Node", given));
      expect<unknown>(value).toEqual(want);
      expect(found).toEqual(problems);
    });

  test("the caller may reject the resource", () =>
    expect(() => readNode(stored("Node", { spec: { bgp: 5 } }), rejectUnreadable)).toThrow("spec.bgp: want an object"));
});

test("tunnel addresses are in order of type and family", () =>
  expect<unknown>(tunnelAddresses(readNode(stored("Node", COMPLETE), rejectUnreadable))).toEqual([
    { type: "ipip", address: "10.65.0.1" },
    { type: "vxlan", address: "10.65.0.2" },
    { type: "vxlan", address: "fd00:65::2" },
    { type: "wireguard", address: "10.65.0.3" },
    { type: "wireguard", address: "fd00:65::3" },
  ]));
