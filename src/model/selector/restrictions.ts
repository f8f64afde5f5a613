// What a label set must look like for a selector to have a chance: hints for an index, sound but not complete. Whatever
// a selector matches obeys its restrictions; not all that obeys them matches.
import { compareText, foldSelector, type Selector, type SelectorLeaf } from "./ast.ts";

export interface LabelRestriction {
  readonly presence: "present" | "absent";
  /** The label has one of these, sorted. An empty list: nothing can match. Only with `present`. */
  readonly values?: readonly string[];
}
/** By label. Labels not named are free. */
export type LabelRestrictions = ReadonlyMap<string, LabelRestriction>;

const NONE: LabelRestrictions = new Map();
const UNSATISFIABLE: LabelRestriction = { presence: "present", values: [] };

export function labelRestrictions(selector: Selector): LabelRestrictions {
  return foldSelector<LabelRestrictions>(selector, {
    leaf: restrictionsOfLeaf,
    not: (_, node) => (node.operand.kind === "has" ? new Map([[node.operand.label, { presence: "absent" }]]) : NONE),
    list: (kind, operands) => (kind === "and" ? allOf(operands) : anyOf(operands)),
  });
}

function restrictionsOfLeaf(leaf: SelectorLeaf): LabelRestrictions {
  switch (leaf.kind) {
    case "all":
    case "global":
    case "notEquals":
    case "notIn":
      return NONE;
    case "equals":
      return new Map([[leaf.label, { presence: "present", values: [leaf.value] }]]);
    case "in":
      return new Map([[leaf.label, { presence: "present", values: leaf.values }]]);
    default:
      return new Map([[leaf.label, { presence: "present" }]]);
  }
}

/** Adds to the largest operand, which nobody else uses: copying it at every level of a deep nest would be quadratic. */
function allOf(operands: readonly LabelRestrictions[]): LabelRestrictions {
  const largest = operands.reduce((a, b) => (b.size > a.size ? b : a), NONE);
  const merged = largest === NONE ? new Map<string, LabelRestriction>() : (largest as Map<string, LabelRestriction>);
  for (const operand of operands) {
    if (operand === merged) continue;
    for (const [label, restriction] of operand) {
      const before = merged.get(label);
      merged.set(label, before === undefined ? restriction : both(before, restriction));
    }
  }
  return merged;
}

function both(a: LabelRestriction, b: LabelRestriction): LabelRestriction {
  if (a.presence !== b.presence) return UNSATISFIABLE;
  if (a.values === undefined) return b;
  if (b.values === undefined) return a;
  const allowed = new Set(b.values);
  return { presence: "present", values: a.values.filter((value) => allowed.has(value)) };
}

function anyOf(operands: readonly LabelRestrictions[]): LabelRestrictions {
  const [first = NONE, ...others] = operands;
  const kept = new Map<string, LabelRestriction>();
  for (const [label, restriction] of first) {
    const all = [restriction];
    for (const other of others) {
      const found = other.get(label);
      if (found?.presence !== restriction.presence) break;
      all.push(found);
    }
    if (all.length === operands.length) kept.set(label, either(all));
  }
  return kept;
}

/** More alternatives than that are not listed: a deep nest of them would be copied at every level. */
const MOST_VALUES = 200;

/** All of one presence. */
function either(restrictions: readonly LabelRestriction[]): LabelRestriction {
  const presence = restrictions[0]?.presence ?? "present";
  const values = new Set<string>();
  for (const restriction of restrictions) {
    if (restriction.values === undefined) return { presence };
    for (const value of restriction.values) values.add(value);
    if (values.size > MOST_VALUES) return { presence };
  }
  return { presence, values: [...values].sort(compareText) };
}
