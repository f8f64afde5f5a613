// Decodes and validates the resources of one kind, with its schema and with rules across fields.
import * as z from "zod/mini";
import { type FieldFault, fieldPath, type Report, withSuggestion } from "../validation/faults.ts";
import type { KindName } from "../kinds.ts";
import { API_VERSION, type Metadata, type Resource } from "../resource.ts";
import { compileDecoder, type Decoding, isObject } from "./decode.ts";
import { extras } from "./fields.ts";
import { restoreFields } from "./preserved-fields.ts";
import { checkMetadata, metadataSchema } from "./metadata.ts";

/** The output of a schema, deeply readonly. */
export type Stored<S extends z.ZodMiniType> = Immutable<z.output<S>>;
type Immutable<T> = T extends readonly (infer Item)[]
  ? readonly Immutable<Item>[]
  : T extends object
    ? { readonly [K in keyof T]: Immutable<T[K]> }
    : T;

/** `create` and `update` validate a write. `stored` validates a stored resource, which another version may have written. */
export type ValidationMode = "create" | "update" | "stored";

export interface RuleContext {
  readonly metadata: Metadata;
  readonly mode: ValidationMode;
  /** A path given as a list is relative to `spec`; a path given as text starts at the top of the resource. */
  readonly report: Report;
}

/** A column that `kubectl get` prints. */
export interface PrinterColumn {
  readonly name: string;
  readonly type: "string" | "integer" | "number" | "boolean" | "date";
  readonly jsonPath: string;
}

export interface KindDefinition<K extends KindName, S extends z.ZodMiniType, T extends z.ZodMiniType> {
  readonly kind: K;
  readonly description: string;
  readonly spec: S;
  readonly status?: T;
  /** The status that is stored if the resource has none. */
  readonly initialStatus?: Stored<T>;
  /** Sets fields that depend on other fields. It is called with the decoded input, before the schema is checked. */
  readonly prepare?: (spec: Record<string, unknown>) => void;
  /** Rules across fields. */
  readonly rules?: (spec: Stored<S>, context: RuleContext) => void;
  /** Returns why a name is invalid. By default, every DNS subdomain is valid. */
  readonly nameRule?: (name: string) => string | undefined;
  readonly printerColumns?: readonly PrinterColumn[];
}

export type Validated<R> =
  | { readonly ok: true; readonly resource: R }
  | { readonly ok: false; readonly faults: readonly FieldFault[] };

export type ResourceFor<
  K extends KindName,
  S extends z.ZodMiniType,
  T extends z.ZodMiniType | undefined = undefined,
> = Resource<K, Stored<S>, T extends z.ZodMiniType ? Stored<T> : never>;

/** The methods of a kind's schema that do not depend on its fields. */
export interface ResourceSchema<R extends Resource = Resource> {
  readonly kind: KindName;
  /** Checks only that fields are known and have the right type. calicoctl checks a whole file so before its first write. */
  decode(raw: unknown, options?: DecodeOptions): Validated<Resource>;
  /** Returns the resource in stored form with its defaults, or all faults. */
  validate(raw: unknown, mode: ValidationMode, options?: Pick<DecodeOptions, "stored">): Validated<R>;
}

export interface DecodeOptions {
  /** Default: `create`. With `stored`, unknown fields are accepted; known fields must have the right type. */
  readonly mode?: ValidationMode;
  /** The resource that is replaced. Its unknown fields may be kept. */
  readonly stored?: Resource;
}

type Decoder = ReturnType<typeof compileDecoder>;
/** Compiling a schema takes as long as some hundred validations without compiling. */
const COMPILE_AFTER = 500;

