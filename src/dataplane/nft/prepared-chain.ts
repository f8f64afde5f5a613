// Prepares a chain of the rule tree for the kernel: moves its ports to the shared port set, and computes the hash by which
// each of its rules is recognized in the kernel.
import type { RuleBody, TableRef } from "../../kernel/index.ts";
import type { RulePosition } from "../rules/fallback/active-fallbacks.ts";
import { type Chain, chainRules, type Rule, type SetId } from "../rules/rule.ts";
import { isSharedRule } from "../rules/shared-rules.ts";
import { kernelRules, type RenderContext, renderRule } from "./render.ts";
import { type Slot, type SlotNumbers, extractPorts } from "./rule-ports.ts";

/** Must be increased if rules are rendered differently, so that their marks change. */
const RENDER_VERSION = "2";
const MARK_BYTES = 16;
/** Reused for each hash. Hashing 32,000 rules takes about 40 ms. */
const digest = Buffer.alloc(32);
/** The mark of the lookup in a verdict map, which has no rule in the rule tree. */
export const MAP_RULE_ID = "map";

export interface PreparedChain {
  /** The chain, with its ports moved to the port set. */
  readonly chain: Chain;
  /** One mark per rule of the rule tree. */
  readonly ruleMarks: readonly string[];
  /** One mark per rule of the kernel's chain, in order. */
  readonly marks: readonly string[];
  readonly sets: ReadonlySet<SetId>;
  readonly ports: ReadonlyMap<Slot, readonly number[]>;
}

/**
 * Shares the encodings of rules that occur in several chains of a transaction. Typically, half of all rules are copies of
 * about 200 different ones. Rules with the same mark share an encoding only if their content is equal.
 */
export class SharedRuleEncodings {
  readonly #counts = new Map<string, number>();
  readonly #known = new Map<string, { readonly rule: Rule; readonly bodies: readonly RuleBody[] }>();

  /** Counts one use of a rule with this mark. Must be called before `get`. */
  expect(mark: string): void {
    this.#counts.set(mark, (this.#counts.get(mark) ?? 0) + 1);
  }

  get(mark: string, rule: Rule, render: () => readonly RuleBody[]): readonly RuleBody[] {
    const known = this.#known.get(mark);
    if (known !== undefined) return isEqualRule(known.rule, rule) ? known.bodies : render();
    if ((this.#counts.get(mark) ?? 0) < 2) return render();
    const bodies = render().map((body) => ({ ...body, isShared: true }));
    this.#known.set(mark, { rule, bodies });
    return bodies;
  }
}

const isEqualRule = (a: Rule, b: Rule): boolean =>
  a === b || Bun.deepEquals(programmedPart(a), programmedPart(b), true);

/** A rule that is rendered when it is encoded. Rendering all rules at once would need the most memory of all steps. */
export class LazyRule implements RulePosition {
  readonly op = "appendRule";
  constructor(
    readonly table: TableRef,
    readonly chain: string,
    readonly index: number,
    readonly context: RenderContext,
    /** The rule of the rule tree. */
    readonly source: Rule,
    readonly mark: string,
    readonly part: number,
    readonly shared: SharedRuleEncodings,
  ) {
    shared.expect(mark);
  }
  get rule(): RuleBody {
    const { context, source, mark, part } = this;
    const body = this.shared.get(mark, source, () => renderRule(context, source, mark))[part];
    if (body === undefined) throw new RangeError(`rule ${this.index + 1} of ${this.chain} has no kernel rule ${part}`);
    return body;
  }
}

/** @param offered the chain, with fallbacks for rejected rules */
export function prepareChain(name: string, offered: Chain, slots: SlotNumbers): PreparedChain {
  const { chain, ports } = extractPorts(name, offered, slots);
  const rules = chainRules(chain);
  const ruleMarks = rules.map(markOfRule);
  return { chain, ruleMarks, marks: kernelMarks(chain, rules, ruleMarks), sets: setsOf(rules), ports };
}

/** The marks of rules that many chains share. */
const sharedMarks = new WeakMap<Rule, string>();

/** Only the fields that are written to the kernel. */
function programmedPart(rule: Rule): Rule {
  if (rule.ifRejected === undefined) return rule;
  const { ifRejected: _, ...programmed } = rule;
  return programmed;
}

function markOfRule(rule: Rule): string {
  const known = sharedMarks.get(rule);
  if (known !== undefined) return known;
  // A rule in the kernel with this mark is not written again. Users choose parts of the content, so the hash must be
  // collision-resistant. 128 bits leave enough space for the rest of the comment.
  Bun.CryptoHasher.hash("sha256", `${RENDER_VERSION} ${JSON.stringify(programmedPart(rule))}`, digest);
  const mark = digest.toString("base64url", 0, MARK_BYTES);
  if (isSharedRule(rule)) sharedMarks.set(rule, mark);
  return mark;
}

/** Returns the marks of the kernel's chain: one per kernel rule. */
function kernelMarks(chain: Chain, rules: readonly Rule[], ruleMarks: readonly string[]): string[] {
  const marks = ruleMarks.flatMap((mark, i) => Array<string>(kernelRules(rules[i])).fill(mark));
  if (chain.kind !== "dispatch" || chain.targets.size === 0) return marks;
  const before = (chain.before ?? []).reduce((sum, rule) => sum + kernelRules(rule), 0);
  return [...marks.slice(0, before), MAP_RULE_ID, ...marks.slice(before)];
}

function setsOf(rules: readonly Rule[]): Set<SetId> {
  const sets = new Set<SetId>();
  for (const rule of rules)
    for (const m of rule.match ?? [])
      if (m.kind === "ipSet" || m.kind === "ipPortSet") sets.add(m.set);
      else if (m.kind === "ports") for (const set of m.sets ?? []) sets.add(set);
  return sets;
}
