// Builds the iptables renderer: four tables and the IP sets per IP family. ARP rules and, if the kernel accepts it, the guard
// table use nftables.
import { GUARD_TABLE, type TableRef } from "../../kernel/index.ts";
import type { IpVersion } from "../../lib/ip/ip.ts";
import type { Reconciler } from "../loop/manager.ts";
import { createArpTable } from "../nft/arp-table.ts";
import { FILTERING_TABLES } from "../nft/backend.ts";
import { BASE_CHAINS } from "../nft/base-chains.ts";
import { acceptsGuard, createGuardTable, GUARD_HOOK, GuardReconciler } from "../nft/guard-table.ts";
import { NftTables } from "../nft/nft-tables.ts";
import type { WatchedHook } from "../nft/ruleset-watch.ts";
import { installGuard } from "../rules/guard-chains.ts";
import { IPTABLES_CHAIN_LENGTH } from "../rules/names.ts";
import { TABLE_NAMES, type TableName } from "../rules/rule.ts";
import type { FamilyRules } from "../rules/rule-table.ts";
import type { IptablesKernel, RuleBackend, RuleBackendOptions } from "../rule-backend.ts";
import { ForeignWrites } from "./foreign-writes.ts";
import { IpsetSets } from "./ipset-sets.ts";
import { IptablesTable, type IptablesTableOptions } from "./iptables-table.ts";
import { OptionalTable } from "./optional-table.ts";
import { rulesUsing } from "./set-users.ts";

/** Rules of old Calico versions, which have no hash in their comment. */
const OLD_NAT_RULE =
  /^-A POSTROUTING (?:.* felix-masq-ipam-pools .*|-o tunl0 -m addrtype ! --src-type LOCAL --limit-iface-out -m addrtype --src-type LOCAL -j MASQUERADE)/;

/** The rules of one family, with their reconcilers. */
interface IptablesFamily extends FamilyRules {
  readonly sets: IpsetSets;
  readonly tables: Readonly<Record<TableName, IptablesTable>>;
}

export function createIptablesBackend(kernel: IptablesKernel, options: RuleBackendOptions): RuleBackend {
  const { config, versions, logger, parameters } = options;
  const { ruleset, fingerprints } = kernel;
  const isNftVariant = kernel.variant === "nft";
  const foreign = isNftVariant && ruleset !== undefined ? new ForeignWrites(() => ruleset.generation()) : undefined;
  const families = versions.map((version) => createFamily(kernel, options, version, foreign));
  const written = families.flatMap(({ tables }) => TABLE_NAMES.map((tableName) => tables[tableName]));
  const sets = families.map((family) => family.sets);
  const tables: Reconciler[] = [...written];

  const refreshMs = parameters.NftablesRefreshInterval * 1000;
  const onCommit = (ok: boolean) => {
    if (ok) foreign?.countOwnWrite();
  };
  const arp = ruleset === undefined ? undefined : createArpTable(config, ruleset);
  if (ruleset !== undefined && arp !== undefined)
    tables.push(new NftTables({ tables: [arp], ruleset, logger, refreshMs, isOptional: true, onCommit }));

  const guard = { config, isIpv6Supported: versions.includes(6) };
  const hasGuardTable = ruleset !== undefined && acceptsGuard(ruleset, guard);
  if (hasGuardTable)
    tables.push(new GuardReconciler(createGuardTable(guard), { ruleset, logger, refreshMs, onCommit }));
  else {
    // mangle has a hook for each direction, and calico-ts has no other rules in these hooks.
    for (const family of families) installGuard(family.tables.mangle, { ...guard, family: family.version });
    if (!guard.isIpv6Supported) {
      const table = new IptablesTable(tableOptions(kernel, options, 6, "mangle"));
      installGuard(table, { ...guard, family: 6 });
      tables.push(new OptionalTable(table, logger));
    }
  }
  const watchedTables = [
    ...(isNftVariant ? versions.flatMap(sharedTables) : []),
    ...(hasGuardTable ? [GUARD_TABLE] : []),
  ];
  const watchedHooks = [...(isNftVariant ? versions.flatMap(sharedHooks) : []), ...(hasGuardTable ? [GUARD_HOOK] : [])];
  const isKnown = isNftVariant ? noForeignWrites(foreign) : undefined;
  return {
    families,
    sets,
    tables,
    chainNameLimit: IPTABLES_CHAIN_LENGTH,
    arp: arp?.tables.filter,
    size: () => ({
      tables: written.map(({ version, tableName, size }) => ({ version, table: tableName, ...size })),
      sets: sets.map(({ version, count }) => ({ version, ours: count })),
    }),
    rejected: () => [...sets.flatMap((set) => set.rejected()), ...written.flatMap((table) => table.rejected())],
    watched:
      ruleset === undefined || watchedTables.length === 0
        ? undefined
        : { ruleset, tables: watchedTables, hooks: watchedHooks, isKnown },
    fingerprinted: fingerprints === undefined ? undefined : written,
  };
}

