// What a syncer gives its consumers: endpoints, policies, profiles, pools and sets in the form calculations need,
// made from v3 resources by the update processors. Selectors are parsed, families already told apart.
import type { Cidr, IpAddress, IpVersion } from "../../lib/ip/ip.ts";
import type {
  BgpGlobalConfigKey,
  BgpHostConfigKey,
  BgpPeerKey,
  BlockAffinityKey,
  BlockKey,
  FelixStatusKey,
  GlobalConfigKey,
  HostConfigKey,
  HostEndpointKey,
  HostEndpointStatusKey,
  HostIpKey,
  IpamConfigKey,
  IpamHandleKey,
  IpamHostKey,
  Key,
  NetworkSetKey,
  PolicyKey,
  PoolKey,
  ProfileLabelsKey,
  ProfileRulesKey,
  ReadyKey,
  ResourceKey,
  TierKey,
  WireguardKey,
  WorkloadEndpointKey,
  WorkloadStatusKey,
} from "../keys/keys.ts";
import type { Labels, Resource } from "../resource.ts";
import type { ParsedSelector } from "../selector/parsed-selector.ts";

/** `tcp`, `udp`, `icmp`, `icmpv6`, `sctp`, `udplite` or a number 1–255. */
export type RuleProtocol = string | number;
/** A single port is a range of one; a name stands alone. */
export type RulePort = { readonly min: number; readonly max: number } | { readonly name: string };

export interface RuleSide {
  readonly nets?: readonly Cidr[];
  readonly notNets?: readonly Cidr[];
  /** Namespace and service-account parts already joined in. */
  readonly selector?: ParsedSelector;
  readonly notSelector?: ParsedSelector;
  readonly ports?: readonly RulePort[];
  readonly notPorts?: readonly RulePort[];
  readonly service?: { readonly name: string; readonly namespace: string };
  /** As the user wrote them. */
  readonly original?: {
    readonly selector?: string;
    readonly namespaceSelector?: string;
    readonly notSelector?: string;
    readonly serviceAccountNames?: readonly string[];
    readonly serviceAccountSelector?: string;
    /** Without the namespace when the policy's own was meant. */
    readonly service?: { readonly name: string; readonly namespace?: string };
  };
}

export interface Rule {
  readonly action: "allow" | "deny" | "log" | "next-tier";
  readonly ipVersion?: IpVersion;
  readonly protocol?: RuleProtocol;
  readonly notProtocol?: RuleProtocol;
  readonly icmp?: { readonly type: number; readonly code?: number };
  readonly notIcmp?: { readonly type: number; readonly code?: number };
  readonly source: RuleSide;
  readonly destination: RuleSide;
  readonly http?: {
    readonly methods?: readonly string[];
    readonly paths?: readonly ({ readonly exact: string } | { readonly prefix: string })[];
  };
  readonly annotations?: Labels;
}

export interface Policy {
  readonly namespace?: string;
  readonly tier: string;
  /** Absent = after all others. */
  readonly order?: number;
  readonly inboundRules: readonly Rule[];
  readonly outboundRules: readonly Rule[];
  readonly selector: ParsedSelector;
  readonly untracked?: boolean;
  readonly preDnat?: boolean;
  readonly applyOnForward?: boolean;
  readonly types: readonly ("ingress" | "egress")[];
  readonly performanceHints?: readonly string[];
  readonly stagedAction?: "Set" | "Delete" | "Learn" | "Ignore";
  readonly annotations?: Labels;
}

export interface ProfileRules {
  readonly inboundRules: readonly Rule[];
  readonly outboundRules: readonly Rule[];
}

export interface Tier {
  /** Absent = last. */
  readonly order?: number;
  readonly defaultAction: "Deny" | "Pass";
}

export interface EndpointPort {
  readonly name: string;
  readonly protocol: RuleProtocol;
  readonly port: number;
}
export interface NatEntry {
  readonly internal: IpAddress;
  readonly external: IpAddress;
}
export interface QosControls {
  readonly ingressBandwidth?: number;
  readonly egressBandwidth?: number;
  readonly ingressBurst?: number;
  readonly egressBurst?: number;
  readonly ingressPeakrate?: number;
  readonly egressPeakrate?: number;
  readonly ingressMinburst?: number;
  readonly egressMinburst?: number;
  readonly ingressPacketRate?: number;
  readonly egressPacketRate?: number;
  readonly ingressPacketBurst?: number;
  readonly egressPacketBurst?: number;
  readonly ingressMaxConnections?: number;
  readonly egressMaxConnections?: number;
  readonly dscp?: number;
}

export interface WorkloadEndpoint {
  readonly state: string;
  /** The host side's interface. */
  readonly name: string;
  readonly activeInstanceId?: string;
  readonly mac?: string;
  readonly profileIds: readonly string[];
  readonly ipv4Nets: readonly Cidr[];
  readonly ipv6Nets: readonly Cidr[];
  readonly ipv4Nat?: readonly NatEntry[];
  readonly ipv6Nat?: readonly NatEntry[];
  readonly ipv4Gateway?: IpAddress;
  readonly ipv6Gateway?: IpAddress;
  readonly labels: Labels;
  readonly ports: readonly EndpointPort[];
  readonly generateName?: string;
  readonly allowSpoofedSourcePrefixes?: readonly Cidr[];
  readonly annotations?: Labels;
  readonly qosControls?: QosControls;
}

