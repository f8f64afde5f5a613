// The rules of one family in one nftables table: all four layers, the verdict maps of dispatch chains, and the sets.
// It knows what is wanted (wanted-chains.ts) and what the kernel has, and gives the difference as changes of one
// transaction.
import {
  type DumpedChain,
  type DumpedElement,
  type DumpedFlowtable,
  type DumpedRule,
  type DumpedSet,
  keyTypeId,
  nftMatch,
  type NftChange,
  type TableRef,
} from "../../kernel/index.ts";
import type { IpVersion } from "../../lib/ip.ts";
import { sameList } from "../../lib/same-list.ts";
import { FLOWTABLE, type RulesConfig } from "../rules/config.ts";
import type { LayerTable, LayerTables, RulePlane } from "../rules/layer-table.ts";
import { type Chain, type Layer, LAYERS, type Rule, type SetId } from "../rules/rule.ts";
import { type BaseChains, sameBase } from "./base-chains.ts";
import { Flowtable } from "./flowtable.ts";
import { NftSets, type ReadOptions } from "./nft-sets.ts";
import { LateRule, MAP_MARK, SharedBodies } from "./prepared-chain.ts";
import { kernelRules, nftChainName, type RenderContext } from "./render.ts";
import { PORTS_SET, PORTS_TYPE, RulePorts } from "./rule-ports.ts";
import { VerdictMap } from "./verdict-map.ts";
import { WantedChains } from "./wanted-chains.ts";

export interface NftPlaneOptions {
  /** Another than the family's own. */
  readonly table?: TableRef;
  /** Hooks and priorities other than the usual ones. */
  readonly bases?: BaseChains;
  readonly deviceExists?: (name: string) => boolean;
}

export class NftPlane implements RulePlane {
  readonly version: IpVersion;
  readonly table: TableRef;
  readonly tables: LayerTables;
  readonly sets: NftSets;
  readonly wanted: WantedChains;
  readonly #config: RulesConfig;
  readonly #maps = new Map<string, VerdictMap>();
  readonly #dirty = new Set<string>();
  readonly #ports: RulePorts;
  /** Marks of the kernel's chains, as read or written. */
  #actual = new Map<string, readonly string[]>();
  readonly #surplusMaps = new Set<string>();
  readonly #misplacedBases = new Set<string>();
  readonly #flowtable: Flowtable;
  #isTablePresent = false;
  #isTableAbsent = false;