function createFamily(
  kernel: IptablesKernel,
  options: RuleBackendOptions,
  version: IpVersion,
  foreign: ForeignWrites | undefined,
): IptablesFamily {
  const { logger, parameters, stats } = options;
  const allStores = () => [...([4, 6] as const).map(kernel.iptables), ...(kernel.otherVariant?.() ?? [])];
  const tables: IptablesTable[] = [];
  const sets = new IpsetSets({
    version,
    store: kernel.ipsets,
    maxElements: parameters.MaxIpsetSize,
    logger,
    onRename: (id) => {
      for (const table of tables) table.renameSet(id);
    },
    onSetRejected: (id, isRejected) => {
      for (const table of tables) table.setSetRejected(id, isRejected);
    },
    findUsers: async (name, signal) => rulesUsing(name, allStores(), signal),
    onCall: stats === undefined ? undefined : (ok, lines) => stats.onIpset(ok, lines),
  });
  // A program that removed the rules may also have replaced their sets by sets of another type. That can only be corrected
  // while no rule uses the sets, so before the rules are restored.
  const checkSets = async (signal: AbortSignal): Promise<void> => {
    sets.queueResync();
    await sets.apply(signal);
  };
  const store = kernel.iptables(version);
  const { fingerprints } = kernel;
  const entries = TABLE_NAMES.map((tableName) => {
    const base = tableOptions(kernel, options, version, tableName);
    const table = new IptablesTable({
      ...base,
      store: stats?.timed(store) ?? store,
      context: { ...base.context, setName: (id) => sets.kernelName(id) },
      insertMode: parameters.ChainInsertMode === "Append" ? "append" : "insert",
      beforeRepair: checkSets,
      oldRule: tableName === "nat" ? OLD_NAT_RULE : undefined,
      foreign,
      fingerprint: fingerprints === undefined ? undefined : () => fingerprints.fingerprint(version, tableName),
      onCall:
        stats === undefined
          ? undefined
          : (action, ok, lines) => stats.onIptables(version, tableName, action, ok, lines),
    });
    tables.push(table);
    return [tableName, table] as const;
  });
  return { version, tables: Object.fromEntries(entries) as unknown as IptablesFamily["tables"], sets };
}

function tableOptions(
  kernel: IptablesKernel,
  { config, logger, parameters }: RuleBackendOptions,
  version: IpVersion,
  tableName: TableName,
): IptablesTableOptions {
  return {
    tableName,
    store: kernel.iptables(version),
    context: { config, version, tableName, features: kernel.features },
    insertMode: "insert",
    logger,
    postWriteMs: parameters.IptablesPostWriteCheckIntervalSecs * 1000,
    refreshMs: parameters.IptablesRefreshInterval * 1000,
  };
}

/** Returns a function that reports whether no other program has written since its last call. */
function noForeignWrites(foreign: ForeignWrites | undefined): () => boolean {
  let lastEpoch: number | undefined;
  return () => {
    if (foreign === undefined || foreign.isWriting) return false; // not known during a write
    const epoch = foreign.epoch();
    const isSame = epoch === lastEpoch;
    lastEpoch = epoch;
    return isSame;
  };
}

/** The tables that the nft variant of iptables uses, together with other programs. */
const sharedTables = (version: IpVersion): TableRef[] =>
  TABLE_NAMES.map((name) => ({ family: version === 4 ? "ip" : "ip6", name }));

const sharedHooks = (version: IpVersion): WatchedHook[] =>
  FILTERING_TABLES.flatMap((name) => {
    const table = { family: version === 4 ? "ip" : "ip6", name } as const;
    return Object.keys(BASE_CHAINS[name]).map((chain) => ({ table, chain }));
  });
