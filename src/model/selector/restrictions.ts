// Computes conditions on single labels that are necessary for a selector to match. An index uses them to find candidates.
// They are not sufficient: labels that meet all conditions may still not match.
import { compareText, foldSelector, type Selector, type SelectorLeaf } from "./ast.ts";

export interface LabelRestriction {
  readonly presence: "present" | "absent";
  /** The label has one of these values, which are sorted; an empty list never matches. Set only with `present`. */
  readonly values?: readonly string[];
}
/** By label. Other labels are not restricted. */
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

/** Modifies the largest operand, which is not used elsewhere. Copying it at every level of nesting would be quadratic. */
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

/** Larger sets of values are dropped, because they would be copied at every level of nesting. */
const MAX_VALUES = 200;

/** @param restrictions all with the same `presence` */
function either(restrictions: readonly LabelRestriction[]): LabelRestriction {
  const presence = restrictions[0]?.presence ?? "present";
  const values = new Set<string>();
  for (const restriction of restrictions) {
    if (restriction.values === undefined) return { presence };
    for (const value of restriction.values) values.add(value);
    if (values.size > MAX_VALUES) return { presence };
  }
  return { presence, values: [...values].sort(compareText) };
}
