// Builds the nftables renderer: one table per IP family, one for ARP, and the guard table, all in one transaction.
import { NFT_CHAIN_LENGTH } from "../rules/names.ts";
import { TABLE_NAMES, type TableName } from "../rules/rule.ts";
import type { NftKernel, RuleBackend, RuleBackendOptions } from "../rule-backend.ts";
import { createArpTable } from "./arp-table.ts";
import { BASE_CHAINS } from "./base-chains.ts";
import { createGuardTable, GUARD_HOOK } from "./guard-table.ts";
import { NftTable } from "./nft-table.ts";
import { NftTables } from "./nft-tables.ts";
import { nftChainName } from "./render.ts";

/** Chain names have a prefix; `filter-` is one of the longest. */
const CHAIN_NAME_LIMIT = NFT_CHAIN_LENGTH - "filter-".length - 1;

/** The tables whose rules drop packets. Lost nat rules are found by the regular refresh, which is early enough. */
export const FILTERING_TABLES: readonly TableName[] = TABLE_NAMES.filter((tableName) => tableName !== "nat");

export function createNftBackend({ ruleset }: NftKernel, options: RuleBackendOptions): RuleBackend {
  const { config, versions, logger, parameters, stats, deviceExists = () => true } = options;
  const families = versions.map((version) => new NftTable(version, config, { deviceExists }));
  const arp = createArpTable(config, ruleset);
  const measured = arp === undefined ? families : [...families, arp];
  const all = [...measured, createGuardTable({ config, isIpv6Supported: versions.includes(6) })];
  const tables = new NftTables({
    tables: all,
    ruleset,
    logger,
    refreshMs: parameters.NftablesRefreshInterval * 1000,
    onCommit: (ok) => stats?.onNft(ok),
    onRead: (ok) => stats?.onNftList(ok),
  });
  const familyHooks = families.flatMap(({ ref }) =>
    FILTERING_TABLES.flatMap((tableName) =>
      Object.keys(BASE_CHAINS[tableName]).map((name) => ({ table: ref, chain: nftChainName(tableName, name) })),
    ),
  );
  return {
    families,
    sets: [],
    tables: [tables],
    chainNameLimit: CHAIN_NAME_LIMIT,
    arp: arp?.tables.filter,
    setFlowtableDevices: (devices) => {
      for (const family of families) family.setFlowtableDevices(devices);
    },
    size: () => ({
      tables: measured.map((table) => ({ ...table.size, version: table === arp ? "arp" : table.version })),
      sets: families.map((family) => ({ version: family.version, ours: family.size.sets })),
    }),
    rejected: () => tables.rejected(),
    watched: {
      ruleset,
      tables: all.map(({ ref }) => ref),
      hooks: [...familyHooks, GUARD_HOOK],
      isKnown: (generation) => tables.isKnown(generation),
    },
  };
}
