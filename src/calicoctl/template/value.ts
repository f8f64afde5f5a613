// Presents JSON data to templates with the field names and zero values of Calico's Go types. `.Spec.CIDR` is `spec.cidr`; a
// field that is not set is "", 0, false or nil, and a field that does not exist is an error.
import { showFloat } from "../../model/index.ts";

export type Shape =
  | { readonly type: "string" | "int" | "float" | "bool" | "any" }
  | { readonly type: "list" | "map"; readonly item: Shape }
  | StructShape;

export interface StructShape {
  readonly type: "struct";
  /** The type name for error messages, such as `v3.IPPoolSpec`. */
  readonly name: string;
  /** By the name of the field in lower case. */
  readonly fields: ReadonlyMap<string, Field>;
}
export interface Field {
  readonly shape: Shape;
  /** If the field is not set, its value is nil instead of the zero value. */
  readonly pointer?: boolean;
  /** Reads the field from the data of the struct. */
  readonly from: (data: unknown) => unknown;
}

export class Struct {
  constructor(
    readonly data: unknown,
    readonly shape: StructShape,
  ) {}
}
export class Float {
  constructor(readonly value: number) {}
}
export type Value =
  | undefined
  | string
  | number
  | bigint
  | boolean
  | Float
  | Struct
  | readonly Value[]
  | ReadonlyMap<string, Value>;

export const isList = (value: Value): value is readonly Value[] => Array.isArray(value);

/** Converts JSON data to the value of its Go type. */
export function wrap(data: unknown, shape: Shape, pointer = false): Value {
  if (data === undefined || data === null) return pointer ? undefined : zero(shape);
  switch (shape.type) {
    case "struct":
      return new Struct(data, shape);
    case "list":
      return Array.isArray(data) ? data.map((item) => wrap(item, shape.item)) : wrapAny(data);
    case "map":
      return new Map(Object.entries(data).map(([key, item]) => [key, wrap(item, shape.item)]));
    case "float":
      return typeof data === "number" ? new Float(data) : wrapAny(data);
    default:
      return wrapAny(data);
  }
}

function wrapAny(data: unknown): Value {
  if (data === null || data === undefined) return undefined;
  if (typeof data === "number" && !Number.isInteger(data)) return new Float(data);
  if (Array.isArray(data)) return data.map(wrapAny);
  if (typeof data === "object") return new Map(Object.entries(data).map(([key, item]) => [key, wrapAny(item)]));
  return data as string | number | bigint | boolean;
}

function zero(shape: Shape): Value {
  switch (shape.type) {
    case "string":
      return "";
    case "int":
      return 0;
    case "float":
      return new Float(0);
    case "bool":
      return false;
    case "list":
      return [];
    case "map":
      return new Map();
    case "struct":
      return new Struct({}, shape);
    default:
      return undefined;
  }
}

/** @throws Error if there is no such field */
export function fieldOf(value: Value, name: string): Value {
  if (value instanceof Struct) {
    const field = value.shape.fields.get(name.toLowerCase());
    if (field === undefined) throw new Error(`can't evaluate field ${name} in type ${value.shape.name}`);
    return wrap(field.from(value.data), field.shape, field.pointer);
  }
  if (value instanceof Map) return value.get(name) as Value;
  if (value === undefined) throw new Error(`nil pointer evaluating interface {}.${name}`);
  throw new Error(`can't evaluate field ${name} in type ${typeName(value)}`);
}

export function typeName(value: Value): string {
  if (value === undefined) return "nil";
  if (value instanceof Struct) return value.shape.name;
  if (value instanceof Float) return "float64";
  if (isList(value)) return "[]interface {}";
  if (value instanceof Map) return "map[string]interface {}";
  return { string: "string", boolean: "bool", number: "int", bigint: "int64" }[typeof value as "string"] ?? "value";
}

/** Formats a value like Go's `fmt.Print`. */
export function print(value: Value): string {
  if (value === undefined) return "<nil>";
  if (value instanceof Float) return showFloat(value.value);
  if (isList(value)) return `[${value.map(print).join(" ")}]`;
  if (value instanceof Struct)
    return `{${[...value.shape.fields.values()].map((f) => print(wrap(f.from(value.data), f.shape, f.pointer))).join(" ")}}`;
  if (value instanceof Map) {
    const keys = [...value.keys()].sort();
    return `map[${keys.map((key) => `${key}:${print(value.get(key) as Value)}`).join(" ")}]`;
  }
  return String(value);
}

/** Whether `if` uses its first branch. */
export function isTrue(value: Value): boolean {
  if (value instanceof Float) return value.value !== 0;
  if (isList(value)) return value.length > 0;
  if (value instanceof Map) return value.size > 0;
  return value instanceof Struct || Boolean(value);
}
