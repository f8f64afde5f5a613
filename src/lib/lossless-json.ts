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
  return JSON.parse(text, keepWhole) as Json;
}

export function stringifyLosslessJson(value: unknown, indent?: number): string {
  return JSON.stringify(
    value,
    (_key, inner: unknown) => (typeof inner === "bigint" ? rawInteger(inner) : inner),
    indent,
  );
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