class KindSchema<K extends KindName, S extends z.ZodMiniType, T extends z.ZodMiniType>
  implements ResourceSchema<Resource<K, Stored<S>, Stored<T>>>
{
  readonly kind: K;
  #decoder: Decoder | undefined;
  #compiled: z.ZodMiniType | undefined;
  #validations = 0;

  constructor(readonly definition: KindDefinition<K, S, T>) {
    this.kind = definition.kind;
  }

  decode(raw: unknown, { mode = "create", stored }: DecodeOptions = {}): Validated<Resource> {
    const at: Decoding = { faults: [], path: [], strict: mode !== "stored", stored, preserved: [] };
    const decoded = this.#decode(raw, at);
    if (at.faults.length > 0) return { ok: false, faults: at.faults };
    return { ok: true, resource: restoreFields(decoded, at.preserved) };
  }

  validate(
    raw: unknown,
    mode: ValidationMode,
    { stored }: Pick<DecodeOptions, "stored"> = {},
  ): Validated<Resource<K, Stored<S>, Stored<T>>> {
    const { definition } = this;
    const at: Decoding = { faults: [], path: [], strict: mode !== "stored", stored, preserved: [] };
    const decoded = this.#decode(raw, at);
    const { faults } = at;
    const { metadata } = decoded;
    const specInput = decoded.spec as Record<string, unknown>;
    definition.prepare?.(specInput);
    if (mode !== "stored") checkMetadata(metadata, definition.kind, definition.nameRule, faults);
    const spec = faults.length > 0 ? undefined : this.#parse(this.#specSchema(), specInput, "spec", faults);
    const status = faults.length > 0 ? undefined : this.#status(decoded, faults);
    if (spec !== undefined && definition.rules !== undefined) {
      const report: Report = (path, value, reason) => {
        const field = typeof path === "string" ? path : fieldPath(["spec", ...path]);
        faults.push(value === undefined ? { field, reason } : { field, value, reason });
      };
      definition.rules(spec as Stored<S>, { metadata, mode, report });
    }
    if (faults.length > 0) return { ok: false, faults };
    const resource = { kind: definition.kind, apiVersion: API_VERSION, metadata, spec: spec as Stored<S> };
    const checked = status === undefined ? resource : { ...resource, status: status as Stored<T> };
    return { ok: true, resource: restoreFields(checked, at.preserved) };
  }

  #decode(raw: unknown, at: Decoding): Resource {
    this.#decoder ??= compileDecoder(
      z.object({
        apiVersion: z.exactOptional(z.string()),
        kind: z.exactOptional(z.string()),
        metadata: z.exactOptional(metadataSchema),
        spec: z.exactOptional(this.definition.spec),
        ...(this.definition.status === undefined ? {} : { status: z.exactOptional(this.definition.status) }),
      }),
    );
    const decoded = this.#decoder(raw, at);
    const top = isObject(decoded) ? decoded : {};
    const metadata = (top["metadata"] ?? { name: "" }) as Metadata;
    const resource = { apiVersion: API_VERSION, kind: this.kind, metadata, spec: top["spec"] ?? {} };
    return top["status"] === undefined ? resource : { ...resource, status: top["status"] };
  }

  /** Compiles the schema of the spec after `COMPILE_AFTER` validations. */
  #specSchema(): z.ZodMiniType {
    if (this.#compiled === undefined && ++this.#validations >= COMPILE_AFTER)
      this.#compiled = z.compile(this.definition.spec);
    return this.#compiled ?? this.definition.spec;
  }

  #status(decoded: Resource, faults: FieldFault[]): unknown {
    const { status, initialStatus } = this.definition;
    if (status === undefined || decoded.status === undefined) return initialStatus;
    return this.#parse(status, decoded.status, "status", faults);
  }

  #parse(schema: z.ZodMiniType, input: unknown, top: string, faults: FieldFault[]): unknown {
    const result = schema.safeParse(input);
    if (result.success) return result.data;
    for (const issue of result.error.issues) faults.push(faultOf(issue, schema, input, top));
    return undefined;
  }
}

export const defineKind = <K extends KindName, S extends z.ZodMiniType, T extends z.ZodMiniType = z.ZodMiniNever>(
  definition: KindDefinition<K, S, T>,
): KindSchema<K, S, T> => new KindSchema(definition);

/** Converts an issue of zod to a fault. */
function faultOf(issue: z.core.$ZodIssue, schema: z.ZodMiniType, input: unknown, top: string): FieldFault {
  const value = issue.path.reduce<unknown>((at, key) => (at as Record<PropertyKey, unknown> | undefined)?.[key], input);
  const field = fieldPath([top, ...issue.path]);
  const wanted = issue.code === "custom" ? issue.message : (wantedAt(schema, issue.path) ?? reasonOf(issue, value));
  const possible = issue.code === "invalid_value" ? issue.values.filter((word) => typeof word === "string") : [];
  const reason = withSuggestion(wanted, value, possible);
  return value === undefined || isObject(value)
    ? { field, reason: value === undefined ? `is missing: ${reason}` : reason }
    : { field, value, reason };
}

function reasonOf(issue: z.core.$ZodIssue, value: unknown): string {
  switch (issue.code) {
    case "invalid_value":
      return `want one of ${issue.values.join(", ")}`;
    case "too_big":
      return `want at most ${issue.maximum}`;
    case "too_small":
      return `want at least ${issue.minimum}`;
    case "invalid_key":
      return `has an invalid key: ${issue.issues[0]?.message ?? "want a label key"}`;
    case "invalid_type":
      return value === undefined
        ? "a value is required"
        : `want ${issue.expected === "int" ? "a whole number" : issue.expected}`;
    default:
      return issue.message;
  }
}

/** Returns the description of valid values from the schema at a path. */
function wantedAt(schema: z.core.$ZodType, path: readonly PropertyKey[]): string | undefined {
  const wanted = extras.get(schema as z.ZodMiniType)?.wanted;
  if (wanted !== undefined && path.length === 0) return wanted;
  const def = schema._zod.def as unknown as Record<string, unknown> & { type: string };
  if (def.type === "optional" || def.type === "default" || def.type === "nullable")
    return wantedAt(def["innerType"] as z.core.$ZodType, path);
  const [key, ...rest] = path;
  if (key === undefined) return undefined;
  if (def.type === "array") return wantedAt(def["element"] as z.core.$ZodType, rest);
  if (def.type === "record") return wantedAt(def["valueType"] as z.core.$ZodType, rest);
  const member = (def["shape"] as Record<PropertyKey, z.core.$ZodType> | undefined)?.[key];
  return member === undefined ? undefined : wantedAt(member, rest);
}
