// Converts user input to the stored form, according to a kind's schema: removes nulls and empty values as described in
// `fields.ts`, converts numbers to text in text fields, and normalises durations and ports. Unknown fields and wrong
// types are reported here; the schema then validates the values.
//
// Each schema is compiled once to a decoder function, because decoding is called for every resource of a list.
import type * as z from "zod/mini";
import { nearest } from "../../lib/nearest-name.ts";
import { type FieldFault, fieldPath } from "../validation/faults.ts";
import { type Extra, extras } from "./fields.ts";
import { isStoredAt, type PreservedField } from "./preserved-fields.ts";

export interface Decoding {
  readonly faults: FieldFault[];
  /** The path of the current value, from the top of the resource. */
  readonly path: (string | number)[];
  /** Enforce limits and reject unknown fields. False for stored resources, which another version may have written. */
  readonly strict: boolean;
  /** The resource that is changed. Unknown fields that are equal there are collected in `preserved`. */
  readonly stored?: unknown;
  readonly preserved: PreservedField[];
}

/** Returns the stored form of a value; undefined if it counts as absent. */
type Decoder = (value: unknown, at: Decoding) => unknown;
interface Member {
  readonly decode: Decoder;
  /** Empty values are not stored. */
  readonly dropEmpty: boolean;
}

export function compileDecoder(schema: z.core.$ZodType): Decoder {
  const { def } = (schema as z.ZodMiniType)._zod;
  const extra = extras.get(schema as z.ZodMiniType) ?? {};
  const plain = typed(schema, def as z.core.$ZodTypeDef & Record<string, unknown>, extra);
  const own = extra.decode;
  const limit = extra.limit;
  const read: Decoder = own === undefined ? plain : (value, at) => plain(own(value), at);
  if (limit === undefined) return read;
  return (value, at) => {
    const decoded = read(value, at);
    if (at.strict && (typeof decoded === "string" || Array.isArray(decoded)) && decoded.length > limit)
      report(
        at,
        typeof decoded === "string" ? decoded : undefined,
        `has ${decoded.length} ${Array.isArray(decoded) ? "items" : "characters"}, want at most ${limit}`,
      );
    return decoded;
  };
}

function typed(schema: z.core.$ZodType, def: z.core.$ZodTypeDef & Record<string, unknown>, extra: Extra): Decoder {
  switch (def.type) {
    case "object":
      return objectDecoder(def["shape"] as Record<string, z.core.$ZodType>);
    case "array": {
      const element = def["element"] as z.core.$ZodType;
      const item = compileDecoder(element);
      const holes = element._zod.def.type === "nullable";
      return (value, at) =>
        Array.isArray(value) ? decodeItems(value, item, holes, at) : mismatch(value, "a list", at);
    }
    case "record": {
      const item = compileDecoder(def["valueType"] as z.core.$ZodType);
      return (value, at) => (isObject(value) ? decodeEntries(value, item, at) : mismatch(value, "a map", at));
    }
    case "nullable": {
      const inner = compileDecoder(def["innerType"] as z.core.$ZodType);
      return (value, at) => (value === null ? null : inner(value, at));
    }
    case "optional":
    case "default":
      return compileDecoder(def["innerType"] as z.core.$ZodType);
    case "literal":
      if ((def["values"] as readonly unknown[]).every((value) => typeof value === "number"))
        return (value, at) => (typeof value === "number" ? value : mismatch(value, "a number", at));
      return typed(schema, { ...def, type: "string" }, extra);
    case "number":
      return (value, at) => {
        if (typeof value === "number") return value;
        return mismatch(value, extra.wanted ?? (hasTooManyDigits(value) ? EXACT_NUMBER : "a number"), at);
      };
    case "boolean":
      return (value, at) => (typeof value === "boolean" ? value : mismatch(value, "true or false", at));
    case "string":
    case "enum":
      // A duration written as a number has no unit, so it is not converted to text.
      if (extra.decode !== undefined)
        return (value, at) => (typeof value === "string" ? value : mismatch(value, extra.wanted ?? "text", at));
      return (value, at) => {
        if (typeof value === "string") return value;
        if (typeof value === "number" || typeof value === "boolean") return String(value);
        return mismatch(value, "text", at);
      };
    case "custom":
    case "unknown":
      return (value) => value;
    default:
      throw new Error(`no decoder for a ${def.type} schema (${schema.constructor.name})`);
  }
}

