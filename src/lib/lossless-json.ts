// JSON that keeps integers beyond 2^53 whole: they are `bigint` in memory and digits in the text. IPAM's sequence
// numbers are 64-bit. All other numbers stay numbers.

export type Json =
  | null
  | boolean
  | number
  | bigint
  | string
  | readonly Json[]
  | { readonly [name: string]: Json | undefined };
export type JsonObject = { readonly [name: string]: Json | undefined };

/** Throws `SyntaxError`, as `JSON.parse` does. */
export function parseLosslessJson(text: string): Json {
  // The reviver is slow; without a run of 16 digits there is nothing for it to do.
  if (!/\d{16}/.test(text)) return JSON.parse(text) as Json;
  try {
    return JSON.parse(text, keepWhole) as Json;
  } catch (error) {
    // With a reviver, JSON.parse uses the stack of the process for each level: some thousand levels are too many.
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

/** A value of any shape as JSON, for messages: big integers are digits, and what is nested too deeply is not shown. */
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

function keepWhole(_key: string, value: unknown, context?: { readonly source?: string }): unknown {
  if (typeof value !== "number" || Number.isSafeInteger(value)) return value;
  const source = context?.source;
  return source !== undefined && /^-?\d+$/.test(source) ? BigInt(source) : value;
}

/** What `JSON.stringify` writes as these digits: faster than a replacer where the places are known. */
export const rawInteger = (value: bigint): unknown =>
  // https://tc39.es/proposal-json-parse-with-source/: not yet in the compiler's library.
  (JSON as unknown as { rawJSON(text: string): unknown }).rawJSON(value.toString());
