// Compiles selectors to functions. `and`, `or` and `not` become jumps between the tests of labels, so matching is one
// loop and does not depend on how deeply the selector is nested.
import { unreachable } from "../../lib/unreachable.ts";
import type { Labels } from "../resource.ts";
import type { Selector, SelectorLeaf } from "./ast.ts";

/** Returns the values of labels. Implemented by `Map`, and by endpoints that inherit labels from profiles. */
export interface LabelLookup {
  get(label: string): string | undefined;
}
export type Matcher = (labels: LabelLookup) => boolean;

const ACCEPT = -1;
const REJECT = -2;

export function compileSelector(selector: Selector): Matcher {
  const program = assemble(selector);
  const [only] = program.tests;
  if (only !== undefined && program.tests.length === 1) {
    return program.onTrue[0] === ACCEPT ? only : (labels) => !only(labels);
  }
  const { tests, onTrue, onFalse } = program;
  return (labels) => {
    let at = 0;
    do {
      // The target of a jump is a test, ACCEPT or REJECT.
      at = ((tests[at] as Matcher)(labels) ? onTrue[at] : onFalse[at]) as number;
    } while (at >= 0);
    return at === ACCEPT;
  };
}

/** Compiles the selector for a single match. Callers that match more often keep the compiled selector. */
export const matchesSelector = (selector: Selector, labels: Labels): boolean =>
  compileSelector(selector)(lookupIn(labels));

/** Adapts a plain object. */
export const lookupIn = (labels: Labels): LabelLookup => ({
  get: (label) => (Object.hasOwn(labels, label) ? labels[label] : undefined),
});

interface Program {
  readonly tests: readonly Matcher[];
  readonly onTrue: Int32Array;
  readonly onFalse: Int32Array;
}

/** Emits one test per leaf, from left to right. Jump targets are numbered first, and resolved when all tests exist. */
function assemble(selector: Selector): Program {
  type Work =
    | { readonly node: Selector; readonly whenTrue: number; readonly whenFalse: number }
    | { readonly bind: number };
  const tests: Matcher[] = [];
  const jumps: { whenTrue: number; whenFalse: number }[] = [];
  const positionOf: number[] = []; // by target number
  let places = 0;
  const work: Work[] = [{ node: selector, whenTrue: ACCEPT, whenFalse: REJECT }];
  for (let item = work.pop(); item !== undefined; item = work.pop()) {
    if ("bind" in item) {
      positionOf[item.bind] = tests.length;
      continue;
    }
    const { node, whenTrue, whenFalse } = item;
    if (node.kind === "not") {
      work.push({ node: node.operand, whenTrue: whenFalse, whenFalse: whenTrue });
    } else if (node.kind === "and" || node.kind === "or") {
      let next: number | undefined; // the target number of the operand to the right
      for (let i = node.operands.length - 1; i >= 0; i--) {
        const operand = node.operands[i];
        if (operand === undefined) continue;
        const place: number | undefined = i > 0 ? places++ : undefined;
        const step = { node: operand, whenTrue, whenFalse };
        if (next !== undefined) step[node.kind === "and" ? "whenTrue" : "whenFalse"] = next;
        work.push(step);
        if (place !== undefined) work.push({ bind: place });
        next = place;
      }
    } else {
      tests.push(compileLeaf(node));
      jumps.push({ whenTrue, whenFalse });
    }
  }
  const resolve = (place: number): number => (place < 0 ? place : (positionOf[place] ?? REJECT));
  return {
    tests,
    onTrue: Int32Array.from(jumps, (jump) => resolve(jump.whenTrue)),
    onFalse: Int32Array.from(jumps, (jump) => resolve(jump.whenFalse)),
  };
}

function compileLeaf(leaf: SelectorLeaf): Matcher {
  switch (leaf.kind) {
    case "all":
    case "global":
      return () => true;
    case "has":
      return (labels) => labels.get(leaf.label) !== undefined;
    case "in":
    case "notIn": {
      const { label } = leaf;
      const values = new Set(leaf.values);
      const wanted = leaf.kind === "in";
      return (labels) => {
        const value = labels.get(label);
        return (value !== undefined && values.has(value)) === wanted;
      };
    }
    case "equals": {
      const { label, value } = leaf;
      return (labels) => labels.get(label) === value;
    }
    case "notEquals": {
      const { label, value } = leaf;
      return (labels) => labels.get(label) !== value;
    }
    case "contains": {
      const { label, value } = leaf;
      return (labels) => labels.get(label)?.includes(value) === true;
    }
    case "startsWith": {
      const { label, value } = leaf;
      return (labels) => labels.get(label)?.startsWith(value) === true;
    }
    case "endsWith": {
      const { label, value } = leaf;
      return (labels) => labels.get(label)?.endsWith(value) === true;
    }
    default:
      return unreachable(leaf);
  }
}