  constructor(version: IpVersion, config: RulesConfig, options: NftPlaneOptions = {}) {
    this.version = version;
    this.#config = config;
    this.wanted = new WantedChains((name) => this.#dirty.add(name), options.bases);
    this.table = options.table ?? { family: version === 4 ? "ip" : "ip6", name: "calico" };
    this.#flowtable = new Flowtable(this.table, FLOWTABLE, options.deviceExists ?? (() => true));
    if (config.flowtable !== undefined && options.table === undefined) this.#flowtable.set(new Set());
    this.#ports = new RulePorts(this.table);
    this.sets = new NftSets(version, this.table, (set) => this.#rewriteUsersOf(set));
    this.tables = Object.fromEntries(LAYERS.map((layer) => [layer, this.#layer(layer)])) as unknown as LayerTables;
  }

  get hasChanges(): boolean {
    return (
      !this.#isTablePresent ||
      this.#dirty.size > 0 ||
      this.#ports.hasChanges ||
      this.#flowtable.hasChanges ||
      this.sets.hasChanges ||
      this.#surplusMaps.size > 0 ||
      this.#misplacedBases.size > 0 ||
      [...this.#maps.values()].some((map) => map.hasChanges)
    );
  }
  /** Chains and rules in the kernel, for the metrics. */
  get size(): { readonly chains: number; readonly rules: number; readonly sets: number } {
    let rules = 0;
    for (const marks of this.#actual.values()) rules += marks.length;
    return { chains: this.#actual.size, rules, sets: this.sets.count };
  }

  #layer(layer: Layer): LayerTable {
    return {
      layer,
      version: this.version,
      setChain: (chain) => this.#setChain(layer, chain),
      removeChain: (name) => this.#removeChain(nftChainName(layer, name)),
      isNeeded: (name) => this.wanted.isNeeded(nftChainName(layer, name)),
      setHook: (kernelChain, place, rules) => this.wanted.setHook(layer, kernelChain, place, rules),
    };
  }

  /** Devices whose established flows are offloaded, where that is configured. */
  setFlowtableDevices(devices: ReadonlySet<string>): void {
    if (this.#config.flowtable !== undefined) this.#flowtable.set(devices);
  }

  // --- what is wanted ------------------------------------------------------------------------------------------------

  #setChain(layer: Layer, chain: Chain): void {
    const name = nftChainName(layer, chain.name);
    if (chain.kind === "dispatch") this.#setMap(name, layer, chain.targets);
    else this.#maps.get(name)?.set(new Map());
    this.wanted.set(layer, chain);
  }

  #removeChain(name: string): void {
    if (this.wanted.remove(name)) this.#maps.get(name)?.set(new Map());
  }

  #setMap(name: string, layer: Layer, targets: ReadonlyMap<string, string>): void {
    let map = this.#maps.get(name);
    if (map === undefined) this.#maps.set(name, (map = new VerdictMap(this.table, name)));
    map.set(new Map([...targets].map(([key, target]) => [key, nftChainName(layer, target)])));
  }

  #rewriteUsersOf(set: SetId): void {
    for (const name of this.wanted.usersOf(set)) {
      if (!this.#actual.has(name)) continue;
      this.#actual.set(name, ["rewrite"]);
      this.#dirty.add(name);
    }
  }

  // --- what the kernel refuses ------------------------------------------------------------------------------------------

  /** A set the kernel does not take: rules that name it are closed. False when it is none, or aside already. */
  setAsideSet(name: string): boolean {
    const id = this.sets.setAside(name);
    if (id !== undefined) this.wanted.closeUsersOf(id);
    return id !== undefined;
  }

  /** The kernel's names of the sets that are aside. */
  setsAside(): string[] {
    return [...this.wanted.setsAside].map((set) => this.sets.nameOf(set));
  }

  /** The rules and sets as they were wanted, to be tried again. */
  takeBack(): void {
    if (this.wanted.takeBack()) this.sets.takeBack();
  }

  // --- what the kernel has ---------------------------------------------------------------------------------------------

  found(kernel: {
    /** Dormant: all is there, and no packet is shown to it. */
    readonly table: "absent" | "dormant" | "present";
    readonly chains: readonly DumpedChain[];
    readonly rules: readonly DumpedRule[];
    readonly sets: readonly DumpedSet[];
    readonly elementsOf: (set: string) => readonly DumpedElement[];
    readonly flowtables?: readonly DumpedFlowtable[];
    readonly options?: ReadOptions;
  }): void {
    this.#flowtable.found(kernel.flowtables?.find(({ name }) => name === FLOWTABLE)?.devices);
    this.#isTableAbsent = kernel.table === "absent";
    this.#isTablePresent = kernel.table === "present"; // adding a dormant one wakes it
    this.#misplacedBases.clear();
    this.#surplusMaps.clear();
    const marks = new Map<string, string[]>();
    for (const { name, base } of kernel.chains) {
      marks.set(name, []);
      if (!sameBase(base, this.wanted.baseOf(name))) this.#misplacedBases.add(name);
    }
    for (const { chain, comment } of kernel.rules) marks.get(chain)?.push(markOf(comment));
    this.#actual = marks;
    this.#dirty.clear();
    for (const name of new Set([...this.wanted.names(), ...marks.keys()])) this.#dirty.add(name);
    const named = kernel.sets.filter((set) => (set.flags & NFT_SET_ANONYMOUS) === 0 && set.name !== PORTS_SET);
    this.#foundPorts(kernel);
    for (const name of this.wanted.names()) this.wanted.needed(name); // so that the users of every set are known
    this.sets.found(named, kernel.elementsOf, kernel.options);
    const isMap = (set: DumpedSet) => (set.flags & NFT_SET_MAP) !== 0;
    for (const [name, map] of this.#maps)
      map.found(named.some((set) => set.name === name && isMap(set)) ? kernel.elementsOf(name) : undefined);
    for (const set of named) if (isMap(set) && !this.#maps.has(set.name)) this.#surplusMaps.add(set.name);
    this.#dropUnchanged();
  }

  #foundPorts(kernel: {
    readonly sets: readonly DumpedSet[];
    readonly elementsOf: (set: string) => readonly DumpedElement[];
  }): void {
    const set = kernel.sets.find(({ name }) => name === PORTS_SET);
    if (set === undefined) return this.#ports.found(undefined);
    const isOurs = set.keyType === keyTypeId(PORTS_TYPE.key) && (set.flags & (NFT_SET_INTERVAL | NFT_SET_MAP)) === 0;
    this.#ports.found(isOurs ? kernel.elementsOf(PORTS_SET) : "misfit");
  }

  /** Leaves the chains whose rules must be written; ports are noted on the way. */
  #dropUnchanged(): void {
    for (const name of this.#dirty) {
      const needed = this.wanted.needed(name);
      const marks = needed?.marks;
      this.#ports.setChain(name, needed?.ports);
      const actual = this.#actual.get(name);
      if (marks === undefined ? actual === undefined : actual !== undefined && sameList(marks, actual))
        this.#dirty.delete(name);
    }
  }

  // --- the difference ----------------------------------------------------------------------------------------------------

  /** @param anew throws the table away and writes everything again, in one go */
  changes(options: { readonly anew?: boolean } = {}): NftChange[] {
    const { body, hooks } = this.changesByEffect(options);
    return [...body, ...hooks];
  }

  /** No packet is shown to the table: until the hooks are written, the rest may come in pieces. */
  get isUnseen(): boolean {
    return this.#isTableAbsent;
  }

  /** What no packet sees if the table is new, and what then shows packets to it. */
  changesByEffect(options: { readonly anew?: boolean } = {}): { body: NftChange[]; hooks: NftChange[] } {
    const { table } = this;
    const changes: NftChange[] = [];
    const hooks: NftChange[] = [];
    if (options.anew === true) {
      changes.push({ op: "deleteTableIfThere", table });
      this.found({ table: "absent", chains: [], rules: [], sets: [], elementsOf: () => [] });
    }
    if (!this.hasChanges) return { body: changes, hooks };
    if (!this.#isTablePresent) changes.push({ op: "addTable", table });
    this.sets.renameUsers();
    this.#dropUnchanged();

    const rewritten: string[] = [];
    const deleted: string[] = [];
    for (const name of this.#dirty)
      if (this.wanted.needed(name) !== undefined) rewritten.push(name);
      else if (this.#actual.has(name)) deleted.push(name);
    for (const name of [...rewritten, ...deleted])
      if (this.#actual.has(name)) changes.push({ op: "flushChain", table, chain: name });
    for (const name of this.#misplacedBases)
      if (this.wanted.needed(name) !== undefined) {
        if (!rewritten.includes(name)) {
          changes.push({ op: "flushChain", table, chain: name });
          rewritten.push(name);
        }
        changes.push({ op: "deleteChain", table, chain: name });
      }
    for (const map of this.#maps.values()) changes.push(...map.removals());
    for (const set of this.#surplusMaps) changes.push({ op: "flushSet", table, set });
    changes.push(...this.sets.deletionsBefore());
    for (const name of rewritten)
      if (!this.#actual.has(name) || this.#misplacedBases.has(name)) {
        const base = this.wanted.baseOf(name);
        if (base === undefined) changes.push({ op: "addChain", table, chain: name });
        else hooks.push({ op: "addChain", table, chain: name, base });
      }
    changes.push(...this.#ports.changes(), ...this.sets.changes());
    for (const map of this.#maps.values()) changes.push(...map.creation());
    changes.push(...this.#flowtable.creation());
    const shared = Object.fromEntries(LAYERS.map((layer) => [layer, new SharedBodies()])) as Record<
      Layer,
      SharedBodies
    >;
    for (const name of rewritten) this.#appendRules(name, this.wanted.isHook(name) ? hooks : changes, shared);
    for (const map of this.#maps.values()) changes.push(...map.additions());
    hooks.push(...this.#flowtable.removal());
    for (const chain of deleted) hooks.push({ op: "deleteChain", table, chain });
    for (const set of this.#surplusMaps) hooks.push({ op: "deleteSet", table, set });
    for (const [name, map] of this.#maps) if (!this.wanted.has(name)) hooks.push(...map.deletion());
    hooks.push(...this.sets.deletionsAfter());
    return { body: changes, hooks };
  }

  #appendRules(name: string, changes: NftChange[], sharedBy: Readonly<Record<Layer, SharedBodies>>): void {
    const layer = this.wanted.layerOf(name);
    const prepared = this.wanted.needed(name);
    if (layer === undefined || prepared === undefined) return;
    const setName = (set: SetId) => this.sets.nameOf(set);
    const context: RenderContext = { config: this.#config, version: this.version, layer, setName };
    const shared = sharedBy[layer];
    const { chain, ruleMarks: marks } = prepared;
    const append = (rules: readonly Rule[], first: number) => {
      for (let i = 0; i < rules.length; i++) {
        const rule = rules[i];
        if (rule === undefined) continue;
        const parts = kernelRules(rule);
        const mark = marks[first + i] ?? "";
        for (let part = 0; part < parts; part++)
          changes.push(new LateRule(this.table, name, first + i, context, rule, mark, part, shared));
      }
    };
    if (chain.kind === "rules") return append(chain.rules, 0);
    const before = chain.before ?? [];
    append(before, 0);
    if (chain.targets.size > 0)
      changes.push({
        op: "appendRule",
        table: this.table,
        chain: name,
        rule: { expressions: nftMatch.interfaceVerdict(chain.direction, name), comment: `cali:${MAP_MARK};` },
      });
    append([...chain.otherwise, ...(chain.after ?? [])], before.length);
  }

  /** The transaction went through. */
  committed(): void {
    this.#isTablePresent = true;
    this.#isTableAbsent = false;
    for (const name of this.#dirty) {
      const marks = this.wanted.needed(name)?.marks;
      if (marks === undefined) this.#actual.delete(name);
      else this.#actual.set(name, marks);
    }
    this.#dirty.clear();
    this.#misplacedBases.clear();
    this.#surplusMaps.clear();
    this.#ports.committed();
    this.#flowtable.committed();
    this.sets.committed();
    for (const [name, map] of this.#maps) {
      map.committed();
      if (!this.wanted.has(name)) this.#maps.delete(name);
    }
  }
}

const NFT_SET_ANONYMOUS = 1;
const NFT_SET_INTERVAL = 4;
const NFT_SET_MAP = 8;

/** What stands between `cali:` and the semicolon; foreign rules have none. */
const markOf = (comment: string | undefined): string => /^cali:([^;]*);/.exec(comment ?? "")?.[1] ?? "foreign";
