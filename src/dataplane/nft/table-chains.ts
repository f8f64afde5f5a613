// Keeps the chains of one nftables table equal to the desired chains. A rule of the kernel is recognized by its mark: a hash
// in its comment.
import {
  type BaseChain,
  type DumpedChain,
  type DumpedRule,
  type NftChange,
  nftMatch,
  type TableRef,
} from "../../kernel/index.ts";
import { listsEqual } from "../../lib/compare-lists.ts";
import { DesiredChains } from "../rules/desired-chains.ts";
import { hostChain, type TableName, TABLE_NAMES, type Rule, type SetId } from "../rules/rule.ts";
import { type BaseChains, sameBase } from "./base-chains.ts";
import type { PhasedChanges } from "./phases.ts";
import { LazyRule, MAP_RULE_ID, SharedRuleEncodings } from "./prepared-chain.ts";
import { PreparedChains } from "./prepared-chains.ts";
import { kernelRules, nftChainName, type RenderContext } from "./render.ts";
import type { RulePorts } from "./rule-ports.ts";

export interface TableChainsOptions {
  readonly table: TableRef;
  readonly bases: BaseChains;
  /** Receives the ports of the chains that are written. */
  readonly ports: RulePorts;
  readonly renderContext: (tableName: TableName) => RenderContext;
}

/** The rules of calico-ts in one base chain. */
interface HookRules {
  readonly tableName: TableName;
  insert: readonly Rule[];
  append: readonly Rule[];
}

export class TableChains {
  readonly desired: DesiredChains;
  readonly #options: TableChainsOptions;
  readonly #prepared: PreparedChains;
  readonly #hooks = new Map<string, HookRules>();
  /** The marks of the rules in each chain of the kernel, as read or written. */
  #actual = new Map<string, readonly string[]>();
  readonly #dirty = new Set<string>();
  /** Chains that the kernel has with another hook, type or priority than desired. */
  readonly #misplaced = new Set<string>();

  constructor(options: TableChainsOptions) {
    this.#options = options;
    this.desired = new DesiredChains({
      kernelName: nftChainName,
      onContentChange: (name) => {
        this.#prepared.invalidate(name);
        if (this.desired.isNeeded(name) || !this.desired.has(name)) this.#dirty.add(name);
      },
      onNeedChange: (name) => this.#dirty.add(name),
    });
    this.#prepared = new PreparedChains(this.desired);
  }

  get hasChanges(): boolean {
    return this.#dirty.size > 0 || this.#misplaced.size > 0;
  }

