// One nftables table of calico-ts. It contains the chains of all four iptables tables (raw, mangle, nat, filter), which are
// distinguished by a prefix, and the verdict maps, sets and flowtable. It compares the desired state with the kernel's, and
// returns the difference as changes of one transaction.
import {
  type DumpedChain,
  type SetElement,
  type DumpedFlowtable,
  type DumpedRule,
  type DumpedSet,
  keyTypeId,
  type NftChange,
  type TableRef,
} from "../../kernel/index.ts";
import type { IpVersion } from "../../lib/ip/ip.ts";
import { FLOWTABLE, type RulesConfig } from "../rules/config.ts";
import type { DesiredChains } from "../rules/desired-chains.ts";
import type { RuleTable, RuleTables, FamilyRules } from "../rules/rule-table.ts";
import { type Chain, type TableName, TABLE_NAMES } from "../rules/rule.ts";
import { BASE_CHAINS, type BaseChains } from "./base-chains.ts";
import { Flowtable } from "./flowtable.ts";
import { NftSets, type ReadOptions } from "./nft-sets.ts";
import { changesIn } from "./phases.ts";
import { nftChainName } from "./render.ts";
import { PORTS_SET, PORTS_TYPE, RulePorts } from "./rule-ports.ts";
import { TableChains } from "./table-chains.ts";
import { VerdictMaps } from "./verdict-maps.ts";

export interface NftTableOptions {
  /** By default the table `calico` of the IP family. */
  readonly ref?: TableRef;
  /** By default the hooks and priorities of Calico. */
  readonly bases?: BaseChains;
  readonly deviceExists?: (name: string) => boolean;
}

/** The content of the table in the kernel. */
export interface DumpedTableContent {
  /** A dormant table exists, but the kernel passes no packets to it. */
  readonly table: "absent" | "dormant" | "present";
  readonly chains: readonly DumpedChain[];
  readonly rules: readonly DumpedRule[];
  readonly sets: readonly DumpedSet[];
  readonly elementsOf: (set: string) => readonly SetElement[];
  readonly flowtables?: readonly DumpedFlowtable[];
  readonly options?: ReadOptions;
}

export const ABSENT_TABLE: DumpedTableContent = {
  table: "absent",
  chains: [],
  rules: [],
  sets: [],
  elementsOf: () => [],
};

export class NftTable implements FamilyRules {
  readonly version: IpVersion;
  readonly ref: TableRef;
  readonly tables: RuleTables;
  readonly sets: NftSets;
  readonly #config: RulesConfig;
  readonly #chains: TableChains;
  readonly #maps: VerdictMaps;
  readonly #ports: RulePorts;
  readonly #flowtable: Flowtable;
  /** False if the table is absent or dormant. */
  #isActive = false;
  #isAbsent = false;

  constructor(version: IpVersion, config: RulesConfig, options: NftTableOptions = {}) {
    this.version = version;
    this.#config = config;
    this.ref = options.ref ?? { family: version === 4 ? "ip" : "ip6", name: "calico" };
    this.sets = new NftSets(version, this.ref, (set) => this.#chains.rewriteUsersOf(set));
    this.#maps = new VerdictMaps(this.ref);
    this.#ports = new RulePorts(this.ref);
    this.#chains = new TableChains({
      table: this.ref,
      bases: options.bases ?? BASE_CHAINS,
      ports: this.#ports,
      renderContext: (tableName) => ({ config, version, tableName, setName: (set) => this.sets.nameOf(set) }),
    });
    this.#flowtable = new Flowtable(this.ref, FLOWTABLE, options.deviceExists ?? (() => true));
    if (config.flowtable !== undefined && options.ref === undefined) this.#flowtable.set(new Set());
    this.tables = Object.fromEntries(
      TABLE_NAMES.map((tableName) => [tableName, this.#tableName(tableName)]),
    ) as unknown as RuleTables;
  }

  get desired(): DesiredChains {
    return this.#chains.desired;
  }

  get #parts() {
    return [this.#chains, this.#ports, this.sets, this.#maps, this.#flowtable] as const;
  }

  get hasChanges(): boolean {
    return !this.#isActive || this.#parts.some((part) => part.hasChanges);
  }

  /** The number of objects in the kernel, for the metrics. */
  get size(): { readonly chains: number; readonly rules: number; readonly sets: number } {
    return { ...this.#chains.size, sets: this.sets.count };
  }

  // --- desired state -------------------------------------------------------------------------------------------------

  #tableName(tableName: TableName): RuleTable {
    return {
      tableName,
      version: this.version,
      setChain: (chain) => this.#setChain(tableName, chain),
      removeChain: (name) => this.#removeChain(nftChainName(tableName, name)),
      isNeeded: (name) => this.desired.isNeeded(nftChainName(tableName, name)),
      setHook: (kernelChain, place, rules) => this.#chains.setHook(tableName, kernelChain, place, rules),
    };
  }

  #setChain(tableName: TableName, chain: Chain): void {
    const name = nftChainName(tableName, chain.name);
    if (chain.kind === "dispatch")
      this.#maps.set(name, new Map([...chain.targets].map(([key, target]) => [key, nftChainName(tableName, target)])));
    else this.#maps.clear(name);
    this.desired.set(tableName, chain);
  }

