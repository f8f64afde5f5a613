// One kind put to work: its schema, the rules a schema cannot say, and decoding plus validation with both.
import * as z from "zod/mini";
import { type FieldFault, fieldPath, type Report, withSuggestion } from "../validation/faults.ts";
import type { KindName } from "../kinds.ts";
import { API_VERSION, type Metadata, type Resource } from "../resource.ts";
import { compileDecoder, type Decoding, isObject } from "./decode.ts";
import { extras } from "./fields.ts";
import { restoreFields } from "./kept-fields.ts";
import { checkMetadata, metadataSchema } from "./metadata.ts";

/** Deep-readonly form of what a schema yields. */
export type Stored<S extends z.ZodMiniType> = Immutable<z.output<S>>;
type Immutable<T> = T extends readonly (infer Item)[]
  ? readonly Immutable<Item>[]
  : T extends object
    ? { readonly [K in keyof T]: Immutable<T[K]> }
    : T;

/** Why we validate: a write, or something read that other programs, older or newer, may have written. */
export type ValidationMode = "create" | "update" | "stored";

export interface RuleContext {
  readonly metadata: Metadata;
  readonly mode: ValidationMode;
  /** Paths are from `spec` on; one given as text is from the top. */
  readonly report: Report;
}

/** A column `kubectl get` prints. */
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
  /** Status that is stored although nobody wrote one. */
  readonly initialStatus?: Stored<T>;
  /** Fills in what depends on other fields; runs on decoded input, before the schema. */
  readonly prepare?: (spec: Record<string, unknown>) => void;
  /** Rules across fields. */
  readonly rules?: (spec: Stored<S>, context: RuleContext) => void;
  /** What is wrong with a name; absent: every DNS subdomain will do. */
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

/** What a caller needs of a kind's schema, whatever its fields. */
export interface ResourceSchema<R extends Resource = Resource> {
  readonly kind: KindName;
  /** Structure only: fields are known and of the right type. For refusing a file before its first write. */
  decode(raw: unknown, options?: DecodeOptions): Validated<Resource>;
  /** Everything: the resource in stored form with its defaults, or all that is wrong with it. */
  validate(raw: unknown, mode: ValidationMode, options?: Pick<DecodeOptions, "stored">): Validated<R>;
}

export interface DecodeOptions {
  /** Absent: `create`. With `stored` a value of another program passes whose fields we know are of the right type. */
  readonly mode?: ValidationMode;
  /** What the resource replaces: its fields that we do not know may stay. */
  readonly stored?: Resource;
}

type Decoder = ReturnType<typeof compileDecoder>;
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
    const at: Decoding = { faults: [], path: [], strict: mode !== "stored", stored, kept: [] };
    const decoded = this.#decode(raw, at);
    if (at.faults.length > 0) return { ok: false, faults: at.faults };
    return { ok: true, resource: restoreFields(decoded, at.kept) };
  }

  validate(
    raw: unknown,
    mode: ValidationMode,
    { stored }: Pick<DecodeOptions, "stored"> = {},
  ): Validated<Resource<K, Stored<S>, Stored<T>>> {
    const { definition } = this;
    const at: Decoding = { faults: [], path: [], strict: mode !== "stored", stored, kept: [] };
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
    return { ok: true, resource: restoreFields(checked, at.kept) };
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

  /** The spec's schema, compiled once that pays: compiling costs as much as some hundred validations without. */
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

/** One of zod's issues as a fault in our words. */
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
      return `has a bad key: ${issue.issues[0]?.message ?? "want a label key"}`;
    case "invalid_type":
      return value === undefined
        ? "a value is needed"
        : `want ${issue.expected === "int" ? "a whole number" : issue.expected}`;
    default:
      return issue.message;
  }
}

/** What the schema at a path says it wants. */
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
