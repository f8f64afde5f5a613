// Between what is stored and what consumers of a syncer are told: an update processor per kind. Pure: given the same
// updates since its last restart, it says the same.
import type { ValueOf } from "../derived.ts";
import type { Key, ResourceKey, StoredKey } from "../keys.ts";
import type { KindName } from "../kinds.ts";
import type { Resource } from "../resource.ts";
import { isValueError, type ReportProblem } from "../value-error.ts";

/** A stored thing and what it now is; undefined = gone. */
export type StoredUpdate<K extends StoredKey = StoredKey> = K extends StoredKey
  ? { readonly key: K; readonly value: ValueOf<K> | undefined }
  : never;
/** What a consumer is told; undefined = gone. Saying of an unknown key that it is gone does no harm. */
export type DerivedUpdate<K extends Key = Key> = K extends Key
  ? { readonly key: K; readonly value: ValueOf<K> | undefined }
  : never;

export interface UpdateProcessor {
  /** Everything will be told again from the start: forget what was. */
  restart(): void;
  /** A value that cannot be converted counts as gone, and is reported. */
  process(update: StoredUpdate, report: ReportProblem): readonly DerivedUpdate[];
}

export type Convert<T> = (resource: Resource, report: ReportProblem) => T | undefined;

/** Runs a conversion; a value it cannot make sense of is reported and gone. */
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

/** Hands stored things through as they are. */
export const passThrough: UpdateProcessor = {
  restart: () => {},
  process: (update) => [update],
};

/** One resource, one derived value, under a key that follows from the resource's own. */
export function oneToOne<K extends Key>(
  keyOf: (key: ResourceKey) => K | undefined,
  convert: Convert<ValueOf<K>>,
): UpdateProcessor {
  return {
    restart: () => {},
    process: (update, report) => {
      const key = keyOf(resourceKey(update.key));
      if (key === undefined) {
        report("name: not one its kind can have");
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
