// Preserves unknown fields of stored resources, which newer versions wrote, when a resource is changed. An unknown field
// of the input is kept if the stored resource has an equal field at the same path; other unknown fields are rejected.
export type FieldPath = readonly (string | number)[];

export interface PreservedField {
  readonly path: FieldPath;
  readonly value: unknown;
}

/** Whether the stored resource has an equal value at the path. */
export function isStoredAt(stored: unknown, path: FieldPath, value: unknown): boolean {
  const there = path.reduce<unknown>(
    (at, step) => (isContainer(at) && Object.hasOwn(at, step) ? at[step] : undefined),
    stored,
  );
  return there !== undefined && Bun.deepEquals(there, value, true);
}

/** Returns the decoded resource with the preserved fields added. */
export function restoreFields<R extends object>(resource: R, preserved: readonly PreservedField[]): R {
  let result: unknown = resource;
  for (const { path, value } of preserved) result = withField(result, path, value);
  return result as R;
}

function withField(container: unknown, [step, ...rest]: FieldPath, value: unknown): unknown {
  if (step === undefined) return value;
  const inner = isContainer(container) && Object.hasOwn(container, step) ? container[step] : undefined;
  const replaced = withField(inner, rest, value);
  if (Array.isArray(container)) return container.with(Number(step), replaced);
  // A container without other fields was removed during decoding. A computed key never sets the prototype.
  return { ...(isContainer(container) ? container : {}), [step]: replaced };
}

const isContainer = (value: unknown): value is Record<string | number, unknown> =>
  typeof value === "object" && value !== null;
