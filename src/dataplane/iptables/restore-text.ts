// Differences between wanted and actual chains as input for `iptables-restore --noflush`.
import type { IptablesTable, IptablesVariant } from "../../kernel/index.ts";
import { hashComment } from "./rule-hash.ts";
import type { SavedRule } from "./save-text.ts";

/** A chain as iptables holds it. */
export interface WrittenChain {
  readonly name: string;
  /** Each rule behind its hash comment. */
  readonly texts: readonly string[];
  readonly hashes: readonly string[];
  readonly targets: ReadonlySet<string>;
}

export interface ChainDelta {
  readonly create: WrittenChain[];
  readonly change: { readonly chain: WrittenChain; readonly actual: readonly string[] }[];
  readonly delete: string[];
  /** Lines for the kernel's chains. */
  readonly hooks: (readonly string[])[];
}

/** The legacy tools find a rule by counting from the start of the chain: to replace 80,000 single rules takes 10 s. */
const MOST_REPLACED = 1000;

/**
 * One text per transaction; none when nothing differs. With the legacy tools single rules are replaced, unless there are
 * many of them, so that unchanged ones keep their counters; the nft variant loses the position when rules are replaced and deleted in one go, so it rewrites
 * changed chains, and deletes chains in a second transaction.
 */
export function restoreText(table: IptablesTable, delta: ChainDelta, variant: IptablesVariant): string[] {
  const lines: string[] = [];
  const deletions: string[] = [];
  const rewritten = new Set(delta.change.filter((change) => variant === "nft" || countChanges(change) > MOST_REPLACED));
  for (const { name } of delta.create) lines.push(declare(name));
  for (const { chain } of rewritten) lines.push(declare(chain.name));
  // A chain to delete is emptied first: others that go with it may be what it leads to.
  for (const name of delta.delete) lines.push(declare(name));
  for (const chain of delta.create) appendAll(lines, chain);
  for (const { chain } of rewritten) appendAll(lines, chain);
  for (const change of delta.change) if (!rewritten.has(change)) edit(lines, change.chain, change.actual);
  for (const hook of delta.hooks) lines.push(...hook);
  for (const name of delta.delete) deletions.push(`--delete-chain ${name}`);
  const transactions = variant === "nft" ? [lines, deletions] : [[...lines, ...deletions]];
  return transactions.filter((t) => t.length > 0).map((t) => `*${table}\n${t.join("\n")}\nCOMMIT\n`);
}

/** Creates the chain, or empties it. */
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
  const wanted = chain.hashes.length;
  for (let i = 0; i < wanted; i++) {
    if (i >= actual.length) lines.push(`-A ${chain.name} ${ruleSpec(chain, i)}`);
    else if (actual[i] !== chain.hashes[i]) lines.push(`-R ${chain.name} ${i + 1} ${ruleSpec(chain, i)}`);
  }
  for (let i = wanted; i < actual.length; i++) lines.push(`-D ${chain.name} ${wanted + 1}`);
}

/** Lines that put our rules of a kernel chain in their place among foreign ones; nothing when they are. */
export function hookDelta(of: {
  readonly kernelChain: string;
  readonly actual: readonly SavedRule[];
  readonly insert: WrittenChain | undefined;
  readonly append: WrittenChain | undefined;
  readonly mode: "insert" | "append";
}): readonly string[] | undefined {
  const foreign = of.actual.filter((rule) => !rule.isOurs).map(() => "");
  const inserted = of.insert?.hashes ?? [];
  const appended = of.append?.hashes ?? [];
  const wanted = of.mode === "insert" ? [...inserted, ...foreign, ...appended] : [...foreign, ...inserted, ...appended];
  const found = of.actual.map((rule) => (rule.isOurs ? (rule.hash ?? "old") : ""));
  if (found.length === wanted.length && found.every((hash, i) => hash === wanted[i])) return undefined;

  const lines = of.actual.filter((rule) => rule.isOurs).map((rule) => rule.line.replace(/^-A/, "-D"));
  if (of.insert !== undefined) {
    const { insert } = of;
    if (of.mode === "insert")
      for (let i = insert.texts.length - 1; i >= 0; i--) lines.push(`-I ${of.kernelChain} ${ruleSpec(insert, i)}`);
    else appendAll(lines, insert);
  }
  if (of.append !== undefined) appendAll(lines, of.append);
  return lines;
}
