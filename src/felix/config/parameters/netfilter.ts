// iptables, nftables, XDP.
// Columns: type, default, meaning, flags (L local only, D a bad value is fatal, N refuses `none`, ! applied live).
import { row } from "../parameter.ts";
import {
  choice,
  flag,
  integer,
  interfaceName,
  markMask,
  milliseconds,
  portRanges,
  regexp,
  seconds,
} from "../value-types.ts";

export const netfilterParameters = {
  // --- iptables, nftables, XDP, Windows ---
  IptablesBackend: row(choice("legacy", "nft", "auto"), "auto", "iptables variant"),
  IptablesRefreshInterval: row(seconds, "180", "recheck; 0 off"),
  IptablesPostWriteCheckIntervalSecs: row(seconds, "5", "recheck after write"),
  IptablesLockProbeIntervalMillis: row(milliseconds, "50", "xtables lock poll"),
  IptablesFilterAllowAction: row(choice("ACCEPT", "RETURN"), "ACCEPT", "on policy allow (filter)", "DN"),
  IptablesMangleAllowAction: row(choice("ACCEPT", "RETURN"), "ACCEPT", "on allow (mangle)", "DN"),
  IptablesFilterDenyAction: row(choice("DROP", "REJECT"), "DROP", "on deny", "DN"),
  IptablesMarkMask: row(markMask, "0xffff0000", "mark bits; ≥2 set", "DN"),
  IptablesNATOutgoingInterfaceFilter: row(interfaceName, "", "only SNAT out these ifaces"),
  IpsetsRefreshInterval: row(seconds, "90", "ipset recheck; 0 off"),
  MaxIpsetSize: row(integer(), "1048576", "ipset maxelem", "N"),
  KubeNodePortRanges: row(portRanges, "30000:32767", "nodeport ranges (IPVS)"),
  NFTablesMode: row(choice("Enabled", "Disabled", "Auto"), "Auto", "Auto follows kube-proxy"),
  NFTablesFlowTableOffload: row(choice("All", "Disabled"), "Disabled", "flowtable offload"),
  NFTablesFlowTableDataIfacePattern: row(regexp, "", "host ifaces in flowtable"),
  NftablesRefreshInterval: row(seconds, "180", "recheck"),
  NftablesFilterAllowAction: row(choice("ACCEPT", "RETURN"), "ACCEPT", "as iptables", "DN"),
  NftablesMangleAllowAction: row(choice("ACCEPT", "RETURN"), "ACCEPT", "as iptables", "DN"),
  NftablesFilterDenyAction: row(choice("DROP", "REJECT"), "DROP", "as iptables", "DN"),
  NftablesMarkMask: row(markMask, "0xffff0000", "as iptables", "DN"),
  XDPEnabled: row(flag, "true", "XDP for untracked deny"),
  GenericXDPEnabled: row(flag, "false", "allow generic XDP"),
  XDPRefreshInterval: row(seconds, "90", "XDP recheck; 0 off"),
  WindowsManageFirewallRules: row(choice("Enabled", "Disabled"), "Disabled", "open metrics port"),
} as const;
