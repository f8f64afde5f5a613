// The changes of an nftables ruleset, named as in nft(8). A list of changes is one transaction: the kernel makes all of them
// or none.
import { unreachable } from "../../lib/unreachable.ts";
import type { Expression } from "./nft-expression.ts";
import type { SetElement, SetType } from "./nft-set.ts";

export type NftFamily = "ip" | "ip6" | "inet" | "arp";
export type Hook = "prerouting" | "input" | "forward" | "output" | "postrouting";

export interface TableRef {
  readonly family: NftFamily;
  readonly name: string;
}

export interface BaseChain {
  readonly type: "filter" | "nat" | "route";
  readonly hook: Hook;
  readonly priority: number;
  readonly policy: "accept" | "drop";
}

export interface RuleBody {
  readonly expressions: readonly Expression[];
  /** At most 127 bytes. nft shows it as the rule's comment, and dumps contain it. */
  readonly comment?: string;
  /** True if this object is used for several rules of a transaction. It is then encoded only once. */
  readonly isShared?: boolean;
}

/** Elements of a set. They may be generated when they are encoded. */
export interface ElementList extends Iterable<SetElement> {
  /** Number of elements, or of the ranges that they describe. */
  readonly length: number;
}

export type NftChange =
  /** If the table exists, `createTable` fails with EEXIST. If it does not exist, `destroyTable` succeeds. */
  | { readonly op: "addTable" | "createTable" | "deleteTable" | "destroyTable"; readonly table: TableRef }
  | { readonly op: "addChain"; readonly table: TableRef; readonly chain: string; readonly base?: BaseChain }
  | { readonly op: "flushChain" | "deleteChain"; readonly table: TableRef; readonly chain: string }
  | { readonly op: "appendRule"; readonly table: TableRef; readonly chain: string; readonly rule: RuleBody }
  | { readonly op: "deleteRule"; readonly table: TableRef; readonly chain: string; readonly handle: bigint }
  | { readonly op: "addSet"; readonly table: TableRef; readonly set: string; readonly type: SetType }
  | { readonly op: "flushSet" | "deleteSet"; readonly table: TableRef; readonly set: string }
  | {
      readonly op: "addElements" | "deleteElements";
      readonly table: TableRef;
      readonly set: string;
      readonly elements: ElementList;
    }
  | {
      readonly op: "addFlowtable";
      readonly table: TableRef;
      readonly flowtable: string;
      readonly priority: number;
      readonly devices: readonly string[];
    }
  | {
      readonly op: "deleteFlowtable";
      readonly table: TableRef;
      readonly flowtable: string;
      /** If given, only these devices are removed from the flowtable. */
      readonly devices?: readonly string[];
    };

/** For error messages. */
export function describeNftChange(change: NftChange): string {
  const table = `${change.table.family} ${change.table.name}`;
  switch (change.op) {
    case "addTable":
    case "createTable":
      return `add table ${table}`;
    case "deleteTable":
    case "destroyTable":
      return `delete table ${table}`;
    case "addChain":
      return `add chain ${table} ${change.chain}`;
    case "flushChain":
      return `flush chain ${table} ${change.chain}`;
    case "deleteChain":
      return `delete chain ${table} ${change.chain}`;
    case "appendRule":
      return `add rule ${table} ${change.chain}${describeRule(change.rule)}`;
    case "deleteRule":
      return `delete rule ${table} ${change.chain} handle ${change.handle}`;
    case "addSet":
      return `add ${change.type.value === undefined ? "set" : "map"} ${table} ${change.set}`;
    case "flushSet":
      return `flush set ${table} ${change.set}`;
    case "deleteSet":
      return `delete set ${table} ${change.set}`;
    case "addElements":
      return `add ${change.elements.length} elements to ${table} ${change.set}`;
    case "deleteElements":
      return `delete ${change.elements.length} elements from ${table} ${change.set}`;
    case "addFlowtable":
      return `add flowtable ${table} ${change.flowtable}`;
    case "deleteFlowtable":
      return `delete flowtable ${table} ${change.flowtable}`;
    default:
      return unreachable(change);
  }
}

function describeRule(rule: RuleBody): string {
  const kinds = rule.expressions.map((e) => e.kind).join(" ");
  return ` [${kinds}]${rule.comment === undefined ? "" : ` "${rule.comment}"`}`;
}
