// The planes managers write rules to, and the reconcilers behind them, for one of the two renderers.
import {
  GUARD_TABLE,
  type IpsetStore,
  type IptablesStore,
  type IptablesVariant,
  type LegacyOutlines,
  type NftRuleset,
  type TableRef,
} from "../kernel/index.ts";
import type { IpVersion } from "../lib/ip.ts";
import type { Logger } from "../lib/log.ts";
import { ForeignWrites } from "./iptables/foreign-writes.ts";
import { IpsetSets } from "./iptables/ipset-sets.ts";
import { IptablesTable } from "./iptables/iptables-table.ts";
import type { WatchedTable } from "./iptables/legacy-watch.ts";
import { OptionalTable } from "./iptables/optional-table.ts";
import { rulesNaming } from "./iptables/set-users.ts";
import type { IptablesFeatures } from "./iptables/text.ts";
import type { Reconciler, SetReconciler } from "./manager.ts";
import { BASE_CHAINS } from "./nft/base-chains.ts";
import { acceptsGuard, GuardTable, guardPlane } from "./nft/guard-plane.ts";
import { nftChainName } from "./nft/render.ts";
import type { RulesetWatchOptions, WatchedHook } from "./nft/ruleset-watch.ts";
import { NftPlane } from "./nft/nft-plane.ts";
import { NftTables } from "./nft/nft-tables.ts";
import { hasArpTables } from "./nft/probe.ts";
import type { DataplaneParameters } from "./parameters.ts";
import type { RulesConfig } from "./rules/config.ts";
import { installGuard } from "./rules/guard-chains.ts";
import type { LayerTable, LayerTables, RulePlane } from "./rules/layer-table.ts";
import { IPTABLES_CHAIN_LENGTH, NFT_CHAIN_LENGTH } from "./rules/names.ts";
import type { Refused } from "./rules/refused.ts";
import { LAYERS } from "./rules/rule.ts";
import type { DataplaneSizes, DataplaneStats } from "./stats.ts";

export interface RulePlanes {
  readonly planes: readonly RulePlane[];
  readonly sets: readonly SetReconciler[];
  readonly tables: readonly Reconciler[];
  readonly chainNameLimit: number;
  /** Where ARP is looked at; not on every kernel. */
  readonly arp?: LayerTable;
  /** Devices whose established flows take the short cut, with nftables. */
  readonly setFlowtableDevices?: (devices: ReadonlySet<string>) => void;
  readonly size: () => Pick<DataplaneSizes, "tables" | "sets">;
  readonly refused: () => readonly Refused[];
  /** nftables tables that hold our rules; the legacy tools have none. */
  readonly watched?: Pick<RulesetWatchOptions, "ruleset" | "tables" | "hooks" | "isOurs">;
  /** The legacy tables that hold our rules, where the kernel tells their outlines. */
  readonly outlined?: readonly WatchedTable[];
}

export type RulesKernel =
  | { readonly backend: "nftables"; readonly ruleset: NftRuleset }
  | {
      readonly backend: "iptables";
      readonly variant: IptablesVariant;
      readonly features: IptablesFeatures;
      readonly ipsets: IpsetStore;
      readonly iptables: (version: IpVersion) => IptablesStore;
      /** Of the legacy variant's tables. */
      readonly outlines?: LegacyOutlines;
      /** For what iptables cannot see: ARP. */
      readonly ruleset?: NftRuleset;
      /** The tables of the other variant, where it is installed and in use: rules there may hold our sets. */
      readonly otherVariant?: () => readonly IptablesStore[];
    };

