// Implements the strategic merge of Kubernetes for types without merge keys: objects are merged field by field, null removes
// a field, lists are replaced, and the directive `$patch: replace` or `$patch: delete` applies to the object that contains it.
// https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/

type JsonObject = Readonly<Record<string, unknown>>;

export const isPatch = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

export function strategicMerge(target: unknown, patch: JsonObject): unknown {
  const { $patch: directive, ...changes } = patch;
  if (directive === "delete") return undefined;
  if (directive === "replace") return withoutDirectives(changes);
  const merged: Record<string, unknown> = { ...(isPatch(target) ? target : {}) };
  for (const [key, change] of Object.entries(changes)) {
    const value = mergeField(merged[key], change);
    if (value === undefined) delete merged[key];
    else merged[key] = value;
  }
  return merged;
}

function mergeField(current: unknown, change: unknown): unknown {
  if (change === null) return undefined;
  return isPatch(change) ? strategicMerge(current, change) : change;
}

/** Removes directives and nulls, which have no effect in a new object. */
function withoutDirectives(value: unknown): unknown {
  if (!isPatch(value)) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([key, item]) => key !== "$patch" && item !== null)
      .map(([key, item]) => [key, withoutDirectives(item)]),
  );
}
