// Validates resources in tests of kinds, and returns the stored form or the faults.
import type { FieldFault } from "../validation/faults.ts";
import { kindOf } from "../kinds.ts";
import type { Metadata } from "../resource.ts";
import type { SchemaKind, SpecOf } from "../resources.ts";
import { loadSchema, type ValidationMode } from "../validation/schemas.ts";

export interface Try {
  readonly spec?: unknown;
  readonly status?: unknown;
  readonly metadata?: Partial<Metadata>;
  readonly mode?: ValidationMode;
}

async function run(kind: SchemaKind, { spec = {}, status, metadata, mode = "create" }: Try) {
  const name = ["IPAMConfiguration", "KubeControllersConfiguration", "ClusterInformation"].includes(kind)
    ? "default"
    : "x";
  const namespace = kindOf(kind).namespaced ? { namespace: "ns" } : {};
  const raw = { apiVersion: "projectcalico.org/v3", kind, metadata: { name, ...namespace, ...metadata }, spec };
  return (await loadSchema(kind)).validate(status === undefined ? raw : { ...raw, status }, mode);
}

/** Returns the spec in stored form. Throws the faults if the resource is invalid. */
export async function stored<K extends SchemaKind>(kind: K, spec: unknown, more: Try = {}): Promise<SpecOf<K>> {
  return (await resource(kind, { ...more, spec })).spec as SpecOf<K>;
}

export async function resource(kind: SchemaKind, given: Try) {
  const result = await run(kind, given);
  if (!result.ok) throw new Error(JSON.stringify(result.faults));
  return result.resource;
}

/** Returns the faults. Throws if the resource is valid. */
export async function faults(kind: SchemaKind, spec: unknown, more: Try = {}): Promise<readonly FieldFault[]> {
  const result = await run(kind, { ...more, spec });
  if (result.ok) throw new Error(`accepted: ${JSON.stringify(result.resource)}`);
  return result.faults;
}

/** Returns the paths of the invalid fields. */
export const wrongFields = async (kind: SchemaKind, spec: unknown, more: Try = {}): Promise<readonly string[]> =>
  (await faults(kind, spec, more)).map((fault) => fault.field);
