// Prints the canonical text of selectors, and derives the names of IP sets and chains from it.
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

/** Prints text that parses to exactly this tree. In the canonical text, a double negation would cancel out. */
export const writeSelector = (selector: Selector): string =>
  print(selector, (operand, node) => (node.operand.kind === "not" ? `!(${operand})` : `!${operand}`));

function print(selector: Selector, not: SelectorFold<string>["not"]): string {
  return foldSelector<string>(selector, {
    leaf: printLeaf,
    not,
    list: (kind, operands) => {
      // The engine concatenates with `+=` lazily (ropes). `join` would copy the operands at every level of nesting.
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
 * Parsed values contain at most one kind of quote, because the language has no escapes. Other values (names of service
 * accounts and namespaces) may contain both, and cannot be printed.
 */
function quoteValue(value: string): string {
  if (value.includes('"') && value.includes("'"))
    throw new SelectorError(value, 0, "a value that contains both kinds of quotes cannot be used in a selector");
  return value.includes('"') ? `'${value}'` : `"${value}"`;
}

/** Returns `prefix:` and the base64url SHA-224 of `prefix:content`. Sets of named ports and services are named so too. */
export function uniqueId(prefix: string, content: string): string {
  return `${prefix}:${new Bun.CryptoHasher("sha224").update(`${prefix}:${content}`).digest("base64url")}`;
}

/**
 * Returns `prefix` + `suffix` if that has at most `maxLength` characters, otherwise `prefix_` and as much of the SHA-256 of
 * the suffix as fits. A suffix of the maximum length that begins with `_` is hashed too, so that it cannot equal a hash.
 */
export function lengthLimitedId(prefix: string, suffix: string, maxLength: number): string {
  const tail = suffix === "" ? "_" : suffix;
  const length = Buffer.byteLength(prefix) + Buffer.byteLength(tail);
  if (length < maxLength || (length === maxLength && !tail.startsWith("_"))) return prefix + tail;
  return hashedId(prefix, tail, maxLength);
}

/** Returns `prefix_` and as much of the SHA-256 of the suffix as fits. */
export function hashedId(prefix: string, suffix: string, maxLength: number): string {
  return `${prefix}_${new Bun.CryptoHasher("sha256").update(suffix).digest("base64url")}`.slice(0, maxLength);
}
