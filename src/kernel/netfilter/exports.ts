// The exports of this folder that other modules use.
export { hasNftablesPolicy, hasPolicyRules } from "./detect-policy-rules.ts";
export {
  writeGuardFileAtStart,
  DEFAULT_NODENAME_FILE,
  readGuardFile,
  writeGuardFileAfterRules,
  withdrawGuard,
} from "./guard-file.ts";
export { closeWorkloads, GUARD_HOOKS, GUARD_TABLE, type GuardState, guardState } from "./guard-table.ts";
export {
  type IpsetChange,
  IpsetError,
  Ipsets,
  type IpsetStore,
  type ListedIpset,
} from "./ipset.ts";
export type { IpsetType } from "./ipset-member.ts";
export {
  findIptablesProgram,
  Iptables,
  IptablesError,
  type IptablesStore,
  type IptablesTable,
  type IptablesVariant,
  legacyTableNamesPath,
  runTool,
} from "./iptables.ts";
export { type LegacyFingerprints, LegacyTableFingerprints } from "./legacy-tables.ts";
export { Nft, NftError, type NftRuleset } from "./nft.ts";
export {
  type BaseChain,
  type ElementList,
  type NftChange,
  type RuleBody,
  type TableRef,
} from "./nft-change.ts";
export type { DumpedChain, DumpedFlowtable, DumpedRule, DumpedSet, DumpedTable } from "./nft-dump.ts";
export type { Expression } from "./nft-expression.ts";
export * as nftMatch from "./nft-match.ts";
export * from "./nft-set.ts";
