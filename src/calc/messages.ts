// Defines the messages between the calculation graph and the dataplane: the union has one member for each message of
// Calico's dataplane protocol. They are encoded as protobuf only for an external driver.
//
// The sender guarantees this order:
// - configUpdate is the first message.
// - An IP set, policy or profile is sent before the objects that refer to it, and removed after them.
// - An ipSetDeltaUpdate refers to a set that was sent, adds only absent members and removes only present ones.
// - inSync is sent once, after the complete snapshot.
import type { Cidr, IpAddress, Labels, PolicyKind, QosControls } from "./inputs.ts";

// --- identities --------------------------------------------------------------------------------------------------
/** `s:…`, `n:…`, `svc:…` or `svcnoport:…`, followed by a hash of the set's definition. */
export type IpSetId = string;
export interface PolicyId {
  readonly name: string;
  /** Empty for global kinds. */
  readonly namespace: string;
  readonly kind: PolicyKind;
}
export interface WorkloadEndpointId {
  readonly orchestrator: string;
  readonly workload: string;
  readonly endpoint: string;
}

// --- IP sets -----------------------------------------------------------------------------------------------------
/** `net`: `10.0.0.1/32`; `ipAndPort`: `10.0.0.1,tcp:80`; `ip`: `10.0.0.1`. */
export type IpSetType = "ip" | "ipAndPort" | "net";

// --- policies and profiles -----------------------------------------------------------------------------------------
export type ProtocolMatch = { readonly number: number } | { readonly name: string };
export interface PortRange {
  readonly first: number;
  readonly last: number;
}
export interface IcmpMatch {
  readonly type: number;
  readonly code?: number;
}

/** A rule whose selectors, named ports and services have become IP sets. Empty lists mean "no such match". */
export interface ProtoRule {
  readonly action: "allow" | "deny" | "log" | "next-tier";
  readonly ipVersion?: 4 | 6;
  readonly protocol?: ProtocolMatch;
  readonly srcNet: readonly Cidr[];
  readonly srcPorts: readonly PortRange[];
  readonly dstNet: readonly Cidr[];
  readonly dstPorts: readonly PortRange[];
  readonly icmp?: IcmpMatch;
  readonly srcIpSetIds: readonly IpSetId[];
  readonly dstIpSetIds: readonly IpSetId[];
  readonly srcNamedPortIpSetIds: readonly IpSetId[];
  readonly dstNamedPortIpSetIds: readonly IpSetId[];
  readonly dstIpPortSetIds: readonly IpSetId[];
  readonly notProtocol?: ProtocolMatch;
  readonly notSrcNet: readonly Cidr[];
  readonly notSrcPorts: readonly PortRange[];
  readonly notDstNet: readonly Cidr[];
  readonly notDstPorts: readonly PortRange[];
  readonly notIcmp?: IcmpMatch;
  readonly notSrcIpSetIds: readonly IpSetId[];
  readonly notDstIpSetIds: readonly IpSetId[];
  readonly notSrcNamedPortIpSetIds: readonly IpSetId[];
  readonly notDstNamedPortIpSetIds: readonly IpSetId[];
  /** As the user wrote them, for display and for layer-7 policy. */
  readonly original: RuleOriginals;
  readonly httpMatch?: {
    readonly methods: readonly string[];
    readonly paths: readonly ({ readonly exact: string } | { readonly prefix: string })[];
  };
  readonly annotations?: Labels;
  readonly ruleId: string;
}
export interface RuleOriginals {
  readonly srcSelector?: string;
  readonly dstSelector?: string;
  readonly srcNamespaceSelector?: string;
  readonly dstNamespaceSelector?: string;
  readonly notSrcSelector?: string;
  readonly notDstSelector?: string;
  readonly srcServiceAccount?: { readonly selector: string; readonly names: readonly string[] };
  readonly dstServiceAccount?: { readonly selector: string; readonly names: readonly string[] };
  readonly srcService?: { readonly name: string; readonly namespace: string };
  readonly dstService?: { readonly name: string; readonly namespace: string };
}

export interface ProtoPolicy {
  readonly inboundRules: readonly ProtoRule[];
  readonly outboundRules: readonly ProtoRule[];
  readonly untracked: boolean;
  readonly preDnat: boolean;
  readonly namespace: string;
  readonly originalSelector: string;
  readonly performanceHints: readonly string[];
  readonly tier: string;
}
export interface ProtoProfile {
  readonly inboundRules: readonly ProtoRule[];
  readonly outboundRules: readonly ProtoRule[];
}

