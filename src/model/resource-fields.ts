// Reads the fields of a resource as stored, and copies a resource with some fields changed. All other fields are kept,
// including those that this version does not define.
import type { KindName } from "./kinds.ts";
import type { Resource } from "./resource.ts";

type Fields = Readonly<Record<string, unknown>>;

/** For code that compares, prints or merges fields. Code that uses their values calls the reader of the kind. */
export const specFields = (resource: { readonly spec?: unknown }): Fields => fieldsOf(resource.spec);

/** Replaces fields of the spec; a field that is undefined is removed. */
export const withSpecFields = <K extends KindName>(resource: Resource<K>, fields: object): Resource<K> => ({
  ...resource,
  spec: merged(resource.spec, fields),
});

/** Replaces fields of the status; a field that is undefined is removed. */
export const withStatusFields = <K extends KindName>(resource: Resource<K>, fields: object): Resource<K> => ({
  ...resource,
  status: merged(resource.status, fields),
});

const fieldsOf = (value: unknown): Fields => (typeof value === "object" && value !== null ? (value as Fields) : {});

const merged = (before: unknown, fields: object): Fields =>
  Object.fromEntries(Object.entries({ ...fieldsOf(before), ...fields }).filter(([, value]) => value !== undefined));
