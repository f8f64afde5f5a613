// What the rules depend on besides messages. Filled once at start from the configuration; a change restarts the agent.
import type { Cidr, IpAddress, IpVersion } from "../../lib/ip.ts";
import type { Marks } from "./marks.ts";
import type { PortRange } from "./rule.ts";

export interface FailsafePort {
  readonly protocol: "tcp" | "udp" | "sctp";
  readonly port: number;
  /** Only from (in) or to (out) here; absent = anywhere. */
  readonly net?: Cidr;
}

export interface RulesConfig {
  /** Interfaces that begin like this are workloads. */
  readonly workloadPrefixes: readonly string[];
  readonly marks: Marks;
  /** What becomes of a packet that policy accepted: final, or left to the rules after ours. */
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
  /** A trailing `+` or `*` stands for any ending. */
  readonly natOutgoingInterface?: string;
  readonly natExcludesHosts: boolean;
  readonly serviceLoop: "drop" | "reject" | "disabled";
  readonly openstack?: { readonly metadataAddress?: IpAddress; readonly metadataPort: number };
  readonly istioDscp?: number;
  readonly logPrefix: string;
  /** Such as `5/minute`; absent = every packet. */
  readonly logRate?: string;
  readonly logBurst: number;
  readonly flowLogs: boolean;
  readonly ipvs: boolean;
  readonly nodePortRanges: readonly PortRange[];
  /** The agent's own health port: a `*` host endpoint must not cut it off on the loopback interface. */
  readonly healthPort?: number;
  /** Offload of established flows, nftables only. */
  readonly flowtable?: string;
}

/** `cali*`: how a workload prefix is matched. */
export const workloadPatterns = (config: RulesConfig): readonly string[] =>
  config.workloadPrefixes.map((prefix) => `${prefix}*`);

export const isWorkloadInterface = (config: Pick<RulesConfig, "workloadPrefixes">, name: string): boolean =>
  config.workloadPrefixes.some((prefix) => name.startsWith(prefix));

export const vxlanEnabledFor = (config: RulesConfig, version: IpVersion): boolean =>
  version === 4 ? config.vxlanEnabled : config.vxlanEnabledV6;

/** The name of the flowtable, in each family's table. */
export const FLOWTABLE = "calico";

/** Ids of the sets that no policy asks for. */
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
