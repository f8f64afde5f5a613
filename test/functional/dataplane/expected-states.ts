// Defines small named states, each of which shows one feature that operators may look up in the kernel.
import type { DataplaneMessage } from "../../../src/calc/index.ts";
import type { DataplaneFacts } from "../../../src/dataplane/index.ts";
import type { Cidr, IpAddress } from "../../../src/lib/ip/ip.ts";
import { allowProfile, type DataplaneHost, hostEndpoint, pool, policy, rule, tier, vxlanRoute } from "./host.ts";

export interface NamedState {
  readonly name: string;
  readonly settings?: Readonly<Record<string, string>>;
  readonly facts?: Partial<DataplaneFacts>;
  /** Adds the required workloads and returns the messages to the dataplane. */
  readonly messages: (host: DataplaneHost) => readonly DataplaneMessage[];
}

const tcp = { name: "tcp" };
const port = (first: number, last = first) => ({ first, last });
const clients: DataplaneMessage = {
  type: "ipSetUpdate",
  id: "s:clients",
  setType: "net",
  members: ["10.65.0.7/32", "10.66.0.0/24", "fd00:65::7/128"],
};

export const NAMED_STATES: readonly NamedState[] = [
  { name: "empty", messages: () => [] },
  {
    name: "workload-profile",
    messages: (host) => [allowProfile, host.endpoint(host.addPod("a", 2)), host.endpoint(host.addPod("b", 3))],
  },
  {
    name: "workload-policy",
    messages: (host) => [
      allowProfile,
      clients,
      { type: "ipSetUpdate", id: "n:metrics", setType: "ipAndPort", members: ["10.65.0.2,tcp:9100"] },
      policy("allow-clients", [
        rule({ protocol: tcp, srcIpSetIds: ["s:clients"], dstPorts: [port(80), port(8000, 8010)] }),
        rule({ protocol: tcp, dstPorts: [port(443)], dstNamedPortIpSetIds: ["n:metrics"] }),
        rule({ protocol: { name: "icmp" }, icmp: { type: 8, code: 0 } }),
        rule({ srcNet: ["192.0.2.0/24", "198.51.100.0/24"] as Cidr[], action: "log" }),
        rule({ srcNet: ["192.0.2.0/24", "198.51.100.0/24"] as Cidr[], action: "deny" }),
      ]),
      policy("security", [
        rule({ notSrcNet: ["10.0.0.0/8"] as Cidr[], action: "deny" }),
        rule({ action: "next-tier" }),
      ]),
      policy("dns-only", [], [rule({ protocol: { name: "udp" }, dstPorts: [port(53)] })]),
      host.endpoint(host.addPod("a", 2), {
        tiers: [tier(["security"], [], { name: "security" }), tier(["allow-clients"], ["dns-only"])],
      }),
    ],
  },
  {
    name: "workload-limits",
    messages: (host) => [
      allowProfile,
      host.endpoint(host.addPod("a", 2), {
        qosControls: { ingressPacketRate: 100, ingressPacketBurst: 20, egressMaxConnections: 50 },
        qosPolicies: [{ destination: "", dscp: 46 }],
        allowSpoofedSourcePrefixes: ["10.65.9.0/24"] as Cidr[],
      }),
      host.endpoint(host.addPod("down", 3), { state: "inactive" }),
    ],
  },
  {
    name: "host-endpoint",
    messages: () => [
      allowProfile,
      clients,
      policy("host-in", [rule({ protocol: tcp, srcIpSetIds: ["s:clients"], dstPorts: [port(22, 23)] })]),
      policy("forwarded", [rule({ protocol: tcp })], [rule()]),
      policy("before-nat", [rule({ protocol: tcp, dstPorts: [port(30080)], action: "deny" })], [], { preDnat: true }),
      policy("untracked", [rule({ protocol: { name: "udp" } })], [rule({ protocol: { name: "udp" } })], {
        untracked: true,
      }),
      hostEndpoint("eth0", {
        profileIds: ["allow"],
        tiers: [tier(["host-in"])],
        forwardTiers: [tier(["forwarded"], ["forwarded"])],
        preDnatTiers: [tier(["before-nat"])],
        untrackedTiers: [tier(["untracked"], ["untracked"])],
      }),
    ],
  },
  {
    name: "host-endpoint-everywhere",
    settings: { FailsafeInboundHostPorts: "tcp:192.0.2.0/24:22,tcp:[2001:db8::/32]:22", HealthEnabled: "true" },
    messages: () => [
      policy("ssh", [rule({ protocol: tcp, dstPorts: [port(2222)] })], [rule()]),
      hostEndpoint("*", { tiers: [tier(["ssh"], ["ssh"])] }),
    ],
  },
  {
    name: "nat",
    settings: { FloatingIPs: "Enabled", NATPortRange: "32768:65535", NATOutgoingExclusions: "IPPoolsAndHostIPs" },
    messages: (host) => [
      allowProfile,
      pool("10.65.0.0/16", { masquerade: true }),
      pool("fd00:65::/64"),
      {
        type: "hostMetadataUpdate",
        hostname: "node-b",
        ipv4Addr: "192.0.2.11",
        ipv6Addr: "",
        asNumber: "",
        labels: {},
      },
      {
        type: "globalBgpConfigUpdate",
        serviceClusterCidrs: ["10.96.0.0/12"],
        serviceExternalCidrs: [],
        serviceLoadBalancerCidrs: ["2001:db8:5::/64"],
        localWorkloadPeeringIpV4: "",
        localWorkloadPeeringIpV6: "",
      },
      host.endpoint(host.addPod("a", 2), {
        ipv4Nat: [{ external: "203.0.113.5" as IpAddress, internal: "10.65.0.2" as IpAddress }],
      }),
    ],
  },
  {
    name: "vxlan",
    settings: { IPv4VXLANTunnelAddr: "10.65.1.0" },
    facts: { vxlanEnabled: true },
    messages: (host) => {
      const end = { macV6: "", ipv6Addr: "", parentDeviceIpv6: "" };
      const other = { mac: "66:00:00:00:00:0b", ipv4Addr: "10.65.2.0", parentDeviceIp: "192.0.2.11" };
      return [
        allowProfile,
        pool("10.65.0.0/16"),
        {
          type: "vtepUpdate",
          node: "node-a",
          mac: "66:00:00:00:00:0a",
          ipv4Addr: "10.65.1.0",
          parentDeviceIp: "192.0.2.10",
          ...end,
        },
        { type: "vtepUpdate", node: "node-b", ...other, ...end },
        vxlanRoute("10.65.2.0/26", "192.0.2.11"),
        host.endpoint(host.addPod("a", 2)),
      ];
    },
  },
];
