// Derives the Go type of each kind from its schema, for templates: Go's field names differ from those of the schema only in
// case, and the fields of the embedded TypeMeta and ObjectMeta are also fields of the resource itself.
import { loadSchemas } from "../../model/index.ts";
import type { ManagedKind } from "../resources/kinds.ts";
import type { Field, Shape, StructShape } from "./value.ts";

/** The part of a zod schema that is read here. */
interface SchemaLike {
  readonly _zod: { readonly def: { readonly type: string } };
}
type IsPointer = (schema: SchemaLike) => boolean;

const key = (name: string) => (data: unknown) => (data as Readonly<Record<string, unknown>> | undefined)?.[name];
const itself = (data: unknown) => data;
const text: Shape = { type: "string" };
const labels: Shape = { type: "map", item: text };

const OBJECT_META: StructShape = {
  type: "struct",
  name: "v1.ObjectMeta",
  fields: fields({
    name: text,
    generateName: text,
    namespace: text,
    uid: text,
    resourceVersion: text,
    generation: { type: "int" },
    creationTimestamp: text,
    deletionTimestamp: text,
    labels,
    annotations: labels,
    ownerReferences: { type: "list", item: { type: "any" } },
    finalizers: { type: "list", item: text },
  }),
};
const TYPE_META: StructShape = {
  type: "struct",
  name: "v1.TypeMeta",
  fields: fields({ kind: text, apiVersion: text }),
};
const LIST_META: StructShape = { type: "struct", name: "v1.ListMeta", fields: fields({ resourceVersion: text }) };

function fields(shapes: Readonly<Record<string, Shape>>): Map<string, Field> {
  return new Map(Object.entries(shapes).map(([name, shape]) => [name.toLowerCase(), { shape, from: key(name) }]));
}

/** Returns an embedded struct and its fields, which are also fields of the embedding struct. */
function embedded(name: string, shape: StructShape, from: (data: unknown) => unknown): [string, Field][] {
  const promoted = [...shape.fields].map(([field, f]): [string, Field] => [
    field,
    { ...f, from: (data) => f.from(from(data)) },
  ]);
  return [[name.toLowerCase(), { shape, from }], ...promoted];
}

/** Returns the types of one resource and of a list of resources. */
export async function shapesOf(kind: ManagedKind): Promise<{ one: StructShape; list: StructShape }> {
  const { loadDefinition, schemaExtras } = await loadSchemas();
  const definition = await loadDefinition(kind);
  const isPointer: IsPointer = (schema) =>
    schemaExtras.get(schema as unknown as Parameters<typeof schemaExtras.get>[0])?.pointer === true;
  const part = (schema: unknown, name: string) => shapeOf(schema as SchemaLike, `v3.${kind}${name}`, isPointer);
  const one: StructShape = {
    type: "struct",
    name: `v3.${kind}`,
    fields: new Map([
      ...embedded("TypeMeta", TYPE_META, itself),
      ...embedded("ObjectMeta", OBJECT_META, key("metadata")),
      ["spec", { shape: part(definition.spec, "Spec"), from: key("spec") }],
      ...(definition.status === undefined
        ? []
        : ([["status", { shape: part(definition.status, "Status"), from: key("status") }]] as [string, Field][])),
    ]),
  };
  const list: StructShape = {
    type: "struct",
    name: `v3.${kind}List`,
    fields: new Map([
      ...embedded("TypeMeta", TYPE_META, itself),
      ...embedded("ListMeta", LIST_META, key("metadata")),
      ["items", { shape: { type: "list", item: one }, from: key("items") }],
    ]),
  };
  return { one, list };
}

function shapeOf(schema: SchemaLike, name: string, isPointer: IsPointer): Shape {
  const def = schema._zod.def as Readonly<Record<string, unknown>> & { readonly type: string };
  const inner = (property: string, suffix = "") => shapeOf(def[property] as SchemaLike, name + suffix, isPointer);
  switch (def.type) {
    case "object": {
      const members = Object.entries(def["shape"] as Readonly<Record<string, SchemaLike>>);
      return {
        type: "struct",
        name,
        fields: new Map(
          members.map(([member, memberSchema]) => [
            member.toLowerCase(),
            {
              shape: shapeOf(memberSchema, `${name}.${member}`, isPointer),
              from: key(member),
              pointer: isPointer(memberSchema),
            },
          ]),
        ),
      };
    }
    case "array":
      return { type: "list", item: inner("element") };
    case "record":
      return { type: "map", item: inner("valueType") };
    case "optional":
    case "default":
    case "nullable":
      return inner("innerType");
    case "string":
    case "enum":
    case "literal":
      return text;
    case "boolean":
      return { type: "bool" };
    case "number":
      return { type: def["format"] === undefined ? "float" : "int" };
    default:
      return { type: "any" };
  }
}