// --- endpoints -----------------------------------------------------------------------------------------------------
export interface TierInfo {
  readonly name: string;
  readonly ingressPolicies: readonly PolicyId[];
  readonly egressPolicies: readonly PolicyId[];
  readonly defaultAction: "Deny" | "Pass";
}
export interface NatInfo {
  readonly external: IpAddress;
  readonly internal: IpAddress;
}
export interface ProtoWorkloadEndpoint {
  readonly state: string;
  /** The interface on the host side. */
  readonly name: string;
  readonly mac: string;
  readonly profileIds: readonly string[];
  readonly ipv4Nets: readonly Cidr[];
  readonly ipv6Nets: readonly Cidr[];
  readonly tiers: readonly TierInfo[];
  readonly ipv4Nat: readonly NatInfo[];
  readonly ipv6Nat: readonly NatInfo[];
  readonly allowSpoofedSourcePrefixes: readonly Cidr[];
  readonly annotations: Labels;
  readonly qosControls?: QosControls;
  readonly localBgpPeer?: { readonly bgpPeerName: string };
  readonly skipRedirect?: { readonly ingress: boolean; readonly egress: boolean };
  readonly qosPolicies: readonly QosPolicy[];
  readonly isIstioAmbient: boolean;
  readonly liveMigrationRole: "none" | "source" | "target";
  readonly liveMigrationUid?: string;
  readonly liveMigrationVmiName?: string;
}
export interface QosPolicy {
  readonly destination: string;
  readonly dscp: number;
}
export interface ProtoHostEndpoint {
  /** An interface name, `*`, or empty if the interface is identified by its expected addresses. */
  readonly name: string;
  readonly profileIds: readonly string[];
  readonly tiers: readonly TierInfo[];
  readonly untrackedTiers: readonly TierInfo[];
  readonly preDnatTiers: readonly TierInfo[];
  readonly forwardTiers: readonly TierInfo[];
  readonly expectedIpv4Addrs: readonly IpAddress[];
  readonly expectedIpv6Addrs: readonly IpAddress[];
  readonly qosPolicies: readonly QosPolicy[];
}

// --- routes and hosts ------------------------------------------------------------------------------------------------
export type RoutePoolType = "none" | "no-encap" | "vxlan" | "ipip";
/** Bits of `RouteUpdate.types`. */
export const ROUTE_TYPE = {
  cidrInfo: 0,
  remoteWorkload: 1,
  remoteHost: 2,
  localWorkload: 4,
  localHost: 8,
  remoteTunnel: 16,
  localTunnel: 32,
} as const;
export interface RouteUpdate {
  readonly type: "routeUpdate";
  readonly types: number;
  readonly poolType: RoutePoolType;
  readonly dst: Cidr;
  readonly dstNodeName: string;
  readonly dstNodeIp: IpAddress | "";
  readonly sameSubnet: boolean;
  readonly natOutgoing: boolean;
  readonly localWorkload: boolean;
  readonly borrowed: boolean;
  readonly tunnelType?: { readonly ipip: boolean; readonly vxlan: boolean; readonly wireguard: boolean };
}
export interface ServicePort {
  readonly protocol: string;
  readonly port: number;
  readonly nodePort: number;
}

