// Renders the differences between desired and actual chains as input for `iptables-restore --noflush`.
import type { IptablesTable, IptablesVariant } from "../../kernel/index.ts";
import { hashComment } from "./rule-hash.ts";
import type { SavedRule } from "./save-text.ts";

/** The rules of a chain, as iptables arguments. */
export interface WrittenChain {
  readonly name: string;
  /** The text of each rule after its hash comment. */
  readonly texts: readonly string[];
  readonly hashes: readonly string[];
}

export interface ChainDelta {
  readonly create: WrittenChain[];
  readonly change: { readonly chain: WrittenChain; readonly actual: readonly string[] }[];
  readonly delete: string[];
  /** Lines that change the kernel's chains. */
  readonly hooks: (readonly string[])[];
}

/** iptables-legacy searches a rule from the start of its chain: replacing 80,000 single rules takes 10 s. */
const MAX_REPLACED = 1000;

/**
 * Returns one text per transaction; none if nothing differs.
 * - With legacy iptables, single rules are replaced, so that unchanged rules keep their counters, unless there are many.
 * - iptables-nft computes wrong positions if rules are replaced and deleted in one transaction. Therefore changed chains are
 *   rewritten, and chains are deleted in a second transaction.
 */
export function restoreText(table: IptablesTable, delta: ChainDelta, variant: IptablesVariant): string[] {
  const lines: string[] = [];
  const deletions: string[] = [];
  const rewritten = new Set(delta.change.filter((change) => variant === "nft" || countChanges(change) > MAX_REPLACED));
  for (const { name } of delta.create) lines.push(declare(name));
  for (const { chain } of rewritten) lines.push(declare(chain.name));
  // Chains to delete are flushed first, because they may have jumps to other chains to delete.
  for (const name of delta.delete) lines.push(declare(name));
  for (const chain of delta.create) appendAll(lines, chain);
  for (const { chain } of rewritten) appendAll(lines, chain);
  for (const change of delta.change) if (!rewritten.has(change)) edit(lines, change.chain, change.actual);
  for (const hook of delta.hooks) lines.push(...hook);
  for (const name of delta.delete) deletions.push(`--delete-chain ${name}`);
  const transactions = variant === "nft" ? [lines, deletions] : [[...lines, ...deletions]];
  return transactions.filter((t) => t.length > 0).map((t) => `*${table}\n${t.join("\n")}\nCOMMIT\n`);
}

/** Creates the chain, or flushes it. */
const declare = (name: string): string => `:${name} - -`;

function ruleSpec(chain: WrittenChain, i: number): string {
  const text = chain.texts[i] ?? "";
  return text === "" ? hashComment(chain.hashes[i] ?? "") : `${hashComment(chain.hashes[i] ?? "")} ${text}`;
}

function appendAll(lines: string[], chain: WrittenChain): void {
  for (let i = 0; i < chain.texts.length; i++) lines.push(`-A ${chain.name} ${ruleSpec(chain, i)}`);
}

function countChanges({ chain, actual }: ChainDelta["change"][number]): number {
  const replaced = chain.hashes.reduce(
    (count, hash, i) => count + (i < actual.length && actual[i] !== hash ? 1 : 0),
    0,
  );
  return replaced + Math.max(0, actual.length - chain.hashes.length);
}

function edit(lines: string[], chain: WrittenChain, actual: readonly string[]): void {
  const desired = chain.hashes.length;
  for (let i = 0; i < desired; i++) {
    if (i >= actual.length) lines.push(`-A ${chain.name} ${ruleSpec(chain, i)}`);
    else if (actual[i] !== chain.hashes[i]) lines.push(`-R ${chain.name} ${i + 1} ${ruleSpec(chain, i)}`);
  }
  for (let i = desired; i < actual.length; i++) lines.push(`-D ${chain.name} ${desired + 1}`);
}

/** Returns lines that move owned rules in a kernel chain to their place before or after other rules; undefined if correct. */
export function hookDelta(of: {
  readonly kernelChain: string;
  readonly actual: readonly SavedRule[];
  readonly insert: WrittenChain | undefined;
  readonly append: WrittenChain | undefined;
  readonly mode: "insert" | "append";
}): readonly string[] | undefined {
  const foreign = of.actual.filter((rule) => !rule.isOwned).map(() => "");
  const inserted = of.insert?.hashes ?? [];
  const appended = of.append?.hashes ?? [];
  const desired =
    of.mode === "insert" ? [...inserted, ...foreign, ...appended] : [...foreign, ...inserted, ...appended];
  const found = of.actual.map((rule) => (rule.isOwned ? (rule.hash ?? "old") : ""));
  if (found.length === desired.length && found.every((hash, i) => hash === desired[i])) return undefined;

  const lines = of.actual.filter((rule) => rule.isOwned).map((rule) => rule.line.replace(/^-A/, "-D"));
  if (of.insert !== undefined) {
    const { insert } = of;
    if (of.mode === "insert")
      for (let i = insert.texts.length - 1; i >= 0; i--) lines.push(`-I ${of.kernelChain} ${ruleSpec(insert, i)}`);
    else appendAll(lines, insert);
  }
  if (of.append !== undefined) appendAll(lines, of.append);
  return lines;
}
