// Converts stored values to the values that a syncer emits, with one update processor per kind. The output of a
// processor depends only on the updates since its last reset.
import type { ValueOf } from "../stored/derived.ts";
import type { Key, ResourceKey, StoredKey } from "../keys/keys.ts";
import type { KindName } from "../kinds.ts";
import type { Resource } from "../resource.ts";
import { isValueError, NotConvertible, type ReportProblem } from "../validation/value-error.ts";

/** The new value of a stored entry; undefined = deleted. */
export type StoredUpdate<K extends StoredKey = StoredKey> = K extends StoredKey
  ? { readonly key: K; readonly value: ValueOf<K> | undefined }
  : never;
/** The new value of an emitted entry; undefined = deleted. A processor may delete a key that it never set. */
export type DerivedUpdate<K extends Key = Key> = K extends Key
  ? { readonly key: K; readonly value: ValueOf<K> | undefined }
  : never;

export interface UpdateProcessor {
  /** Discards all state, before all stored entries are processed again. */
  reset(): void;
  /** A value that cannot be converted is reported and counts as deleted. */
  process(update: StoredUpdate, report: ReportProblem): readonly DerivedUpdate[];
}

export type Convert<T> = (resource: Resource, report: ReportProblem) => T | undefined;

/** Runs a conversion. Returns undefined for an invalid value, which is reported. */
export function convertOrReport<T, R = Resource>(
  given: R | undefined,
  convert: (given: R, report: ReportProblem) => T | undefined,
  report: ReportProblem,
): T | undefined {
  if (given === undefined) return undefined;
  try {
    return convert(given, report);
  } catch (error) {
    if (!isValueError(error)) throw error;
    report(error.message);
    return undefined;
  }
}

/** Emits stored entries unchanged. */
export const passThrough: UpdateProcessor = {
  reset: () => {},
  process: (update) => [update],
};

/** Passes resources through unchanged. A resource that `read` rejects counts as deleted and is reported. */
export function passThroughIf(read: (resource: Resource) => unknown): UpdateProcessor {
  const check = (resource: Resource): Resource => {
    read(resource);
    return limitDepth(resource);
  };
  return {
    reset: () => {},
    process: (update, report) => [
      { ...update, value: convertOrReport(resourceOf(update), check, report) } as DerivedUpdate,
    ],
  };
}

/** No valid resource is nested this deeply. A deeper one could exhaust the stack of programs that encode or compare it. */
const MAX_DEPTH = 100;

/** @throws NotConvertible if the resource is nested too deeply */
export function limitDepth(resource: Resource): Resource {
  checkDepth(resource, 0);
  return resource;
}

function checkDepth(value: unknown, depth: number): void {
  if (typeof value !== "object" || value === null) return;
  if (depth > MAX_DEPTH) throw new NotConvertible(`nested more than ${MAX_DEPTH} times`);
  for (const inner of Object.values(value)) checkDepth(inner, depth + 1);
}

/** Converts each resource to one value, with a key that is derived from the resource's key. */
export function oneToOne<K extends Key>(
  keyOf: (key: ResourceKey) => K | undefined,
  convert: Convert<ValueOf<K>>,
): UpdateProcessor {
  return {
    reset: () => {},
    process: (update, report) => {
      const key = keyOf(resourceKey(update.key));
      if (key === undefined) {
        report("metadata.name: not a valid name for this kind");
        return [];
      }
      return [{ key, value: convertOrReport(resourceOf(update), convert, report) } as DerivedUpdate];
    },
  };
}

export function resourceKey(key: StoredKey, kind?: KindName): ResourceKey {
  if (key.type !== "resource" || (kind !== undefined && key.kind !== kind))
    throw new TypeError(`expected a ${kind ?? "resource"} key, got ${JSON.stringify(key)}`);
  return key;
}

export function resourceOf(update: StoredUpdate): Resource | undefined {
  return update.value as Resource | undefined;
}