// --- the messages ------------------------------------------------------------------------------------------------------
export type DataplaneMessage =
  | { readonly type: "inSync" }
  | {
      readonly type: "configUpdate";
      readonly config: Readonly<Record<string, string>>;
      /** By layer number: 1 global, 2 selector, 3 host, 4 file, 5 environment, 6 override. */
      readonly sourceToRawConfig: Readonly<
        Record<number, { readonly source: string; readonly config: Readonly<Record<string, string>> }>
      >;
    }
  | {
      readonly type: "ipSetUpdate";
      readonly id: IpSetId;
      readonly setType: IpSetType;
      readonly members: readonly string[];
    }
  | {
      readonly type: "ipSetDeltaUpdate";
      readonly id: IpSetId;
      readonly added: readonly string[];
      readonly removed: readonly string[];
    }
  | { readonly type: "ipSetRemove"; readonly id: IpSetId }
  | { readonly type: "activePolicyUpdate"; readonly id: PolicyId; readonly policy: ProtoPolicy }
  | { readonly type: "activePolicyRemove"; readonly id: PolicyId }
  | { readonly type: "activeProfileUpdate"; readonly name: string; readonly profile: ProtoProfile }
  | { readonly type: "activeProfileRemove"; readonly name: string }
  | {
      readonly type: "workloadEndpointUpdate";
      readonly id: WorkloadEndpointId;
      readonly endpoint: ProtoWorkloadEndpoint;
    }
  | { readonly type: "workloadEndpointRemove"; readonly id: WorkloadEndpointId }
  | { readonly type: "hostEndpointUpdate"; readonly endpointId: string; readonly endpoint: ProtoHostEndpoint }
  | { readonly type: "hostEndpointRemove"; readonly endpointId: string }
  | {
      readonly type: "hostMetadataUpdate";
      readonly hostname: string;
      /** With the prefix length of its network if known. */
      readonly ipv4Addr: string;
      readonly ipv6Addr: string;
      readonly asNumber: string;
      readonly labels: Labels;
    }
  | { readonly type: "hostMetadataRemove"; readonly hostname: string; readonly ipv4Addr: string }
  | {
      readonly type: "poolUpdate";
      /** The CIDR with `-` instead of `/`. */
      readonly id: string;
      readonly cidr: Cidr;
      readonly masquerade: boolean;
      readonly ipipMode: string;
      readonly vxlanMode: string;
      readonly allowedUses: readonly string[];
    }
  | { readonly type: "poolRemove"; readonly id: string }
  | {
      readonly type: "serviceAccountUpdate";
      readonly namespace: string;
      readonly name: string;
      readonly labels: Labels;
    }
  | { readonly type: "serviceAccountRemove"; readonly namespace: string; readonly name: string }
  | { readonly type: "namespaceUpdate"; readonly name: string; readonly labels: Labels }
  | { readonly type: "namespaceRemove"; readonly name: string }
  | RouteUpdate
  | { readonly type: "routeRemove"; readonly dst: Cidr }
  | {
      readonly type: "vtepUpdate";
      readonly node: string;
      readonly mac: string;
      readonly ipv4Addr: string;
      readonly parentDeviceIp: string;
      readonly macV6: string;
      readonly ipv6Addr: string;
      readonly parentDeviceIpv6: string;
    }
  | { readonly type: "vtepRemove"; readonly node: string }
  | {
      /** One IP family of one host; the wire protocol has a message per family. */
      readonly type: "wireguardUpdate";
      readonly ipVersion: 4 | 6;
      readonly hostname: string;
      readonly publicKey: string;
      readonly interfaceAddr: IpAddress | "";
    }
  | { readonly type: "wireguardRemove"; readonly ipVersion: 4 | 6; readonly hostname: string }
  | {
      readonly type: "globalBgpConfigUpdate";
      readonly serviceClusterCidrs: readonly string[];
      readonly serviceExternalCidrs: readonly string[];
      readonly serviceLoadBalancerCidrs: readonly string[];
      readonly localWorkloadPeeringIpV4: string;
      readonly localWorkloadPeeringIpV6: string;
    }
  | {
      readonly type: "encapsulation";
      readonly ipipEnabled: boolean;
      readonly vxlanEnabled: boolean;
      readonly vxlanEnabledV6: boolean;
      readonly noEncapNeeded: boolean;
    }
  | {
      readonly type: "serviceUpdate";
      readonly name: string;
      readonly namespace: string;
      readonly serviceType: string;
      readonly clusterIps: readonly string[];
      readonly loadBalancerIp: string;
      readonly externalIps: readonly string[];
      readonly ports: readonly ServicePort[];
      readonly loadBalancerIngressIps: readonly string[];
    }
  | { readonly type: "serviceRemove"; readonly name: string; readonly namespace: string };

// --- reports from the dataplane ------------------------------------------------------------------------------------------
export type DataplaneReport =
  | { readonly type: "processStatus"; readonly time: string; readonly uptimeSeconds: number }
  | {
      readonly type: "workloadEndpointStatus";
      readonly id: WorkloadEndpointId;
      readonly status: "up" | "down" | "error";
      /** Content of the status file; absent if the endpoint is not up. */
      readonly endpoint?: ProtoWorkloadEndpoint;
    }
  | { readonly type: "workloadEndpointStatusRemove"; readonly id: WorkloadEndpointId }
  | { readonly type: "hostEndpointStatus"; readonly endpointId: string; readonly status: "up" | "down" | "error" }
  | { readonly type: "hostEndpointStatusRemove"; readonly endpointId: string }
  | { readonly type: "wireguardStatus"; readonly ipVersion: 4 | 6; readonly publicKey: string }
  | { readonly type: "dataplaneInSync" };

/** Receives the messages: the Linux dataplane, an external driver, or a dump. */
export interface DataplaneDriver {
  send(message: DataplaneMessage): void;
  /** Resolves when the driver can accept more messages. Until then, the graph merges updates of the same object. */
  ready(): Promise<void>;
}
