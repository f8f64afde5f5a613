// The interfaces through which managers set chains and IP sets, independent of the renderer.
import type { IpVersion } from "../../lib/ip/ip.ts";
import type { Chain, Rule, SetId, TableName } from "./rule.ts";

/** One table (raw, mangle, nat, filter) of one IP family. */
export interface RuleTable {
  readonly tableName: TableName;
  readonly version: IpVersion;
  /** Sets the content of a chain. It is written only while it is needed. */
  setChain(chain: Chain): void;
  removeChain(name: string): void;
  /** True if a chain of the kernel leads to the chain. */
  isNeeded(name: string): boolean;
  /** Sets the rules of calico-ts in one of the kernel's chains (FORWARD, …). */
  setHook(kernelChain: string, place: "insert" | "append", rules: readonly Rule[]): void;
}

export type RuleTables = Readonly<Record<TableName, RuleTable>>;

/** `ip`: `10.0.0.1`; `net`: `10.0.0.0/8`; `ipAndPort`: `10.0.0.1,tcp:80`. */
export type MemberType = "ip" | "net" | "ipAndPort";

/** The IP sets of one IP family. Members of the other family are ignored. */
export interface IpSets {
  readonly version: IpVersion;
  replace(id: SetId, type: MemberType, members: Iterable<string>): void;
  change(id: SetId, added: Iterable<string>, removed: Iterable<string>): void;
  remove(id: SetId): void;
}

/** All rules and IP sets of one IP family. */
export interface FamilyRules {
  readonly version: IpVersion;
  readonly tables: RuleTables;
  readonly sets: IpSets;
}
