// Between the tree of an input and plain values: what a schema sees, and the way back from a field to its line.
import type { Node, ScalarNode } from "./yaml.ts";

export type Path = readonly (string | number)[];

/** Plain values: what a schema decodes. */
export function toValue(node: Node): unknown {
  switch (node.kind) {
    case "scalar":
      // Digits beyond what a number can hold stay digits.
      return typeof node.value === "bigint" ? node.text : node.value;
    case "list":
      return node.items.map(toValue);
    default: {
      const map: Record<string, unknown> = {};
      for (const [key, { node: child }] of node.entries) define(map, key, toValue(child));
      return map;
    }
  }
}

/** The offset of a field named as faults name them (`spec.ingress[0].action`), or of the nearest that contains it. */
export function offsetOfField(root: Node, field: string): number {
  return walk(root, field, root.offset).offset;
}

interface Found {
  readonly offset: number;
  readonly path: Path;
  /** The node itself, when the whole name was found. */
  readonly node?: Node;
}

/** Keys may hold dots themselves, so every key that fits is tried and the one that leads furthest wins. */
function walk(node: Node, rest: string, offset: number, path: Path = []): Found {
  if (rest === "") return { offset, path, node };
  let best: Found = { offset, path };
  const consider = (found: Found) => {
    if (found.node !== undefined || (best.node === undefined && found.path.length > best.path.length)) best = found;
  };
  if (node.kind === "map")
    for (const [key, entry] of node.entries) {
      const after = [key, `.${key}`].find((name) => rest.startsWith(name) && isStepEnd(rest, name.length));
      if (after !== undefined) consider(walk(entry.node, rest.slice(after.length), entry.offset, [...path, key]));
    }
  else if (node.kind === "list") {
    const index = /^\[(\d+)\]/.exec(rest);
    const item = index === null ? undefined : node.items[Number(index[1])];
    if (index !== null && item !== undefined)
      consider(walk(item, rest.slice(index[0].length), item.offset, [...path, Number(index[1])]));
  }
  return best;
}

const isStepEnd = (text: string, at: number) => at === text.length || text[at] === "." || text[at] === "[";

type Decoded<R> =
  | { readonly ok: true; readonly resource: R }
  | { readonly ok: false; readonly faults: readonly { field: string }[] };

/**
 * Decodes, and where a schema stumbles over how a plain word was read, tries what was written: `1.10` as text,
 * `yes` as true. What needs no second reading is decoded once.
 */
export function recoverWrittenText<D extends Decoded<unknown>>(
  root: Node,
  value: unknown,
  decode: (value: unknown) => D,
): D {
  const first = decode(value);
  const swaps: Swap[] = [];
  const swap = (field: string, path: Path, written: unknown) => {
    swaps.push({ field, path, before: valueAt(value, path) });
    setAt(value, path, written);
  };
  if (!first.ok)
    for (const { field } of first.faults) {
      const { node, path } = walk(root, field, root.offset);
      const other = node?.kind === "scalar" && node.plain ? otherReading(node) : undefined;
      if (other !== undefined) swap(field, path, other);
    }
  // Text is wanted and a number was read: its digits are the text, not how we would print the number.
  else
    for (const { node, path } of reformattedNumbers(root))
      if (valueAt(first.resource, path) === String(node.value)) swap("", path, node.text);
  if (swaps.length === 0) return first;
  const second = decode(value);
  if (second.ok) return second;
  // What is wrong either way is told as it was read.
  const still = new Set(second.faults.map(({ field }) => field));
  for (const { field, path, before } of swaps) if (still.has(field)) setAt(value, path, before);
  return decode(value);
}

interface Swap {
  readonly field: string;
  readonly path: Path;
  readonly before: unknown;
}

function otherReading(node: ScalarNode): unknown {
  if (/^(y|yes|on)$/i.test(node.text)) return true;
  if (/^(n|no|off)$/i.test(node.text)) return false;
  // A bare number that is no text as it is read is none as it was written either: a time of 0 has no unit.
  return typeof node.value === "number" && String(node.value) !== node.text ? node.text : undefined;
}

function* reformattedNumbers(node: Node, path: Path = []): Generator<{ node: ScalarNode; path: Path }> {
  if (node.kind === "scalar") {
    if (node.plain && typeof node.value === "number" && String(node.value) !== node.text) yield { node, path };
  } else if (node.kind === "list")
    for (const [i, item] of node.items.entries()) yield* reformattedNumbers(item, [...path, i]);
  else for (const [key, entry] of node.entries) yield* reformattedNumbers(entry.node, [...path, key]);
}

function valueAt(value: unknown, path: Path): unknown {
  return path.reduce<unknown>((at, step) => (at as Record<string | number, unknown> | undefined)?.[step], value);
}

function setAt(value: unknown, path: Path, replacement: unknown): void {
  let holder = value as Record<string | number, unknown>;
  for (const step of path.slice(0, -1)) holder = holder[step] as Record<string | number, unknown>;
  const last = path.at(-1);
  if (last !== undefined) define(holder as Record<string, unknown>, String(last), replacement);
}

/** A key from outside named `__proto__` is a key, never the prototype. */
function define(map: Record<string, unknown>, key: string, value: unknown): void {
  if (key === "__proto__")
    Object.defineProperty(map, key, { value, enumerable: true, writable: true, configurable: true });
  else map[key] = value;
}
