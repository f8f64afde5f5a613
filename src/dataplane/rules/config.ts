// The configuration of the rules. It is fixed at start; Felix restarts when it changes.
import type { IpAddress, IpVersion } from "../../lib/ip/ip.ts";
import type { FailsafePort } from "../../model/index.ts";
import type { Marks } from "./marks.ts";
import type { PortRange } from "./rule.ts";

export interface RulesConfig {
  /** Interfaces whose names start with one of these belong to workloads. */
  readonly workloadPrefixes: readonly string[];
  readonly marks: Marks;
  /** The action for packets that policy allows: `return` leaves the decision to later rules of other programs. */
  readonly filterAllow: "accept" | "return";
  readonly mangleAllow: "accept" | "return";
  readonly deny: "drop" | "reject";
  readonly endpointToHost: "drop" | "return" | "accept";
  readonly failsafeIn: readonly FailsafePort[];
  readonly failsafeOut: readonly FailsafePort[];
  readonly disableConntrackInvalidCheck: boolean;
  readonly allowVxlanFromWorkloads: boolean;
  readonly allowIpipFromWorkloads: boolean;
  readonly ipipEnabled: boolean;
  readonly ipipTunnelAddress?: IpAddress;
  readonly vxlanEnabled: boolean;
  readonly vxlanEnabledV6: boolean;
  readonly vxlanPort: number;
  readonly vxlanTunnelAddress?: IpAddress;
  readonly vxlanTunnelAddressV6?: IpAddress;
  readonly wireguardEnabled: boolean;
  readonly wireguardEnabledV6: boolean;
  readonly wireguardInterface: string;
  readonly wireguardInterfaceV6: string;
  readonly wireguardPort: number;
  readonly wireguardPortV6: number;
  readonly wireguardHostEncryption: boolean;
  readonly natPortRange?: PortRange;
  readonly natOutgoingAddress?: IpAddress;
  /** A trailing `+` or `*` matches any suffix. */
  readonly natOutgoingInterface?: string;
  readonly natExcludesHosts: boolean;
  readonly serviceLoop: "drop" | "reject" | "disabled";
  readonly openstack?: { readonly metadataAddress?: IpAddress; readonly metadataPort: number };
  readonly istioDscp?: number;
  readonly logPrefix: string;
  /** For example `5/minute`; undefined: every packet. */
  readonly logRate?: string;
  readonly logBurst: number;
  readonly flowLogs: boolean;
  readonly ipvs: boolean;
  readonly nodePortRanges: readonly PortRange[];
  /** Felix's health port. A host endpoint for `*` must not block it on the loopback interface. */
  readonly healthPort?: number;
  /** The flowtable for established connections; only with nftables. */
  readonly flowtable?: string;
}

/** Returns patterns such as `cali*` that match the interfaces of workloads. */
export const workloadPatterns = (config: RulesConfig): readonly string[] =>
  config.workloadPrefixes.map((prefix) => `${prefix}*`);

export const isWorkloadInterface = (config: Pick<RulesConfig, "workloadPrefixes">, name: string): boolean =>
  config.workloadPrefixes.some((prefix) => name.startsWith(prefix));

export const vxlanEnabledFor = (config: RulesConfig, version: IpVersion): boolean =>
  version === 4 ? config.vxlanEnabled : config.vxlanEnabledV6;

/** The name of the flowtable, in each family's table. */
export const FLOWTABLE = "calico";

/** Ids of the sets that do not come from policies. */
export const SET = {
  masqueradePools: "masq-ipam-pools",
  allPools: "network-ip-pools",
  allHosts: "all-hosts-net",
  vxlanHosts: "all-vxlan-net",
  thisHost: "this-host",
  dscpSources: "dscp-src-net",
  noOffload: "no-flow-offload",
  istio: "all-istio-weps",
} as const;
