// Defines the values that a syncer emits: endpoints, policies, profiles, pools and network sets in the form that the
// calculation graph uses. The update processors convert v3 resources to them; they parse selectors and separate
// addresses by IP version. It also defines the stored IPAM and status values.
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
/** A range of port numbers, which contains one number for a single port; or the name of a port. */
export type RulePort = { readonly min: number; readonly max: number } | { readonly name: string };

export interface RuleSide {
  readonly nets?: readonly Cidr[];
  readonly notNets?: readonly Cidr[];
  /** Combines the rule's selector, namespaceSelector and serviceAccounts. */
  readonly selector?: ParsedSelector;
  readonly notSelector?: ParsedSelector;
  readonly ports?: readonly RulePort[];
  readonly notPorts?: readonly RulePort[];
  readonly service?: { readonly name: string; readonly namespace: string };
  /** The fields as written by the user. */
  readonly original?: {
    readonly selector?: string;
    readonly namespaceSelector?: string;
    readonly notSelector?: string;
    readonly serviceAccountNames?: readonly string[];
    readonly serviceAccountSelector?: string;
    /** Without a namespace if the user gave none, which selects the policy's own namespace. */
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
  /** Absent = evaluated last. */
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
  /** Absent = evaluated last. */
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
  /** The interface on the host. */
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
  /** An interface name, `*` for all interfaces, or empty if the interface is found by its expected addresses. */
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
  /** Set only for the allocator of tunnel addresses, so that other consumers receive no update if it changes. */
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
/** A block of addresses. Sequence numbers have 64 bits: they are a bigint in memory and a number in JSON. */
export interface Block {
  readonly cidr: Cidr;
  /** `host:<name>` or `virtual:<name>`. */
  readonly affinity?: string;
  readonly affinityClaimTime?: string;
  /** By ordinal: index into attributes, or null if the address is free. */
  readonly allocations: readonly (number | null)[];
  /** Free ordinals, in the order in which they will be assigned. */
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

/** The type of the value stored or emitted under a key. */
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
