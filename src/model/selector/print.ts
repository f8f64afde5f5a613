// The canonical text of a selector (equal selectors print alike) and the names made of it.
import { foldSelector, type Selector, type SelectorFold, type SelectorLeaf } from "./ast.ts";
import { SelectorError } from "./lex.ts";

const OPERATOR_TEXT = {
  equals: "==",
  notEquals: "!=",
  contains: "contains",
  startsWith: "starts with",
  endsWith: "ends with",
  in: "in",
  notIn: "not in",
} as const;

export const printSelector = (selector: Selector): string => print(selector, (operand) => `!${operand}`);

/** Text that reads as this very selector again: in the canonical one a double negation would cancel out. */
export const writeSelector = (selector: Selector): string =>
  print(selector, (operand, node) => (node.operand.kind === "not" ? `!(${operand})` : `!${operand}`));

function print(selector: Selector, not: SelectorFold<string>["not"]): string {
  return foldSelector<string>(selector, {
    leaf: printLeaf,
    not,
    list: (kind, operands) => {
      // Ropes, joined once at the end: `join` would copy deep nests again at every level.
      let text = "(";
      for (const [i, operand] of operands.entries()) {
        if (i > 0) text += kind === "and" ? " && " : " || ";
        text += operand;
      }
      return `${text})`;
    },
  });
}

function printLeaf(leaf: SelectorLeaf): string {
  switch (leaf.kind) {
    case "all":
    case "global":
      return `${leaf.kind}()`;
    case "has":
      return `has(${leaf.label})`;
    case "in":
    case "notIn":
      return `${leaf.label} ${OPERATOR_TEXT[leaf.kind]} {${leaf.values.map(quoteValue).join(", ")}}`;
    default:
      return `${leaf.label} ${OPERATOR_TEXT[leaf.kind]} ${quoteValue(leaf.value)}`;
  }
}

/**
 * A value holds at most one sort of quotes: the language has no escapes. Values that were not parsed (names of accounts
 * and namespaces) may hold both, and would be read as something else.
 */
function quoteValue(value: string): string {
  if (value.includes('"') && value.includes("'"))
    throw new SelectorError(value, 0, "a value with both sorts of quotes cannot be selected");
  return value.includes('"') ? `'${value}'` : `"${value}"`;
}

/** `prefix:` and the SHA-224 of `prefix:content`, base64url. Also names the sets of named ports and services. */
export function uniqueId(prefix: string, content: string): string {
  return `${prefix}:${new Bun.CryptoHasher("sha224").update(`${prefix}:${content}`).digest("base64url")}`;
}

/**
 * `prefix` + `suffix` when that fits in `maxLength`, else `prefix_` and as much of the suffix's SHA-256 as does.
 * A suffix that begins with `_` and just fits is hashed too, so that it cannot pass for a hash.
 */
export function lengthLimitedId(prefix: string, suffix: string, maxLength: number): string {
  const tail = suffix === "" ? "_" : suffix;
  const length = Buffer.byteLength(prefix) + Buffer.byteLength(tail);
  if (length < maxLength || (length === maxLength && !tail.startsWith("_"))) return prefix + tail;
  return hashedId(prefix, tail, maxLength);
}

/** `prefix_` and as much of the suffix's SHA-256 as fits. */
export function hashedId(prefix: string, suffix: string, maxLength: number): string {
  return `${prefix}_${new Bun.CryptoHasher("sha256").update(suffix).digest("base64url")}`.slice(0, maxLength);
}