  /** The number of chains and rules in the kernel. */
  get size(): { readonly chains: number; readonly rules: number } {
    let rules = 0;
    for (const marks of this.#actual.values()) rules += marks.length;
    return { chains: this.#actual.size, rules };
  }

  setHook(tableName: TableName, kernelChain: string, place: "insert" | "append", rules: readonly Rule[]): void {
    const name = nftChainName(tableName, kernelChain);
    let hook = this.#hooks.get(name);
    if (hook === undefined) this.#hooks.set(name, (hook = { tableName, insert: [], append: [] }));
    hook[place] = rules;
    this.desired.hold(name);
    this.desired.set(tableName, hostChain(kernelChain, [...hook.insert, ...hook.append]));
  }

  /** Returns undefined for chains that are not base chains. */
  #baseOf(name: string): BaseChain | undefined {
    const hook = this.#hooks.get(name);
    return hook === undefined ? undefined : this.#options.bases[hook.tableName][name.slice(hook.tableName.length + 1)];
  }

  /** Must be called if the kernel's set is replaced by another one: rules refer to the set itself, not to its name. */
  rewriteUsersOf(set: SetId): void {
    for (const name of this.#prepared.usersOf(set)) {
      if (!this.#actual.has(name)) continue;
      this.#actual.set(name, ["rewrite"]);
      this.#dirty.add(name);
    }
  }

  /** Records the chains and rules that the kernel has. */
  found(chains: readonly DumpedChain[], rules: readonly DumpedRule[]): void {
    this.#misplaced.clear();
    const marks = new Map<string, string[]>();
    for (const { name, base } of chains) {
      marks.set(name, []);
      if (!sameBase(base, this.#baseOf(name))) this.#misplaced.add(name);
    }
    for (const { chain, comment } of rules) marks.get(chain)?.push(markOf(comment));
    this.#actual = marks;
    this.#dirty.clear();
    for (const name of new Set([...this.desired.names(), ...marks.keys()])) this.#dirty.add(name);
    for (const name of this.desired.names()) this.#prepared.get(name); // so that the users of all sets are recorded
  }

  /** Compares changed chains with the kernel's, and records their ports. Must be called before changes are computed. */
  compare(): void {
    for (const name of this.#dirty) {
      const prepared = this.#prepared.get(name);
      this.#options.ports.setChain(name, prepared?.ports);
      const actual = this.#actual.get(name);
      const isSame =
        prepared === undefined ? actual === undefined : actual !== undefined && listsEqual(prepared.marks, actual);
      if (isSame) this.#dirty.delete(name);
    }
  }

  changes(): PhasedChanges {
    const { table } = this.#options;
    const rewritten: string[] = [];
    const deleted: string[] = [];
    for (const name of this.#dirty)
      if (this.#prepared.get(name) !== undefined) rewritten.push(name);
      else if (this.#actual.has(name)) deleted.push(name);

    const release: NftChange[] = [...rewritten, ...deleted]
      .filter((chain) => this.#actual.has(chain))
      .map((chain) => ({ op: "flushChain", table, chain }));
    for (const chain of this.#misplaced) {
      if (this.#prepared.get(chain) === undefined) continue;
      if (!rewritten.includes(chain)) {
        release.push({ op: "flushChain", table, chain });
        rewritten.push(chain);
      }
      release.push({ op: "deleteChain", table, chain });
    }
    const create: NftChange[] = [];
    const activate: NftChange[] = [];
    for (const chain of rewritten) {
      if (this.#actual.has(chain) && !this.#misplaced.has(chain)) continue;
      const base = this.#baseOf(chain);
      if (base === undefined) create.push({ op: "addChain", table, chain });
      else activate.push({ op: "addChain", table, chain, base });
    }
    const fill: NftChange[] = [];
    const shared = new Map(TABLE_NAMES.map((tableName) => [tableName, new SharedRuleEncodings()]));
    for (const name of rewritten) this.#appendRules(name, this.#hooks.has(name) ? activate : fill, shared);
    const remove = deleted.map((chain): NftChange => ({ op: "deleteChain", table, chain }));
    return { release, create, fill, activate, remove };
  }

  #appendRules(name: string, changes: NftChange[], sharedByTable: ReadonlyMap<TableName, SharedRuleEncodings>): void {
    const tableName = this.desired.tableNameOf(name);
    const prepared = this.#prepared.get(name);
    const shared = tableName === undefined ? undefined : sharedByTable.get(tableName);
    if (tableName === undefined || prepared === undefined || shared === undefined) return;
    const { table } = this.#options;
    const context = this.#options.renderContext(tableName);
    const { chain, ruleMarks } = prepared;
    const append = (rules: readonly Rule[], first: number) => {
      for (let i = 0; i < rules.length; i++) {
        const rule = rules[i];
        if (rule === undefined) continue;
        const parts = kernelRules(rule);
        const mark = ruleMarks[first + i] ?? "";
        for (let part = 0; part < parts; part++)
          changes.push(new LazyRule(table, name, first + i, context, rule, mark, part, shared));
      }
    };
    if (chain.kind === "rules") return append(chain.rules, 0);
    const before = chain.before ?? [];
    append(before, 0);
    if (chain.targets.size > 0)
      changes.push({
        op: "appendRule",
        table,
        chain: name,
        rule: { expressions: nftMatch.interfaceVerdict(chain.direction, name), comment: `cali:${MAP_RULE_ID};` },
      });
    append([...chain.otherwise, ...(chain.after ?? [])], before.length);
  }

  /** Must be called after the changes were committed. */
  committed(): void {
    for (const name of this.#dirty) {
      const prepared = this.#prepared.get(name);
      if (prepared === undefined) this.#actual.delete(name);
      else this.#actual.set(name, prepared.marks);
    }
    this.#dirty.clear();
    this.#misplaced.clear();
  }
}

/** Returns the text between `cali:` and the semicolon. Rules of other programs have none. */
const markOf = (comment: string | undefined): string => /^cali:([^;]*);/.exec(comment ?? "")?.[1] ?? "foreign";
