// Converts the syntax tree of an input to plain values for schemas, and finds the position of a field in the tree.
import type { Node, ScalarNode } from "./yaml.ts";

export type Path = readonly (string | number)[];

/** Returns the plain value that a schema decodes. */
export function toValue(node: Node): unknown {
  switch (node.kind) {
    case "scalar":
      // An integer that a number cannot represent exactly is passed as its text.
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

/** Returns the offset of a field such as `spec.ingress[0].action`, or of the innermost existing field that contains it. */
export function offsetOfField(root: Node, field: string): number {
  return walk(root, field, root.offset).offset;
}

interface Found {
  readonly offset: number;
  readonly path: Path;
  /** The node, if the whole path exists. */
  readonly node?: Node;
}

/** Keys may contain dots, so every key that matches is tried, and the longest match is used. */
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
 * Decodes a value. If the schema rejects the type that an unquoted scalar was read as, decodes it again with the other
 * reading: `1.10` as text, `yes` as true.
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
  // If the schema expects text, a number is replaced by its digits as written, not as JavaScript would print it.
  else
    for (const { node, path } of reformattedNumbers(root))
      if (valueAt(first.resource, path) === String(node.value)) swap("", path, node.text);
  if (swaps.length === 0) return first;
  const second = decode(value);
  if (second.ok) return second;
  // A field that is invalid in both readings is reported with the first.
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
  // A number that prints as it was written would be rejected again, for example a duration of 0 without a unit.
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

/** Sets a key from the input, which may be `__proto__`, without changing the prototype. */
function define(map: Record<string, unknown>, key: string, value: unknown): void {
  if (key === "__proto__")
    Object.defineProperty(map, key, { value, enumerable: true, writable: true, configurable: true });
  else map[key] = value;
}
