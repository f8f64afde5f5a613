// Parses and prints JSON without losing precision of integers above 2^53, such as the 64-bit sequence numbers of IPAM. They
// are `bigint` in memory; all other numbers are `number`.

export type Json =
  | null
  | boolean
  | number
  | bigint
  | string
  | readonly Json[]
  | { readonly [name: string]: Json | undefined };
export type JsonObject = { readonly [name: string]: Json | undefined };

/** @throws SyntaxError, like `JSON.parse` */
export function parseLosslessJson(text: string): Json {
  // The reviver is slow, and not needed if the text has no 16 consecutive digits.
  if (!/\d{16}/.test(text)) return JSON.parse(text) as Json;
  try {
    return JSON.parse(text, reviveInteger) as Json;
  } catch (error) {
    // With a reviver, JSON.parse is recursive, and some thousand levels overflow the stack.
    if (error instanceof RangeError) throw new SyntaxError("JSON is nested too deeply", { cause: error });
    throw error;
  }
}

export function stringifyLosslessJson(value: unknown, indent?: number): string {
  return JSON.stringify(
    value,
    (_key, inner: unknown) => (typeof inner === "bigint" ? rawInteger(inner) : inner),
    indent,
  );
}

/** Formats any value as JSON for messages. A value that is nested too deeply is not shown. */
export function describeJson(value: unknown): string {
  try {
    return stringifyLosslessJson(value) ?? String(value);
  } catch (error) {
    if (error instanceof RangeError) return "a value that is nested too deeply";
    throw error;
  }
}

export function isJsonObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function reviveInteger(_key: string, value: unknown, context?: { readonly source?: string }): unknown {
  if (typeof value !== "number" || Number.isSafeInteger(value)) return value;
  const source = context?.source;
  return source !== undefined && /^-?\d+$/.test(source) ? BigInt(source) : value;
}

/** A value that `JSON.stringify` prints as these digits. Faster than a replacer if the positions of bigints are known. */
export const rawInteger = (value: bigint): unknown =>
  // https://tc39.es/proposal-json-parse-with-source/, which the compiler's library does not contain yet.
  (JSON as unknown as { rawJSON(text: string): unknown }).rawJSON(value.toString());