export interface HostEndpoint {
  /** Interface name, `*`, or empty when chosen by expected address. */
  readonly name: string;
  readonly expectedIpv4Addrs: readonly IpAddress[];
  readonly expectedIpv6Addrs: readonly IpAddress[];
  readonly labels: Labels;
  readonly profileIds: readonly string[];
  readonly ports: readonly EndpointPort[];
  readonly qosControls?: QosControls;
}

export interface Pool {
  readonly cidr: Cidr;
  readonly ipipMode: "" | "always" | "cross-subnet";
  readonly vxlanMode: "" | "always" | "cross-subnet";
  readonly masquerade: boolean;
  readonly ipam: boolean;
  readonly disabled: boolean;
  readonly disableBgpExport: boolean;
  readonly assignmentMode: "Automatic" | "Manual";
  readonly allowedUses: readonly string[];
  /** For the tunnel allocator only: to others a changed selector is no change. */
  readonly nodeSelector?: string;
}

export interface NetworkSet {
  readonly nets: readonly Cidr[];
  readonly labels: Labels;
  readonly profileIds: readonly string[];
}

export interface Wireguard {
  readonly interfaceIpv4Addr?: IpAddress;
  readonly publicKey?: string;
  readonly interfaceIpv6Addr?: IpAddress;
  readonly publicKeyV6?: string;
}

// --- IPAM ------------------------------------------------------------------------------------------------------
export interface AllocationAttributes {
  readonly handleId?: string;
  readonly secondary?: Labels;
  readonly alternateOwnerAttributes?: Labels;
  readonly releasedAt?: string;
}
/** A block of addresses. Sequence numbers are 64-bit: bigint in memory, digits in JSON. */
export interface Block {
  readonly cidr: Cidr;
  /** `host:<name>` or `virtual:<name>`. */
  readonly affinity?: string;
  readonly affinityClaimTime?: string;
  /** By ordinal: index into attributes, or null when free. */
  readonly allocations: readonly (number | null)[];
  /** Free ordinals, first to be given first. */
  readonly unallocated: readonly number[];
  readonly attributes: readonly AllocationAttributes[];
  readonly sequenceNumber: bigint;
  readonly sequenceNumberForAllocation: Readonly<Record<string, bigint>>;
  readonly deleted: boolean;
}
export interface BlockAffinity {
  readonly state: "" | "pending" | "confirmed" | "pendingDeletion";
  readonly deleted: boolean;
}
export interface IpamHandle {
  readonly handleId: string;
  /** Block CIDR → number of addresses held there. */
  readonly block: Readonly<Record<string, number>>;
  readonly deleted: boolean;
}
export interface IpamConfig {
  readonly strictAffinity: boolean;
  readonly autoAllocateBlocks: boolean;
  readonly maxBlocksPerHost: number;
  readonly kubeVirtVmAddressPersistence?: string;
  readonly ipCooldownSeconds?: number;
}

export interface FelixStatus {
  readonly time: string;
  readonly uptime: number;
  readonly firstUpdate: boolean;
}
export interface EndpointStatus {
  readonly status: "up" | "down" | "error";
}

/** The value that stands under a key. */
export type ValueOf<K extends Key> = K extends ResourceKey
  ? Resource
  : K extends BlockKey
    ? Block
    : K extends BlockAffinityKey
      ? BlockAffinity
      : K extends IpamHandleKey
        ? IpamHandle
        : K extends IpamConfigKey
          ? IpamConfig
          : K extends IpamHostKey
            ? Readonly<Record<string, never>>
            : K extends FelixStatusKey
              ? FelixStatus
              : K extends WorkloadStatusKey | HostEndpointStatusKey
                ? EndpointStatus
                : K extends ReadyKey
                  ? boolean
                  : K extends GlobalConfigKey | HostConfigKey | BgpGlobalConfigKey | BgpHostConfigKey
                    ? string
                    : K extends WorkloadEndpointKey
                      ? WorkloadEndpoint
                      : K extends HostEndpointKey
                        ? HostEndpoint
                        : K extends PolicyKey
                          ? Policy
                          : K extends ProfileRulesKey
                            ? ProfileRules
                            : K extends ProfileLabelsKey
                              ? Labels
                              : K extends TierKey
                                ? Tier
                                : K extends PoolKey
                                  ? Pool
                                  : K extends NetworkSetKey
                                    ? NetworkSet
                                    : K extends WireguardKey
                                      ? Wireguard
                                      : K extends HostIpKey
                                        ? IpAddress
                                        : K extends BgpPeerKey
                                          ? { readonly ip: IpAddress; readonly asNumber: string }
                                          : never;

/** A key with its value; distributes, so that narrowing the key narrows the value. */
export type KeyValue<K extends Key = Key> = K extends Key ? { readonly key: K; readonly value: ValueOf<K> } : never;