  #removeChain(name: string): void {
    if (this.desired.remove(name)) this.#maps.remove(name);
  }

  /** Sets the devices whose established connections are offloaded, if that is configured. */
  setFlowtableDevices(devices: ReadonlySet<string>): void {
    if (this.#config.flowtable !== undefined) this.#flowtable.set(devices);
  }

  // --- rules and sets that the kernel rejects ----------------------------------------------------------------------------

  /**
   * Replaces all rules that use a set that the kernel rejected.
   * @returns false if this table has no such set, or it is already marked
   */
  markSetRejected(name: string): boolean {
    const id = this.sets.markRejected(name);
    if (id !== undefined) this.desired.addRejectedSet(id);
    return id !== undefined;
  }

  /** The kernel names of the rejected sets. */
  rejectedSets(): string[] {
    return [...this.desired.rejectedSets].map((set) => this.sets.nameOf(set));
  }

  /** Restores all rejected rules and sets, so that the next commit tries them again. */
  clearFallbacks(): void {
    this.desired.clearRuleFallbacks();
    this.desired.clearRejectedSets();
    this.sets.clearRejected();
  }

  // --- kernel state --------------------------------------------------------------------------------------------------

  /** Records the content of the table in the kernel. */
  found(kernel: DumpedTableContent): void {
    this.#isAbsent = kernel.table === "absent";
    this.#isActive = kernel.table === "present"; // adding a dormant table activates it
    this.#flowtable.found(kernel.flowtables?.find(({ name }) => name === FLOWTABLE)?.devices);
    this.#foundPorts(kernel);
    this.#chains.found(kernel.chains, kernel.rules);
    const named = kernel.sets.filter((set) => (set.flags & NFT_SET_ANONYMOUS) === 0 && set.name !== PORTS_SET);
    this.sets.found(named, kernel.elementsOf, kernel.options);
    this.#maps.found(
      named.filter((set) => (set.flags & NFT_SET_MAP) !== 0),
      kernel.elementsOf,
    );
    this.#chains.compare();
  }

  #foundPorts(kernel: DumpedTableContent): void {
    const set = kernel.sets.find(({ name }) => name === PORTS_SET);
    if (set === undefined) return this.#ports.found(undefined);
    const isUsable = set.keyType === keyTypeId(PORTS_TYPE.key) && (set.flags & (NFT_SET_INTERVAL | NFT_SET_MAP)) === 0;
    this.#ports.found(isUsable ? kernel.elementsOf(PORTS_SET) : "misfit");
  }

  // --- the difference ----------------------------------------------------------------------------------------------------

  /** @param options.anew deletes the table and creates it again, in one transaction */
  changes(options: { readonly anew?: boolean } = {}): NftChange[] {
    const { inactive, active } = this.changesByEffect(options);
    return [...inactive, ...active];
  }

  /** True if the kernel does not have the table. Then changes have no effect on packets until base chains are created. */
  get isAbsent(): boolean {
    return this.#isAbsent;
  }

  /**
   * Returns the changes in two lists. If the table is absent, only the second one has an effect on packets: the first one
   * may be committed before, in several transactions.
   */
  changesByEffect(options: { readonly anew?: boolean } = {}): { inactive: NftChange[]; active: NftChange[] } {
    const table = this.ref;
    const start: NftChange[] = [];
    if (options.anew === true) {
      start.push({ op: "destroyTable", table });
      this.found(ABSENT_TABLE);
    }
    if (!this.hasChanges) return { inactive: start, active: [] };
    if (!this.#isActive) start.push({ op: "addTable", table });
    this.sets.renameUsers();
    this.#chains.compare();
    const parts = this.#parts.map((part) => part.changes());
    return {
      inactive: [...start, ...changesIn(parts, ["release", "create", "fill"])],
      active: changesIn(parts, ["activate", "remove"]),
    };
  }

  /** Must be called after the changes were committed. */
  committed(): void {
    this.#isActive = true;
    this.#isAbsent = false;
    for (const part of this.#parts) part.committed();
  }
}

const NFT_SET_ANONYMOUS = 1;
const NFT_SET_INTERVAL = 4;
const NFT_SET_MAP = 8;
