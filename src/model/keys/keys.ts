// Defines the keys of entries in a datastore and in a syncer's stream. A key is plain data. Use its canonical text
// (`keyPath`, the path in etcd) as the key of a Map.
import type { Cidr, IpAddress, IpVersion } from "../../lib/ip/ip.ts";
import type { KindName } from "../kinds.ts";

/** A `projectcalico.org/v3` resource, or an object of one of Kubernetes' own kinds that a syncer emits. */
export interface ResourceKey {
  readonly type: "resource";
  readonly kind: KindName;
  readonly name: string;
  /** Present exactly for namespaced kinds. */
  readonly namespace?: string;
}

// --- IPAM ------------------------------------------------------------------------------------------------------
export interface BlockKey {
  readonly type: "block";
  readonly cidr: Cidr;
}
export interface BlockAffinityKey {
  readonly type: "blockAffinity";
  readonly affinityType: "host" | "virtual";
  readonly host: string;
  readonly cidr: Cidr;
}
export interface IpamHandleKey {
  readonly type: "ipamHandle";
  readonly handleId: string;
}
export interface IpamConfigKey {
  readonly type: "ipamConfig";
}
export interface IpamHostKey {
  readonly type: "ipamHost";
  readonly host: string;
}

// --- status written by Felix -------------------------------------------------------------------------------------
export interface FelixStatusKey {
  readonly type: "felixStatus";
  readonly region: string; // "no-region" or "region-<name>"
  readonly host: string;
  /** False: the entry with a time to live. True: the copy that does not expire. */
  readonly last: boolean;
}
export interface WorkloadStatusKey {
  readonly type: "workloadStatus";
  readonly region: string;
  readonly host: string;
  readonly orchestrator: string;
  readonly workload: string;
  readonly endpoint: string;
}
export interface HostEndpointStatusKey {
  readonly type: "hostEndpointStatus";
  readonly host: string;
  readonly endpoint: string;
}

// --- emitted by syncers, never stored ----------------------------------------------------------------------------
export interface ReadyKey {
  readonly type: "ready";
}
export interface GlobalConfigKey {
  readonly type: "globalConfig";
  readonly name: string;
}
export interface HostConfigKey {
  readonly type: "hostConfig";
  readonly host: string;
  readonly name: string;
}
export interface WorkloadEndpointKey {
  readonly type: "workloadEndpoint";
  readonly host: string;
  readonly orchestrator: string;
  /** `<namespace>/<pod>` for Kubernetes. */
  readonly workload: string;
  readonly endpoint: string;
}
export interface HostEndpointKey {
  readonly type: "hostEndpoint";
  readonly host: string;
  readonly endpoint: string;
}
export type PolicyKind =
  | "NetworkPolicy"
  | "GlobalNetworkPolicy"
  | "StagedNetworkPolicy"
  | "StagedGlobalNetworkPolicy"
  | "StagedKubernetesNetworkPolicy"
  | "KubernetesNetworkPolicy"
  | "KubernetesClusterNetworkPolicy";
export interface PolicyKey {
  readonly type: "policy";
  readonly kind: PolicyKind;
  /** Empty for global kinds. */
  readonly namespace: string;
  readonly name: string;
}
export interface ProfileRulesKey {
  readonly type: "profileRules";
  readonly name: string;
}
export interface ProfileLabelsKey {
  readonly type: "profileLabels";
  readonly name: string;
}
export interface TierKey {
  readonly type: "tier";
  readonly name: string;
}
export interface PoolKey {
  readonly type: "pool";
  readonly cidr: Cidr;
}
export interface NetworkSetKey {
  readonly type: "networkSet";
  /** `name` of a GlobalNetworkSet, `namespace/name` of a NetworkSet. */
  readonly name: string;
}
export interface WireguardKey {
  readonly type: "wireguard";
  readonly host: string;
}
export interface HostIpKey {
  readonly type: "hostIp";
  readonly host: string;
}
export interface BgpGlobalConfigKey {
  readonly type: "bgpGlobalConfig";
  readonly name: string;
}
export interface BgpHostConfigKey {
  readonly type: "bgpHostConfig";
  readonly host: string;
  readonly name: string;
}
export interface BgpPeerKey {
  readonly type: "bgpPeer";
  /** Absent for a global peer. */
  readonly host?: string;
  readonly ip: IpAddress;
  /** Absent if it is 179. */
  readonly port?: number;
}

/** Keys that drivers store. */
export type StoredKey =
  | ResourceKey
  | BlockKey
  | BlockAffinityKey
  | IpamHandleKey
  | IpamConfigKey
  | IpamHostKey
  | FelixStatusKey
  | WorkloadStatusKey
  | HostEndpointStatusKey;

/** Keys that syncers emit besides stored keys. */
export type DerivedKey =
  | ReadyKey
  | GlobalConfigKey
  | HostConfigKey
  | WorkloadEndpointKey
  | HostEndpointKey
  | PolicyKey
  | ProfileRulesKey
  | ProfileLabelsKey
  | TierKey
  | PoolKey
  | NetworkSetKey
  | WireguardKey
  | HostIpKey
  | BgpGlobalConfigKey
  | BgpHostConfigKey
  | BgpPeerKey;

export type Key = StoredKey | DerivedKey;

/** Selects the stored keys to list or watch. Absent fields match everything. */
export type StoredQuery =
  | {
      readonly type: "resource";
      readonly kind: KindName;
      readonly namespace?: string;
      readonly name?: string;
      /** Used to list the workload endpoints of a node. Cannot be combined with `name`. */
      readonly namePrefix?: string;
    }
  | { readonly type: "block"; readonly version?: IpVersion }
  | {
      readonly type: "blockAffinity";
      readonly host?: string;
      readonly version?: IpVersion;
      readonly affinityType?: "host" | "virtual";
    }
  | { readonly type: "ipamHandle" }
  | { readonly type: "ipamConfig" }
  | { readonly type: "ipamHost" }
  | { readonly type: "felixStatus" }
  | { readonly type: "workloadStatus"; readonly region: string; readonly host?: string }
  | { readonly type: "hostEndpointStatus"; readonly host?: string };
