// Generates custom resource definitions from the schemas of kinds: `crd.projectcalico.org/v1`, the form in which
// resources are stored in the Kubernetes API. The API server accepts only structural schemas: one type per node, and no
// unions except int-or-string.
import * as z from "zod/mini";
import { type Kind, kindOf, selectableFields } from "../kinds.ts";
import type { SchemaKind } from "../resources.ts";
import { loadDefinition, SCHEMA_KINDS } from "../validation/schemas.ts";
import { DESCRIPTIONS } from "./descriptions.ts";
import { extras } from "./fields.ts";
import { NESTED_DESCRIPTIONS, STATUS_DESCRIPTIONS } from "./nested-descriptions.ts";

/** Kinds without a CRD: Kubernetes stores them as Nodes, Pods, and Namespaces or ServiceAccounts. */
const NATIVE: readonly SchemaKind[] = ["Node", "WorkloadEndpoint", "Profile"];
export const CRD_KINDS = SCHEMA_KINDS.filter((kind) => !NATIVE.includes(kind));
export const CRD_GROUP = "crd.projectcalico.org";

type Json = Record<string, unknown>;

export async function customResourceDefinition(kindName: SchemaKind): Promise<Json> {
  const definition = await loadDefinition(kindName);
  const kind = storedKind(kindOf(kindName));
  const properties: Json = {
    apiVersion: { type: "string" },
    kind: { type: "string" },
    metadata: { type: "object" },
    spec: await describedSpec(kindName),
  };
  const status = await describedStatus(kindName);
  if (status !== undefined) properties["status"] = status;
  const version: Json = {
    name: "v1",
    served: true,
    storage: true,
    schema: { openAPIV3Schema: { type: "object", description: definition.description, properties } },
  };
  const columns = definition.printerColumns ?? [];
  if (columns.length > 0) version["additionalPrinterColumns"] = columns;
  if (kind.hasStatus) version["subresources"] = { status: {} };
  const fields = selectableFields(kindName).filter((field) => field.startsWith("spec."));
  if (fields.length > 0) version["selectableFields"] = fields.map((field) => ({ jsonPath: `.${field}` }));
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: `${kind.plural}.${CRD_GROUP}` },
    spec: {
      group: CRD_GROUP,
      names: { kind: kind.name, listKind: `${kind.name}List`, plural: kind.plural, singular: kind.name.toLowerCase() },
      scope: kind.namespaced ? "Namespaced" : "Cluster",
      preserveUnknownFields: false,
      versions: [version],
    },
  };
}

/**
 * Returns the OpenAPI schema of a kind's spec, with descriptions.
 * @param defaults `all` includes those that calicoctl writes but the API server must not
 */
export async function describedSpec(kindName: SchemaKind, defaults: "served" | "all" = "served"): Promise<Json> {
  const { spec } = await loadDefinition(kindName);
  return describe(openApi(spec, defaults), { ...DESCRIPTIONS[kindName], ...NESTED_DESCRIPTIONS[kindName] });
}

/** Returns the OpenAPI schema of a kind's status, with descriptions; undefined if the kind has no status. */
export async function describedStatus(kindName: SchemaKind): Promise<Json | undefined> {
  const { status } = await loadDefinition(kindName);
  if (status === undefined) return undefined;
  return describe(withoutDefaults(openApi(status)), STATUS_DESCRIPTIONS[kindName] ?? {});
}

/** One kind has a different name in the CRD than in the v3 API. */
function storedKind(kind: Kind): Omit<Kind, "name"> & { readonly name: string } {
  return kind.name === "IPAMConfiguration" ? { ...kind, name: "IPAMConfig", plural: "ipamconfigs" } : kind;
}

/** Adds descriptions to the schema. Throws if a path does not exist. */
function describe(schema: Json, texts: Readonly<Record<string, string>>): Json {
  for (const [path, text] of Object.entries(texts)) {
    let node: Json | undefined = schema;
    for (const name of path.split(".")) {
      const inner: Json = node?.["type"] === "array" ? (node["items"] as Json) : (node ?? {});
      node = (inner["properties"] as Record<string, Json> | undefined)?.[name];
    }
    if (node === undefined) throw new Error(`no field ${path} to describe`);
    node["description"] = text;
  }
  return schema;
}

/** A status reports observed values, so the API server must not add defaults to it. */
function withoutDefaults(schema: Json): Json {
  const { default: _, ...rest } = schema;
  const inner = (value: unknown): unknown =>
    Array.isArray(value) || typeof value !== "object" || value === null ? value : withoutDefaults(value as Json);
  const { properties, ...words } = rest;
  const kept = Object.fromEntries(Object.entries(words).map(([word, value]) => [word, inner(value)]));
  if (properties === undefined) return kept;
  const fields = Object.entries(properties as Record<string, Json>).map(([name, field]) => [
    name,
    withoutDefaults(field),
  ]);
  return { ...kept, properties: Object.fromEntries(fields) };
}

function openApi(schema: z.ZodMiniType, defaults: "served" | "all" = "served"): Json {
  const made = z.toJSONSchema(schema, {
    target: "openapi-3.0",
    io: "input",
    unrepresentable: "any",
    override: ({ zodSchema, jsonSchema }) =>
      refine(zodSchema as unknown as z.ZodMiniType, jsonSchema as Json, defaults),
  });
  return made as Json;
}

/** The bounds of the number types, which are omitted. */
const PLAIN_BOUNDS: ReadonlySet<unknown> = new Set([
  -(2 ** 31),
  2 ** 31 - 1,
  Number.MIN_SAFE_INTEGER,
  Number.MAX_SAFE_INTEGER,
]);

function refine(schema: z.ZodMiniType, json: Json, defaults: "served" | "all"): void {
  for (const word of ["$schema", "additionalProperties", "propertyNames"] as const)
    if (word !== "additionalProperties" || typeof json[word] !== "object") delete json[word];
  for (const bound of ["minimum", "maximum"] as const) if (PLAIN_BOUNDS.has(json[bound])) delete json[bound];
  const extra = extras.get(schema) ?? {};
  if (extra.limit !== undefined) json[json["type"] === "array" ? "maxItems" : "maxLength"] = extra.limit;
  if (schema._zod.def.type === "unknown") json["x-kubernetes-preserve-unknown-fields"] = true;
  if (Array.isArray(json["enum"]) && json["enum"].every((value) => Number.isInteger(value))) json["type"] = "integer";
  for (const [word, value] of Object.entries(extra.openapi ?? {})) {
    if (value !== undefined) json[word] = value;
    else if (word !== "default" || defaults === "served") delete json[word];
  }
}