function objectDecoder(shape: Record<string, z.core.$ZodType>): Decoder {
  const members = new Map<string, Member>();
  for (const [key, schema] of Object.entries(shape)) {
    const { type } = (schema as z.ZodMiniType)._zod.def;
    const storesEmpty = extras.get(schema as z.ZodMiniType)?.pointer === true;
    members.set(key, {
      decode: compileDecoder(schema),
      dropEmpty: !storesEmpty && (type === "optional" || type === "default"),
    });
  }
  return (value, at) => {
    if (!isObject(value)) return mismatch(value, "a group of fields", at);
    const result: Record<string, unknown> = {};
    for (const key in value) {
      const member = members.get(key);
      const given = value[key];
      at.path.push(key);
      if (member === undefined) {
        if (isStoredAt(at.stored, at.path, given)) at.preserved.push({ path: [...at.path], value: given });
        else if (at.strict) unknownField(key, given, members, at);
      } else if (given !== null && given !== undefined) {
        const decoded = member.decode(given, at);
        if (decoded !== undefined && !(member.dropEmpty && isEmpty(decoded))) result[key] = decoded;
      }
      at.path.pop();
    }
    return result;
  };
}

function decodeItems(items: readonly unknown[], decode: Decoder, holes: boolean, at: Decoding): unknown[] {
  const result: unknown[] = [];
  for (let i = 0; i < items.length; i++) {
    at.path.push(i);
    if ((items[i] === null || items[i] === undefined) && !holes) report(at, null, "empty items are not allowed");
    else result.push(decode(items[i], at));
    at.path.pop();
  }
  return result;
}

function decodeEntries(entries: Record<string, unknown>, decode: Decoder, at: Decoding): Record<string, unknown> {
  const result: Record<string, unknown> = {};
  for (const key of Object.keys(entries)) {
    at.path.push(key);
    // In YAML, a key without a value is null; it is stored as empty text.
    Object.defineProperty(result, key, {
      value: decode(entries[key] ?? "", at),
      enumerable: true,
      writable: true,
      configurable: true,
    });
    at.path.pop();
  }
  return result;
}

function unknownField(key: string, value: unknown, known: ReadonlyMap<string, unknown>, at: Decoding): void {
  const hint = nearest(key, known.keys());
  const among = known.size <= 8 ? `; known fields: ${[...known.keys()].join(", ")}` : "";
  report(
    at,
    isObject(value) || Array.isArray(value) ? undefined : value,
    `unknown field${hint === undefined ? among : `, did you mean ${hint}?`}`,
  );
}

const EXACT_NUMBER = `an integer of at most ${Number.MAX_SAFE_INTEGER}`;

/** The file parsers return integers that a double cannot represent exactly as text. */
const hasTooManyDigits = (value: unknown): boolean =>
  typeof value === "string" && /^[-+]?\d+$/.test(value) && !Number.isSafeInteger(Number(value));

function mismatch(value: unknown, wanted: string, at: Decoding): unknown {
  report(at, value, wanted.startsWith("want") ? wanted : `want ${wanted}`);
  return undefined;
}

function report(at: Decoding, value: unknown, reason: string): void {
  const fault = { field: fieldPath(at.path), reason };
  at.faults.push(value === undefined ? fault : { ...fault, value });
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isEmpty(value: unknown): boolean {
  if (value === "" || value === 0 || value === false) return true;
  if (Array.isArray(value)) return value.length === 0;
  if (!isObject(value)) return false;
  for (const _ in value) return false;
  return true;
}
