// Declares the settings of nftables, iptables and ipset.
import { markMask } from "./network-types.ts";
import { anyCase, choice, integer, milliseconds, regexp, seconds } from "./scalar-types.ts";
import { setting } from "./setting.ts";
import { initial } from "./value-type.ts";

const FATAL_AND_NOT_NONE = { isFatal: true, rejectsNone: true } as const;
const allowAction = anyCase("Accept", "Return");
const denyAction = anyCase("Drop", "Reject");
const FILTER_ALLOW =
  "What happens to packets that policy allows, in the filter table. Return leaves them to the rules of other programs";
const MANGLE_ALLOW = "The same in the mangle table";
const DENY = "What happens to packets that policy denies";
const MARK_MASK = "Bits of the packet mark that Felix uses; at least two";

export const netfilterSettings = {
  NFTablesMode: setting(
    "nftablesMode",
    initial(choice("Disabled", "Enabled", "Auto")),
    "Auto",
    "Write rules with nftables instead of iptables. Auto selects nftables if the kernel has all required features and kube-proxy is not in IPVS mode",
  ),
  ChainInsertMode: setting(
    "chainInsertMode",
    anyCase("Insert", "Append"),
    "Insert",
    "Whether Felix's rules are at the top or at the bottom of the kernel's iptables chains",
    FATAL_AND_NOT_NONE,
  ),
  NftablesRefreshInterval: setting(
    "nftablesRefreshInterval",
    seconds,
    "180",
    "Interval at which nftables rules are read back and repaired. 0 disables it",
  ),
  NftablesFilterAllowAction: setting(
    "nftablesFilterAllowAction",
    allowAction,
    "Accept",
    `nftables: ${FILTER_ALLOW}`,
    FATAL_AND_NOT_NONE,
  ),
  NftablesMangleAllowAction: setting(
    "nftablesMangleAllowAction",
    allowAction,
    "Accept",
    `nftables: ${MANGLE_ALLOW}`,
    FATAL_AND_NOT_NONE,
  ),
  NftablesFilterDenyAction: setting(
    "nftablesFilterDenyAction",
    denyAction,
    "Drop",
    `nftables: ${DENY}`,
    FATAL_AND_NOT_NONE,
  ),
  NftablesMarkMask: setting("nftablesMarkMask", markMask, "0xffff0000", `nftables: ${MARK_MASK}`, FATAL_AND_NOT_NONE),
  NFTablesFlowTableOffload: setting(
    "nftablesFlowTableOffload",
    initial(choice("All", "Disabled")),
    "Disabled",
    "Forward packets of established connections through a flowtable, past all rules",
  ),
  NFTablesFlowTableDataIfacePattern: setting(
    "nftablesFlowTableDataIfacePattern",
    regexp,
    "",
    "Interfaces of the host that take part in the flowtable, besides those of workloads",
  ),
  IptablesBackend: setting(
    "iptablesBackend",
    choice("Legacy", "NFT", "Auto"),
    "Auto",
    "Variant of iptables. Auto selects the one that the host uses",
  ),
  IptablesRefreshInterval: setting(
    "iptablesRefreshInterval",
    seconds,
    "180",
    "Interval at which iptables rules are read back and repaired. 0 disables it",
  ),
  IptablesPostWriteCheckIntervalSecs: setting(
    "iptablesPostWriteCheckInterval",
    seconds,
    "5",
    "Time after a write at which iptables rules are read back and repaired",
  ),
  IptablesLockProbeIntervalMillis: setting(
    "iptablesLockProbeInterval",
    milliseconds,
    "50",
    "Interval between attempts to take the iptables lock",
  ),
  IptablesFilterAllowAction: setting(
    "iptablesFilterAllowAction",
    allowAction,
    "Accept",
    `iptables: ${FILTER_ALLOW}`,
    FATAL_AND_NOT_NONE,
  ),
  IptablesMangleAllowAction: setting(
    "iptablesMangleAllowAction",
    allowAction,
    "Accept",
    `iptables: ${MANGLE_ALLOW}`,
    FATAL_AND_NOT_NONE,
  ),
  IptablesFilterDenyAction: setting(
    "iptablesFilterDenyAction",
    denyAction,
    "Drop",
    `iptables: ${DENY}`,
    FATAL_AND_NOT_NONE,
  ),
  IptablesMarkMask: setting("iptablesMarkMask", markMask, "0xffff0000", `iptables: ${MARK_MASK}`, FATAL_AND_NOT_NONE),
  IpsetsRefreshInterval: setting(
    "ipsetsRefreshInterval",
    seconds,
    "90",
    "Interval at which IP sets are read back and repaired. 0 disables it",
  ),
  MaxIpsetSize: setting("maxIpsetSize", integer(), "1048576", "Largest number of members of an ipset", {
    rejectsNone: true,
  }),
};