export interface RulePlanesOptions {
  readonly kernel: RulesKernel;
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

/** The longest layer prefix, such as `filter-`, is part of the name. */
const NFT_NAME_LIMIT = NFT_CHAIN_LENGTH - "filter-".length - 1;

export function createRulePlanes(options: RulePlanesOptions): RulePlanes {
  const { kernel } = options;
  return kernel.backend === "nftables" ? nftPlanes(options, kernel.ruleset) : iptablesPlanes(options, kernel);
}

function nftPlanes(options: RulePlanesOptions, ruleset: NftRuleset): RulePlanes {
  const { config, versions, logger, parameters, stats, deviceExists = () => true } = options;
  const planes = versions.map((version) => new NftPlane(version, config, { deviceExists }));
  const refreshMs = parameters.NftablesRefreshInterval * 1000;
  const arp = arpPlane(config, ruleset);
  const measured = arp === undefined ? planes : [...planes, arp];
  const all = [...measured, guardPlane({ config, isIpv6Supported: versions.includes(6) })];
  const tables = new NftTables({ planes: all, ruleset, logger, refreshMs, ...counted(stats) });
  return {
    planes,
    sets: [],
    watched: {
      ruleset,
      tables: all.map(({ table }) => table),
      hooks: [
        ...planes.flatMap(({ table }) =>
          DENYING_LAYERS.flatMap((layer) =>
            Object.keys(BASE_CHAINS[layer]).map((name) => ({ table, chain: nftChainName(layer, name) })),
          ),
        ),
        GUARD_HOOK,
      ],
      isOurs: (generation) => tables.isOurs(generation),
    },
    tables: [tables],
    refused: () => tables.refused(),
    chainNameLimit: NFT_NAME_LIMIT,
    setFlowtableDevices: (devices) => {
      for (const plane of planes) plane.setFlowtableDevices(devices);
    },
    size: () => ({
      tables: measured.map((plane) => ({ ...plane.size, version: plane === arp ? "arp" : plane.version })),
      sets: planes.map((plane) => ({ version: plane.version, ours: plane.size.sets })),
    }),
    ...(arp === undefined ? {} : { arp: arp.tables.filter }),
  };
}

/** Answers to ARP are nftables' in either backend. */
export const ARP_TABLE = { family: "arp", name: "calico-arp" } as const;
const counted = (stats: DataplaneStats | undefined) =>
  stats === undefined
    ? {}
    : { onCommit: (ok: boolean) => stats.onNft(ok), onRead: (ok: boolean) => stats.onNftList(ok) };

function arpPlane(config: RulesConfig, ruleset: NftRuleset): NftPlane | undefined {
  return hasArpTables(ruleset) ? new NftPlane(4, config, { table: ARP_TABLE }) : undefined;
}

/** Rules of old versions that only their text gives away. */
const OLD_NAT_RULE =
  /^-A POSTROUTING (?:.* felix-masq-ipam-pools .*|-o tunl0 -m addrtype ! --src-type LOCAL --limit-iface-out -m addrtype --src-type LOCAL -j MASQUERADE)/;

function iptablesPlanes(options: RulePlanesOptions, kernel: RulesKernel & { backend: "iptables" }): RulePlanes {
  const { config, versions, logger, parameters, stats } = options;
  const sets: IpsetSets[] = [];
  const tables: Reconciler[] = [];
  const written: IptablesTable[] = [];
  const { ruleset, outlines } = kernel;
  const isNftVariant = kernel.variant === "nft";
  const foreign = isNftVariant && ruleset !== undefined ? new ForeignWrites(() => ruleset.generation()) : undefined;
  const everywhere = () => [...([4, 6] as const).map(kernel.iptables), ...(kernel.otherVariant?.() ?? [])];
  const planes = versions.map((version): RulePlane => {
    const store = stats?.timed(kernel.iptables(version)) ?? kernel.iptables(version);
    const ofPlane: IptablesTable[] = [];
    const set = new IpsetSets({
      version,
      store: kernel.ipsets,
      maxElements: parameters.MaxIpsetSize,
      logger,
      onRename: (id) => {
        for (const table of ofPlane) table.renameSet(id);
      },
      onAside: (id, isAside) => {
        for (const table of ofPlane) table.setSetAside(id, isAside);
      },
      whoUses: async (name, signal) => rulesNaming(name, everywhere(), signal),
      ...(stats === undefined ? {} : { onCall: (ok, lines) => stats.onIpset(ok, lines) }),
    });
    // Who took our rules away may have made the sets they name again as something else: that is mended only while no rule
    // uses them.
    const lookAtSets = async (signal: AbortSignal): Promise<void> => {
      set.queueResync();
      await set.apply(signal);
    };
    const layers = LAYERS.map((layer) => {
      const table = new IptablesTable({
        layer,
        store,
        context: { config, version, layer, features: kernel.features, setName: (id) => set.kernelName(id) },
        insertMode: parameters.ChainInsertMode === "append" ? "append" : "insert",
        logger,
        postWriteMs: parameters.IptablesPostWriteCheckIntervalSecs * 1000,
        refreshMs: parameters.IptablesRefreshInterval * 1000,
        beforeRepair: lookAtSets,
        ...(layer === "nat" ? { oldRule: OLD_NAT_RULE } : {}),
        ...(foreign === undefined ? {} : { foreign }),
        ...(outlines === undefined ? {} : { outline: () => outlines.outline(version, layer) }),
        ...(stats === undefined
          ? {}
          : { onCall: (action, ok, lines) => stats.onIptables(version, layer, action, ok, lines) }),
      });
      tables.push(table);
      written.push(table);
      ofPlane.push(table);
      return [layer, table] as const;
    });
    sets.push(set);
    return { version, tables: Object.fromEntries(layers) as unknown as LayerTables, sets: set };
  });
  const refreshMs = parameters.NftablesRefreshInterval * 1000;
  const onCommit = (ok: boolean) => {
    if (ok) foreign?.wrote();
  };
  const arp = ruleset === undefined ? undefined : arpPlane(config, ruleset);
  if (ruleset !== undefined && arp !== undefined)
    tables.push(new NftTables({ planes: [arp], ruleset, logger, refreshMs, isOptional: true, onCommit }));
  const guard = { config, isIpv6Supported: versions.includes(6) };
  const hasGuardTable = ruleset !== undefined && acceptsGuard(ruleset, guard);
  if (hasGuardTable) tables.push(new GuardTable(guardPlane(guard), { ruleset, logger, refreshMs, onCommit }));
  else {
    // Of the layers with a hook for each direction, this is the one in which the kernel's chains hold nothing of ours.
    for (const plane of planes) installGuard(plane.tables.mangle, { ...guard, family: plane.version });
    if (!guard.isIpv6Supported) {
      const { features } = kernel;
      const table = new IptablesTable({
        layer: "mangle",
        store: kernel.iptables(6),
        context: { config, version: 6, layer: "mangle", features },
        insertMode: "insert",
        logger,
        postWriteMs: parameters.IptablesPostWriteCheckIntervalSecs * 1000,
        refreshMs: parameters.IptablesRefreshInterval * 1000,
      });
      installGuard(table, { ...guard, family: 6 });
      tables.push(new OptionalTable(table, logger));
    }
  }
  return {
    planes,
    sets,
    tables,
    chainNameLimit: IPTABLES_CHAIN_LENGTH,
    ...(ruleset === undefined || !(isNftVariant || hasGuardTable)
      ? {}
      : {
          watched: {
            ruleset,
            tables: [...(isNftVariant ? versions.flatMap(sharedTables) : []), ...(hasGuardTable ? [GUARD_TABLE] : [])],
            hooks: [...(isNftVariant ? versions.flatMap(sharedHooks) : []), ...(hasGuardTable ? [GUARD_HOOK] : [])],
            ...(isNftVariant ? { isOurs: onlyOurs(foreign) } : {}),
          },
        }),
    size: () => ({
      tables: written.map(({ version, layer, size }) => ({ version, table: layer, ...size })),
      sets: sets.map(({ version, count }) => ({ version, ours: count })),
    }),
    refused: () => [...sets.flatMap((set) => set.refused()), ...written.flatMap((table) => table.refused())],
    ...(outlines === undefined ? {} : { outlined: written }),
    ...(arp === undefined ? {} : { arp: arp.tables.filter }),
  };
}

/** Where packets are stopped; of translations the planned looks are enough. */
const DENYING_LAYERS = LAYERS.filter((layer) => layer !== "nat");

/** Where the guard's table sees packets in each of its forms. */
const GUARD_HOOK: WatchedHook = { table: GUARD_TABLE, chain: nftChainName("filter", "INPUT") };

/** Tells each time it is asked whether nobody else wrote since the last. */
function onlyOurs(foreign: ForeignWrites | undefined): () => boolean {
  let known: number | undefined;
  return () => {
    if (foreign === undefined || foreign.isWriting) return false; // it will be known later
    const epoch = foreign.epoch();
    const isSame = epoch === known;
    known = epoch;
    return isSame;
  };
}

const sharedHooks = (version: IpVersion): WatchedHook[] =>
  DENYING_LAYERS.flatMap((name) => {
    const table = { family: version === 4 ? "ip" : "ip6", name } as const;
    return Object.keys(BASE_CHAINS[name]).map((chain) => ({ table, chain }));
  });

/** The tables that the nft variant of iptables keeps. */
const sharedTables = (version: IpVersion): TableRef[] =>
  LAYERS.map((name) => ({ family: version === 4 ? "ip" : "ip6", name }));
