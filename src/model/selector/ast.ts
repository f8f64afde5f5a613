// Defines the syntax tree of selectors, and a fold over it. Users decide how deeply a selector is nested, so this file
// does not use recursion: ten thousand nested terms must not exhaust the stack.
import { checkLabelLength } from "./lex.ts";

/** Distributes over the union `K`, so that checking `kind` narrows the type. */
type Node<K extends string, Fields = unknown> = K extends string ? { readonly kind: K } & Readonly<Fields> : never;

export type LabelTest =
  | Node<"has", { label: string }>
  | Node<"equals" | "notEquals" | "contains" | "startsWith" | "endsWith", { label: string; value: string }>
  /** Values are sorted bytewise and unique. */
  | Node<"in" | "notIn", { label: string; values: readonly string[] }>;

/** A term without operands. `global()` matches all labels; `compose-selector.ts` replaces it in namespace selectors. */
export type SelectorLeaf = Node<"all" | "global"> | LabelTest;

export type Selector =
  | SelectorLeaf
  /** The operand is a `not` only if the text had parentheses between them. Calico's names of IP sets distinguish this. */
  | Node<"not", { operand: Selector }>
  /** At least two operands. */
  | Node<"and" | "or", { operands: readonly Selector[] }>;

export const ALL_SELECTOR: SelectorLeaf = { kind: "all" };
export const GLOBAL_SELECTOR: SelectorLeaf = { kind: "global" };

export const negate = (operand: Selector): Selector => ({ kind: "not", operand });

export const conjunction = (operands: readonly Selector[]): Selector => list("and", operands);
export const disjunction = (operands: readonly Selector[]): Selector => list("or", operands);

function list(kind: "and" | "or", operands: readonly Selector[]): Selector {
  const [first] = operands;
  if (first === undefined) throw new RangeError(`"${kind}" without operands`);
  return operands.length === 1 ? first : { kind, operands };
}

export interface SelectorFold<T> {
  leaf(leaf: SelectorLeaf): T;
  not(operand: T, node: Selector & { readonly kind: "not" }): T;
  list(kind: "and" | "or", operands: readonly T[]): T;
}

/** Computes a result from the leaves to the root. */
export function foldSelector<T>(selector: Selector, fold: SelectorFold<T>): T {
  interface Open {
    readonly node: Selector & { readonly kind: "not" | "and" | "or" };
    readonly done: T[];
  }
  const open: Open[] = [];
  let node = selector;
  for (;;) {
    let result: T;
    if (node.kind === "not") {
      open.push({ node, done: [] });
      node = node.operand;
      continue;
    }
    if (node.kind === "and" || node.kind === "or") {
      const [first] = node.operands;
      if (first === undefined) throw new RangeError(`"${node.kind}" without operands`);
      open.push({ node, done: [] });
      node = first;
      continue;
    }
    result = fold.leaf(node);
    for (;;) {
      const parent = open.at(-1);
      if (parent === undefined) return result;
      if (parent.node.kind === "not") {
        result = fold.not(result, parent.node);
      } else {
        parent.done.push(result);
        const next = parent.node.operands[parent.done.length];
        if (next !== undefined) {
          node = next;
          break;
        }
        result = fold.list(parent.node.kind, parent.done);
      }
      open.pop();
    }
  }
}

/** Replaces each leaf. */
export function mapLeaves(selector: Selector, map: (leaf: SelectorLeaf) => Selector): Selector {
  return foldSelector<Selector>(selector, {
    leaf: map,
    not: negate,
    list: (kind, operands) => ({ kind, operands }),
  });
}

/**
 * Adds a prefix, such as `pcns.` or `pcsa.`, to all label names.
 * @throws SelectorError if a label is too long with the prefix
 */
export function prefixLabels(selector: Selector, prefix: string): Selector {
  return mapLeaves(selector, (leaf) => {
    if (leaf.kind === "all" || leaf.kind === "global") return leaf;
    const label = prefix + leaf.label;
    checkLabelLength(label);
    return { ...leaf, label };
  });
}

/** Removes double negations. */
export function cancelDoubleNegations(selector: Selector): Selector {
  return foldSelector<Selector>(selector, {
    leaf: (leaf) => leaf,
    not: (operand) => (operand.kind === "not" ? operand.operand : negate(operand)),
    list: (kind, operands) => ({ kind, operands }),
  });
}

/** Compares the UTF-8 encodings bytewise. Calico sorts the values of sets in this order. */
export function compareText(a: string, b: string): number {
  if (a === b) return 0;
  // The orders of UTF-16 and UTF-8 differ only if a text contains a surrogate.
  if (SURROGATE.test(a) || SURROGATE.test(b)) return Buffer.compare(Buffer.from(a), Buffer.from(b));
  return a < b ? -1 : 1;
}
const SURROGATE = /[\ud800-\udfff]/;

export function sortedSet(values: readonly string[]): readonly string[] {
  // Without surrogates both orders are equal, and comparing UTF-16 is much faster for a list of 100,000 values.
  const hasSurrogates = values.some((value) => SURROGATE.test(value));
  if (hasSurrogates) return [...new Set(values)].sort(compareText);
  const isSorted = values.every((value, i) => i === 0 || (values[i - 1] ?? "") < value);
  return isSorted ? values : [...new Set(values)].sort();
}
