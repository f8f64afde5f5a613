// Defines the type of a Felix setting: the parser of its text, and the schema of the FelixConfiguration field that sets it.
//
// Programs that must start fast import these files, so they do not import zod: a schema is built only when
// `kinds/felix-configuration.ts` calls `schema` and passes the functions of `kinds/fields.ts`.
import type * as z from "zod/mini";
import { isJsonObject, type Json, type JsonObject } from "../../lib/encoding/lossless-json.ts";

type Schema = z.ZodMiniType;
export type FieldSchemas = typeof import("../kinds/fields.ts");
type OptionalField<I extends Schema> = z.ZodMiniExactOptional<I>;
type DefaultedField<I extends Schema> = z.ZodMiniDefault<I>;

/** Looks up files and programs that values name. The caller implements it, because this module does no I/O. */
export interface HostFiles {
  exists(path: string): boolean;
  /** The full path of a program, searched next to Felix's own executable and then in PATH. */
  findExecutable(name: string): string | undefined;
}

export class InvalidSetting extends Error {
  override readonly name = "InvalidSetting";
  /** @param wanted describes valid values, such as "a number of seconds" */
  constructor(
    readonly text: string,
    readonly wanted: string,
  ) {
    super(`${JSON.stringify(text)} is not ${wanted}`);
  }
}

/**
 * @typeParam T the value in the typed configuration
 * @typeParam I the schema of the value in a FelixConfiguration
 * @typeParam S the same with the rule for absent values, see the list in kinds/fields.ts
 */
export interface ValueType<T = unknown, I extends Schema = Schema, S extends Schema = Schema> {
  /** As shown in the documentation. */
  readonly name: string;
  /** The value that the text `none` stands for. */
  readonly zero: T;
  /** Throws `InvalidSetting`. */
  parse(text: string, host: HostFiles): T;
  item(f: FieldSchemas): I;
  schema(f: FieldSchemas, defaultText: string): S;
  /** The text for a value of the resource's field; undefined if the field sets nothing. */
  toText(value: Json): string | undefined;
}

/** The types of text, numbers and so on are made with this; a field is a `pointer` unless stated otherwise. */
export function valueType<T, I extends Schema>(options: {
  readonly name: string;
  readonly zero: T;
  /** Describes valid values, for error messages. */
  readonly wanted: string;
  /** Returns undefined if the text is invalid. */
  readonly read: (text: string, host: HostFiles) => T | undefined;
  readonly item: (f: FieldSchemas) => I;
  readonly toText?: (value: Json) => string | undefined;
}): ValueType<T, I, OptionalField<I>> {
  const { name, zero, wanted, read, item, toText = fieldText } = options;
  return {
    name,
    zero,
    parse: (text, host) => {
      const value = read(text, host);
      if (value === undefined) throw new InvalidSetting(text, wanted);
      return value;
    },
    item,
    schema: (f) => f.pointer(item(f)),
    toText,
  };
}

/** The same type with another schema of the field. */
export const withSchema = <T, S extends Schema>(
  type: ValueType<T>,
  schema: (f: FieldSchemas) => S,
): ValueType<T, Schema, S> => ({ ...type, schema });

/** An empty field is not stored and sets nothing, as with `omitempty` in Go. */
export const omitEmpty = <T, I extends Schema>(type: ValueType<T, I>): ValueType<T, I, OptionalField<I>> => ({
  ...type,
  schema: (f) => f.field(type.item(f)),
});

/** An absent field is stored with the setting's default. */
export const initial = <T, I extends Schema>(type: ValueType<T, I>): ValueType<T, I, DefaultedField<I>> => ({
  ...type,
  schema: (f, defaultText) => f.initial(type.item(f), defaultText as z.output<I>),
});
/** An absent or empty field is stored with the setting's default. */
export const preset = <T, I extends Schema>(type: ValueType<T, I>): ValueType<T, I, DefaultedField<I>> => ({
  ...type,
  schema: (f, defaultText) => f.preset(type.item(f), defaultText as z.output<I>),
});
/** The default is stored by calico-ts but not by the API server, see `unserved` in kinds/fields.ts. */
export const unserved = <T, I extends Schema, S extends Schema>(type: ValueType<T, I, S>): ValueType<T, I, S> => ({
  ...type,
  schema: (f, defaultText) => f.unserved(type.schema(f, defaultText)),
});

/** The text for a field of no particular type, also for fields that this version does not define. */
export function fieldText(value: Json): string | undefined {
  if (value === null || value === "") return undefined;
  if (Array.isArray(value)) {
    const items = value as readonly Json[];
    if (items.length === 0) return undefined;
    return items.map((item) => (isJsonObject(item) ? itemText(item) : String(item))).join(",");
  }
  return isJsonObject(value) ? objectText(value) : String(value);
}

function itemText(item: JsonObject): string {
  if (item["port"] !== undefined) return failsafePortText(item);
  if (item["timeout"] !== undefined) return `${String(item["name"] ?? "")}=${String(item["timeout"])}`;
  return `${String(item["min"] ?? 0)}-${String(item["max"] ?? 0)}`;
}

/** `tcp:22`, `udp:10.0.0.0/8:68`, `tcp:[fd00::/64]:22` */
function failsafePortText(item: JsonObject): string {
  const protocol = String(item["protocol"] ?? "tcp").toLowerCase();
  const net = String(item["net"] ?? "");
  const middle = net === "" ? "" : net.includes(":") ? `[${net}]:` : `${net}:`;
  return `${protocol}:${middle}${String(item["port"])}`;
}

function objectText(value: JsonObject): string | undefined {
  if (value["min"] !== undefined || value["max"] !== undefined) return itemText(value);
  const pairs = Object.entries(value)
    .filter(([, inner]) => inner !== undefined && inner !== null && inner !== "")
    .map(([name, inner]) => `${name}=${String(inner)},`)
    .sort();
  return pairs.length === 0 ? undefined : pairs.join("");
}
