// Fields we do not know, in resources that newer programs stored. Nobody may introduce one through us, but who changes
// something else must not lose it: it stays as long as it is what stands in the datastore, at the same place.
export type FieldPath = readonly (string | number)[];

export interface KeptField {
  readonly path: FieldPath;
  readonly value: unknown;
}

/** Whether the value is what the stored resource has there. */
export function isStoredAt(stored: unknown, path: FieldPath, value: unknown): boolean {
  const there = path.reduce<unknown>(
    (at, step) => (isHolder(at) && Object.hasOwn(at, step) ? at[step] : undefined),
    stored,
  );
  return there !== undefined && Bun.deepEquals(there, value, true);
}

/** The decoded resource with the kept fields back in their places. */
export function restoreFields<R extends object>(resource: R, kept: readonly KeptField[]): R {
  let result: unknown = resource;
  for (const { path, value } of kept) result = withField(result, path, value);
  return result as R;
}

function withField(holder: unknown, [step, ...rest]: FieldPath, value: unknown): unknown {
  if (step === undefined) return value;
  const inner = isHolder(holder) && Object.hasOwn(holder, step) ? holder[step] : undefined;
  const replaced = withField(inner, rest, value);
  if (Array.isArray(holder)) return holder.with(Number(step), replaced);
  // A group that held nothing else was dropped when it was decoded. Computed keys never reach a prototype.
  return { ...(isHolder(holder) ? holder : {}), [step]: replaced };
}

const isHolder = (value: unknown): value is Record<string | number, unknown> =>
  typeof value === "object" && value !== null;
