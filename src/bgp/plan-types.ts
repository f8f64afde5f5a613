// Defines the BGP plan of a node: its sessions, the routes it announces, and the routes it programs into the kernel. Operators
// see the field names in `calicoctl bgp plan -o json`.
import type { Cidr, IpAddress, IpVersion } from "../lib/ip/ip.ts";
import type { Problem } from "./state.ts";

export type PerFamily<T> = Readonly<Record<IpVersion, T>>;
export type DebugSetting = "off" | "all" | readonly string[];

export interface FilterCall {
  readonly function: string;
  /** The argument of functions with `takesPeerType`. */
  readonly sameAs?: boolean;
}

export interface PlannedPeer {
  readonly family: IpVersion;
  /** Name of the BIRD protocol. */
  readonly name: string;
  readonly kind: "mesh" | "global" | "node" | "localWorkload";
  readonly neighbor: IpAddress;
  readonly port: number | null;
  readonly remoteAs: number;
  /** Set if it differs from the node's. */
  readonly localAs: number | null;
  readonly sourceAddress: string | null;
  readonly multihop: true | number;
  readonly ttlSecurity: number | null;
  readonly importFilters: readonly FilterCall[];
  readonly import: {
    readonly preferWhenLocalPrefAbove: number;
    readonly preference: 200;
    readonly otherwise: "accept";
  };
  readonly exportFilters: readonly FilterCall[];
  readonly export: { readonly defaultMetric: number; readonly sameAs: boolean; readonly otherwise: "reject" };
  readonly passive: boolean;
  readonly gracefulRestart: { readonly mode: "on"; readonly timeSeconds: number | null };
  readonly keepaliveSeconds: number | null;
  readonly routeReflectorClient: boolean;
  readonly rrClusterId: string | null;
  /** `secret/key`, never the password itself. */
  readonly password: string | null;
  readonly nextHop: "default" | "self" | "keep";
  readonly numAllowLocalAs: number | null;
  readonly addPaths: true;
  /** The resource that defines this session. */
  readonly because: string;
}

export interface FilterRule {
  readonly peerType?: "eBGP" | "iBGP";
  readonly operator?: "Equal" | "NotEqual" | "In" | "NotIn";
  readonly cidr?: Cidr;
  readonly prefixLength?: { readonly min: number; readonly max: number };
  readonly source?: "RemotePeers";
  readonly interface?: string;
  readonly community?: string;
  readonly asPathPrefix?: readonly number[];
  readonly localPref?: number;
  readonly action: "accept" | "reject";
  readonly operations?: readonly FilterOperation[];
}
export type FilterOperation =
  | { readonly addCommunity: string }
  | { readonly prependAs: number }
  | { readonly setLocalPref: number };

export interface FilterFunction {
  readonly function: string;
  readonly name: string;
  readonly direction: "import" | "export";
  readonly family: IpVersion;
  readonly takesPeerType: boolean;
  readonly rules: readonly FilterRule[];
}

/** Steps are evaluated in order; the first accept or reject is final. */
export type RouteStep =
  | { readonly within: string; readonly action: "accept" | "reject" }
  | { readonly nextHop: IpAddress; readonly action: "reject" }
  | { readonly interface: readonly string[]; readonly onlyWhen?: "sameAs"; readonly action: "reject" }
  | { readonly step: "communities" | "aggregation" }
  | {
      readonly step: "metric";
      readonly default: number;
      readonly preferWhenMetricBelow: number;
      readonly preference: 200;
    }
  | { readonly action: "accept" };

export interface BgpPlan {
  readonly node: string;
  /** Families this node has an address of. */
  readonly families: readonly IpVersion[];
  readonly routerId: string;
  readonly localAs: number | null;
  readonly listenPort: number | null;
  readonly listenAddress: PerFamily<string | null>;
  readonly interfaces: { readonly ignored: readonly string[]; readonly watched: readonly string[] };
  readonly debug: { readonly interfaces: DebugSetting; readonly peers: DebugSetting };
  readonly peers: readonly PlannedPeer[];
  readonly staticBlackholes: readonly string[];
  readonly staticRoutes: readonly { readonly prefix: Cidr; readonly via: IpAddress }[];
  readonly staticProtocol: PerFamily<boolean>;
  readonly aggregation: readonly { readonly block: Cidr; readonly insideAcceptedWhenMetricBelow: number }[];
  readonly communities: readonly { readonly within: Cidr; readonly add: readonly string[] }[];
  readonly kernelExport: PerFamily<readonly RouteStep[]>;
  readonly bgpExport: PerFamily<readonly RouteStep[]>;
  readonly bgpFilters: readonly FilterFunction[];
  /** Objects that were left out or changed, and why. */
  readonly problems: readonly Problem[];
}
