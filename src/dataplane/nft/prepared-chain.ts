// A chain of the tree made ready for the kernel: its ports taken out, its rules marked by what they say, and stand-ins
// where the kernel refused a rule.
import type { RuleBody, TableRef } from "../../kernel/index.ts";
import type { RuleAt } from "../rules/aside.ts";
import { type Chain, chainRules, type Rule, type SetId } from "../rules/rule.ts";
import { isSharedRule } from "../rules/shared-rules.ts";
import { kernelRules, type RenderContext, renderRule } from "./render.ts";
import { type Slot, type SlotNumbers, takePorts } from "./rule-ports.ts";

/** A change of how rules are rendered must change their marks: raise this with it. */
const RENDER_VERSION = "2";
const MARK_BYTES = 16;
/** Filled by each call; hashing 32,000 rules takes about 40 ms. */
const digest = Buffer.alloc(32);
/** The jump by map has no rule of the tree. */
export const MAP_MARK = "map";

export interface PreparedChain {
  /** As offered, its ports taken out. */
  readonly chain: Chain;
  /** One per rule of the tree: what it says. */
  readonly ruleMarks: readonly string[];
  /** One per rule of the kernel's chain, in order. */
  readonly marks: readonly string[];
  readonly sets: ReadonlySet<SetId>;
  readonly ports: ReadonlyMap<Slot, readonly number[]>;
}

/**
 * Encodings of rules that stand in more than one chain of a transaction: half of all rules are some two hundred different
 * ones. The mark finds a candidate; only a rule with the same content shares its encoding.
 */
export class SharedBodies {
  readonly #counts = new Map<string, number>();
  readonly #known = new Map<string, { readonly rule: Rule; readonly bodies: readonly RuleBody[] }>();

  /** Announces one use of a rule with this mark. */
  expect(mark: string): void {
    this.#counts.set(mark, (this.#counts.get(mark) ?? 0) + 1);
  }

  get(mark: string, rule: Rule, render: () => readonly RuleBody[]): readonly RuleBody[] {
    const known = this.#known.get(mark);
    if (known !== undefined) return saysTheSame(known.rule, rule) ? known.bodies : render();
    if ((this.#counts.get(mark) ?? 0) < 2) return render();
    const bodies = render().map((body) => ({ ...body, isShared: true }));
    this.#known.set(mark, { rule, bodies });
    return bodies;
  }
}

const saysTheSame = (a: Rule, b: Rule): boolean => a === b || Bun.deepEquals(wordsOf(a), wordsOf(b), true);

/** Rendered when it is encoded: thousands of them at once would be most of the memory the agent ever needs. */
export class LateRule implements RuleAt {
  readonly op = "appendRule";
  constructor(
    readonly table: TableRef,
    readonly chain: string,
    readonly index: number,
    readonly context: RenderContext,
    readonly tree: Rule,
    readonly mark: string,
    readonly part: number,
    readonly shared: SharedBodies,
  ) {
    shared.expect(mark);
  }
  get rule(): RuleBody {
    const { context, tree, mark, part } = this;
    const body = this.shared.get(mark, tree, () => renderRule(context, tree, mark))[part];
    if (body === undefined) throw new RangeError(`a rule of ${this.chain} has no part ${part}`);
    return body;
  }
}

/** @param offered with stand-ins for what the kernel refused */
export function prepareChain(name: string, offered: Chain, slots: SlotNumbers): PreparedChain {
  const { chain, ports } = takePorts(name, offered, slots);
  const rules = chainRules(chain);
  const ruleMarks = rules.map(markOfRule);
  return { chain, ruleMarks, marks: kernelMarks(chain, rules, ruleMarks), sets: setsOf(rules), ports };
}

/** Of rules that many chains share. */
const knownMarks = new WeakMap<Rule, string>();

/** What the rule says to packets, and its comments. */
function wordsOf(rule: Rule): Rule {
  if (rule.ifRefused === undefined) return rule;
  const { ifRefused: _, ...words } = rule;
  return words;
}

function markOfRule(rule: Rule): string {
  const known = knownMarks.get(rule);
  if (known !== undefined) return known;
  // A rule in the kernel with this mark is not written again, and rules contain text that users choose: the hash must
  // resist collisions. 128 bits of it leave room for the rest of the comment.
  Bun.CryptoHasher.hash("sha256", `${RENDER_VERSION} ${JSON.stringify(wordsOf(rule))}`, digest);
  const mark = digest.toString("base64url", 0, MARK_BYTES);
  if (isSharedRule(rule)) knownMarks.set(rule, mark);
  return mark;
}

/** The marks the kernel's chain will show: one per kernel rule. */
function kernelMarks(chain: Chain, rules: readonly Rule[], ruleMarks: readonly string[]): string[] {
  const marks = ruleMarks.flatMap((mark, i) => Array<string>(kernelRules(rules[i])).fill(mark));
  if (chain.kind !== "dispatch" || chain.targets.size === 0) return marks;
  const before = (chain.before ?? []).reduce((sum, rule) => sum + kernelRules(rule), 0);
  return [...marks.slice(0, before), MAP_MARK, ...marks.slice(before)];
}

function setsOf(rules: readonly Rule[]): Set<SetId> {
  const sets = new Set<SetId>();
  for (const rule of rules)
    for (const m of rule.match ?? [])
      if (m.kind === "ipSet" || m.kind === "ipPortSet") sets.add(m.set);
      else if (m.kind === "ports") for (const set of m.sets ?? []) sets.add(set);
  return sets;
}
