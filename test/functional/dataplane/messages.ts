// Builds messages to the dataplane.
import {
  type DataplaneMessage,
  type PolicyId,
  type ProtoHostEndpoint,
  type ProtoRule,
  type ProtoWorkloadEndpoint,
  ROUTE_TYPE,
  type RouteUpdate,
  type TierInfo,
} from "../../../src/calc/index.ts";
import { type Cidr, hostCidr, type IpAddress } from "../../../src/lib/ip/ip.ts";

export const rule = (more: Partial<ProtoRule> = {}): ProtoRule => ({
  action: "allow",
  srcNet: [],
  srcPorts: [],
  dstNet: [],
  dstPorts: [],
  srcIpSetIds: [],
  dstIpSetIds: [],
  srcNamedPortIpSetIds: [],
  dstNamedPortIpSetIds: [],
  dstIpPortSetIds: [],
  notSrcNet: [],
  notSrcPorts: [],
  notDstNet: [],
  notDstPorts: [],
  notSrcIpSetIds: [],
  notDstIpSetIds: [],
  notSrcNamedPortIpSetIds: [],
  notDstNamedPortIpSetIds: [],
  original: {},
  ruleId: "",
  ...more,
});

export const workload = (
  interfaceName: string,
  addresses: readonly IpAddress[],
  more: Partial<ProtoWorkloadEndpoint> = {},
  name = interfaceName,
): DataplaneMessage => ({
  type: "workloadEndpointUpdate",
  id: { orchestrator: "k8s", workload: name, endpoint: "eth0" },
  endpoint: {
    state: "active",
    name: interfaceName,
    mac: "",
    profileIds: ["allow"],
    ipv4Nets: addresses.filter((address) => !address.includes(":")).map(hostCidr),
    ipv6Nets: addresses.filter((address) => address.includes(":")).map(hostCidr),
    tiers: [],
    ipv4Nat: [],
    ipv6Nat: [],
    allowSpoofedSourcePrefixes: [],
    annotations: {},
    qosPolicies: [],
    isIstioAmbient: false,
    liveMigrationRole: "none",
    ...more,
  },
});

export const policyId = (name: string): PolicyId => ({ name, namespace: "", kind: "GlobalNetworkPolicy" });

export const policy = (
  name: string,
  inbound: readonly ProtoRule[],
  outbound: readonly ProtoRule[] = [],
  more: { readonly untracked?: boolean; readonly preDnat?: boolean; readonly selector?: string } = {},
): DataplaneMessage => ({
  type: "activePolicyUpdate",
  id: policyId(name),
  policy: {
    inboundRules: inbound,
    outboundRules: outbound,
    untracked: more.untracked ?? false,
    preDnat: more.preDnat ?? false,
    namespace: "",
    originalSelector: more.selector ?? name,
    performanceHints: [],
    tier: "default",
  },
});

export const allowProfile: DataplaneMessage = {
  type: "activeProfileUpdate",
  name: "allow",
  profile: { inboundRules: [rule()], outboundRules: [rule()] },
};

/** A tier with these policies. */
export const tier = (
  ingress: readonly string[],
  egress: readonly string[] = [],
  more: Partial<TierInfo> = {},
): TierInfo => ({
  name: "default",
  ingressPolicies: ingress.map(policyId),
  egressPolicies: egress.map(policyId),
  defaultAction: "Deny",
  ...more,
});

export const inSync: DataplaneMessage = { type: "inSync" };

export const hostEndpoint = (interfaceName: string, more: Partial<ProtoHostEndpoint> = {}): DataplaneMessage => ({
  type: "hostEndpointUpdate",
  endpointId: interfaceName === "*" ? "every" : interfaceName,
  endpoint: {
    name: interfaceName,
    profileIds: [],
    tiers: [],
    untrackedTiers: [],
    preDnatTiers: [],
    forwardTiers: [],
    expectedIpv4Addrs: [],
    expectedIpv6Addrs: [],
    qosPolicies: [],
    ...more,
  },
});

export const pool = (
  cidr: string,
  more: { readonly masquerade?: boolean; readonly allowedUses?: readonly string[] } = {},
): DataplaneMessage => ({
  type: "poolUpdate",
  id: cidr.replace("/", "-"),
  cidr: cidr as Cidr,
  masquerade: false,
  ipipMode: "",
  vxlanMode: "",
  allowedUses: ["Workload"],
  ...more,
});

/** The VXLAN route to a block of node-b. */
export const vxlanRoute = (dst: string, nodeIp: string, sameSubnet = false): RouteUpdate => ({
  type: "routeUpdate",
  types: ROUTE_TYPE.remoteWorkload,
  poolType: "vxlan",
  dst: dst as Cidr,
  dstNodeName: "node-b",
  dstNodeIp: nodeIp as IpAddress,
  sameSubnet,
  natOutgoing: false,
  localWorkload: false,
  borrowed: false,
});
