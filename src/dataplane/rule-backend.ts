// Selects one of the two renderers for packet-filter rules: what managers write to, and the reconcilers that program it.
import type { IpsetStore, IptablesStore, IptablesVariant, LegacyFingerprints, NftRuleset } from "../kernel/index.ts";
import type { IpVersion } from "../lib/ip/ip.ts";
import type { Logger } from "../lib/log/log.ts";
import { createIptablesBackend } from "./iptables/backend.ts";
import type { WatchedTable } from "./iptables/legacy-watch.ts";
import type { IptablesFeatures } from "./iptables/rule-text.ts";
import type { Reconciler, SetReconciler } from "./loop/manager.ts";
import type { DataplaneSizes, DataplaneStats } from "./loop/stats.ts";
import { createNftBackend } from "./nft/backend.ts";
import type { RulesetWatchOptions } from "./nft/ruleset-watch.ts";
import type { DataplaneParameters } from "./parameters.ts";
import type { RulesConfig } from "./rules/config.ts";
import type { RejectedItem } from "./rules/fallback/rejection-log.ts";
import type { FamilyRules, RuleTable } from "./rules/rule-table.ts";

export interface RuleBackend {
  readonly families: readonly FamilyRules[];
  readonly sets: readonly SetReconciler[];
  readonly tables: readonly Reconciler[];
  readonly chainNameLimit: number;
  /** The table for ARP packets; undefined if the kernel does not support it. */
  readonly arp?: RuleTable;
  /** Sets the devices whose established connections are offloaded. Only with nftables. */
  readonly setFlowtableDevices?: (devices: ReadonlySet<string>) => void;
  readonly size: () => Pick<DataplaneSizes, "tables" | "sets">;
  readonly rejected: () => readonly RejectedItem[];
  /** The nftables tables with rules of calico-ts; undefined if there are none. */
  readonly watched?: Pick<RulesetWatchOptions, "ruleset" | "tables" | "hooks" | "isKnown">;
  /** The legacy iptables tables, if their fingerprints can be read. */
  readonly fingerprinted?: readonly WatchedTable[];
}

export interface NftKernel {
  readonly backend: "nftables";
  readonly ruleset: NftRuleset;
}

export interface IptablesKernel {
  readonly backend: "iptables";
  readonly variant: IptablesVariant;
  readonly features: IptablesFeatures;
  readonly ipsets: IpsetStore;
  readonly iptables: (version: IpVersion) => IptablesStore;
  /** Fingerprints of the legacy variant's tables. */
  readonly fingerprints?: LegacyFingerprints;
  /** For ARP packets, which iptables does not process, and for the guard table. */
  readonly ruleset?: NftRuleset;
  /** The tables of the other variant, if it is in use. Rules there may use IP sets of calico-ts. */
  readonly otherVariant?: () => readonly IptablesStore[];
}

export type RulesKernel = NftKernel | IptablesKernel;

export interface RuleBackendOptions {
  readonly config: RulesConfig;
  readonly parameters: Pick<
    DataplaneParameters,
    | "ChainInsertMode"
    | "IptablesPostWriteCheckIntervalSecs"
    | "IptablesRefreshInterval"
    | "NftablesRefreshInterval"
    | "MaxIpsetSize"
  >;
  readonly versions: readonly IpVersion[];
  readonly logger: Logger;
  readonly deviceExists?: (name: string) => boolean;
  readonly stats?: DataplaneStats;
}

export function createRuleBackend(kernel: RulesKernel, options: RuleBackendOptions): RuleBackend {
  return kernel.backend === "nftables" ? createNftBackend(kernel, options) : createIptablesBackend(kernel, options);
}
