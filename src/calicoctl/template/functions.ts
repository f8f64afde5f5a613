// Implements the functions of templates: those of Go, and `join` and `joinAndTruncate` of calicoctl. The caller adds `config`.
import { Float, isList, isTrue, print, Struct, typeName, type Value } from "./value.ts";

export type TemplateFunction = (...args: Value[]) => Value;

const number = (value: Value): number => {
  if (value instanceof Float) return value.value;
  if (typeof value === "number" || typeof value === "bigint") return Number(value);
  throw new Error(`expected a number, got ${typeName(value)}`);
};

function compare(a: Value, b: Value): number {
  if (typeof a === "string" && typeof b === "string") return a < b ? -1 : a > b ? 1 : 0;
  if (typeof a === "boolean" || typeof b === "boolean" || typeof a === "string" || typeof b === "string")
    throw new Error("incompatible types for comparison");
  return number(a) - number(b);
}

function equal(a: Value, b: Value): boolean {
  if (a === undefined || b === undefined) return a === b;
  if (typeof a === "boolean" && typeof b === "boolean") return a === b;
  if (a instanceof Struct || b instanceof Struct || isList(a) || isList(b) || a instanceof Map || b instanceof Map)
    throw new Error("non-comparable type for comparison");
  return compare(a, b) === 0;
}

function at(value: Value, key: Value): Value {
  if (value instanceof Map) return value.get(String(key)) as Value;
  if (isList(value) || typeof value === "string") {
    const index = number(key);
    if (index < 0 || index >= value.length) throw new Error(`index out of range: ${index}`);
    return isList(value) ? value[index] : value.charCodeAt(index);
  }
  throw new Error(`can't index item of type ${typeName(value)}`);
}

/** Joins items with a separator, and truncates text longer than `limit`. A map is printed as sorted `key=value` items. */
function joinAndTruncate(items: Value, separator: string, limit: number): string {
  const list: readonly Value[] =
    items === undefined
      ? []
      : items instanceof Map
        ? [...items].map(([key, value]) => `${key}=${print(value)}`).sort()
        : isList(items)
          ? items
          : [items];
  const text = list.map(print).join(separator);
  return limit > 0 && text.length > limit ? `${text.slice(0, limit - 3)}...` : text;
}

/** Like Go's `print`, adds a space between two operands if neither is text. */
function printAll(args: readonly Value[]): string {
  return args.reduce<string>((text, arg, i) => {
    const gap = i > 0 && typeof arg !== "string" && typeof args[i - 1] !== "string" ? " " : "";
    return text + gap + print(arg);
  }, "");
}

const HTML: Readonly<Record<string, string>> = { "<": "&lt;", ">": "&gt;", "&": "&amp;", "'": "&#39;", '"': "&#34;" };

export const builtins: Readonly<Record<string, TemplateFunction>> = {
  not: (value) => !isTrue(value),
  eq: (first, ...others) => others.some((other) => equal(first, other)),
  ne: (a, b) => !equal(a, b),
  lt: (a, b) => compare(a, b) < 0,
  le: (a, b) => compare(a, b) <= 0,
  gt: (a, b) => compare(a, b) > 0,
  ge: (a, b) => compare(a, b) >= 0,
  len: (value) => {
    if (isList(value) || typeof value === "string") return value.length;
    if (value instanceof Map) return value.size;
    throw new Error(`len of type ${typeName(value)}`);
  },
  index: (value, ...keys) => keys.reduce(at, value),
  slice: (value, from = 0, to) => {
    if (!isList(value) && typeof value !== "string") throw new Error(`can't slice item of type ${typeName(value)}`);
    const end = to === undefined ? value.length : number(to);
    if (number(from) < 0 || end > value.length || number(from) > end) throw new Error("slice index out of range");
    return value.slice(number(from), end);
  },
  print: (...args) => printAll(args),
  println: (...args) => `${args.map(print).join(" ")}\n`,
  printf: (format, ...args) => formatText(print(format), args),
  html: (...args) => printAll(args).replace(/[<>&'"]/g, (char) => HTML[char] ?? char),
  js: (...args) => JSON.stringify(printAll(args)).slice(1, -1),
  urlquery: (...args) => encodeURIComponent(printAll(args)).replaceAll("%20", "+"),
  join: (items, separator) => joinAndTruncate(items, print(separator), 0),
  joinAndTruncate: (items, separator, limit) => joinAndTruncate(items, print(separator), number(limit)),
};

/** Implements the verbs of `fmt.Printf` that are useful for resources. */
function formatText(format: string, args: readonly Value[]): string {
  let next = 0;
  const text = format.replace(
    /%([-+# 0]*)(\d+)?(?:\.(\d+))?([a-zA-Z%])/g,
    (_, flags: string, width, precision, verb) => {
      if (verb === "%") return "%";
      if (next >= args.length) return `%!${verb}(MISSING)`;
      const body = formatVerb(args[next++], verb, precision === undefined ? undefined : Number(precision), flags);
      const size = Number(width ?? 0);
      if (flags.includes("-")) return body.padEnd(size);
      return body.padStart(size, flags.includes("0") && /^[\d.]+$/.test(body) ? "0" : " ");
    },
  );
  return next < args.length ? `${text}%!(EXTRA ${args.slice(next).map(print).join(", ")})` : text;
}

function formatVerb(value: Value, verb: string, precision: number | undefined, flags: string): string {
  const wrong = () => `%!${verb}(${typeName(value)}=${print(value)})`;
  const isNumber = typeof value === "number" || typeof value === "bigint" || value instanceof Float;
  switch (verb) {
    case "v":
      return print(value);
    case "s":
      return isNumber || typeof value === "boolean" ? wrong() : print(value).slice(0, precision);
    case "q":
      return typeof value === "string" ? JSON.stringify(value) : wrong();
    case "d":
      if (value instanceof Float || !isNumber) return wrong();
      return flags.includes("+") && number(value) >= 0 ? `+${value}` : String(value);
    case "t":
      return typeof value === "boolean" ? String(value) : wrong();
    case "x":
    case "X": {
      if (value instanceof Float || (!isNumber && typeof value !== "string")) return wrong();
      const hex = typeof value === "string" ? Buffer.from(value).toString("hex") : value.toString(16);
      return verb === "X" ? hex.toUpperCase() : hex;
    }
    case "f":
      return value instanceof Float ? value.value.toFixed(precision ?? 6) : wrong();
    case "e":
      return value instanceof Float ? value.value.toExponential(precision ?? 6) : wrong();
    case "g":
      return value instanceof Float ? print(value) : wrong();
    case "T":
      return typeName(value);
    default:
      return wrong();
  }
}
